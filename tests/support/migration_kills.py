"""Kill test of `natsctl migrate`: streams of every kind moved under load, the command killed with signal 9.

`python -m tests.support.migration_kills --streams 20 --messages 1000000 --kills 10` fills natsctl's server, publishes
and acknowledges while the command copies the streams to three nats-servers, kills it at random moments, half of them in
the cutover, and compares both sides at the end: every message with sequence, time, subject, headers and payload, and
every consumer with its ack floor and what is pending. Publishers go on at the destination once the origin refuses them;
every message that was acknowledged, by either side, has to be there once. With `--back` the cluster's streams then move
to one nats-server in the same way. Exit status 1 when anything differs.

A cluster's snapshot does not say which messages of a consumer are pending: they are compared where all of them between
ack floor and last delivery are.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from natsctl.api.errors import NatsctlError
from natsctl.client.backup.archives import read_messages
from natsctl.client.backup.reader import open_backup
from natsctl.client.backup.save import SaveOptions, save_stream
from natsctl.client.backup.transfer import RetryingManager
from natsctl.client.dial import connect
from natsctl.client.manager import Manager
from natsctl.client.messaging import messages as publishing
from natsctl.client.messaging.consumers import PullOptions, take
from natsctl.client.servers import resolve
from natsctl.client.settings import Settings
from natsctl.testing.process import ServerProcess
from tests.support.servers import Cluster

PUBLISHED_AT_ONCE: Final = 2000
ENDED_WITHIN_S: Final = 900
PAYLOAD: Final = b"the quick brown fox jumps over the lazy dog and then goes home to sleep until morning"
MINUTE: Final = 60_000_000_000
ORDERS: Final[dict[str, Any]] = {"storage": "file", "num_replicas": 1, "duplicate_window": 2 * MINUTE}


def configs(number: int) -> list[dict[str, Any]]:
    """Configurations of that many streams, of every kind in turn; the first takes the load."""
    kinds: list[dict[str, Any]] = [
        {},
        {"retention": "workqueue"},
        {"allow_direct": True, "max_msgs_per_subject": 3, "allow_rollup_hdrs": True, "deny_delete": True},
        {"storage": "memory"},
        {"retention": "interest"},
        {"allow_msg_ttl": True, "compression": "s2"},
        {"allow_msg_counter": True},
        {"max_msgs": 40_000, "metadata": {"owner": "shop"}},
        {"allow_msg_schedules": True, "allow_rollup_hdrs": True},
    ]
    found = []
    for at in range(number):
        kind, name = kinds[at % len(kinds)], f"S{at:02}"
        found.append({**ORDERS, "name": name, "subjects": [f"{name}.>"], **kind})
    return found


async def opened(url: str) -> Manager:
    """A connection to a server or a cluster, as clients have it."""
    target = resolve(Settings(url=url, timeout_s=30.0), {"HOME": "/nowhere"})
    return Manager(await connect(target, name="migration-kills"))


async def fill(url: str, streams: Sequence[dict[str, Any]], messages: int) -> None:
    """Make the streams with their messages, consumers, some of what these deliver acknowledged."""
    manager = await opened(url)
    for config in streams:
        await manager.stream_create(config)
        if config.get("retention", "limits") != "limits":
            await _consume(manager, config["name"], 0)
    for config in streams:
        await _publish_all(manager, config, messages // len(streams))
    for config in streams:
        name = config["name"]
        if config.get("retention", "limits") == "limits":
            await _consume(manager, name, 40)
            await manager.consumer_create(
                name, {"durable_name": "few", "filter_subject": f"{name}.3", "ack_policy": "explicit"}
            )
            await manager.consumer_create(
                name, {"durable_name": "push", "deliver_subject": f"to.{name}", "ack_policy": "none"}
            )
        if not config.get("deny_delete") and not config.get("allow_msg_counter"):
            last = (await manager.stream_info(name)).value.state.last_seq
            for seq in range(max(1, last - 900), last, 97):
                with contextlib.suppress(NatsctlError):
                    await manager.message_delete(name, seq)
    await manager.connection.close()


async def _publish_all(manager: Manager, config: dict[str, Any], number: int) -> None:
    name, counter = config["name"], config.get("allow_msg_counter")
    for at in range(number):
        headers = {"X-Number": str(at), "X-Kind": "a b"} if at % 3 else None
        if counter:
            headers = {"Nats-Incr": "1"}
        elif config.get("allow_msg_ttl") and at % 5 == 0:
            headers = {"Nats-TTL": "1h"}
        elif config.get("allow_msg_schedules") and at % 50 == 0:
            headers = {"Nats-Schedule": "@at 2125-01-01T00:00:00Z", "Nats-Schedule-Target": f"{name}.due"}
        subject = f"{name}.plan.{at}" if headers and "Nats-Schedule" in headers else f"{name}.{at % 7}"
        if config.get("max_msgs_per_subject"):
            subject = f"{name}.{at // 4}"
        await manager.connection.publish(subject, b"" if counter else b"%d %s" % (at, PAYLOAD), headers=headers)
        if at % PUBLISHED_AT_ONCE == PUBLISHED_AT_ONCE - 1:
            await manager.connection.flush(60)
    await manager.connection.flush(60)


async def _consume(manager: Manager, stream: str, number: int) -> None:
    """Make a durable consumer and take messages from it, of which every third stays without an ack."""
    info = await manager.consumer_create(
        stream, {"durable_name": "work", "ack_policy": "explicit", "ack_wait": 60 * MINUTE, "max_ack_pending": 5000}
    )
    wanted = PullOptions(count=number, batch=number, wait_s=20.0, no_wait=True)
    at = 0
    if not number:
        return
    async for message in take(manager, stream, "work", wanted, info.raw["config"]):
        at += 1
        if at % 3:
            await manager.connection.request(message.reply, b"+ACK")


async def load(origin: str, destination: str, note: Path, streams: Sequence[str], rate: int) -> None:
    """Publish to both sides' streams in turn, each message until one side has acknowledged it, and consume."""
    mark = note.parent.name
    sides, at, gone = [await opened(origin), await opened(destination)], 0, set[str]()
    taking = asyncio.create_task(_take_on(sides[0], streams))
    with note.open("w") as file:
        while not note.with_suffix(".stop").exists():
            at += 1
            name = streams[at % len(streams)]
            until_s = time.monotonic() + 1 / rate
            while True:
                side = sides[name in gone]
                headers = {"Nats-Msg-Id": f"{mark}{at}"}
                try:
                    ack = await publishing.publish(
                        side, f"{name}.load", f"{mark} {at}".encode(), headers=headers, timeout_s=5
                    )
                    file.write(f"{name} {at} {ack.raw.get('seq')} {name in gone}\n")
                    break
                except NatsctlError:
                    gone ^= {name}
                    await asyncio.sleep(0.05)
            await asyncio.sleep(max(0.0, until_s - time.monotonic()))
    taking.cancel()


