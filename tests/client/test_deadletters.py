"""Dead letters on both servers: kept, listed, copied, replayed once and discarded."""

import asyncio
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from natsctl.api.acks import TERM
from natsctl.api.errors import ApiResponseError, ConflictError
from natsctl.client.deadletters.capture import (
    EVERY_STREAM,
    CaptureOptions,
    NoDeadLettersError,
    capture_streams,
    disable,
    enable,
)
from natsctl.client.deadletters.copying import copy_messages, turn_on_copies
from natsctl.client.deadletters.letters import (
    REPLAYED,
    DeadLetter,
    DeliveryFailure,
    FailedMessage,
    LetterFilter,
    copy_headers,
    count_letters,
    describe,
    follow_letters,
    message_of_copy,
    parse_advisory,
    read_letters,
    replay_headers,
)
from natsctl.client.deadletters.replay import ReplayOptions, discard, replay
from natsctl.client.manager import Manager
from natsctl.client.messaging.consumers import pull
from natsctl.client.messaging.messages import acknowledge, at, publish
from natsctl.testing.process import Kind, ServerProcess
from tests.support.servers import managing

ACK_WAIT_NS = 200_000_000
RETENTIONS = ("limits", "workqueue", "interest")


async def failing(
    manager: Manager,
    number: int = 3,
    terminated: Sequence[int] = (),
    stream: str = "S",
    keep: CaptureOptions | None = CaptureOptions(),
    **config: Any,
) -> None:
    """Make a stream with messages that its consumer gives up, or terminates by number; `keep` keeps them."""
    subjects = [f"{stream.lower()}.>"]
    await manager.stream_create({"name": stream, "subjects": subjects, "storage": "memory", **config})
    if keep is not None:
        await enable(manager, stream, keep)
    consumer = {"durable_name": "C", "ack_policy": "explicit", "ack_wait": ACK_WAIT_NS, "max_deliver": 1}
    await manager.consumer_create(stream, consumer)
    for index in range(number):
        headers = [("Nats-Msg-Id", f"{stream}{index}"), ("Trace", "a"), ("Trace", "b")]
        await publish(manager, f"{stream.lower()}.{index}", b"body %d" % index, headers=headers)
    index = 0
    async for message in pull(manager, stream, "C", {"batch": number, "no_wait": True}):
        if index in terminated:
            await acknowledge(manager, message, TERM + b" bad order")
        index += 1


async def letters_of(manager: Manager, number: int, **wanted: Any) -> list[DeadLetter]:
    """Return the dead letters once there are so many."""
    until_s = time.monotonic() + 20
    while len(letters := await read_letters(manager, LetterFilter(**wanted))) != number:
        assert time.monotonic() < until_s, letters
        # A consumer of nats-server notices a message past its ack wait when it is asked for the next one.
        for name in await manager.stream_names():
            if name in ("S", "T"):
                async for _ in pull(manager, name, "C", {"batch": 1, "no_wait": True}):
                    pass
        await asyncio.sleep(0.1)
    return letters


async def bodies(manager: Manager, stream: str = "S") -> list[bytes]:
    state = (await manager.stream_info(stream)).value.state
    messages = [await at(manager, stream, seq, direct=False) for seq in range(1, state.last_seq + 1)]
    return [message.body for message in messages if message is not None]


@pytest.mark.both
async def test_a_capture_stream_is_made_once_changed_and_removed(manager: Manager) -> None:
    await manager.stream_create({"name": "S", "subjects": ["s"], "storage": "memory"})
    with pytest.raises(NoDeadLettersError):
        await read_letters(manager, LetterFilter(stream="S"))
    with pytest.raises(ApiResponseError):
        await enable(manager, "MISSING")
    made = await enable(manager, "S", CaptureOptions(max_msgs=9))
    assert (made.name, made.created, made.changed) == ("DEADLETTERS_S", True, True)
    assert (await enable(manager, "S"))[2:4] == (False, False)
    changed = await enable(manager, "S", CaptureOptions(max_age_ns=3600 * 10**9, copies=True))
    assert (changed.changed, changed.config.max_msgs, len(changed.config.subjects)) == (True, 9, 3)
    assert (await enable(manager, "S", CaptureOptions(copies=False))).config.max_age == 3600 * 10**9
    (capture,) = await capture_streams(manager)
    assert (capture.stream, capture.copies, capture.made_by_natsctl) == ("S", False, True)
    with pytest.raises(ConflictError, match="DEADLETTERS_S"):
        await enable(manager, EVERY_STREAM)
    assert await disable(manager, "S") and not await disable(manager, "S")
    assert (await enable(manager, EVERY_STREAM)).name == "DEADLETTERS"
    with pytest.raises(ConflictError, match="DEADLETTERS already"):
        await enable(manager, "S")


