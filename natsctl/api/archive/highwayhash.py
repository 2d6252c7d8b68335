"""HighwayHash-64, the checksum inside version 1 archives: the specification of `native/archive.c`.

Source: "Fast keyed hash/pseudo-random function using SIMD multiply and permute" (Alakuijala, Cox, Wassenberg), portable
form: four lanes of 64 bits in v0, v1, mul0 and mul1; each 32-byte packet is added, multiplied in, and mixed by a byte
permutation. It is pure arithmetic in Python, so the lanes are locals of one loop and the permutation is one
`bytes.translate`: 3 to 4 µs a packet.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from struct import Struct
from typing import Final, TypeAlias

from natsctl.api.subject_index import finish

_M64: Final = 0xFFFFFFFFFFFFFFFF
_M32: Final = 0xFFFFFFFF
_LANES: Final = Struct("<4Q")
MUL0: Final = (0xDBE6D5D5FE4CCE2F, 0xA4093822299F31D0, 0x13198A2E03707344, 0x243F6A8885A308D3)
MUL1: Final = (0x3BD39E10CB0EF593, 0xC0ACF169B5F18A8C, 0xBE5466CF34E90C6C, 0x452821E638D01377)
FINAL_ROUNDS: Final = 4
_PACKET: Final = 32

# Where each byte of a mixed pair of lanes comes from; the table given to `translate` is the state itself.
_PAIR: Final = (3, 12, 2, 5, 14, 1, 15, 0, 11, 4, 10, 13, 9, 6, 8, 7)
MIX: Final = bytes(_PAIR) + bytes(16 + at for at in _PAIR)
_PAD: Final = bytes(224)

Four: TypeAlias = tuple[int, int, int, int]
State: TypeAlias = tuple[Four, Four, Four, Four]
"""v0, v1, mul0, mul1."""

STEP_BYTES: Final = 16 << 10
"""Bytes that `steps` hashes between two pauses: 2 ms."""


class HighwayHash64:
    """A hash function with one key of 32 bytes."""

    def __init__(self, key: bytes) -> None:
        self.key = key
        k0, k1, k2, k3 = _LANES.unpack(key)
        v0: Four = (k0 ^ MUL0[0], k1 ^ MUL0[1], k2 ^ MUL0[2], k3 ^ MUL0[3])
        r0, r1, r2, r3 = (key >> 32 | (key & _M32) << 32 for key in (k0, k1, k2, k3))
        v1: Four = (r0 ^ MUL1[0], r1 ^ MUL1[1], r2 ^ MUL1[2], r3 ^ MUL1[3])
        self.start: State = (v0, v1, MUL0, MUL1)

    def digest(self, data: bytes) -> bytes:
        """Return the 8 bytes of the hash, little-endian as the archives hold them."""
        return finish(self.steps(data))

    def steps(self, data: bytes) -> Generator[None, None, bytes]:
        """Return the same as `digest`, and yield after each `STEP_BYTES` of long data."""
        state, size = self.start, len(data) & 31
        whole = len(data) - size
        for at in range(0, whole, STEP_BYTES):
            state = _absorbed(state, _LANES.iter_unpack(data[at : min(at + STEP_BYTES, whole)]))
            if at + STEP_BYTES < whole:
                yield
        if size:
            state = _absorbed(_mixed_size(state, size), (_last_packet(data[whole:]),))
        for _ in range(FINAL_ROUNDS):
            v0 = state[0]
            state = _absorbed(state, ((_swapped(v0[2]), _swapped(v0[3]), _swapped(v0[0]), _swapped(v0[1])),))
        return (sum(four[0] for four in state) & _M64).to_bytes(8, "little")


def digests(hasher: HighwayHash64, records: Sequence[bytes]) -> Generator[None, None, bytes]:
    """Return the hashes of records, 8 bytes each; yields after every 2 ms of work."""
    hashes: list[bytes] = []
    done = 0
    for record in records:
        hashes.append((yield from hasher.steps(record)))
        done += len(record) + _PACKET * (FINAL_ROUNDS + 1)
        if done >= STEP_BYTES:
            done = 0
            yield
    return b"".join(hashes)


def _absorbed(state: State, packets: Iterable[tuple[int, ...]]) -> State:
    """Return the state after more packets of four lanes.

    Longer than functions should be: a call per packet would cost as much as the packet.
    """
    (v00, v01, v02, v03), (v10, v11, v12, v13), (a0, a1, a2, a3), (b0, b1, b2, b3) = state
    pack, unpack, mix, pad, m64, m32 = _LANES.pack, _LANES.unpack, MIX.translate, _PAD, _M64, _M32
    for p0, p1, p2, p3 in packets:
        v10 = (v10 + a0 + p0) & m64
        v11 = (v11 + a1 + p1) & m64
        v12 = (v12 + a2 + p2) & m64
        v13 = (v13 + a3 + p3) & m64
        a0 ^= (v10 & m32) * (v00 >> 32)
        a1 ^= (v11 & m32) * (v01 >> 32)
        a2 ^= (v12 & m32) * (v02 >> 32)
        a3 ^= (v13 & m32) * (v03 >> 32)
        v00 = (v00 + b0) & m64
        v01 = (v01 + b1) & m64
        v02 = (v02 + b2) & m64
        v03 = (v03 + b3) & m64
        b0 ^= (v00 & m32) * (v10 >> 32)
        b1 ^= (v01 & m32) * (v11 >> 32)
        b2 ^= (v02 & m32) * (v12 >> 32)
        b3 ^= (v03 & m32) * (v13 >> 32)
        x0, x1, x2, x3 = unpack(mix(pack(v10, v11, v12, v13) + pad))
        v00 = (v00 + x0) & m64
        v01 = (v01 + x1) & m64
        v02 = (v02 + x2) & m64
        v03 = (v03 + x3) & m64
        x0, x1, x2, x3 = unpack(mix(pack(v00, v01, v02, v03) + pad))
        v10 = (v10 + x0) & m64
        v11 = (v11 + x1) & m64
        v12 = (v12 + x2) & m64
        v13 = (v13 + x3) & m64
    return (v00, v01, v02, v03), (v10, v11, v12, v13), (a0, a1, a2, a3), (b0, b1, b2, b3)


def _mixed_size(state: State, size: int) -> State:
    """Return the state before an incomplete packet of `size` bytes."""
    (v00, v01, v02, v03), (v10, v11, v12, v13), mul0, mul1 = state
    grow = (size << 32) + size
    v0 = ((v00 + grow) & _M64, (v01 + grow) & _M64, (v02 + grow) & _M64, (v03 + grow) & _M64)
    return v0, (_turned(v10, size), _turned(v11, size), _turned(v12, size), _turned(v13, size)), mul0, mul1


def _swapped(lane: int) -> int:
    return lane >> 32 | (lane & _M32) << 32


def _turned(lane: int, count: int) -> int:
    """Return a lane with both of its halves rotated left by `count` bits."""
    low, high = lane & _M32, lane >> 32
    low = (low << count | low >> (32 - count)) & _M32
    high = (high << count | high >> (32 - count)) & _M32
    return high << 32 | low


def _last_packet(rest: bytes) -> Four:
    """Return the lanes of an incomplete packet, laid out as the hash wants it."""
    padded = rest.ljust(33, b"\0")
    p0, p1, p2, p3 = _LANES.unpack(bytes(padded[at] for at in LAST_PACKETS[len(rest)]))
    return p0, p1, p2, p3


def _last_packet_order(size: int) -> bytes:
    """Return which byte of the rest stands where in the last packet; 32 means a zero."""
    whole, odd = size & ~3, size & 3
    order = bytearray(range(whole)) + bytearray(b"\x20") * (32 - whole)
    if size & 16:
        order[28:] = range(size - 4, size)
    elif odd:
        order[16:19] = whole, whole + (odd >> 1), size - 1
    return bytes(order)


LAST_PACKETS: Final = tuple(map(_last_packet_order, range(32)))