async def _take_on(manager: Manager, streams: Sequence[str]) -> None:
    """Consume from the origin now and then, with acks."""
    while True:
        for name in streams:
            with contextlib.suppress(NatsctlError):
                config = (await manager.consumer_info(name, "work")).raw["config"]
                async for message in take(manager, name, "work", PullOptions(count=5, wait_s=0.2, once=True), config):
                    await manager.connection.request(message.reply, b"+ACK")
        await asyncio.sleep(0.05)


class Commands:
    """Runs of `natsctl migrate`, some of them killed."""

    def __init__(self, folder: Path, origin: str, destination: str, dice: random.Random) -> None:
        self._folder, self._dice = folder, dice
        self._words = ["migrate", "--from", origin, "--to", destination, "--dir", str(folder / "copy"), "-j"]
        self.killed = 0

    def run(self, *more: str, kill_after_s: float = 0.0) -> dict[str, Any] | None:
        """Return what the command reports, None where it was killed before its end."""
        command = [sys.executable, "-m", "natsctl", *self._words, *more]
        environment = {**os.environ, "HOME": str(self._folder), "NO_COLOR": "1"}
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
        try:
            out, err = process.communicate(timeout=kill_after_s or ENDED_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.communicate()
            self.killed += 1
            print(f"  killed {' '.join(more) or 'copying'} after {kill_after_s:.2f} s", flush=True)
            return None
        if process.returncode:
            raise RuntimeError(f"migrate {' '.join(more)}: {process.returncode}: {err.decode()}")
        return dict(json.loads(out))

    def killed_at_random(self, kills: int, longest_s: float, *more: str) -> dict[str, Any]:
        """Run the command, killed so many times at most, until it ends."""
        for _ in range(kills):
            if (done := self.run(*more, kill_after_s=self._dice.uniform(0.5, longest_s))) is not None:
                return done
        done = self.run(*more)
        assert done is not None
        return done


async def _all_of(retrying: RetryingManager, name: str, folder: Path) -> dict[int, tuple[Any, ...]]:
    await save_stream(retrying, name, folder, SaveOptions(consumers=False, force=True))
    with open_backup(folder) as backup:
        return {one.seq: tuple(one) for batch in read_messages(backup) for one in batch}


async def compare(folder: Path, origin: str, destination: str, names: Sequence[str]) -> list[str]:
    """Return the differences of both sides; the destination may have more behind the origin's last message."""
    here, there = RetryingManager(await opened(origin)), RetryingManager(await opened(destination))
    faults: list[str] = []
    for name in names:
        first, second = [await _all_of(side, name, folder / "compared") for side in (here, there)]
        infos = [(await side.manager.stream_info(name)).raw for side in (here, there)]
        last = infos[0]["state"]["last_seq"]
        limit = infos[1]["config"].get("max_msgs", -1) > 0
        old = {seq: one for seq, one in second.items() if seq <= last}
        absent = [] if limit else sorted(first.keys() - old.keys())
        faults += [f"{name}: {len(absent)} messages are missing, the first {absent[0]}"] if absent else []
        faults += [f"{name}: {len(extra)} are too much"] if (extra := old.keys() - first.keys()) else []
        faults += [f"{name}: message {seq} differs" for seq in old if seq in first and old[seq] != first[seq]][:3]
        faults += [f"{name}: last sequence"] if infos[1]["state"]["last_seq"] < last else []
        faults += await _compare_consumers(here.manager, there.manager, name, min(first, default=last + 1) - 1)
    for side in (here, there):
        await side.manager.connection.close()
    return faults


async def _compare_consumers(here: Manager, there: Manager, name: str, below: int) -> list[str]:
    """Compare consumers; a server raises what lies below the first message."""
    lists = [
        {
            one.raw["name"]: one.raw
            for one in await side.consumer_list(name)
            if not one.raw["name"].startswith("natsctl_")
        }
        for side in (here, there)
    ]
    if lists[0].keys() != lists[1].keys():
        return [f"{name}: consumers {sorted(lists[0])} and {sorted(lists[1])}"]
    faults = []
    sparse = bool(here.connection.info.get("cluster"))
    for consumer, one in lists[0].items():
        other = lists[1][consumer]
        keys = ("ack_floor",) if sparse else ("ack_floor", "delivered", "num_ack_pending")
        for key in keys:
            values = [_plain(info.get(key), below) for info in (one, other)]
            if values[0] != values[1]:
                faults.append(f"{name} > {consumer}: {key} {values[0]} and {values[1]}")
    return faults


def _plain(value: Any, below: int) -> Any:
    return (value["consumer_seq"], max(value["stream_seq"], below)) if isinstance(value, dict) else value


async def check_acked(folder: Path, destination: str, note: Path) -> list[str]:
    """Return messages of the load that were acknowledged and are not stored once."""
    acked = [line.split() for line in note.read_text().splitlines() if line.count(" ") == 3]
    retrying, faults = RetryingManager(await opened(destination)), []
    for name in sorted({one[0] for one in acked}):
        found = await _all_of(retrying, name, folder / "acked")
        stored = Counter(one[4] for one in found.values())
        for _, number, seq, _ in (one for one in acked if one[0] == name):
            times = stored[f"{note.parent.name} {number}".encode()]
            if times != 1:
                faults.append(f"{name}: message {number}, acknowledged as {seq}, is stored {times} times")
    late = sum(one[3] == "True" for one in acked)
    print(f"  {len(acked)} messages of the load were acknowledged, {late} of them by the destination", flush=True)
    await retrying.manager.connection.close()
    return faults


def move(folder: Path, origin: str, destination: str, names: Sequence[str], given: argparse.Namespace) -> list[str]:
    """Move the streams under load with kills, print figures, and return what is wrong."""
    folder.mkdir()
    note = folder / "load"
    loaded = [name for name in names if int(name[1:]) % 9 in (0, 3, 5)]
    words = [sys.executable, "-m", "tests.support.migration_kills", "--load", origin, destination, str(note)]
    loader = subprocess.Popen([*words, "--rate", str(given.rate), "--names", ",".join(loaded)])
    try:
        commands = Commands(folder, origin, destination, random.Random(given.seed))
        began_s = time.monotonic()
        commands.killed_at_random(given.kills // 2, given.longest / 3)
        copied_s = time.monotonic() - began_s
        more = ["--cutover", *(["--replicas", "3"] if "," in destination else [])]
        kills = given.kills - commands.killed
        report = commands.killed_at_random(kills, given.longest, *more)
        took_s = time.monotonic() - began_s
        time.sleep(2)
    finally:
        note.with_suffix(".stop").touch()
        loader.wait(60)
    print(
        f"  {commands.killed} kills; copied in {copied_s:.1f} s, all in {took_s:.1f} s; the last run took"
        f" {report['elapsed'] / 1e9:.1f} s, closed for {report['pause'] / 1e9:.1f} s; {report['messages']} messages",
        flush=True,
    )
    for one in report["streams"]:
        for warning in one["warnings"]:
            print(f"  {one['stream']}: {warning}", flush=True)
    faults = asyncio.run(compare(folder, origin, destination, names))
    return faults + asyncio.run(check_acked(folder, destination, note))


def main() -> int:
    """Run the test and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=20)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--rate", type=int, default=200, help="messages per second of the load")
    parser.add_argument(
        "--longest",
        type=float,
        default=8.0,
        help="seconds after which a cutover is killed at the latest, copying after a third",
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--back", action="store_true", help="then from the cluster to one nats-server")
    parser.add_argument("--load", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--names", default="", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.load:
        asyncio.run(load(given.load[0], given.load[1], Path(given.load[2]), given.names.split(","), given.rate))
        return 0
    streams = configs(given.streams)
    names = [config["name"] for config in streams]
    with tempfile.TemporaryDirectory(prefix="migration-kills-") as place:
        top = Path(place)
        for name in ("origin", "home"):
            (top / name).mkdir()
        with ServerProcess(top / "origin") as server, Cluster(top / "cluster") as cluster:
            began_s = time.monotonic()
            asyncio.run(fill(server.url, streams, given.messages))
            print(
                f"{given.messages} messages in {given.streams} streams: {time.monotonic() - began_s:.0f} s", flush=True
            )
            faults = move(top / "there", server.url, cluster.url(), names, given)
            if given.back and not faults:
                with ServerProcess(top / "home", "reference") as home:
                    print("back to one server", flush=True)
                    faults = move(top / "back", cluster.url(), home.url, names, given)
    print("\n".join(faults) or "no difference", flush=True)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
