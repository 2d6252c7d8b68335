"""Planted situations: the first line of an explanation names the cause, on both servers."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Concatenate, NamedTuple, ParamSpec

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
from tests.support.servers import managing

HOUR_NS = 3_600 * 10**9


Step = Callable[[Manager], Awaitable[object]]
P = ParamSpec("P")


class Situation(NamedTuple):
    """What is explained, such as `consumer S C`, the steps that plant it, and a part of the verdict."""

    target: str
    steps: tuple[Step, ...]
    verdict: str
    healthy: bool = False
    """Whether no cause is found."""
    moving: bool = False
    """Whether messages are delivered meanwhile."""


EXPLAINERS: dict[str, Callable[..., Awaitable[Explanation]]] = {
    "consumer": explain_consumer,
    "stream": explain_stream,
    "subject": explain_subject,
    "message": lambda manager, stream, seq: explain_message(manager, stream, int(seq)),
}


async def states(manager: Manager) -> list[Any]:
    """Return everything that an explanation must not change."""
    found: list[Any] = []
    for answer in await manager.stream_list():
        found.append(answer.raw["state"])
        for consumer in await manager.consumer_list(answer.value.config.name):
            raw = consumer.raw
            found.append([raw[key] for key in ("name", "delivered", "ack_floor", "num_ack_pending", "num_pending")])
    return found


def step(work: Callable[Concatenate[Manager, P], Awaitable[object]]) -> Callable[P, Step]:
    """Take the arguments first and the manager later, as the tables below need it."""

    def with_arguments(*args: P.args, **named: P.kwargs) -> Step:
        return lambda manager: work(manager, *args, **named)

    return with_arguments


@step
async def stream(manager: Manager, /, messages: int = 0, subject: str = "s.a", **config: Any) -> None:
    await manager.stream_create({"name": "S", "subjects": ["s.>"], "storage": "memory", **config})
    for number in range(messages):
        await publish(subject, b"%d" % number)(manager)


@step
async def publish(manager: Manager, /, subject: str = "s.a", body: bytes = b"x", times: int = 1, **more: Any) -> None:
    for _ in range(times):
        answer = await manager.connection.request(subject, body, **more)
        json.loads(answer.body)


@step
async def consumer(manager: Manager, /, **config: Any) -> None:
    config = {"durable_name": "C", "ack_policy": "explicit", **config}
    await manager.consumer_create("S", config)


@step
async def fetch(manager: Manager, /, count: int, *, ack: bool = False) -> None:
    """Read messages, which stay unacknowledged unless `ack`."""
    read = 0
    async for message in take(manager, "S", "C", PullOptions(count=count), {}):
        if ack:
            await manager.connection.request(message.reply, b"+ACK")
        read += 1
        if read == count:
            break


@step
async def ask(manager: Manager, /, reached: Callable[[dict[str, Any]], bool], **request: Any) -> None:
    """Send a pull request, whose messages go to an inbox that nobody reads, and wait for what comes of it."""
    inbox = f"ask.{time.time_ns()}"
    await manager.connection.subscribe(inbox)
    await manager.connection.publish("$JS.API.CONSUMER.MSG.NEXT.S.C", json.dumps(request).encode(), reply=inbox)
    while not reached((await manager.consumer_info("S", "C")).raw):
        await asyncio.sleep(0.02)


@step
async def pull_nothing(manager: Manager) -> None:
    async for _ in pull(manager, "S", "C", {"batch": 1, "expires": 300_000_000}):
        pass


@step
async def left(manager: Manager, /, messages: int) -> None:
    """Wait until so many messages are left."""
    while (await manager.stream_info("S")).value.state.messages > messages:
        await asyncio.sleep(0.1)


@step
async def seal(manager: Manager) -> None:
    config = (await manager.stream_info("S")).raw["config"]
    await manager.stream_update({**config, "sealed": True})


@step
async def replayed(manager: Manager) -> None:
    for _ in range(4):
        await asyncio.sleep(0.5)
        await publish()(manager)


@step
async def copy(manager: Manager, /, **mirror: Any) -> None:
    await manager.stream_create({"name": "O", "subjects": ["o.>"], "storage": "memory"})
    await publish("o.a")(manager)
    await manager.stream_create({"name": "S", "mirror": {"name": "O", **mirror}, "storage": "memory"})
    await asyncio.sleep(0.2)


@step
async def orphan(manager: Manager, /, **upstream: Any) -> None:
    """Make S, which copies a stream that is gone."""
    await manager.stream_create({"name": "GONE", "subjects": ["g"], "storage": "memory"})
    await manager.stream_create({"name": "S", **upstream, "storage": "memory"})
    await manager.stream_delete("GONE")


def other(name: str, *subjects: str, **config: Any) -> Step:
    """Make another stream than S."""
    return lambda manager: manager.stream_create({"name": name, "subjects": subjects, "storage": "memory", **config})


def pause(seconds: float) -> Step:
    return lambda manager: asyncio.sleep(seconds)


def subscribed(manager: Manager) -> Awaitable[object]:
    return manager.connection.subscribe("out")


EXHAUSTED = (stream(2), consumer(max_deliver=1, ack_wait=50_000_000), fetch(2), pause(0.2), pull_nothing())
FUTURE_COPY = copy(opt_start_time="2200-01-01T00:00:00Z")
SHORT_LIVED = (stream(1, allow_msg_ttl=True), publish(headers=(("Nats-TTL", "1s"),)), publish(), left(2))
SOURCELESS = orphan(sources=[{"name": "GONE"}])
WORKED_OFF = (stream(2, retention="workqueue"), consumer(), fetch(2, ack=True))
CONSUMERS: dict[str, tuple[str, tuple[Step, ...]]] = {
    "paused": (
        "the consumer is paused",
        (
            stream(3),
            consumer(),
            lambda manager: manager.consumer_pause("S", "C", format_time(time.time_ns() + HOUR_NS)),
        ),
    ),
    "unasked": ("no pull request is waiting", (stream(3), consumer())),
    "unbound": ("nobody is subscribed to the deliver subject out", (stream(3), consumer(deliver_subject="out"))),
    "outstanding": (
        "max_ack_pending is reached: 2 messages",
        (stream(5), consumer(max_ack_pending=2), fetch(2)),
    ),
    "unacked": (
        "everything is delivered: 3 messages wait for an ack",
        (stream(3), consumer(backoff=[HOUR_NS, 2 * HOUR_NS], max_deliver=5), fetch(3)),
    ),
    "exhausted": ("at least 2 messages reached max_deliver", EXHAUSTED),
    "unmatched": ("the filter selects no message", (stream(2, "s.eu.new"), consumer(filter_subject="s.*"))),
    "skipped": ("the deliver policy skips all messages", (stream(2), consumer(deliver_policy="new"))),
    "skipped_by_sequence": (
        "the deliver policy skips all messages",
        (stream(2), consumer(deliver_policy="by_start_sequence", opt_start_seq=10)),
    ),
    "removed": (
        "the stream is empty: its messages were removed, and none of them was delivered",
        (stream(), consumer(), publish(times=3), lambda manager: manager.stream_purge("S")),
    ),
    "never_stored": ("the stream has never stored a message", (stream(), consumer())),
    "bodiless": ("bodies are left out", (stream(1), consumer(headers_only=True), fetch(1, ack=True))),
    "consumed_copy": ("nothing has arrived from O", (FUTURE_COPY, consumer())),
    "sourced": ("the stream is empty: nothing has arrived from GONE", (SOURCELESS, consumer())),
    "pinned": (
        "another client is pinned",
        (
            stream(1),
            consumer(priority_policy="pinned_client", priority_groups=["G"], priority_timeout=HOUR_NS),
            *(
                ask(lambda info: info["delivered"]["stream_seq"] == 1, batch=batch, group="G", expires=HOUR_NS)
                for batch in (1, 5)
            ),
            publish(),
        ),
    ),
    "not_overflowing": (
        "the overflow thresholds of the waiting pull requests are not reached",
        (
            stream(3),
            consumer(priority_policy="overflow", priority_groups=["G"]),
            ask(lambda info: info["num_waiting"] == 1, batch=5, group="G", min_pending=100, expires=HOUR_NS),
        ),
    ),
    "partly_unmatched": (
        "the filter s.B selects no message of the stream, the other filters do",
        (stream(1), publish("s.b"), consumer(filter_subjects=["s.a", "s.B"]), fetch(1, ack=True)),
    ),
    "overtaken": (
        "no client asks for messages; 4 messages were removed before delivery",
        (stream(0, max_msgs=2), consumer(), publish(times=6)),
    ),
    "repeated": (
        "1 message waits for an ack or a redelivery, 1 of them delivered more than once",
        (stream(1), consumer(backoff=[50_000_000, HOUR_NS], max_deliver=5), fetch(1), pause(0.1), fetch(1)),
    ),
    "crowded": (
        "the maximum of 1 waiting pull request is reached",
        (
            stream(1),
            consumer(max_waiting=1),
            fetch(1, ack=True),
            ask(lambda info: info["num_waiting"] == 1, batch=1, expires=HOUR_NS),
        ),
    ),
    "held": (
        "message 1 holds the ack floor back",
        (stream(4), consumer(ack_wait=HOUR_NS), fetch(1), fetch(3, ack=True)),
    ),
    "idle": (
        "the consumer is about to be removed as inactive",
        (stream(1), consumer(inactive_threshold=6 * 10**9), fetch(1, ack=True), pause(5.2)),
    ),
}
STREAMS: dict[str, tuple[str, tuple[Step, ...]]] = {
    "sealed": ("the stream is sealed", (stream(1), seal())),
    "full": ("max_msgs is reached: publishes are refused", (stream(3, max_msgs=3, discard="new"),)),
    "full_subject": (
        "max_msgs_per_subject is reached",
        (stream(2, max_msgs_per_subject=2, discard="new", discard_new_per_subject=True),),
    ),
    "full_of_bytes": (
        "max_bytes is reached: publishes are refused",
        (stream(0, max_bytes=10_000, discard="new"), publish("s.a", b"x" * 900, 20)),
    ),
    "rolling": ("max_msgs is reached: each new message removes the oldest", (stream(5, max_msgs=3),)),
    "rolling_subject": (
        "max_msgs_per_subject removes the oldest message of a subject",
        (stream(1, "s.b", max_msgs_per_subject=2), publish(times=4)),
    ),
    "rolling_bytes": (
        "max_bytes is reached: each new message removes the oldest",
        (stream(0, max_bytes=10_000), publish("s.a", b"x" * 900, 20)),
    ),
    "aged": (
        "the stream is empty: max_age removed its messages",
        (stream(2, max_age=200_000_000, duplicate_window=100_000_000), left(0)),
    ),
    "short_lived": ("messages expire by their own TTL", SHORT_LIVED),
    "uninteresting": ("interest retention without a consumer", (stream(2, retention="interest"),)),
    "partly_interesting": (
        "interest retention: messages that no consumer selects",
        (stream(0, subjects=["s.a", "s.b"], retention="interest"), consumer(filter_subject="s.a")),
    ),
    "narrowly_interesting": (
        "interest retention: messages that no consumer selects",
        (stream(0, retention="interest"), consumer(filter_subject="s.b"), publish()),
    ),
    "mistaken_copy": ("the mirror O has no message that the filter o.A selects", (copy(filter_subject="o.A"),)),
    "future_copy": ("the mirror O has no message after opt_start_time 2200", (FUTURE_COPY,)),
    "orphaned": ("the mirror GONE does not exist", (orphan(mirror={"name": "GONE"}),)),
    "sourceless": ("the source GONE does not exist", (SOURCELESS,)),
    "unreachable": (
        "the source FAR is not connected",
        (other("S", sources=[{"name": "FAR", "external": {"api": "$JS.FAR.API", "deliver": "far"}}]),),
    ),
    "counting": ("messages without the header Nats-Incr are refused", (stream(allow_msg_counter=True),)),
    "silent": ("publishers get no ack", (stream(no_ack=True),)),
    "worked_off": ("its consumers have acknowledged all messages", WORKED_OFF),
    "consumed": ("max_consumers is reached", (stream(1, max_consumers=1), consumer())),
    "no_stream": ("stream S does not exist", (other("T", "t"),)),
}
SITUATIONS: dict[str, Situation] = {
    **{name: Situation("consumer S C", steps, verdict) for name, (verdict, steps) in CONSUMERS.items()},
    **{name: Situation("stream S", steps, verdict) for name, (verdict, steps) in STREAMS.items()},
    "replayed": Situation(
        "consumer S C",
        (stream(2), replayed(), subscribed, consumer(deliver_subject="out", replay_policy="original")),
        "messages are replayed at the pace of their arrival",
        moving=True,
    ),
    "limited": Situation(
        "consumer S C",
        (
            stream(0, max_msg_size=2000),
            publish("s.a", b"x" * 1000, 20),
            subscribed,
            consumer(deliver_subject="out", rate_limit_bps=8000),
        ),
        "the rate limit of 8,000 bits per second slows the deliveries",
        moving=True,
    ),
    "no_consumer": Situation("consumer S D", (stream(1), consumer()), "consumer D does not exist"),
    "caught_up": Situation(
        "consumer S C", (stream(2), consumer(), fetch(2, ack=True)), "has delivered everything", healthy=True
    ),
    "sound": Situation("stream S", (stream(2),), "accepts messages and keeps them", healthy=True),
    "unstored": Situation("subject S.a", (stream(1),), "no stream stores the subject"),
    "transformed": Situation(
        "subject s.a",
        (stream(1, subject_transform={"src": "s.>", "dest": "t.>"}), consumer(filter_subject="t.a")),
        "stream S stores it as t.a, 1 consumer gets it",
        healthy=True,
    ),
    "unread": Situation(
        "subject s.a",
        (stream(1), consumer(filter_subject="s.b")),
        "stream S stores it, 0 consumers get it",
        healthy=True,
    ),
    "several": Situation(
        "subject *.a", (stream(), other("T", "t.>")), "2 streams store subjects of it: S, T", healthy=True
    ),
    "kv": Situation(
        "subject $KV.B.k",
        (other("KV_B", "$KV.B.>", max_msgs_per_subject=1), publish("$KV.B.k")),
        "key k of bucket B",
        healthy=True,
    ),
    "passed_over": Situation(
        "message S 2",
        (stream(3), consumer(deliver_policy="by_start_sequence", opt_start_seq=3), fetch(1, ack=True)),
        "consumers: skipped 1",
        healthy=True,
    ),
    "pending": Situation(
        "message S 1",
        (stream(3), consumer(ack_wait=HOUR_NS), fetch(2)),
        "the message is stored; consumers: pending 1",
        healthy=True,
    ),
    "future": Situation("message S 9", (stream(2),), "the message does not exist yet"),
    "pushed_out": Situation(
        "message S 1", (stream(5, max_msgs=3),), "removed from the start of the stream by max_msgs 3"
    ),
    "deleted": Situation(
        "message S 2",
        (stream(3), lambda manager: manager.message_delete("S", 2)),
        "removed from the middle of the stream by a deletion or a purge",
    ),
    "superseded": Situation(
        "message S 2",
        (stream(1, "s.b", max_msgs_per_subject=1), publish(times=2)),
        "newer messages on its subject",
    ),
    "message_ttl": Situation("message S 2", SHORT_LIVED, "its own TTL"),
    "message_past": Situation("message S 1", EXHAUSTED, "the message reached max_deliver of consumer C"),
    "worked": Situation("message S 1", WORKED_OFF, "the ack of a consumer (work-queue retention)"),
    "rolled_up": Situation(
        "message S 2",
        (stream(1, "s.b", allow_rollup_hdrs=True), publish(), publish(headers=(("Nats-Rollup", "sub"),))),
        "a rollup",
    ),
}


@pytest.mark.both
@pytest.mark.parametrize("name", SITUATIONS)
async def test_the_verdict_names_the_cause(manager: Manager, name: str) -> None:
    planted = SITUATIONS[name]
    kind, *target = planted.target.split()
    for planting in planted.steps:
        await planting(manager)
    before = await states(manager)
    explanation = await EXPLAINERS[kind](manager, *target)
    assert planted.verdict in explanation.verdict
    assert bool(explanation.causes) is not planted.healthy
    assert planted.moving or await states(manager) == before


@pytest.mark.both
async def test_each_consumer_has_its_view_of_a_message(manager: Manager) -> None:
    await stream(3)(manager)
    for name, subject in (("C", "s.a"), ("OTHER", "s.b"), ("LATER", "s.>")):
        await manager.consumer_create("S", {"durable_name": name, "ack_policy": "explicit", "filter_subject": subject})
    await fetch(2, ack=True)(manager)
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
        async with managing(server.url, user="all", password="p") as manager:
            await stream(1)(manager)
            await consumer(filter_subject="s.b")(manager)
        verdicts, unknown = {}, {}
        targets = {"consumer": "S C", "stream": "S", "message": "S 1", "subject": "s.a", "publisher": "s.a"}
        for name, target in targets.items():
            async with managing(server.url, user=name, password="p") as manager:
                explanation = await EXPLAINERS.get(name, explain_subject)(manager, *target.split())
            verdicts[name] = explanation.verdict
            unknown[name] = [line for line in explanation.unknown if "not authorised" in line]
        async with managing(server.url, user="none", password="p") as manager:
            assert (await explain_stream(manager, "T")).verdict == "stream T does not exist"
        async with managing(server.url, user="bare", password="p") as manager:
            assert "no stream stores" in (await explain_subject(manager, "s.a")).verdict
            with pytest.raises(ApiResponseError, match="not enabled"):
                await explain_stream(manager, "S")
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
