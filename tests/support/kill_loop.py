"""Kill loop: kill -9 on a real server while clients publish; a check from outside that nothing acknowledged was lost.

Eight connections publish numbered messages into one stream; every ack goes into a journal that this process syncs.
Half of the publishers carry message ids and send again what was not acked when the server died, so that each of
their messages must be there exactly once; the other half goes on with new messages, so that what was not acked may be
there or not, but never twice. A worker double-acks messages of a durable consumer and journals the confirmations. An
eraser writes keys of a compressed stream and erases some again: no key may be lost, nothing erased be there.

With `--flows` streams feed each other. ORIGIN is written by three publishers. COPY mirrors it. GATHER sources two of
its subjects, one of them transformed. TASKS sources the third into a work queue that a worker empties. QUEUE is a work
queue with a worker, PIPE a work queue that only the sourcing stream DRAIN empties, EVENTS an interest stream with the
two consumers A and B. Publishers repeat with ids what was not acked, so that in the end each of their messages must be
there exactly once; workers double-ack.

After each kill the server is started again and everything stored since the last check is read (with `--flows`:
everything that is gone from QUEUE, PIPE and EVENTS is asked for its reason); the end reads everything once more.
`python -m tests.support.kill_loop --kills 100` prints a summary and exits 1 when a promise was broken.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import orjson

from natsctl.testing.process import ServerProcess
from tests.support.crash_checker import CrashChecker, FlowChecker, FlowSummary, Stored, Summary
from tests.support.kill_clients import REPEAT_WITHIN_NS, Eraser, Journal, Publisher, Worker
from tests.support.raw_client import RawClient

FLOW_LIFE_S: Final = (0.1, 0.9)
"""Shortest and longest time that a server serves before it is killed."""

FLOW_WITHIN_S: Final = 240.0
"""Time limit for everything to arrive after the last kill."""

SUBJECTS: Final = (b"o.0", b"o.1", b"o.2", b"q.3", b"p.4", b"e.5")
"""The subject of each publisher."""

STREAMS: Final[dict[bytes, dict[str, Any]]] = {
    b"ORIGIN": {"subjects": ["o.*"], "duplicate_window": REPEAT_WITHIN_NS},
    b"COPY": {"mirror": {"name": "ORIGIN"}},
    b"GATHER": {
        "sources": [
            {"name": "ORIGIN", "filter_subject": "o.0"},
            {"name": "ORIGIN", "subject_transforms": [{"src": "o.1", "dest": "g.1"}]},
        ]
    },
    b"TASKS": {"sources": [{"name": "ORIGIN", "filter_subject": "o.2"}], "retention": "workqueue"},
    b"QUEUE": {"subjects": ["q.*"], "retention": "workqueue", "duplicate_window": REPEAT_WITHIN_NS},
    b"PIPE": {"subjects": ["p.*"], "retention": "workqueue", "duplicate_window": REPEAT_WITHIN_NS},
    b"DRAIN": {"sources": [{"name": "PIPE"}]},
    b"EVENTS": {"subjects": ["e.*"], "retention": "interest", "duplicate_window": REPEAT_WITHIN_NS},
}
WORKERS: Final = ((b"TASKS", b"W"), (b"QUEUE", b"W"), (b"EVENTS", b"A"), (b"EVENTS", b"B"))


class FlowLoop:
    """One run: a server that is killed again and again while its streams feed each other."""

    def __init__(self, folder: Path, kills: int, seed: int, *flags: str) -> None:
        """Prepare a run in an empty folder; `seed` chooses the moments of the kills, `flags` are the server's."""
        self.summary = FlowSummary()
        self._server = ServerProcess(folder / "server", "natsctl", *flags)
        self._kills = kills
        self._random = random.Random(seed)
        self._journals = [Journal(folder / f"journal-{number}") for number in range(len(SUBJECTS) + len(WORKERS))]
        self._publishers = [
            Publisher(number, self._journals[number], subject, repeats=True) for number, subject in enumerate(SUBJECTS)
        ]
        self._workers = {
            (stream, consumer): Worker(self._journals[at], stream, consumer)
            for at, (stream, consumer) in enumerate(WORKERS, len(SUBJECTS))
        }
        self._checker = FlowChecker(self.summary, self._publishers, self._workers)
        self._drained: list[Stored] = []

    async def run(self) -> FlowSummary:
        """Kill, start again and check as often as was asked, then let everything arrive; return what was found."""
        try:
            await asyncio.to_thread(self._server.start)
            await self._prepare()
            for _ in range(self._kills):
                await self._one_life()
                begin = time.monotonic()
                await asyncio.to_thread(self._server.start)
                self.summary.slowest_start_s = max(self.summary.slowest_start_s, time.monotonic() - begin)
                await self._check()
            await self._finish()
        finally:
            self._server.kill()
            for journal in self._journals:
                journal.close()
        return self.summary

    async def _prepare(self) -> None:
        client = await RawClient.connect(self._server.url)
        for name, config in STREAMS.items():
            await api(client, b"STREAM.CREATE." + name, {"name": name.decode(), **config})
        for stream, consumer in WORKERS:
            config = {"durable_name": consumer.decode(), "ack_policy": "explicit", "ack_wait": 1_000_000_000}
            body = {"stream_name": stream.decode(), "config": config}
            await api(client, b"CONSUMER.DURABLE.CREATE.%b.%b" % (stream, consumer), body)
        await client.close()

    async def _connect(self, *, fill: bool) -> list[RawClient]:
        """Continue publishers and workers over new connections."""
        clients = [await RawClient.connect(self._server.url) for _ in (*self._publishers, *self._workers)]
        for worker, client in zip(self._workers.values(), clients[len(self._publishers) :], strict=True):
            worker.start(client)
        for publisher, client in zip(self._publishers, clients, strict=False):
            publisher.start(client, fill=fill)
        return clients

    async def _one_life(self) -> None:
        clients = await self._connect(fill=True)
        await asyncio.sleep(self._random.uniform(*FLOW_LIFE_S))
        await asyncio.to_thread(self._server.kill)
        self.summary.kills += 1
        for client in clients:
            await client.closed.wait()

    async def _check(self) -> None:
        """Ask for everything that is gone whether it may be."""
        client = await RawClient.connect(self._server.url)
        gone = {}
        for name in (b"QUEUE", b"PIPE", b"EVENTS"):  # what is read afterwards can only have got more reasons
            gone[name] = await missing(client, name)
        self._drained += await read(client, b"DRAIN", self._drained[-1].seq + 1 if self._drained else 1)
        await client.close()
        self._checker.removed(gone, self._drained)

    async def _finish(self) -> None:
        """Repeat everything unconfirmed, wait until nothing changes any more, and compare."""
        clients = await self._connect(fill=False)
        reader = await RawClient.connect(self._server.url)
        deadline = time.monotonic() + FLOW_WITHIN_S
        while any(publisher.outstanding for publisher in self._publishers) or not await self._arrived(reader):
            if time.monotonic() > deadline:
                raise TimeoutError(f"not all has flowed: {await self._standing(reader)}")
            await asyncio.sleep(0.1)
        await self._check()
        contents = {name: await read(reader, name, 1) for name in (b"ORIGIN", b"COPY", b"GATHER", b"DRAIN")}
        for client in (*clients, reader):
            await client.close()
        self._checker.finish(contents)

    async def _standing(self, client: RawClient) -> dict[str, Any]:
        """Return how far publishers, streams and consumers are."""
        streams = {name.decode(): (await api(client, b"STREAM.INFO." + name))["state"] for name in STREAMS}
        consumers = {
            f"{stream.decode()} > {name.decode()}": await api(client, b"CONSUMER.INFO.%b.%b" % (stream, name))
            for stream, name in WORKERS
        }
        outstanding = [publisher.outstanding for publisher in self._publishers]
        return {"outstanding": outstanding, "streams": streams, "consumers": consumers}

    async def _arrived(self, client: RawClient) -> bool:
        """Return whether every stream has its final state."""
        states = {name: (await api(client, b"STREAM.INFO." + name))["state"] for name in STREAMS}
        sent = [publisher.next_number for publisher in self._publishers]
        empty = (states[name]["messages"] == 0 for name in (b"TASKS", b"QUEUE", b"PIPE", b"EVENTS"))
        copied = states[b"COPY"]["last_seq"] == states[b"ORIGIN"]["last_seq"]
        gathered = states[b"GATHER"]["messages"] >= sent[0] + sent[1]
        queued = states[b"TASKS"]["last_seq"] >= sent[2] and states[b"DRAIN"]["messages"] >= sent[4]
        return copied and gathered and queued and all(empty)


