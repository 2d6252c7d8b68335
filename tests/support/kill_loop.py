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

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

import orjson

from natsctl.testing.process import ServerProcess
from tests.support.crash_checker import CrashChecker, Stored, Summary, check_flows, check_removed
from tests.support.kill_clients import REPEAT_WITHIN_NS, Eraser, Journal, Publisher, Worker
from tests.support.raw_client import RawClient

LIFE_S: Final = (0.05, 0.8)
"""Shortest and longest time that a server serves before it is killed."""
START_KILL_SHARE: Final = 0.15
"""Part of the kills that hit a server while it starts."""
LAST_WORK_S: Final = 2.5
"""Time that the worker goes on after the last kill: longer than its ack wait, so that unconfirmed messages return."""
ARRIVED_WITHIN_S: Final = 240.0
"""Time limit for everything to arrive after the last kill."""
READ_BATCH: Final = 1000
REPEATED: Final = {"duplicate_window": REPEAT_WITHIN_NS}

Config = dict[str, Any]


class KillLoop:
    """One run: a server that is killed again and again, its clients, and the checks."""

    streams: ClassVar[dict[bytes, Config]] = {
        b"KILL": {"subjects": ["KILL.*"], **REPEATED},
        b"ERASE": Eraser.CONFIG,
    }
    consumers: ClassVar[dict[tuple[bytes, bytes], Config]] = {(b"KILL", b"WORK"): {"filter_subject": "KILL.0"}}
    publishers: ClassVar[dict[bytes, bool]] = {b"KILL.%d" % number: number % 2 == 1 for number in range(8)}
    """Whether the publisher repeats, by its subject."""

    def __init__(self, folder: Path, kills: int, seed: int, *flags: str) -> None:
        """Prepare a run in an empty folder; `seed` chooses the moments of the kills, `flags` are the server's."""
        self.summary = Summary()
        self._folder = folder / "server"
        self._server = ServerProcess(self._folder, "natsctl", *flags)
        self._kills, self._random = kills, random.Random(seed)
        self._journal = Journal(folder / "acks.journal")
        self._journals = [self._journal, *(Journal(folder / f"{b'-'.join(key).decode()}") for key in self.consumers)]
        self._publishers = [
            Publisher(number, self._journal, subject, repeats)
            for number, (subject, repeats) in enumerate(self.publishers.items())
        ]
        pairs = zip(self.consumers, self._journals[1:], strict=True)
        self._workers = {key: Worker(journal, *key) for key, journal in pairs}
        self._eraser = Eraser(seed)
        self._checked_seq = 0
        self._checker = CrashChecker(self.summary, self._publishers, self._journal.acks)

    async def run(self) -> Summary:
        """Kill, start again and check as often as was asked, then read everything; return what was found."""
        try:
            await asyncio.to_thread(self._server.start)
            await self._prepare()
            while self.summary["kills"] < self._kills:
                clients = await self._connect(fill=True)
                await asyncio.sleep(self._random.uniform(*LIFE_S))
                await self._kill()
                for client in clients:
                    await client.closed.wait()
                await self._restart()
                await self._check()
            await self._finish()
        finally:
            self._server.kill()
            for journal in self._journals:
                journal.close()
        self.summary["published"] = sum(publisher.next_number for publisher in self._publishers)
        for publisher in self._publishers:
            self.summary.fault("refused", (f"refused: {text!r}" for text in publisher.errors))
        return self.summary

    async def _prepare(self) -> None:
        client = await RawClient.connect(self._server.url)
        for name, config in self.streams.items():
            await api(client, b"STREAM.CREATE." + name, {**config, "name": name.decode()})
        for (stream, name), config in self.consumers.items():
            config = {"durable_name": name.decode(), "ack_policy": "explicit", "ack_wait": 1_000_000_000, **config}
            body = {"stream_name": stream.decode(), "config": config}
            await api(client, b"CONSUMER.DURABLE.CREATE.%b.%b" % (stream, name), body)
        await client.close()

    async def _connect(self, *, fill: bool) -> list[RawClient]:
        clients = [await RawClient.connect(self._server.url) for _ in (*self._publishers, *self._workers)]
        for worker, client in zip(self._workers.values(), clients[len(self._publishers) :], strict=True):
            worker.start(client)
        for publisher, client in zip(self._publishers, clients, strict=False):
            publisher.start(client, fill=fill)
        if fill and b"ERASE" in self.streams:
            clients.append(await RawClient.connect(self._server.url))
            self._eraser.start(clients[-1])
        return clients

    async def _kill(self) -> None:
        await asyncio.to_thread(self._server.kill)
        self.summary["kills"] += 1

    async def _restart(self) -> None:
        """Start the server; now and then kill it while it starts, and start it again."""
        while self.summary["kills"] < self._kills and self._random.random() < START_KILL_SHARE:
            starting = asyncio.create_task(asyncio.to_thread(self._server.start))
            await asyncio.sleep(self._random.uniform(0.1, 0.6))
            await self._kill()
            await asyncio.gather(starting, return_exceptions=True)
            self._server.kill()
            self.summary["kills_while_starting"] += 1
        begin = time.monotonic()
        await asyncio.to_thread(self._server.start)
        self.summary.slowest_start_s = max(self.summary.slowest_start_s, time.monotonic() - begin)

    async def _outstanding(self) -> None:
        async with asyncio.timeout(ARRIVED_WITHIN_S):
            while any(publisher.outstanding for publisher in self._publishers):
                await asyncio.sleep(0.01)

    async def _check(self) -> None:
        """Read and check what was stored since the last time."""
        client = await RawClient.connect(self._server.url)
        from_seq, last_seq = self._checked_seq + 1, await last_of(client, b"KILL")
        self._checker.check(await read(client, b"KILL", from_seq, last_seq), from_seq, last_seq)
        self._checked_seq = last_seq
        self.summary.fault("unerased", await self._eraser.check(client))
        await client.close()

    async def _finish(self) -> None:
        """Repeat everything that must be stored, stop in good order, start again and read everything."""
        clients = await self._connect(fill=False)
        await self._outstanding()
        await asyncio.sleep(LAST_WORK_S)
        for client in clients:
            await client.close()
        if status := await asyncio.to_thread(self._server.stop):
            raise RuntimeError(f"the server stopped with exit status {status}:\n{self._server.log()[-2000:]}")
        self.summary.fault("unerased", self._eraser.found_in(self._folder))
        self.summary.fault("unerased", (f"refused: {text!r}" for text in self._eraser.errors))
        await asyncio.to_thread(self._server.start)
        acks = self._journal.load()
        self._checker, self._checked_seq = CrashChecker(self.summary, self._publishers, acks), 0
        await self._check()
        self._checker.finish()
        (worker,) = self._workers.values()
        self.summary.fault("returned", (f"double-acked {seq} was delivered again" for seq in worker.returned))
        self.summary.update(
            acked=len(acks),
            erased=len(self._eraser.erased),
            double_acked=len(self._journals[1].confirmed),
            stored=self._checked_seq,
        )


