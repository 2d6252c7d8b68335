"""Planted situations: the first line of an explanation names the cause, on both servers."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import pytest

from natsctl.api.times import format_time
from natsctl.client.explain.consumer import explain_consumer
from natsctl.client.explain.explanation import Explanation, near_misses
from natsctl.client.explain.message import MessageExplanation, explain_message
from natsctl.client.explain.stream import explain_stream
from natsctl.client.explain.subject import explain_subject
from natsctl.client.manager import Manager
from natsctl.client.messaging.consumers import PullOptions, pull, take
from tests.client.conftest import connected

HOUR_NS = 3_600 * 10**9


class Situation(NamedTuple):
    """What is planted, what is explained, and a part of the verdict; None: no cause is found."""

    plant: Callable[[Manager], Awaitable[None]]
    explain: Callable[[Manager], Awaitable[Explanation]]
    verdict: str
    healthy: bool = False
    moving: bool = False
    """Whether messages are delivered meanwhile."""


SITUATIONS: dict[str, Situation] = {}


def situation(verdict: str, target: str, *, healthy: bool = False, moving: bool = False) -> Any:
    """Register a planted situation; `target` is what is explained, such as `consumer S C`."""
    kind, *names = target.split()
    explainers: dict[str, Callable[..., Awaitable[Explanation]]] = {
        "consumer": explain_consumer, "stream": explain_stream, "subject": explain_subject,
        "message": lambda manager, stream, seq: explain_message(manager, stream, int(seq)),
    }  # fmt: skip

    def register(plant: Callable[[Manager], Awaitable[None]]) -> Callable[[Manager], Awaitable[None]]:
        SITUATIONS[plant.__name__] = Situation(
            plant, lambda manager: explainers[kind](manager, *names), verdict, healthy, moving
        )
        return plant

    return register


async def states(manager: Manager) -> list[Any]:
    """Return everything that an explanation must not change."""
    found: list[Any] = []
    for answer in await manager.stream_list():
        found.append(answer.raw["state"])
        for consumer in await manager.consumer_list(answer.value.config.name):
            raw = consumer.raw
            found.append([raw[key] for key in ("name", "delivered", "ack_floor", "num_ack_pending", "num_pending")])
    return found


async def make(manager: Manager, messages: int = 0, subject: str = "s.a", **config: Any) -> None:
    await manager.stream_create({"name": "S", "subjects": ["s.>"], "storage": "memory", **config})
    for number in range(messages):
        await publish(manager, subject, b"%d" % number)


async def publish(manager: Manager, subject: str, body: bytes = b"x", **headers: str) -> None:
    answer = await manager.connection.request(subject, body, headers=tuple(headers.items()))
    json.loads(answer.body)


async def consumer(manager: Manager, **config: Any) -> None:
    config = {"durable_name": "C", "ack_policy": "explicit", **config}
    await manager.consumer_create("S", config)


async def fetch(manager: Manager, count: int, *, ack: bool = False) -> None:
    """Read messages, which stay unacknowledged unless `ack`."""
    read = 0
    async for message in take(manager, "S", "C", PullOptions(count=count), {}):
        if ack:
            await manager.connection.request(message.reply, b"+ACK")
        read += 1
        if read == count:
            break


# -- consumers


@situation("the consumer is paused", "consumer S C")
async def paused(manager: Manager) -> None:
    await make(manager, 3)
    await consumer(manager)
    await manager.consumer_pause("S", "C", format_time(time.time_ns() + HOUR_NS))


@situation("no pull request is waiting", "consumer S C")
async def unasked(manager: Manager) -> None:
    await make(manager, 3)
    await consumer(manager)


@situation("nobody is subscribed to the deliver subject out", "consumer S C")
async def unbound(manager: Manager) -> None:
    await make(manager, 3)
    await consumer(manager, deliver_subject="out")


@situation("max_ack_pending is reached: 2 messages", "consumer S C")
async def outstanding(manager: Manager) -> None:
    await make(manager, 5)
    await consumer(manager, max_ack_pending=2)
    await fetch(manager, 2)


@situation("everything is delivered: 3 messages wait for an ack", "consumer S C")
async def unacked(manager: Manager) -> None:
    await make(manager, 3)
    await consumer(manager, backoff=[HOUR_NS, 2 * HOUR_NS], max_deliver=5)
    await fetch(manager, 3)


@situation("at least 2 messages reached max_deliver", "consumer S C")
async def exhausted(manager: Manager) -> None:
    await make(manager, 2)
    await consumer(manager, max_deliver=1, ack_wait=50_000_000)
    await fetch(manager, 2)
    await asyncio.sleep(0.2)
    async for _ in pull(manager, "S", "C", {"batch": 1, "expires": 300_000_000}):
        pass


@situation("the filter selects no message", "consumer S C")
async def unmatched(manager: Manager) -> None:
    await make(manager, 2, "s.eu.new")
    await consumer(manager, filter_subject="s.*")


@situation("the deliver policy skips all messages", "consumer S C")
async def skipped(manager: Manager) -> None:
    await make(manager, 2)
    await consumer(manager, deliver_policy="new")


@situation("the deliver policy skips all messages", "consumer S C")
async def skipped_by_sequence(manager: Manager) -> None:
    await make(manager, 2)
    await consumer(manager, deliver_policy="by_start_sequence", opt_start_seq=10)


@situation("the stream is empty: its messages were removed, and none of them was delivered", "consumer S C")
async def removed(manager: Manager) -> None:
    await make(manager)
    await consumer(manager)
    for _ in range(3):
        await publish(manager, "s.a")
    await manager.stream_purge("S")


@situation("the stream has never stored a message", "consumer S C")
async def never_stored(manager: Manager) -> None:
    await make(manager)
    await consumer(manager)


@situation("messages are replayed at the pace of their arrival", "consumer S C", moving=True)
async def replayed(manager: Manager) -> None:
    await make(manager, 2)
    for _ in range(4):
        await asyncio.sleep(0.5)
        await publish(manager, "s.a")
    await manager.connection.subscribe("out")
    await consumer(manager, deliver_subject="out", replay_policy="original")


@situation("bodies are left out", "consumer S C")
async def bodiless(manager: Manager) -> None:
    await make(manager, 1)
    await consumer(manager, headers_only=True)
    await fetch(manager, 1, ack=True)


@situation("consumer D does not exist", "consumer S D")
async def no_consumer(manager: Manager) -> None:
    await make(manager, 1)
    await consumer(manager)


@situation("has delivered everything", "consumer S C", healthy=True)
async def caught_up(manager: Manager) -> None:
    await make(manager, 2)
    await consumer(manager)
    await fetch(manager, 2, ack=True)


# -- streams


@situation("the stream is sealed", "stream S")
async def sealed(manager: Manager) -> None:
    await make(manager, 1)
    config = (await manager.stream_info("S")).raw["config"]
    await manager.stream_update({**config, "sealed": True})


@situation("max_msgs is reached: publishes are refused", "stream S")
async def full(manager: Manager) -> None:
    await make(manager, 3, max_msgs=3, discard="new")


@situation("max_msgs_per_subject is reached", "stream S")
async def full_subject(manager: Manager) -> None:
    await make(manager, 2, max_msgs_per_subject=2, discard="new", discard_new_per_subject=True)


@situation("max_msgs is reached: each new message removes the oldest", "stream S")
async def rolling(manager: Manager) -> None:
    await make(manager, 5, max_msgs=3)


@situation("max_msgs_per_subject removes the oldest message of a subject", "stream S")
async def rolling_subject(manager: Manager) -> None:
    await make(manager, 1, "s.b", max_msgs_per_subject=2)
    for _ in range(4):
        await publish(manager, "s.a")


@situation("the stream is empty: max_age removed its messages", "stream S")
async def aged(manager: Manager) -> None:
    await make(manager, 2, max_age=200_000_000, duplicate_window=100_000_000)
    while (await manager.stream_info("S")).value.state.messages:
        await asyncio.sleep(0.1)


@situation("interest retention without a consumer", "stream S")
async def uninteresting(manager: Manager) -> None:
    await make(manager, 2, retention="interest")


@situation("interest retention: messages that no consumer selects", "stream S")
async def partly_interesting(manager: Manager) -> None:
    await make(manager, 0, subjects=["s.a", "s.b"], retention="interest")
    await consumer(manager, filter_subject="s.a")


@situation("the mirror GONE does not exist", "stream S")
async def orphaned(manager: Manager) -> None:
    await manager.stream_create({"name": "GONE", "subjects": ["g"], "storage": "memory"})
    await manager.stream_create({"name": "S", "mirror": {"name": "GONE"}, "storage": "memory"})
    await manager.stream_delete("GONE")


@situation("its consumers have acknowledged all messages", "stream S")
async def worked_off(manager: Manager) -> None:
    await make(manager, 2, retention="workqueue")
    await consumer(manager)
    await fetch(manager, 2, ack=True)


@situation("stream S does not exist", "stream S")
async def no_stream(manager: Manager) -> None:
    await manager.stream_create({"name": "T", "subjects": ["t"], "storage": "memory"})


@situation("accepts messages and keeps them", "stream S", healthy=True)
async def sound(manager: Manager) -> None:
    await make(manager, 2)


# -- subjects


@situation("no stream stores the subject", "subject S.a")
async def unstored(manager: Manager) -> None:
    await make(manager, 1)


@situation("stream S stores it as t.a, 1 consumer gets it", "subject s.a", healthy=True)
async def transformed(manager: Manager) -> None:
    await make(manager, 1, subject_transform={"src": "s.>", "dest": "t.>"})
    await consumer(manager, filter_subject="t.a")


@situation("stream S stores it, 0 consumers get it", "subject s.a", healthy=True)
async def unread(manager: Manager) -> None:
    await make(manager, 1)
    await consumer(manager, filter_subject="s.b")


# -- messages


@situation("the message does not exist yet", "message S 9")
async def future(manager: Manager) -> None:
    await make(manager, 2)


@situation("removed from the start of the stream by max_msgs 3", "message S 1")
async def pushed_out(manager: Manager) -> None:
    await make(manager, 5, max_msgs=3)


@situation("removed from the middle of the stream by a deletion or a purge", "message S 2")
async def deleted(manager: Manager) -> None:
    await make(manager, 3)
    await manager.message_delete("S", 2)


@situation("newer messages on its subject", "message S 2")
async def superseded(manager: Manager) -> None:
    await make(manager, 1, "s.b", max_msgs_per_subject=1)
    for _ in range(2):
        await publish(manager, "s.a")


@situation("the message is stored; consumers: pending 1", "message S 1", healthy=True)
async def pending(manager: Manager) -> None:
    await make(manager, 3)
    await consumer(manager, ack_wait=HOUR_NS)
    await fetch(manager, 2)


@pytest.mark.both
@pytest.mark.parametrize("name", SITUATIONS)
async def test_the_verdict_names_the_cause(server: Any, name: str) -> None:
    planted = SITUATIONS[name]
    async with await connected(server.url) as connection:
        manager = Manager(connection)
        await planted.plant(manager)
        before = await states(manager)
        explanation = await planted.explain(manager)
        assert planted.verdict in explanation.verdict
        assert bool(explanation.causes) is not planted.healthy
        assert planted.moving or await states(manager) == before


@pytest.mark.both
async def test_each_consumer_has_its_view_of_a_message(server: Any) -> None:
    async with await connected(server.url) as connection:
        manager = Manager(connection)
        await make(manager, 3)
        for name, subject in (("C", "s.a"), ("OTHER", "s.b"), ("LATER", "s.>")):
            await manager.consumer_create(
                "S", {"durable_name": name, "ack_policy": "explicit", "filter_subject": subject}
            )
        await fetch(manager, 2, ack=True)
        explanation: MessageExplanation = await explain_message(manager, "S", 2)
        views = {view.consumer: view.state for view in explanation.consumers}
        assert views == {"C": "settled", "OTHER": "filtered out", "LATER": "not reached"}


@pytest.mark.parametrize(
    ("pattern", "subject", "reason"),
    [
        ("orders.new", "ORDERS.new", "upper and lower case"),
        ("orders.*", "orders.eu.new", "more tokens"),
        ("orders.>", "orders", "at least one"),
        ("orders.new", "orders.eu.new", "one token more"),
        ("orders.eu.new", "orders.new", "one token fewer"),
        ("orders.new", "order.new", "spelled differently"),
    ],
)
def test_a_near_miss_has_its_reason(pattern: str, subject: str, reason: str) -> None:
    assert reason in near_misses(pattern, [subject, "far.away.from.here.to.there"])[0]
