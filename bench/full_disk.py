"""Soak of a full disk: `python -m bench.full_disk --cycles 50`; exit 1 when a promise was broken.

Each cycle fills a small file system by publishers that keep trying while a consumer double-acks and messages are
deleted and purged. Two cycles of three also end the server while the disk is full, one by kill -9 and one by SIGTERM,
and start it again there. Then space returns, by the purge of a stream or by the removal of a file that is not the
server's, and publishing has to resume without a restart. Checked in every cycle: nothing acknowledged is lost or
altered, what was deleted stays deleted, what was double-acked is not delivered again, every ack, delete and purge is
answered on the full disk, no publish gets an answer other than an ack or 10047, and the bytes of deleted messages are
erased once there is room. The file systems are a tmpfs and an ext4 image on a loop device (which need root), each with
a plain and an encrypted store; one that cannot be mounted is counted as skipped.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import orjson

from natsctl.testing.process import ServerProcess
from tests.support.raw_client import Disconnected, RawClient

MIB: Final = 1024 * 1024
SIZES: Final = {"tmpfs": 20 * MIB, "ext4": 32 * MIB}
BALLAST_BYTES: Final = 6 * MIB
"""Size of the file that is not the server's."""
REFUSALS: Final = 20
"""Refused publishes after which the disk counts as full."""
RESUMED_WITHIN_S: Final = 20.0
ANSWERED_WITHIN_S: Final = 10.0
STREAMS: Final = ("KEPT", "SPARE")
OUT_OF_SPACE: Final = 10047
TAKEN: Final = 5
"""Messages that are double-acked on each full disk."""


