"""Which consumers are told of a message: the right ones, and no others."""

from __future__ import annotations

import random
from typing import Any

import pytest

from natsctl.api.subjects import overlaps
from natsctl.jetstream.consumers.retention import FEW, Interest
from natsctl.store.filters import Filters
from natsctl.testing.jet import Jet, texts


class Listener:
    """As much of a consumer as the index asks for."""

    def __init__(self, *filters: str) -> None:
        self.config: Any = type("Config", (), {"filter_subject": "", "filter_subjects": list(filters)})
        self.filters = Filters([subject.encode() for subject in filters])
        self.told: list[tuple[int, bytes]] = []

    def on_messages(self, messages: list[tuple[int, bytes]]) -> None:
        """Take note."""
        self.told += messages


def index_of(*listeners: Any) -> Interest:
    """Return an index of consumers."""
    interest = Interest()
    for listener in listeners:
        interest.add(listener)
    return interest


@pytest.mark.parametrize(
    ("pattern", "subject", "takes"),
    [
        ("a", b"a", True),
        ("a", b"b", False),
        ("a", b"a.b", False),
        ("a.*", b"a.b", True),
        ("a.*", b"a", False),
        ("a.*", b"a.b.c", False),
        ("*.b", b"a.b", True),
        ("a.>", b"a", False),
        ("a.>", b"a.b.c", True),
        (">", b"x.y", True),
        ("*", b"*", True),
    ],
)
def test_a_filter_takes_what_it_matches(pattern: str, subject: bytes, takes: bool) -> None:
    assert bool(index_of(Listener(pattern)).consumers_of(subject)) is takes


def test_everybody_is_found_as_by_asking_each() -> None:
    rng = random.Random(5)
    words = ["a", "b", "*"]
    listeners: list[Any] = [Listener()]
    for _ in range(200):
        tokens = [rng.choice(words) for _ in range(rng.randint(1, 3))]
        listeners.append(Listener(".".join([*tokens, ">"] if rng.random() < 0.3 else tokens)))
    interest = index_of(*listeners)
    for listener in listeners[1::3]:
        interest.remove(listener)
        listeners.remove(listener)
    assert len(interest) == len(listeners)
    for _ in range(200):
        subject = ".".join(rng.choice("abc") for _ in range(rng.randint(1, 4))).encode()
        expected = {each for each in listeners if each.filters.matches(subject)}
        assert set(interest.consumers_of(subject)) == expected


def test_overlapping_consumers_are_found_as_by_comparing_each() -> None:
    rng = random.Random(6)
    words = ["a", "b", "*"]

    def pattern() -> str:
        tokens = [rng.choice(words) for _ in range(rng.randint(1, 3))]
        return ".".join([*tokens, ">"] if rng.random() < 0.3 else tokens)

    listeners: list[Any] = [Listener(pattern()) for _ in range(60)]
    interest = index_of(*listeners)
    for _ in range(200):
        wanted = pattern()
        expected = {each for each in listeners if overlaps(each.config.filter_subjects[0], wanted)}
        assert set(interest.overlapping([wanted.encode()])) == expected, wanted


def test_an_index_that_everybody_left_holds_nothing() -> None:
    listeners: list[Any] = [Listener("a.*.c", "b.>"), Listener("a.*.c"), Listener()]
    interest = index_of(*listeners)
    for listener in listeners:
        interest.remove(listener)
    assert interest.consumers_of(b"a.b.c") == ()
    assert not interest._patterns.count


def test_many_consumers_are_told_of_their_own_messages_alone() -> None:
    own: list[Any] = [Listener(f"s.{number}") for number in range(FEW + 5)]
    everyone: Any = Listener()
    stored = [(1, b"s.0"), (2, b"s.1"), (3, b"s.0"), (4, b"s.none")]
    index_of(everyone, *own).announce(stored)
    assert everyone.told == stored
    assert own[0].told == [stored[0], stored[2]]
    assert own[1].told == [stored[1]]
    assert not any(listener.told for listener in own[2:])


def test_changed_filters_take_effect_among_many_consumers() -> None:
    jet = Jet()
    jet.stream()
    for number in range(FEW + 5):
        jet.consumer(f"C{number}", filter_subject=f"s.{number}")
    jet.publish("1", subject="s.3")
    jet.consumer("C3", filter_subject="s.four.*")
    jet.publish("2", subject="s.3")
    jet.publish("3", subject="s.four.x")
    jet.publish("4", subject="s.4")
    assert texts(jet.pull({"batch": 9, "no_wait": True}, "C3"))[0] == "3"
    assert jet.counts("C4")["pending"] == 1
    jet.api("CONSUMER.DELETE.S.C4")
    jet.publish("5", subject="s.4")
    assert jet.counts("C5")["pending"] == 0
