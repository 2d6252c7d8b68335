"""HighwayHash-64, against the test vectors its authors publish."""

import struct

import pytest

from natsctl.jetstream.highwayhash import HighwayHash64

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


def test_every_byte_and_every_length_counts() -> None:
    hasher = HighwayHash64(KEY)
    data = bytes(range(100))
    seen = {hasher.digest(data[:size]) for size in range(101)}
    for at in range(100):
        seen.add(hasher.digest(data[:at] + b"\xff" + data[at + 1 :]))
    assert len(seen) == 201


def test_another_key_gives_another_hash() -> None:
    assert HighwayHash64(bytes(32)).digest(b"x") != HighwayHash64(KEY).digest(b"x")
