"""What a user may publish and subscribe to, and what it may answer."""

from typing import Any

import pytest

from natsctl.broker.auth import permissions as room
from natsctl.broker.auth.permissions import ResponseRule, SessionPermissions, SubjectPermissions, SubjectRules
from tests.broker.conftest import TurnedClock
from tests.support.call_counts import calls_of

SECOND = 1_000_000_000


def may_publish(subject: str, allow: tuple[str, ...] | None = None, deny: tuple[str, ...] = ()) -> bool:
    return SessionPermissions(SubjectPermissions(publish=SubjectRules(allow, deny)), TurnedClock()).may_publish(
        subject.encode()
    )


def may_subscribe(text: str, allow: tuple[str, ...] | None = None, deny: tuple[str, ...] = ()) -> bool:
    subject, _, queue = text.partition(" ")
    return SessionPermissions(SubjectPermissions(subscribe=SubjectRules(allow, deny)), TurnedClock()).may_subscribe(
        subject.encode(), queue.encode()
    )


MANY = tuple(f"many.{number}.*" for number in range(20))
"""Patterns that no subject here meets: so many are found by index."""

PUBLISHED = [
    ("a", None, (), True), ("a", (), (), False), ("a", ("a",), (), True), ("a.b", ("a",), (), False),
    ("a.b", ("a.*",), (), True), ("a.b.c", ("a.*",), (), False), ("a.b.c", ("a.>",), (), True),
    ("a", ("a.>",), (), False), ("a", None, ("a",), False), ("b", None, ("a",), True),
    ("a.x", ("a.>",), ("*.x",), False), ("a..x", (">",), (), False), ("a..x", None, (">",), True),
    ("a.*", ("a.*",), (), True), ("a", ("a queue",), (), False), ("a", None, ("a queue",), False),
]  # fmt: skip


@pytest.mark.parametrize(("subject", "allow", "deny", "answer"), PUBLISHED)
def test_publishing(subject: str, allow: tuple[str, ...] | None, deny: tuple[str, ...], answer: bool) -> None:
    for more in ((), MANY):
        assert may_publish(subject, allow and allow + more, deny + more) is answer


SUBSCRIBED = [
    ("a", None, (), True), ("a", (), (), True), ("a", ("b",), (), False), ("a.*", ("a.b",), (), False),
    ("a.*", ("a.*",), (), True), ("a.>", ("a.>",), (), True), (">", ("a.>",), (), False),
    ("a.*", None, ("a.b",), True), ("a.*", None, ("a.*",), False), ("a", ("a q",), (), False),
    ("a q", ("a q",), (), True), ("a r", ("a q",), (), False), ("a r", ("a", "a q"), (), False),
    ("a", ("a", "a q"), (), True), ("a v1.x", ("a v1.*",), (), True), ("a v1.x.y", ("a v1.*",), (), False),
    ("a q", None, ("a q",), False), ("a", None, ("a q",), True), ("a q", None, ("a",), False),
    ("a..b", (">",), (), False),
]  # fmt: skip


@pytest.mark.parametrize(("text", "allow", "deny", "answer"), SUBSCRIBED)
def test_subscribing(text: str, allow: tuple[str, ...] | None, deny: tuple[str, ...], answer: bool) -> None:
    for more in ((), MANY):
        assert may_subscribe(text, allow and allow + more, deny + more) is answer


def test_everything_after_a_star_is_let_in_and_held_to_the_star() -> None:
    permit = SessionPermissions(SubjectPermissions(subscribe=SubjectRules(("a.*",))), TurnedClock())
    assert permit.may_subscribe(b"a.>", b"") and permit.must_filter(b"a.>", b"")
    wider = permit.is_wider(b"a.>")
    assert permit.lets_through(b"a.b", b"", wider)
    assert not permit.lets_through(b"a.b.c", b"", wider)


FILTERED = [
    (b"a.*", b"", ("a.b",), True), (b"a.*", b"", ("b.a",), False), (b"a.*", b"", ("a.b q",), False),
    (b"a.*", b"q", ("a.b q",), True), (b"a.b", b"", ("a.c",), False), (b">", b"", (), False),
]  # fmt: skip


@pytest.mark.parametrize(("subject", "queue", "deny", "answer"), FILTERED)
def test_only_wildcards_that_meet_a_deny_are_filtered(
    subject: bytes, queue: bytes, deny: tuple[str, ...], answer: bool
) -> None:
    permit = SessionPermissions(SubjectPermissions(subscribe=SubjectRules(None, deny)), TurnedClock())
    assert permit.must_filter(subject, queue) is answer


def answering(most: int = 1, expires_s: float = 60) -> tuple[SessionPermissions, TurnedClock]:
    clock = TurnedClock()
    rule = ResponseRule(most, round(expires_s * SECOND))
    return SessionPermissions(SubjectPermissions(responses=rule), clock), clock


def test_what_may_be_published_anyway_is_not_counted() -> None:
    permit = SessionPermissions(
        SubjectPermissions(publish=SubjectRules(("r",)), responses=ResponseRule(1)), TurnedClock()
    )
    permit.note_reply(b"r")
    assert all(permit.may_publish(b"r") for _ in range(9))


def test_replies_are_forgotten_when_there_are_too_many(monkeypatch: Any) -> None:
    monkeypatch.setattr(room, "MAX_REPLIES", 10)
    permit, _ = answering(1)
    for number in range(25):
        permit.note_reply(b"r.%d" % number)
    assert not permit.may_publish(b"r.3") and permit.may_publish(b"r.24") and permit.may_publish(b"r.15")


def test_a_reply_costs_as_little_as_any_when_there_are_too_many(monkeypatch: Any) -> None:
    monkeypatch.setattr(room, "MAX_REPLIES", 1000)
    permit, clock = answering(1, 5)

    def note(count: int, name: bytes) -> int:
        return calls_of(lambda: [permit.note_reply(b"%b.%d" % (name, number)) for number in range(count)])

    few = note(100, b"few")
    note(1000, b"many")
    assert note(100, b"more") < 2 * few
    clock.ns += 6 * SECOND
    assert note(1, b"new") < 20 * room.FORGOTTEN_AT_ONCE


def test_used_and_old_replies_are_looked_for_now_and_then() -> None:
    permit, clock = answering(1, 5)
    for number in range(50):
        permit.note_reply(b"r.%d" % number)
    clock.ns += 6 * SECOND
    permit.note_reply(b"new")
    assert permit.replies is not None and list(permit.replies._replies) == [b"new"]


def test_answers_are_cached_up_to_a_limit() -> None:
    permit = SessionPermissions(
        SubjectPermissions(publish=SubjectRules(("a.*",)), subscribe=SubjectRules(None, ("b",))), TurnedClock()
    )
    for number in range(3 * room.MAX_CACHED):
        assert permit.may_publish(b"a.%d" % number)
        permit.lets_through(b"c.%d" % number, b"", False)
    assert len(permit._published) <= room.MAX_CACHED and len(permit._filtered) <= room.MAX_CACHED
