"""Garbage collection: none holds the event loop for long, however many objects there are."""

from __future__ import annotations

import gc

from natsctl.server.resources import YOUNG_NS, FrequentCollection
from tests.support.clock import VirtualClock

REPLACED = 1_000
"""Objects that are replaced between two collections."""


def test_a_collection_finds_few_objects_where_new_ones_replace_old_ones() -> None:
    clock = VirtualClock()
    collection = FrequentCollection(clock)
    kept = [[number] for number in range(50 * REPLACED)]
    gc.collect()
    sizes: list[int] = []
    for first in range(0, len(kept), REPLACED):
        for number in range(first, first + REPLACED):
            kept[number] = [number]
        clock.advance(YOUNG_NS)
        collection.collect_if_due()
        sizes.append(sum(len(gc.get_objects(generation=generation)) for generation in (0, 1)))
    assert max(sizes) <= 12 * REPLACED, "the young and the middle generation"
    assert min(sizes) < REPLACED, "the middle generation is collected too"


def test_the_young_generation_is_collected_when_some_time_has_passed() -> None:
    clock = VirtualClock()
    collection = FrequentCollection(clock)
    collection.collect_if_due()
    young = [[number] for number in range(100)]
    clock.advance(YOUNG_NS - 1)
    collection.collect_if_due()
    assert any(each is young[0] for each in gc.get_objects(generation=0))
    clock.advance(1)
    collection.collect_if_due()
    assert not any(each is young[0] for each in gc.get_objects(generation=0))
