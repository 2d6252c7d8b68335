"""Planted situations: the first line of an explanation names the cause, on both servers."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from natsctl.api.errors import ApiResponseError
from natsctl.api.times import format_time
from natsctl.client.explain.consumer import explain_consumer
from natsctl.client.explain.explanation import Explanation, near_misses
from natsctl.client.explain.message import MessageExplanation, explain_message
from natsctl.client.explain.stream import explain_stream
from natsctl.client.explain.subject import explain_subject
from natsctl.client.manager import Manager
from natsctl.client.messaging.consumers import PullOptions, pull, take
from natsctl.testing.process import Kind, ServerProcess
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
EXPLAINERS: dict[str, Callable[..., Awaitable[Explanation]]] = {
    "consumer": explain_consumer,
    "stream": explain_stream,
    "subject": explain_subject,
    "message": lambda manager, stream, seq: explain_message(manager, stream, int(seq)),
}


def situation(verdict: str, target: str, *, healthy: bool = False, moving: bool = False) -> Any:
    """Register a planted situation; `target` is what is explained, such as `consumer S C`."""
    kind, *names = target.split()

    def register(plant: Callable[[Manager], Awaitable[None]]) -> Callable[[Manager], Awaitable[None]]:
        SITUATIONS[plant.__name__] = Situation(
            plant, lambda manager: EXPLAINERS[kind](manager, *names), verdict, healthy, moving
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


async def ask(manager: Manager, **request: Any) -> None:
    """Send a pull request; its messages go to an inbox that nobody reads."""
    inbox = f"ask.{time.time_ns()}"
    await manager.connection.subscribe(inbox)
    await manager.connection.publish("$JS.API.CONSUMER.MSG.NEXT.S.C", json.dumps(request).encode(), reply=inbox)


async def settled(manager: Manager, reached: Callable[[dict[str, Any]], bool]) -> None:
    while not reached((await manager.consumer_info("S", "C")).raw):
        await asyncio.sleep(0.02)


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


@situation("interest retention: messages that no consumer selects", "stream S")
async def narrowly_interesting(manager: Manager) -> None:
    await make(manager, 0, retention="interest")
    await consumer(manager, filter_subject="s.b")
    await publish(manager, "s.a")


async def copy(manager: Manager, **mirror: Any) -> None:
    await manager.stream_create({"name": "O", "subjects": ["o.>"], "storage": "memory"})
    await publish(manager, "o.a")
    await manager.stream_create({"name": "S", "mirror": {"name": "O", **mirror}, "storage": "memory"})
    await asyncio.sleep(0.2)


@situation("the mirror O has no message that the filter o.A selects", "stream S")
async def mistaken_copy(manager: Manager) -> None:
    await copy(manager, filter_subject="o.A")


@situation("the mirror O has no message after opt_start_time 2200", "stream S")
async def future_copy(manager: Manager) -> None:
    await copy(manager, opt_start_time="2200-01-01T00:00:00Z")


@situation("nothing has arrived from O", "consumer S C")
async def consumed_copy(manager: Manager) -> None:
    await future_copy(manager)
    await consumer(manager)


@situation("messages without the header Nats-Incr are refused", "stream S")
async def counting(manager: Manager) -> None:
    await make(manager, allow_msg_counter=True)


@situation("publishers get no ack", "stream S")
async def silent(manager: Manager) -> None:
    await make(manager, no_ack=True)


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


@situation("2 streams store subjects of it: S, T", "subject *.a", healthy=True)
async def several(manager: Manager) -> None:
    await make(manager)
    await manager.stream_create({"name": "T", "subjects": ["t.>"], "storage": "memory"})


# -- messages


@situation("consumers: skipped 1", "message S 2", healthy=True)
async def passed_over(manager: Manager) -> None:
    await make(manager, 3)
    await consumer(manager, deliver_policy="by_start_sequence", opt_start_seq=3)
    await fetch(manager, 1, ack=True)


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


@situation("another client is pinned", "consumer S C")
async def pinned(manager: Manager) -> None:
    await make(manager, 1)
    await consumer(manager, priority_policy="pinned_client", priority_groups=["G"], priority_timeout=HOUR_NS)
    for batch in (1, 5):
        await ask(manager, batch=batch, group="G", expires=HOUR_NS)
        await settled(manager, lambda info: info["delivered"]["stream_seq"] == 1)
    await publish(manager, "s.a")


@situation("the overflow thresholds of the waiting pull requests are not reached", "consumer S C")
async def not_overflowing(manager: Manager) -> None:
    await make(manager, 3)
    await consumer(manager, priority_policy="overflow", priority_groups=["G"])
    await ask(manager, batch=5, group="G", min_pending=100, expires=HOUR_NS)
    await settled(manager, lambda info: info["num_waiting"] == 1)


@situation("the filter s.B selects no message of the stream, the other filters do", "consumer S C")
async def partly_unmatched(manager: Manager) -> None:
    await make(manager, 1)
    await publish(manager, "s.b")
    await consumer(manager, filter_subjects=["s.a", "s.B"])
    await fetch(manager, 1, ack=True)


@situation("no client asks for messages; 4 messages were removed before delivery", "consumer S C")
async def overtaken(manager: Manager) -> None:
    await make(manager, 0, max_msgs=2)
    await consumer(manager)
    for _ in range(6):
        await publish(manager, "s.a")


@situation("1 message waits for an ack or a redelivery, 1 of them delivered more than once", "consumer S C")
async def repeated(manager: Manager) -> None:
    await make(manager, 1)
    await consumer(manager, backoff=[50_000_000, HOUR_NS], max_deliver=5)
    await fetch(manager, 1)
    await asyncio.sleep(0.1)
    await fetch(manager, 1)


@situation("the maximum of 1 waiting pull request is reached", "consumer S C")
async def crowded(manager: Manager) -> None:
    await make(manager, 1)
    await consumer(manager, max_waiting=1)
    await fetch(manager, 1, ack=True)
    await ask(manager, batch=1, expires=HOUR_NS)
    await settled(manager, lambda info: info["num_waiting"] == 1)


@situation("the rate limit of 8,000 bits per second slows the deliveries", "consumer S C", moving=True)
async def limited(manager: Manager) -> None:
    await make(manager, 0, max_msg_size=2000)
    for _ in range(20):
        await publish(manager, "s.a", b"x" * 1000)
    await manager.connection.subscribe("out")
    await consumer(manager, deliver_subject="out", rate_limit_bps=8000)


@situation("message 1 holds the ack floor back", "consumer S C")
async def held(manager: Manager) -> None:
    await make(manager, 4)
    await consumer(manager, ack_wait=HOUR_NS)
    await fetch(manager, 1)
    await fetch(manager, 3, ack=True)


@situation("the consumer is about to be removed as inactive", "consumer S C")
async def idle(manager: Manager) -> None:
    await make(manager, 1)
    await consumer(manager, inactive_threshold=6 * 10**9)
    await fetch(manager, 1, ack=True)
    await asyncio.sleep(5.2)


@situation("the stream is empty: nothing has arrived from GONE", "consumer S C")
async def sourced(manager: Manager) -> None:
    await sourceless(manager)
    await consumer(manager)


@situation("the source GONE does not exist", "stream S")
async def sourceless(manager: Manager) -> None:
    await manager.stream_create({"name": "GONE", "subjects": ["g"], "storage": "memory"})
    await manager.stream_create({"name": "S", "sources": [{"name": "GONE"}], "storage": "memory"})
    await manager.stream_delete("GONE")


@situation("the source FAR is not connected", "stream S")
async def unreachable(manager: Manager) -> None:
    external = {"api": "$JS.FAR.API", "deliver": "far"}
    await manager.stream_create({"name": "S", "sources": [{"name": "FAR", "external": external}], "storage": "memory"})


@situation("messages expire by their own TTL", "stream S")
async def short_lived(manager: Manager) -> None:
    await make(manager, 1, allow_msg_ttl=True)
    await publish(manager, "s.a", **{"Nats-TTL": "1s"})
    await publish(manager, "s.a")
    while (await manager.stream_info("S")).value.state.messages == 3:
        await asyncio.sleep(0.1)


@situation("max_bytes is reached: publishes are refused", "stream S")
async def full_of_bytes(manager: Manager) -> None:
    await make(manager, 0, max_bytes=10_000, discard="new")
    for _ in range(20):
        await publish(manager, "s.a", b"x" * 900)


@situation("max_bytes is reached: each new message removes the oldest", "stream S")
async def rolling_bytes(manager: Manager) -> None:
    await make(manager, 0, max_bytes=10_000)
    for _ in range(20):
        await publish(manager, "s.a", b"x" * 900)


@situation("max_consumers is reached", "stream S")
async def consumed(manager: Manager) -> None:
    await make(manager, 1, max_consumers=1)
    await consumer(manager)


@situation("its own TTL", "message S 2")
async def message_ttl(manager: Manager) -> None:
    await short_lived(manager)


@situation("the message reached max_deliver of consumer C", "message S 1")
async def message_past(manager: Manager) -> None:
    await exhausted(manager)


@situation("key k of bucket B", "subject $KV.B.k", healthy=True)
async def kv(manager: Manager) -> None:
    await manager.stream_create(
        {"name": "KV_B", "subjects": ["$KV.B.>"], "storage": "memory", "max_msgs_per_subject": 1}
    )
    await publish(manager, "$KV.B.k")


@situation("the ack of a consumer (work-queue retention)", "message S 1")
async def worked(manager: Manager) -> None:
    await worked_off(manager)


@situation("a rollup", "message S 2")
async def rolled_up(manager: Manager) -> None:
    await make(manager, 1, "s.b", allow_rollup_hdrs=True)
    await publish(manager, "s.a")
    await publish(manager, "s.a", **{"Nats-Rollup": "sub"})


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


PERMITTED = {
    "consumer": ["$JS.API.STREAM.INFO.S", "$JS.API.CONSUMER.INFO.S.C"],
    "stream": ["$JS.API.STREAM.INFO.S"],
    "message": ["$JS.API.STREAM.INFO.S", "$JS.API.STREAM.MSG.GET.S"],
    "subject": ["$JS.API.STREAM.LIST", "$JS.API.CONSUMER.LIST.*", "$SYS.REQ.USER.INFO"],
    "publisher": ["$SYS.REQ.USER.INFO", "s.a"],
    "none": ["$JS.API.STREAM.INFO.T"],
}
"""The subjects that docs/permissions.md requires for each explanation."""


@pytest.mark.parametrize("kind", ["natsctl", pytest.param("reference", marks=pytest.mark.reference)])
async def test_an_explanation_needs_no_more_than_the_page_says_and_names_what_it_could_not_see(
    kind: Kind, tmp_path: Path
) -> None:
    users = [
        {"user": name, "password": "p", "permissions": {"publish": allowed, "subscribe": ["_INBOX.>"]}}
        for name, allowed in PERMITTED.items()
    ]
    config = tmp_path / "nats.conf"
    accounts = {
        "A": {"jetstream": {"max_mem": 10**6}, "users": [{"user": "all", "password": "p"}, *users]},
        "B": {"users": [{"user": "bare", "password": "p"}]},
    }
    config.write_text(json.dumps({"listen": "127.0.0.1:-1", "jetstream": {}, "accounts": accounts}))
    with ServerProcess(tmp_path / "server", kind, "-c", str(config)) as server:
        async with await connected(server.url, user="all", password="p") as connection:
            await make(manager := Manager(connection), 1)
            await consumer(manager, filter_subject="s.b")
        verdicts, unknown = {}, {}
        targets = {"consumer": "S C", "stream": "S", "message": "S 1", "subject": "s.a", "publisher": "s.a"}
        for name, target in targets.items():
            async with await connected(server.url, user=name, password="p") as connection:
                explain = EXPLAINERS.get(name, explain_subject)
                explanation = await explain(Manager(connection), *target.split())
            verdicts[name] = explanation.verdict
            unknown[name] = [line for line in explanation.unknown if "not authorised" in line]
        async with await connected(server.url, user="none", password="p") as connection:
            assert (await explain_stream(Manager(connection), "T")).verdict == "stream T does not exist"
        async with await connected(server.url, user="bare", password="p") as connection:
            assert "no stream stores" in (await explain_subject(Manager(connection), "s.a")).verdict
            with pytest.raises(ApiResponseError, match="not enabled"):
                await explain_stream(Manager(connection), "S")
    assert verdicts == {
        "consumer": "the consumer has delivered everything that it selects",
        "stream": "the stream accepts messages and keeps them",
        "message": "the message is stored",
        "subject": "this user may not publish to the subject",
        "publisher": "this user may not subscribe to the subject",
    }
    assert {name: len(lines) for name, lines in unknown.items()} == {
        "consumer": 1, "stream": 1, "message": 1, "subject": 0, "publisher": 1
    }  # fmt: skip


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