async def api(client: RawClient, verb: bytes, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the server's answer; raises RuntimeError when it is an error."""
    _, answer = await client.request(b"$JS.API." + verb, orjson.dumps(body) if body else b"", timeout_s=60)
    value: dict[str, Any] = orjson.loads(answer)
    if "error" in value:
        raise RuntimeError(f"{verb.decode()}: {value['error']}")
    return value


async def missing(client: RawClient, stream: bytes) -> set[int]:
    """Return the sequences that were given out and hold nothing any more."""
    state = (await api(client, b"STREAM.INFO." + stream, {"deleted_details": True}))["state"]
    first = state["first_seq"] if state["messages"] else state["last_seq"] + 1
    return {*range(1, first), *state.get("deleted", ())}


async def read(client: RawClient, stream: bytes, from_seq: int) -> list[Stored]:
    """Return every message that a stream has now, from `from_seq` on."""
    state = (await api(client, b"STREAM.INFO." + stream))["state"]
    if state["last_seq"] < from_seq or not state["messages"]:
        return []
    found: list[Stored] = []
    done = asyncio.Event()

    def on_delivery(subject: bytes, reply: bytes, header: bytes, payload: bytes) -> None:
        if not reply:
            done.set()
            return
        numbers = reply.split(b".")
        found.append(Stored(int(numbers[5]), int(numbers[7]), subject, header, payload))
        if numbers[8] == b"0" or int(numbers[5]) >= state["last_seq"]:  # more may have come, beyond what was asked for
            done.set()

    inbox = b"_INBOX.read.%b.%d" % (stream, from_seq)
    sid = client.subscribe(inbox, on_delivery)
    config = {"deliver_policy": "by_start_sequence", "opt_start_seq": from_seq, "ack_policy": "none"}
    created = await api(client, b"CONSUMER.CREATE." + stream, {"stream_name": stream.decode(), "config": config})
    name = created["name"].encode()
    body = orjson.dumps({"batch": state["last_seq"], "expires": 20_000_000_000})
    client.publish(b"$JS.API.CONSUMER.MSG.NEXT.%b.%b" % (stream, name), body, inbox)
    async with asyncio.timeout(60):
        await done.wait()
    await api(client, b"CONSUMER.DELETE.%b.%b" % (stream, name))
    client.unsubscribe(sid)
    return found


PUBLISHERS: Final = 8
LIFE_S: Final = (0.05, 0.6)
"""Shortest and longest time that a server serves before it is killed."""

START_KILL_SHARE: Final = 0.15
"""Part of the kills that hit a server while it starts."""

KILL_STREAM: Final[dict[str, Any]] = {
    "name": "KILL",
    "subjects": ["KILL.*"],
    "storage": "file",
    "num_replicas": 1,
    "retention": "limits",
    "duplicate_window": REPEAT_WITHIN_NS,
}
READ_BATCH: Final = 1000

LAST_WORK_S: Final = 2.5
"""Time that the worker goes on after the last kill: longer than its ack wait, so that unconfirmed messages return."""


class KillLoop:
    """One run: a server that is killed again and again, its clients, and the checks."""

    def __init__(self, folder: Path, kills: int, seed: int, *flags: str) -> None:
        """Prepare a run in an empty folder; `seed` chooses the moments of the kills, `flags` are the server's."""
        self.summary = Summary()
        self._server = ServerProcess(folder / "server", "natsctl", *flags)
        self._journal = Journal(folder / "acks.journal")
        self._kills = kills
        self._random = random.Random(seed)
        self._publishers = [Publisher(number, self._journal) for number in range(PUBLISHERS)]
        self._worker = Worker(self._journal)
        self._eraser = Eraser(seed)
        self._folder = folder / "server"
        self._verified_seq = 0
        self._checker = CrashChecker(self.summary, self._publishers, self._journal.acks, self._journal.confirmed)

    async def run(self) -> Summary:
        """Kill, start again and check as often as was asked, then read everything; return what was found."""
        try:
            await asyncio.to_thread(self._server.start)
            await self._prepare()
            while self.summary.kills < self._kills:
                await self._one_life()
                await self._restart()
                await self._check(self._verified_seq + 1)
            await self._finish()
        finally:
            self._server.kill()
            self._journal.close()
        return self.summary

    async def _prepare(self) -> None:
        client = await RawClient.connect(self._server.url)
        await _api(client, b"STREAM.CREATE.KILL", KILL_STREAM)
        await _api(client, b"STREAM.CREATE.ERASE", Eraser.CONFIG)
        worker = {
            "durable_name": "WORK",
            "ack_policy": "explicit",
            "ack_wait": 1_000_000_000,
            "filter_subject": "KILL.0",
        }
        await _api(client, b"CONSUMER.DURABLE.CREATE.KILL.WORK", {"stream_name": "KILL", "config": worker})
        await client.close()

    async def _one_life(self) -> None:
        """Run all clients for a while, then kill the server."""
        clients = [await RawClient.connect(self._server.url) for _ in range(PUBLISHERS + 2)]
        self._eraser.start(clients.pop())
        self._worker.start(clients.pop())
        for publisher, client in zip(self._publishers, clients, strict=True):
            publisher.start(client)
        await asyncio.sleep(self._random.uniform(*LIFE_S))
        await self._kill()
        for client in clients:
            await client.closed.wait()

    async def _kill(self) -> None:
        await asyncio.to_thread(self._server.kill)
        self.summary.kills += 1

    async def _restart(self) -> None:
        """Start the server; now and then kill it while it starts, and start it again."""
        while self.summary.kills < self._kills and self._random.random() < START_KILL_SHARE:
            starting = asyncio.create_task(asyncio.to_thread(self._server.start))
            await asyncio.sleep(self._random.uniform(0.1, 0.6))
            await self._kill()
            await asyncio.gather(starting, return_exceptions=True)
            self._server.kill()
            self.summary.kills_while_starting += 1
        begin = time.monotonic()
        await asyncio.to_thread(self._server.start)
        self.summary.slowest_start_s = max(self.summary.slowest_start_s, time.monotonic() - begin)

    async def _finish(self) -> None:
        """Repeat everything that must be stored, stop in good order, start again and read everything."""
        clients = [await RawClient.connect(self._server.url) for _ in range(PUBLISHERS + 1)]
        self._worker.start(clients[-1])
        for publisher, client in zip(self._publishers, clients[:-1], strict=True):
            publisher.start(client, fill=False)
        async with asyncio.timeout(60):
            while any(publisher.outstanding for publisher in self._publishers):
                await asyncio.sleep(0.01)
        await asyncio.sleep(LAST_WORK_S)
        for client in clients:
            await client.close()
        if status := await asyncio.to_thread(self._server.stop):
            raise RuntimeError(f"the server stopped with exit status {status}:\n{self._server.log()[-2000:]}")
        self._blame_eraser(self._eraser.found_in(self._folder))
        self._blame_eraser([f"refused: {text!r}" for text in self._eraser.errors])
        await asyncio.to_thread(self._server.start)
        self._checker = CrashChecker(self.summary, self._publishers, *self._journal.load())
        await self._check(1)
        self._checker.check_repeated()
        self._fill_summary()

    async def _check(self, from_seq: int) -> None:
        """Read everything from `from_seq` on and check it."""
        client = await RawClient.connect(self._server.url)
        info = await _api(client, b"STREAM.INFO.KILL")
        last_seq = info["state"]["last_seq"]
        self._checker.begin(from_seq, last_seq)
        await _read(client, from_seq, last_seq, self._checker.message)
        self._checker.end()
        self._verified_seq = last_seq
        self._blame_eraser(await self._eraser.check(client))
        await client.close()

    def _blame_eraser(self, wrong: list[str]) -> None:
        self.summary.unerased += len(wrong)
        self.summary.examples += wrong[:3]

    def _fill_summary(self) -> None:
        summary = self.summary
        summary.published = sum(publisher.next_number for publisher in self._publishers)
        summary.acked = len(self._checker.acks)
        summary.erased = len(self._eraser.erased)
        summary.double_acked = len(self._checker.confirmed)
        summary.stored = self._verified_seq
        summary.returned = len(self._worker.returned)
        summary.refused = sum(len(publisher.errors) for publisher in self._publishers)
        summary.examples += [f"double-acked {seq} was delivered again" for seq in self._worker.returned[:5]]
        summary.examples += [f"refused: {text!r}" for p in self._publishers for text in p.errors[:2]]


async def _api(client: RawClient, verb: bytes, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the server's answer; raises RuntimeError when it is an error."""
    _, answer = await client.request(b"$JS.API." + verb, orjson.dumps(body) if body else b"", timeout_s=60)
    value: dict[str, Any] = orjson.loads(answer)
    if "error" in value:
        raise RuntimeError(f"{verb.decode()}: {value['error']}")
    return value


async def _read(
    client: RawClient, from_seq: int, last_seq: int, on_message: Callable[[int, bytes, bytes], None]
) -> None:
    """Hand every message of the stream in [from_seq, last_seq] to `on_message(seq, subject, payload)`."""
    if from_seq > last_seq:
        return
    config = {"deliver_policy": "by_start_sequence", "opt_start_seq": from_seq, "ack_policy": "none"}
    created = await _api(client, b"CONSUMER.CREATE.KILL", {"stream_name": "KILL", "config": config})
    name = created["name"].encode()
    answered = asyncio.Event()
    seen = [from_seq - 1, 0]

    def on_delivery(subject: bytes, reply: bytes, header: bytes, payload: bytes) -> None:
        if reply:
            seen[0] = int(reply.split(b".")[5])
            seen[1] += 1
            on_message(seen[0], subject, payload)
        if not reply or seen[1] % READ_BATCH == 0 or seen[0] >= last_seq:
            answered.set()

    client.subscribe(b"_INBOX.read", on_delivery)
    async with asyncio.timeout(120):
        while seen[0] < last_seq:
            before = seen[0]
            answered.clear()
            body = orjson.dumps({"batch": READ_BATCH, "expires": 5_000_000_000})
            client.publish(b"$JS.API.CONSUMER.MSG.NEXT.KILL." + name, body, b"_INBOX.read")
            await answered.wait()
            if seen[0] == before:
                return
    await _api(client, b"CONSUMER.DELETE.KILL." + name)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the loop from the command line; return 1 when a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.kill_loop", description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=None, help="chooses the moments of the kills")
    parser.add_argument("--keep", type=Path, default=None, help="use this empty folder and keep it")
    parser.add_argument("--flows", action="store_true", help="streams that feed each other")
    parser.add_argument("--config", type=Path, default=None, help="nats.conf of the server")
    options = parser.parse_args(argv)
    seed = random.randrange(1 << 32) if options.seed is None else options.seed
    flags = ("-c", str(options.config)) if options.config is not None else ()
    print(f"{options.kills} kills, seed {seed}", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="natsctl-kill-") as temporary:
        folder = options.keep or Path(temporary)
        summary: Summary | FlowSummary
        if options.flows:
            summary = asyncio.run(FlowLoop(folder, options.kills, seed, *flags).run())
        else:
            summary = asyncio.run(KillLoop(folder, options.kills, seed, *flags).run())
    print(summary.render())
    return 1 if summary.broken else 0


if __name__ == "__main__":
    sys.exit(main())