class FlowLoop(KillLoop):
    streams: ClassVar[dict[bytes, Config]] = {
        b"ORIGIN": {"subjects": ["o.*"], **REPEATED},
        b"COPY": {"mirror": {"name": "ORIGIN"}},
        b"GATHER": {
            "sources": [
                {"name": "ORIGIN", "filter_subject": "o.0"},
                {"name": "ORIGIN", "subject_transforms": [{"src": "o.1", "dest": "g.1"}]},
            ]
        },
        b"TASKS": {"sources": [{"name": "ORIGIN", "filter_subject": "o.2"}], "retention": "workqueue"},
        b"QUEUE": {"subjects": ["q.*"], "retention": "workqueue", **REPEATED},
        b"PIPE": {"subjects": ["p.*"], "retention": "workqueue", **REPEATED},
        b"DRAIN": {"sources": [{"name": "PIPE"}]},
        b"EVENTS": {"subjects": ["e.*"], "retention": "interest", **REPEATED},
    }
    consumers: ClassVar[dict[tuple[bytes, bytes], Config]] = {
        (b"TASKS", b"W"): {}, (b"QUEUE", b"W"): {}, (b"EVENTS", b"A"): {}, (b"EVENTS", b"B"): {},
    }  # fmt: skip
    publishers: ClassVar[dict[bytes, bool]] = dict.fromkeys((b"o.0", b"o.1", b"o.2", b"q.3", b"p.4", b"e.5"), True)

    def __init__(self, folder: Path, kills: int, seed: int, *flags: str) -> None:
        super().__init__(folder, kills, seed, *flags)
        self._drained: list[Stored] = []

    async def _check(self) -> None:
        """Ask for everything that is gone whether it may be."""
        client = await RawClient.connect(self._server.url)
        gone = {}
        for name in (b"QUEUE", b"PIPE", b"EVENTS"):  # what is read afterwards can only have got more reasons
            gone[name] = await missing(client, name)
        from_seq = self._drained[-1].seq + 1 if self._drained else 1
        self._drained += await read(client, b"DRAIN", from_seq, await last_of(client, b"DRAIN"))
        await client.close()
        check_removed(self.summary, self._workers, gone, self._drained)

    async def _finish(self) -> None:
        """Repeat everything unconfirmed, wait until nothing changes any more, and compare."""
        clients = await self._connect(fill=False)
        await self._outstanding()
        reader = await RawClient.connect(self._server.url)
        deadline = time.monotonic() + ARRIVED_WITHIN_S
        while not self._arrived(states := {name: await state_of(reader, name) for name in self.streams}):
            if time.monotonic() > deadline:
                raise TimeoutError(f"not all has flowed: {states}")
            await asyncio.sleep(0.1)
        await self._check()
        contents = {}
        for name in (b"ORIGIN", b"COPY", b"GATHER", b"DRAIN"):
            contents[name] = await read(reader, name, 1, await last_of(reader, name))
        for client in (*clients, reader):
            await client.close()
        check_flows(self.summary, self._publishers, self._workers, contents)

    def _arrived(self, states: dict[bytes, Config]) -> bool:
        sent = [publisher.next_number for publisher in self._publishers]
        empty = (states[name]["messages"] == 0 for name in (b"TASKS", b"QUEUE", b"PIPE", b"EVENTS"))
        copied = states[b"COPY"]["last_seq"] == states[b"ORIGIN"]["last_seq"]
        gathered = states[b"GATHER"]["messages"] >= sent[0] + sent[1]
        queued = states[b"TASKS"]["last_seq"] >= sent[2] and states[b"DRAIN"]["messages"] >= sent[4]
        return copied and gathered and queued and all(empty)