def mounted(kind: str, image: Path, folder: Path) -> bool:
    """Mount a small file system at `folder`; return whether this machine can."""
    size = SIZES[kind]
    if kind == "tmpfs":
        commands = [["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(folder)]]
    else:
        image.write_bytes(bytes(size))
        commands = [["mkfs.ext4", "-q", str(image)], ["mount", "-o", "loop", str(image), str(folder)]]
    try:
        return all(subprocess.run(command, capture_output=True, check=False).returncode == 0 for command in commands)
    except OSError:
        return False


class FullDisk:
    """One server on one file system, its clients, and what they know."""

    def __init__(self, folder: Path, disk: Path, key: str, seed: int) -> None:
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []
        self._disk = disk
        self._plain = not key
        self._random = random.Random(seed)
        config = folder / "nats.conf"
        config.write_text(f"jetstream {{ max_file_store: 1GB, {key} }}\n")
        self._server = ServerProcess(folder / "run", "natsctl", "-c", str(config), "-sd", str(disk))
        self._acked: dict[str, dict[int, bytes]] = {name: {} for name in STREAMS}
        self._deleted: dict[str, set[int]] = {name: set() for name in STREAMS}
        self._first = dict.fromkeys(STREAMS, 1)
        self._confirmed: set[int] = set()
        self._refused: Counter[str] = Counter()
        self._publishing = False
        self._number = 0
        self._client: RawClient

    async def run(self, cycles: int) -> None:
        """Do that many cycles."""
        self._ballast(True)
        with self._server:
            await self._connect()
            for name in STREAMS:
                await self._api(
                    f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.*"], "allow_direct": True}
                )
            config = {"durable_name": "C", "ack_policy": "explicit", "ack_wait": 10**11, "max_ack_pending": -1}
            await self._api("CONSUMER.DURABLE.CREATE.KEPT.C", {"stream_name": "KEPT", "config": config})
            for cycle in range(cycles):
                try:
                    await self._cycle(cycle)
                except (TimeoutError, Disconnected) as fault:
                    self.wrong.append(f"cycle {cycle}: {type(fault).__name__} {fault}")
                    return
                if self.wrong:
                    self.wrong.insert(0, f"cycle {cycle}")
                    return
                self.counts["cycles"] += 1
            await self._client.close()

    async def _cycle(self, cycle: int) -> None:
        publishers = self._start_publishers()
        await self._until_full()
        await self._work()
        if cycle % 3:
            self._publishing = False
            (self._server.kill if cycle % 3 == 1 else self._server.stop)()
            self.counts["kills" if cycle % 3 == 1 else "stops"] += 1
            await asyncio.gather(*publishers)
            self._server.start()
            await self._connect()
            await self._check()
            publishers = self._start_publishers()
            await self._until_full()
            await self._work()
        purged = self._random.choice(STREAMS)
        await self._purge(purged, (max(self._acked[purged], default=0) + self._first[purged]) // 2)
        if cycle % 2:
            self._ballast(False)
        else:
            await self._purge("SPARE", max(self._acked["SPARE"], default=0) + 1)
        await self._resumed()
        self._publishing = False
        await asyncio.gather(*publishers)
        await self._check()
        if self._plain:
            await self._erased()
        for name in STREAMS:  # and the next cycle begins with room
            await self._purge(name, max(self._acked[name], default=0) - 50)
        self._ballast(True)

    def _ballast(self, there: bool) -> None:
        path = self._disk / "ballast"
        path.unlink(missing_ok=True)
        if there:
            with suppress(OSError):
                path.write_bytes(b"x" * BALLAST_BYTES)

    async def _connect(self) -> None:
        self._client = await RawClient.connect(self._server.url)

    async def _api(self, subject: str, body: object = b"") -> dict[str, Any]:
        data = body if isinstance(body, bytes) else orjson.dumps(body)
        async with asyncio.timeout(ANSWERED_WITHIN_S):
            _, payload = await self._client.request(f"$JS.API.{subject}".encode(), data)
        answer: dict[str, Any] = orjson.loads(payload)
        return answer

    # -- publishers

    def _start_publishers(self) -> list[asyncio.Task[None]]:
        self._publishing = True
        self._refused.clear()
        return [asyncio.create_task(self._publish(name)) for name in STREAMS for _ in range(4)]

    async def _publish(self, stream: str) -> None:
        client = await RawClient.connect(self._server.url)
        while self._publishing:
            self._number += 1
            token = b"<%s %d>" % (stream.encode(), self._number)
            payload = token + self._random.randbytes(self._random.choice((10, 1000, 60_000)))
            try:
                async with asyncio.timeout(ANSWERED_WITHIN_S):
                    _, answer = await client.request(f"{stream}.{self._number % 7}".encode(), payload)
            except TimeoutError:
                self.wrong.append(f"a publish into {stream} was not answered")
                break
            except Disconnected:
                if self._publishing:
                    self.wrong.append(f"a publisher into {stream} was disconnected")
                break
            body = orjson.loads(answer)
            if "error" not in body:
                self._acked[stream][body["seq"]] = payload
                self._refused[stream] = 0
                self.counts["acked"] += 1
                continue
            self._refused[stream] += 1
            self.counts["refused"] += 1
            if body["error"]["err_code"] != OUT_OF_SPACE:
                self.wrong.append(f"a publish into {stream} was answered {body['error']}")
            await asyncio.sleep(0.005)
        await client.close()

    async def _until_full(self) -> None:
        async with asyncio.timeout(60):
            while not all(self._refused[name] >= REFUSALS for name in STREAMS) and not self.wrong:
                await asyncio.sleep(0.01)

    async def _resumed(self) -> None:
        before = {name: len(self._acked[name]) for name in STREAMS}
        began = time.monotonic()
        while any(len(self._acked[name]) == before[name] for name in STREAMS):
            if time.monotonic() - began > RESUMED_WITHIN_S:
                used = {str(path.relative_to(self._disk)): path.stat().st_size for path in self._disk.rglob("*.*")}
                self.wrong.append(f"publishing does not resume: {shutil.disk_usage(self._disk)}, {used}")
                return
            await asyncio.sleep(0.02)
        self.counts["resumed"] += 1

    # -- what has to work on a full disk

    async def _work(self) -> None:
        await asyncio.gather(self._consume(), *(self._delete(name) for name in STREAMS))

    async def _consume(self) -> None:
        arrived: asyncio.Queue[tuple[bytes, bytes]] = asyncio.Queue()
        sid = self._client.subscribe(
            b"pulled", lambda subject, reply, header, payload: arrived.put_nowait((reply, payload))
        )
        request = orjson.dumps({"batch": TAKEN, "expires": 5_000_000_000})
        self._client.publish(b"$JS.API.CONSUMER.MSG.NEXT.KEPT.C", request, b"pulled")
        for _ in range(TAKEN):
            async with asyncio.timeout(ANSWERED_WITHIN_S):
                reply, payload = await arrived.get()
            if not reply:
                break
            seq = int(reply.split(b".")[5])
            if seq in self._confirmed:
                self.wrong.append(f"message {seq} was delivered again after its double ack")
            if payload != self._acked["KEPT"].get(seq, payload):
                self.wrong.append(f"message {seq} was delivered altered")
            try:
                async with asyncio.timeout(ANSWERED_WITHIN_S):
                    await self._client.request(reply, b"+ACK")
            except TimeoutError:
                self.wrong.append(f"the double ack of {seq} was not answered")
                break
            self._confirmed.add(seq)
            self.counts["double_acked"] += 1
        self._client.unsubscribe(sid)

    async def _delete(self, stream: str) -> None:
        there = [seq for seq in self._acked[stream] if seq not in self._deleted[stream] and seq >= self._first[stream]]
        for seq in self._random.sample(there, min(2, len(there))):
            answer = await self._api(f"STREAM.MSG.DELETE.{stream}", {"seq": seq})
            if not answer.get("success"):
                self.wrong.append(f"the delete of {seq} in {stream} was answered {answer.get('error')}")
                return
            self._deleted[stream].add(seq)
            self.counts["deleted"] += 1

    async def _purge(self, stream: str, up_to: int) -> None:
        if up_to <= self._first[stream]:
            return
        answer = await self._api(f"STREAM.PURGE.{stream}", {"seq": up_to})
        if not answer.get("success"):
            self.wrong.append(f"the purge of {stream} was answered {answer.get('error')}")
            return
        self._first[stream] = up_to
        self.counts["purged"] += 1

    # -- checks

    async def _check(self) -> None:
        for name in STREAMS:
            info = await self._api(f"STREAM.INFO.{name}")
            if "error" in info or info["state"]["last_seq"] < max(self._acked[name], default=0):
                self.wrong.append(f"{name} lost messages: {info.get('error') or info['state']}")
                return
            for seq in list(self._acked[name]):
                if seq < self._first[name]:
                    del self._acked[name][seq]
            for seq, payload in self._acked[name].items():
                header, stored = await self._client.request(f"$JS.API.DIRECT.GET.{name}".encode(), b'{"seq":%d}' % seq)
                there = b" 404 " not in header[:16]
                if seq in self._deleted[name] and there:
                    self.wrong.append(f"message {seq} of {name} came back")
                elif seq not in self._deleted[name] and stored != payload:
                    self.wrong.append(f"message {seq} of {name} was lost or altered: {header[:60]!r}")
                self.counts["read"] += 1
                if self.wrong:
                    return
        self.counts["checks"] += 1

    async def _erased(self) -> None:
        """Wait until no file holds a message that was deleted."""
        tokens = [
            self._acked[name][seq].partition(b">")[0] + b">"
            for name in STREAMS
            for seq in self._deleted[name]
            if seq in self._acked[name]
        ]
        began = time.monotonic()
        while left := [token for token in tokens if self._on_disk(token)]:
            if time.monotonic() - began > RESUMED_WITHIN_S:
                self.wrong.append(f"deleted messages are still on the disk: {left}")
                return
            await asyncio.sleep(0.2)
        self.counts["erased"] += len(tokens)

    def _on_disk(self, token: bytes) -> bool:
        return any(token in path.read_bytes() for path in self._disk.rglob("*.seg"))


def soak(kind: str, key: str, cycles: int, seed: int) -> tuple[Counter[str], list[str]]:
    """Run the cycles on a fresh file system; return the counts, empty where it cannot be mounted, and what is wrong."""
    with tempfile.TemporaryDirectory() as name:
        folder, disk = Path(name), Path(name, "disk")
        disk.mkdir()
        if not mounted(kind, folder / "image", disk):
            return Counter(), []
        try:
            run = FullDisk(folder, disk, key, seed)
            asyncio.run(run.run(cycles))
            if run.wrong:
                run.wrong.append(run._server.log()[-2000:])
            return run.counts, run.wrong
        finally:
            subprocess.run(["umount", str(disk)], check=False)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cycles", type=int, default=50)
    parser.add_argument("--seed", type=int, default=32)
    parser.add_argument("--disk", choices=[*SIZES], action="append")
    parser.add_argument("--store", choices=["plain", "encrypted"], action="append")
    options = parser.parse_args()
    failed = False
    for kind in options.disk or SIZES:
        for store in options.store or ("plain", "encrypted"):
            counts, wrong = soak(kind, "key: secret" if store == "encrypted" else "", options.cycles, options.seed)
            text = ", ".join(f"{number:,} {name}" for name, number in counts.items()) or "skipped: it cannot be mounted"
            print(f"{kind} {store}: {text}", flush=True)
            for line in wrong:
                print(f"  {line}", flush=True)
            failed = failed or bool(wrong)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
