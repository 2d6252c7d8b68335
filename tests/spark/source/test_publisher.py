"""Publishing to real servers: windows, refusals, connections that end, order."""

import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from natsctl.spark.source import outages
from natsctl.spark.source.errors import (
    PublishError,
    SourceConnectionLostError,
    SourceNotAuthorisedError,
    StreamNotFoundError,
)
from natsctl.spark.source.handshake import ServerSettings
from natsctl.spark.source.jetstream_api import JetStreamApi
from natsctl.spark.source.link import Link
from natsctl.spark.source.messages import Messages
from natsctl.spark.source.publisher import Publisher, PublishLimits
from tests.spark.source.streams import messages

pytestmark = pytest.mark.both

QUICK = PublishLimits(window=10, ack_timeout_s=10.0)


def make(api: JetStreamApi, **config: Any) -> None:
    api.ask("STREAM.CREATE.OUT", {"name": "OUT", "subjects": ["out.>"]} | config)


def rows(number: int, ids: bool = True, subject: str = "out.a", size: int = 1, expected: str = "") -> Messages:
    names = [b"%d" % at for at in range(number)]
    nothing = pa.array([b""] * number, pa.binary())
    payloads = pa.array([name.ljust(size, b" ") for name in names], pa.binary())
    made = pa.array([b"id:" + name for name in names], pa.binary()) if ids else pa.nulls(number, pa.binary())
    line = f"Nats-Expected-Stream: {expected}\r\n".encode() if expected else b""
    return Messages(pa.array([subject.encode()] * number, pa.binary()), nothing, payloads, made, line)


def stored(api: JetStreamApi) -> list[int]:
    return [int(payload) for _, _, payload in messages(api, "OUT")]


def publish(link: Link, messages: Messages, limits: PublishLimits = QUICK) -> Publisher:
    sender = Publisher(link, limits)
    sender.publish(messages)
    sender.finish()
    return sender


def test_all_is_stored_in_order_and_counted(api: JetStreamApi) -> None:
    make(api)
    sender = publish(api.link, rows(35))
    assert stored(api) == list(range(35))
    assert (sender.messages, sender.duplicates, sender.first_seq, sender.last_seq) == (35, 0, 1, 35)
    assert sender.stream == "OUT"
    assert publish(api.link, rows(40)).duplicates == 35
    assert stored(api) == list(range(40))


class Watched(Link):
    """A link that counts how many messages were sent and not yet answered."""

    sent = 0
    answered = 0
    most = 0

    def send(self, data: bytes) -> None:
        self.sent += data.count(b"PUB ")
        self.most = max(self.most, self.sent - self.answered)
        super().send(data)

    def read(self, timeout_s: float) -> bytes:
        data = super().read(timeout_s)
        self.answered += data.count(b'"seq"')
        return data


@pytest.mark.parametrize("window", [1, 7, 50])
def test_no_more_than_a_window_waits_for_acknowledgement(api: JetStreamApi, window: int) -> None:
    make(api)
    with Watched.open(ServerSettings(tuple(url for url, _ in api.link._servers))) as link:
        publish(link, rows(100), PublishLimits(window=window))
        assert link.most <= window
        assert link.sent == 100