async def api(client: RawClient, verb: bytes, body: Config | None = None) -> dict[str, Any]:
    """Return the server's answer; raises RuntimeError when it is an error."""
    _, answer = await client.request(b"$JS.API." + verb, orjson.dumps(body) if body else b"", timeout_s=60)
    value: dict[str, Any] = orjson.loads(answer)
    if "error" in value:
        raise RuntimeError(f"{verb.decode()}: {value['error']}")
    return value


async def state_of(client: RawClient, stream: bytes, **options: Any) -> dict[str, Any]:
    state: dict[str, Any] = (await api(client, b"STREAM.INFO." + stream, options))["state"]
    return state


async def last_of(client: RawClient, stream: bytes) -> int:
    return int((await state_of(client, stream))["last_seq"])


async def missing(client: RawClient, stream: bytes) -> set[int]:
    """Return the sequences that were given out and hold nothing any more."""
    state = await state_of(client, stream, deleted_details=True)
    first = state["first_seq"] if state["messages"] else state["last_seq"] + 1
    return {*range(1, first), *state.get("deleted", ())}


async def read_into(
    client: RawClient, stream: bytes, from_seq: int, last_seq: int, take: Callable[[Stored], object]
) -> None:
    """Hand the messages of a stream in [from_seq, last_seq] to `take`."""
    last, count = from_seq - 1, 0
    answered = asyncio.Event()

    def on_delivery(subject: bytes, reply: bytes, header: bytes, payload: bytes) -> None:
        nonlocal last, count
        numbers = reply.split(b".")
        if reply:
            last, count = int(numbers[5]), count + 1
            if last <= last_seq:
                take(Stored(last, int(numbers[7]), subject, header, payload))
        if not reply or count % READ_BATCH == 0 or numbers[8] == b"0" or last >= last_seq:
            answered.set()

    inbox = b"_INBOX.read.%b.%d" % (stream, from_seq)
    sid = client.subscribe(inbox, on_delivery)
    config = {"deliver_policy": "by_start_sequence", "opt_start_seq": from_seq, "ack_policy": "none"}
    created = await api(client, b"CONSUMER.CREATE." + stream, {"stream_name": stream.decode(), "config": config})
    name = created["name"].encode()
    before = -1
    while before < last < last_seq:
        before = last
        answered.clear()
        body = orjson.dumps({"batch": READ_BATCH, "expires": 5_000_000_000})
        client.publish(b"$JS.API.CONSUMER.MSG.NEXT.%b.%b" % (stream, name), body, inbox)
        async with asyncio.timeout(120):
            await answered.wait()
    await api(client, b"CONSUMER.DELETE.%b.%b" % (stream, name))
    client.unsubscribe(sid)


async def read(client: RawClient, stream: bytes, from_seq: int, last_seq: int) -> list[Stored]:
    found: list[Stored] = []
    if from_seq <= last_seq:
        await read_into(client, stream, from_seq, last_seq, found.append)
    return found


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
        loop = FlowLoop if options.flows else KillLoop
        summary = asyncio.run(loop(options.keep or Path(temporary), options.kills, seed, *flags).run())
    print(summary.render())
    return 1 if summary.broken else 0


if __name__ == "__main__":
    sys.exit(main())
