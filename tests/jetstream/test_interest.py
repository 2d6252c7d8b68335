"""Who takes a subject."""

from __future__ import annotations

import random
from typing import cast

from natsctl.api.consumer import ConsumerConfig
from natsctl.api.subjects import matches
from natsctl.jetstream import interest
from natsctl.jetstream.consumer import Consumer
from natsctl.jetstream.interest import Interest


class Taker:
    """What `Interest` knows of a consumer."""

    def __init__(self, config: ConsumerConfig) -> None:
        self.config = config


def taker(*filters: str) -> Consumer:
    """Return a consumer with filters."""
    return cast(Consumer, Taker(ConsumerConfig(filter_subjects=list(filters))))


def test_takers_are_those_whose_filters_match() -> None:
    rng = random.Random(3)
    patterns = ["a", "a.b", "a.*", "a.>", "*.b", "b.c.d", "b.*.d", ">", ""]
    subjects = ["a", "b", "a.b", "a.c", "c.b", "b.c.d", "b.x.d", "a.b.c"]
    known = Interest()
    here: dict[Consumer, str] = {}
    for _ in range(400):
        if here and rng.random() < 0.4:
            gone = rng.choice(list(here))
            known.leave(gone)
            del here[gone]
        else:
            pattern = rng.choice(patterns)
            new = taker(*([pattern] if pattern else []))
            assert known.enter(new)
            here[new] = pattern
        assert len(known) == len(here)
        for subject in subjects:
            expected = {c for c, pattern in here.items() if not pattern or matches(pattern, subject)}
            takers = known.takers(subject.encode())
            assert set(takers) == expected
            assert len(takers) == len(expected)


def test_an_update_that_changes_no_filter_is_none() -> None:
    known, consumer = Interest(), taker("a", "b.*")
    assert known.enter(consumer)
    assert not known.enter(consumer)
    consumer.config = ConsumerConfig(filter_subjects=["a", "c"])
    assert known.enter(consumer)
    assert known.takers(b"b.x") == ()
    assert known.takers(b"c") == (consumer,)


def test_what_is_remembered_has_a_limit() -> None:
    known = Interest()
    for _ in range(50):
        known.enter(taker("s.>"))
    for at in range(5000):
        assert len(known.takers(b"s.%d" % at)) == 50
    assert sum(len(found) + 1 for found in known._known.values()) < 2 * interest.MAX_KNOWN