@pytest.mark.both
async def test_a_stream_that_somebody_made_is_read_and_left_alone(manager: Manager) -> None:
    await manager.stream_create({"name": "MINE", "subjects": ["$JS.EVENT.ADVISORY.>"], "storage": "memory"})
    await failing(manager, 1, terminated=[0], keep=None)
    (letter,) = await letters_of(manager, 1)
    assert (letter.capture, letter.reason) == ("MINE", "terminated: bad order")
    with pytest.raises(ConflictError, match="MINE"):
        await enable(manager, "S")
    await manager.stream_create({"name": "DEADLETTERS_T", "subjects": ["t"], "storage": "memory"})
    with pytest.raises(ConflictError):
        await disable(manager, "T")


@pytest.mark.both
async def test_dead_letters_are_listed_filtered_and_counted(manager: Manager) -> None:
    await enable(manager, EVERY_STREAM)
    await failing(manager, 3, terminated=[1], keep=None)
    await failing(manager, 2, stream="T", retention="workqueue", terminated=[0], keep=None)
    letters = await letters_of(manager, 5)
    assert [count.messages for count in count_letters(letters)] == [2, 1, 1, 1]
    await describe(manager, letters, await capture_streams(manager))
    by_place = {(letter.stream, letter.seq): letter for letter in letters}
    assert by_place["S", 2].reason == "terminated: bad order" and by_place["S", 2].exists
    assert (by_place["S", 1].subject, by_place["S", 1].deliveries) == ("s.0", 1)
    # A server removes a terminated message of a work queue: only the advisory remains.
    assert (by_place["T", 1].exists, by_place["T", 2].exists) == (False, True)
    now_ns = time.time_ns()
    for wanted, number in (
        ({"stream": "S"}, 3), ({"consumers": ["C"]}, 5), ({"consumers": ["D"]}, 0), ({"sequences": [1]}, 2),
        ({"subject": "s.>"}, 3), ({"subject": "s.0"}, 1), ({"reason": "TERM"}, 2), ({"reason": "max"}, 3),
        ({"since_ns": now_ns}, 0), ({"until_ns": now_ns}, 5), ({"since_ns": now_ns - 60 * 10**9}, 5),
    ):  # fmt: skip
        assert len(await read_letters(manager, LetterFilter(**wanted))) == number, wanted


@pytest.mark.both
@pytest.mark.parametrize("retention", RETENTIONS)
async def test_a_replay_stores_each_message_once(manager: Manager, retention: str) -> None:
    await failing(manager, 4, keep=CaptureOptions(copies=True), retention=retention)
    letters = await letters_of(manager, 4)
    assert (await copy_messages(manager, once=True)).copied == 4
    assert (await copy_messages(manager, once=True)).copied == 0
    kept = await replay(manager, letters[:1], ReplayOptions(keep=True))
    assert (kept.replayed, kept.duplicates) == (1, 0)
    report = await replay(manager, letters)
    assert (report.replayed, report.duplicates, report.missing, report.skipped) == (4, 1, 0, [])
    originals = 4 if retention == "limits" else 0
    assert report.removed == (0 if retention == "limits" else 3)
    stored = await bodies(manager)
    assert len(stored) == originals + 4 and len(set(stored)) == 4
    assert await read_letters(manager) == []
    assert (await manager.stream_info("DEADLETTERS_S")).value.state.messages == 0
    last = await at(manager, "S", 8, direct=False)
    assert last is not None and last.headers["Dead-Letter-Header-Nats-Msg-Id"].startswith("S")
    assert [value for name, value in last.headers.pairs if name == "Trace"] == ["a", "b"]


@pytest.mark.both
async def test_a_copy_survives_its_message(manager: Manager) -> None:
    await failing(manager, 3)
    await letters_of(manager, 3)
    assert await turn_on_copies(manager) == ["DEADLETTERS_S"]
    await manager.message_delete("S", 1)
    report = await copy_messages(manager, once=True)
    assert (report.copied, report.missing) == (2, 1)
    # A service that has forgotten its place copies nothing twice, however late that is.
    await manager.consumer_delete("DEADLETTERS_S", "natsctl-deadletter-run")
    report = await copy_messages(manager, once=True)
    assert (report.copied, report.copied_before, report.missing) == (0, 2, 1)
    await manager.stream_purge("S")
    letters = await read_letters(manager)
    await describe(manager, letters, await capture_streams(manager))
    assert sorted((letter.seq, letter.exists, letter.copied, letter.subject) for letter in letters) == [
        (1, False, False, ""), (2, False, True, "s.1"), (3, False, True, "s.2"),
    ]  # fmt: skip
    await manager.stream_create({"name": "Q", "subjects": ["q"], "storage": "memory"})
    report_ = await replay(manager, letters, ReplayOptions(to="q", limit=2))
    assert (report_.replayed, report_.missing) == (1, 1)
    (message,) = [message for message in [await at(manager, "Q", 1, direct=False)] if message is not None]
    assert message.body == b"body 1"
    assert message.headers["Dead-Letter-Subject"] == "s.1"
    left = await read_letters(manager)
    assert sorted(letter.seq for letter in left) == [1, 3]


