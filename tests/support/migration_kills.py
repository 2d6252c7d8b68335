"""Streams of every kind for the tests of `natsctl migrate`, and a comparison of both sides.

Every message is compared with sequence, time, subject, headers and payload, and every consumer with its ack floor and
what is pending. A cluster's snapshot does not say which messages of a consumer are pending: they are compared where all
of them between ack floor and last delivery are.
"""

import contextlib
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
from natsctl.client.messaging.consumers import PullOptions, take
from natsctl.client.servers import resolve
from natsctl.client.settings import Settings

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