class Breaking(Link):
    """A link that ends several times, in the middle of what is sent, or when acknowledgements should come."""

    sends = 0
    reads = 0
    break_sends: tuple[int, ...] = ()
    break_reads: tuple[int, ...] = ()

    def send(self, data: bytes) -> None:
        self.sends += 1
        if self.sends in self.break_sends:
            super().send(data[: len(data) // 2])
            self._break()
        super().send(data)

    def read(self, timeout_s: float) -> bytes:
        self.reads += 1
        if self.reads in self.break_reads:
            self._break()
        return super().read(timeout_s)

    def _break(self) -> None:
        if self._wire is not None:
            self._wire.close()
        raise SourceConnectionLostError("the test has ended it")


@pytest.mark.parametrize(
    ("sends", "reads"), [((3,), ()), ((), (2,)), ((2, 5, 8), (1, 4, 6)), (tuple(range(1, 30, 3)), ())]
)
def test_connections_that_end_lose_nothing_double_nothing_and_keep_the_order(
    api: JetStreamApi, sends: tuple[int, ...], reads: tuple[int, ...]
) -> None:
    make(api)
    with Breaking.open(ServerSettings(tuple(url for url, _ in api.link._servers))) as link:
        link.break_sends, link.break_reads = sends, reads
        sender = publish(link, rows(60))
    assert stored(api) == list(range(60))
    assert sender.retries >= 1


def during_pauses(monkeypatch: pytest.MonkeyPatch, step: Callable[[], object]) -> None:
    """Do something in each pause of the publisher, and in no other thread's."""
    monkeypatch.setattr(outages, "time", SimpleNamespace(sleep=lambda _: step(), monotonic=time.monotonic))


@pytest.fixture
def other(api: JetStreamApi) -> Iterator[JetStreamApi]:
    with Link.open(api.link.settings) as link:
        yield JetStreamApi(link, api.link.settings)


def test_a_stream_that_is_made_a_moment_later_gets_all_in_order(
    api: JetStreamApi, other: JetStreamApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = iter([lambda: make(other)])
    during_pauses(monkeypatch, lambda: next(steps)())
    assert publish(api.link, rows(30)).retries == 1
    assert stored(api) == list(range(30))


@pytest.mark.parametrize(
    ("stream", "is_taken", "kind", "text"),
    [
        ("", False, PublishError, r"out\.a: no stream takes this subject; create one"),
        ("NOPE", False, StreamNotFoundError, r"out\.a is not stored: stream NOPE does not exist"),
        ("BILLS", False, PublishError, r"out\.a: stream BILLS does not take this subject, but BILLS\.>$"),
        ("NOPE", True, StreamNotFoundError, "stream NOPE does not exist"),
        ("BILLS", True, PublishError, r"BILLS does not take this subject, but BILLS\.>; OUT does"),
    ],
)
def test_a_message_that_its_stream_does_not_take_fails_after_the_second_attempt_or_at_once_if_another_takes_it(
    api: JetStreamApi, monkeypatch: pytest.MonkeyPatch, stream: str, is_taken: bool, kind: type[Exception], text: str
) -> None:
    if is_taken:
        make(api)
    api.ask("STREAM.CREATE.BILLS", {"name": "BILLS", "subjects": ["BILLS.>"]})
    pauses: list[None] = []
    during_pauses(monkeypatch, lambda: pauses.append(None))
    sender = Publisher(api.link, PublishLimits(), stream)
    with pytest.raises(kind, match=text):
        sender.publish(rows(5, expected=stream))
        sender.finish()
    assert len(pauses) == (0 if is_taken else 1)


def test_a_stream_that_does_not_answer_for_now_is_waited_for(
    api: JetStreamApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """JetStream lists a stream that is offline: only then is the subject right."""
    monkeypatch.setattr(JetStreamApi, "stream_names", lambda *_: ["OUT"])
    with pytest.raises(PublishError, match=r"out\.a: no stream takes this subject.* \(given up after 4 attempts in"):
        publish(api.link, rows(5))


def joined(*parts: Messages) -> Messages:
    """Messages behind each other, with ids of their own."""
    together = [
        pa.concat_arrays([getattr(part, name) for part in parts]) for name in ("subjects", "headers", "payloads")
    ]
    return Messages(*together, pa.array([b"id:%d" % at for at in range(len(together[0]))], pa.binary()))


def test_a_message_that_is_refused_for_good_within_a_part_is_told_with_its_subject(api: JetStreamApi) -> None:
    make(api, max_msg_size=100)
    middle = rows(1, subject="out.big", size=300)
    with pytest.raises(PublishError, match=r"out\.big: message size exceeds maximum allowed \(10054\)"):
        publish(api.link, joined(rows(27), middle, rows(20)))
    assert stored(api)[:27] == list(range(27))


def test_messages_for_several_streams_are_all_stored(api: JetStreamApi) -> None:
    make(api)
    api.ask("STREAM.CREATE.MORE", {"name": "MORE", "subjects": ["more.>"]})
    publish(api.link, joined(*[rows(1, subject=("out.a", "more.a")[at % 3 > 1]) for at in range(60)]))
    assert len(stored(api)) == 40
    assert api.stream_info("MORE")["state"]["messages"] == 20


def enlarge(api: JetStreamApi) -> None:
    api.ask("STREAM.UPDATE.OUT", api.stream_info("OUT")["config"] | {"max_msgs": -1})


def test_a_part_with_passing_refusals_is_sent_again_and_stored_once(
    api: JetStreamApi, other: JetStreamApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(api, max_msgs=22, discard="new")
    during_pauses(monkeypatch, lambda: enlarge(other))
    sender = publish(api.link, rows(40))
    assert stored(api) == list(range(40))
    assert sender.retries == 1
    assert sender.duplicates < 10


class Heeding(Link):
    """A link that does something when a message is refused."""

    def when_refused(self) -> None: ...

    def read(self, timeout_s: float) -> bytes:
        data = super().read(timeout_s)
        if b'"error"' in data:
            self.when_refused()
        return data


def test_what_comes_behind_a_refused_message_waits_until_that_is_stored(
    api: JetStreamApi, other: JetStreamApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(api, max_msgs=1, discard="new")
    api.ask("STREAM.CREATE.MORE", {"name": "MORE", "subjects": ["more.>"]})
    with Heeding.open(api.link.settings) as link:
        monkeypatch.setattr(link, "when_refused", lambda: enlarge(other))
        sender = Publisher(link, PublishLimits(window=2))
        for subject in ("out.0", "out.1", "more.2", "out.3", "out.4"):
            sender.publish(rows(1, ids=False, subject=subject))
        sender.finish()
    assert [subject for subject, _, _ in messages(api, "OUT")] == ["out.0", "out.1", "out.3", "out.4"]


class Early(Link):
    """A link whose first acknowledgements of a part are the only ones that come."""

    part, number = b".p1 ", 29
    cut = False

    def read(self, timeout_s: float) -> bytes:
        data = super().read(timeout_s)
        if not self.cut and self.part in data:
            while data.count(self.part) < self.number:  # servers may send some of them before the others
                data += super().read(timeout_s)
            self.cut = True
            return data[: data.index(b"}\r\n") + 3]
        return data


def test_acknowledgements_that_do_not_come_have_a_part_sent_again(api: JetStreamApi) -> None:
    make(api)
    with Early.open(api.link.settings) as link:
        sender = publish(link, rows(30), PublishLimits(window=60, ack_timeout_s=1.0))
        assert link.cut
    assert stored(api) == list(range(30))
    assert sender.duplicates == 29


def test_an_acknowledgement_of_another_stream_than_the_expected_one_fails_at_once(api: JetStreamApi) -> None:
    make(api)
    sender = Publisher(api.link, QUICK, "OTHER")
    with pytest.raises(PublishError, match=r"out\.a: stored in OUT, while option stream is OTHER"):
        sender.publish(rows(30))
    assert stored(api) == [0]


def test_a_stream_that_never_acknowledges_is_told_as_such(api: JetStreamApi) -> None:
    make(api, no_ack=True)
    limits = PublishLimits(ack_timeout_s=0.1)
    with pytest.raises(PublishError, match=r"out\.a: not acknowledged in time \(given up after 4 attempts in"):
        publish(api.link, rows(3), limits)


def test_a_subject_that_is_not_permitted_is_told_at_once(api: JetStreamApi) -> None:
    make(api)

    class Forbidden(Link):
        def read(self, timeout_s: float) -> bytes:
            return b"-ERR 'Permissions Violation for Publish to \"out.a\"'\r\n"

    there = ServerSettings(tuple(url for url, _ in api.link._servers))
    with Forbidden.open(there) as link, pytest.raises(SourceNotAuthorisedError, match=r"out\.a"):
        publish(link, rows(3))
