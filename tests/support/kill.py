"""kill -9 on a real server while clients publish, and the proof from outside that nothing acknowledged was lost.

Eight connections publish numbered messages into one stream; every ack goes into a journal that this process syncs.
Half of the publishers carry message ids and send again what was not acked when the server died, so that each of
their messages must be there exactly once; the other half goes on with new messages, so that what was not acked may be
there or not, but never twice.  A worker double-acks messages of a durable consumer and journals the confirmations. An
eraser writes keys of a compressed stream and erases some again: no key may be lost, nothing erased be there.

After each kill the server is started again and everything stored since the last check is read; the end reads everything
once more.  `python -m tests.support.kill --kills 100` prints a summary and exits 1 when a promise was broken;
with `--flows` it does the same to streams that feed each other (killflows.py).
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
from tests.support.killclients import REPEAT_WITHIN_NS, Eraser, Publisher, Worker
from tests.support.killflowjudge import FlowSummary
from tests.support.killflows import FlowLoop
from tests.support.killjournal import Journal
from tests.support.killjudge import Judge, Summary
from tests.support.rawclient import RawClient

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
"""How long the worker goes on after the last kill: longer than its ack wait, so that everything unconfirmed returns."""


class KillLoop:
    """One run: a server that is killed again and again, its clients, and the checks."""

    def __init__(self, folder: Path, kills: int, seed: int) -> None:
        """Prepare a run in an empty folder; `seed` chooses the moments of the kills."""
        self.summary = Summary()
        self._server = ServerProcess(folder / "server")
        self._journal = Journal(folder / "acks.journal")
        self._kills = kills
        self._random = random.Random(seed)
        self._publishers = [Publisher(number, self._journal) for number in range(PUBLISHERS)]
        self._worker = Worker(self._journal)
        self._eraser = Eraser(seed)
        self._folder = folder / "server"
        self._verified_seq = 0
        self._judge = Judge(self.summary, self._publishers, self._journal.acks, self._journal.confirmed)

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
        """Let everybody work for a while, then kill the server."""
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
        """Have everything repeated that must be there, stop in good order, start again and read everything."""
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
        self._judge = Judge(self.summary, self._publishers, *self._journal.load())
        await self._check(1)
        self._judge.check_repeated()
        self._fill_summary()

    async def _check(self, from_seq: int) -> None:
        """Read everything from `from_seq` on and judge it."""
        client = await RawClient.connect(self._server.url)
        info = await _api(client, b"STREAM.INFO.KILL")
        last_seq = info["state"]["last_seq"]
        self._judge.begin(from_seq, last_seq)
        await _read(client, from_seq, last_seq, self._judge.message)
        self._judge.end()
        self._verified_seq = last_seq
        self._blame_eraser(await self._eraser.check(client))
        await client.close()

    def _blame_eraser(self, wrong: list[str]) -> None:
        self.summary.unerased += len(wrong)
        self.summary.examples += wrong[:3]

    def _fill_summary(self) -> None:
        summary = self.summary
        summary.published = sum(publisher.next_number for publisher in self._publishers)
        summary.acked = len(self._judge.acks)
        summary.erased = len(self._eraser.erased)
        summary.double_acked = len(self._judge.confirmed)
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
    parser = argparse.ArgumentParser(prog="python -m tests.support.kill", description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=None, help="chooses the moments of the kills")
    parser.add_argument("--keep", type=Path, default=None, help="use this empty folder and keep it")
    parser.add_argument("--flows", action="store_true", help="streams that feed each other, see killflows.py")
    options = parser.parse_args(argv)
    seed = random.randrange(1 << 32) if options.seed is None else options.seed
    print(f"{options.kills} kills, seed {seed}", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="natsctl-kill-") as temporary:
        folder = options.keep or Path(temporary)
        summary: Summary | FlowSummary
        if options.flows:
            summary = asyncio.run(FlowLoop(folder, options.kills, seed).run())
        else:
            summary = asyncio.run(KillLoop(folder, options.kills, seed).run())
    print(summary.render())
    return 1 if summary.broken else 0


if __name__ == "__main__":
    sys.exit(main())
