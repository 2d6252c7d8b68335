"""Garbage collection: none holds the event loop for long, however many objects there are. Memory that is given back."""

import gc
import platform
import subprocess
import sys

import pytest

from natsctl.native import lib
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


FREED_BETWEEN_BLOCKS = """
import os
from natsctl.server.resources import tune_interpreter

def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

blocks = [b"x" * (100_000 if number % 2 else 1_000) for number in range(1_000)]
blocks[1::2] = [None] * 500
full = resident()
tune_interpreter()
print(full - resident())
"""
"""Fifty megabytes are freed, with blocks that stay between them."""


@pytest.mark.skipif(lib is None or platform.libc_ver()[0] != "glibc", reason="the C library keeps it, or there is none")
def test_memory_that_the_start_has_freed_between_blocks_that_stay_goes_back_to_the_system() -> None:
    done = subprocess.run([sys.executable, "-c", FREED_BETWEEN_BLOCKS], capture_output=True, check=True, text=True)
    assert int(done.stdout) > 40_000_000