@pytest.mark.both
async def test_a_message_of_several_consumers_is_replayed_once(manager: Manager) -> None:
    await failing(manager, 2)
    consumer = {"durable_name": "D", "ack_policy": "explicit"}
    await manager.consumer_create("S", consumer)
    async for message in pull(manager, "S", "D", {"batch": 2, "no_wait": True}):
        await acknowledge(manager, message, TERM)
    letters = await letters_of(manager, 4)
    report = await replay(manager, letters)
    assert (report.replayed, await read_letters(manager)) == (2, [])


@pytest.mark.both
async def test_a_refused_message_stays_and_the_others_go(manager: Manager) -> None:
    await failing(manager, 3, retention="workqueue")
    letters = await letters_of(manager, 3)
    small = {"name": "Q", "subjects": ["q"], "storage": "memory", "max_msgs": 2, "discard": "new"}
    await manager.stream_create(small)
    report = await replay(manager, letters, ReplayOptions(to="q", rate=1000))
    assert (report.replayed, report.removed, len(report.skipped)) == (2, 2, 1)
    (left,) = await read_letters(manager)
    assert left.seq == report.skipped[0].seq
    assert len(await bodies(manager)) == 1


@pytest.mark.both
async def test_a_stream_made_again_does_not_lend_its_messages(manager: Manager) -> None:
    await failing(manager, 1)
    letters = await letters_of(manager, 1)
    await manager.stream_delete("S")
    assert (await replay(manager, letters)).missing == 1
    await manager.stream_create({"name": "S", "subjects": ["s.>"], "storage": "memory"})
    await publish(manager, "s.0", b"another one")
    assert (await replay(manager, letters)).missing == 1
    assert await bodies(manager) == [b"another one"]


ACTING = [
    ("Nats-Msg-Id", "7"), ("Nats-TTL", "1h"), ("Nats-Rollup", "sub"), ("Nats-Expected-Last-Sequence", "3"),
    ("Nats-Schedule", "@every 1s"), ("Nats-Unknown", "x"), ("Own", "a"), ("Own", "b"),
]  # fmt: skip


def test_a_copy_gives_its_message_back() -> None:
    message = FailedMessage("S", 7, "s.a", 1_700_000_000_000_000_001, b"\x00body", ACTING)
    pairs = copy_headers(message, DeliveryFailure("C", "terminated: bad", 3))
    assert not [name for name, _ in pairs if name.startswith("Nats-")]
    assert message_of_copy(pairs, message.body) == message
    with pytest.raises(ValueError, match="Dead-Letter-Stream"):
        message_of_copy([], b"")


def test_headers_that_act_on_a_stream_act_once() -> None:
    message = FailedMessage("S", 7, "s.a", 1, b"", ACTING)
    failure = DeliveryFailure("C", "max deliveries", 3)
    same, elsewhere = (replay_headers(message, failure, subject) for subject in ("s.a", "quarantine"))
    assert [name for name, _ in same if name.startswith("Nats-")] == ["Nats-Msg-Id", "Nats-TTL"]
    assert [name for name, _ in elsewhere if name.startswith("Nats-")] == ["Nats-Msg-Id"]
    assert ("Dead-Letter-Header-Nats-TTL", "1h") in elsewhere and ("Own", "b") in same
    assert dict(same)["Nats-Msg-Id"] != dict(elsewhere)["Nats-Msg-Id"]
    again = replay_headers(message._replace(seq=9, headers=same), failure, "s.a")
    assert dict(again)["Dead-Letter-Replays"] == "2" and dict(again)["Dead-Letter-Sequence"] == "9"
    assert len([name for name, _ in again if name == "Dead-Letter-Stream"]) == 1


def test_the_page_has_the_decision_on_each_header() -> None:
    page = (Path(__file__).parents[2] / "docs/how-to/handle-messages-that-fail.md").read_text()
    assert [header for header, decision in REPLAYED.items() if f"| `{header}` | {decision} |\n" not in page] == []


@pytest.mark.parametrize(
    ("subject", "body"),
    [
        ("$JS.EVENT.ADVISORY.CONSUMER.MSG_NAKED.S.C", b"{}"),
        ("$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.S.C", b"\xff{"),
        ("$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.S.C", b'{"type":"io.nats.jetstream.advisory.v1.max_deliver"}'),
        ("orders.new", b"{}"),
    ],
)
def test_other_messages_of_a_capture_stream_are_no_dead_letters(subject: str, body: bytes) -> None:
    assert parse_advisory("X", subject, 1, body) is None


