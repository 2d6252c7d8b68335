"""HighwayHash-64, against the test vectors its authors publish."""

import struct
from collections.abc import Generator
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from natsctl.api.archive.highwayhash import HighwayHash64, digests

KEY = struct.pack("<4Q", 0x0706050403020100, 0x0F0E0D0C0B0A0908, 0x1716151413121110, 0x1F1E1D1C1B1A1918)
VECTORS = [
    0x907A56DE22C26E53,
    0x7EAB43AAC7CDDD78,
    0xB8D0569AB0B53D62,
    0x5C6BEFAB8A463D80,
    0xF205A46893007EDA,
    0x2B8A1668E4A94541,
    0xBD4CCC325BEFCA6F,
    0x4D02AE1738F59482,
    0xE1205108E55F3171,
]


@pytest.mark.parametrize(("size", "expected"), list(enumerate(VECTORS)))
def test_a_published_vector_is_met(size: int, expected: int) -> None:
    assert int.from_bytes(HighwayHash64(KEY).digest(bytes(range(size))), "little") == expected


LENGTHS = st.one_of(st.integers(0, 100), st.integers(0, 3000), st.just(9000))


def run(steps: Generator[None, None, bytes]) -> tuple[bytes, int]:
    """Return what a hashing in steps returns, and how often it paused."""
    pauses = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value, pauses
        pauses += 1


@given(st.lists(LENGTHS, max_size=30), st.integers(0, 1 << 64))
def test_records_side_by_side_hash_as_each_one_alone(lengths: list[int], seed: int) -> None:
    rng = Random(seed)
    hasher = HighwayHash64(KEY)
    records = [rng.randbytes(length) for length in lengths]
    wanted = b"".join(map(hasher.digest, records))
    assert run(digests(hasher, records))[0] == wanted


def test_long_work_pauses() -> None:
    hasher = HighwayHash64(KEY)
    assert run(digests(hasher, [bytes(200_000)]))[1] > 5
    assert run(digests(hasher, [bytes(20_000)] * 10))[1] > 2