LIST, INFO, DIRECT = "$JS.API.STREAM.LIST", "$JS.API.STREAM.INFO", "$JS.API.DIRECT.GET"
CAPTURE = "DEADLETTERS_S"
REPORT = [LIST, f"{INFO}.{CAPTURE}", f"{DIRECT}.{CAPTURE}"]
LS = [*REPORT, f"{DIRECT}.{CAPTURE}.>", f"{INFO}.S", f"{DIRECT}.S"]
REMOVE = [f"$JS.API.STREAM.MSG.DELETE.{CAPTURE}", f"$JS.API.STREAM.PURGE.{CAPTURE}"]
OF_MESSAGES = "$JS.API.STREAM.MSG.DELETE.S"
PERMITTED = {
    "enable": [LIST, f"{INFO}.S", f"{INFO}.{CAPTURE}", f"$JS.API.STREAM.CREATE.{CAPTURE}"],
    "disable": [f"{INFO}.{CAPTURE}", f"$JS.API.STREAM.DELETE.{CAPTURE}"],
    "report": REPORT,
    "ls": LS,
    "watch": [*LS, f"$JS.API.CONSUMER.CREATE.{CAPTURE}.>", f"$JS.API.CONSUMER.DELETE.{CAPTURE}.*", "$JS.FC.>"],
    "run": [
        LIST, f"{INFO}.S", f"{DIRECT}.S", f"{DIRECT}.{CAPTURE}.>", f"$JS.API.CONSUMER.CREATE.{CAPTURE}.>",
        f"$JS.API.CONSUMER.INFO.{CAPTURE}.*", f"$JS.API.CONSUMER.MSG.NEXT.{CAPTURE}.*", f"$JS.ACK.{CAPTURE}.>",
        "$DLQ.S.>",
    ],
    "replay": [*LS, *REMOVE, "s.>", OF_MESSAGES],
    "discard": [*LS, *REMOVE, OF_MESSAGES],
}  # fmt: skip
"""The subjects that docs/permissions.md requires for each command."""


async def act(manager: Manager, name: str) -> Any:
    selection = LetterFilter("S")
    match name:
        case "enable":
            return (await enable(manager, "S", CaptureOptions(copies=True))).created
        case "disable":
            return await disable(manager, "S")
        case "report":
            return len(await read_letters(manager, selection))
        case "ls":
            await describe(
                manager, letters := await read_letters(manager, selection), await capture_streams(manager, "S")
            )
            return [letter.exists for letter in letters]
        case "watch":
            async for letter in follow_letters(manager, LetterFilter("S", since_ns=1)):
                return letter.exists
        case "run":
            return (await copy_messages(manager, "S", once=True)).copied
        case "replay":
            return (await replay(manager, (await read_letters(manager, selection))[:1])).removed
        case "discard":
            return (await discard(manager, await read_letters(manager, selection), messages=True)).messages
    raise AssertionError(name)


@pytest.mark.parametrize("kind", ["natsctl", pytest.param("reference", marks=pytest.mark.reference)])
async def test_each_command_needs_no_more_than_the_page_says(kind: Kind, tmp_path: Path) -> None:
    users = [
        {"user": name, "password": "p", "permissions": {"publish": allowed, "subscribe": ["_INBOX.>"]}}
        for name, allowed in PERMITTED.items()
    ]
    config = tmp_path / "nats.conf"
    accounts = {"A": {"jetstream": "enabled", "users": [{"user": "all", "password": "p"}, *users]}}
    config.write_text(json.dumps({"listen": "127.0.0.1:-1", "jetstream": {}, "accounts": accounts}))
    results = {}

    async def run(url: str, name: str) -> None:
        async with managing(url, user=name, password="p") as manager:
            results[name] = await act(manager, name)

    with ServerProcess(tmp_path / "server", kind, "-c", str(config)) as server:
        async with managing(server.url, user="all", password="p") as manager:
            await manager.stream_create(
                {"name": "S", "subjects": ["s.>"], "retention": "workqueue", "allow_direct": True}
            )
            await run(server.url, "enable")
            await manager.stream_delete("S")
            await failing(manager, 3, keep=None, retention="workqueue", allow_direct=True)
            await letters_of(manager, 3)
            for name in ("report", "ls", "watch", "run", "replay", "discard", "disable"):
                await run(server.url, name)
    assert results == {
        "enable": True, "report": 3, "ls": [True] * 3, "watch": True, "run": 3, "replay": 1, "discard": 2,
        "disable": True,
    }  # fmt: skip
