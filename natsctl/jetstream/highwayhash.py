"""HighwayHash-64, the checksum inside version 1 archives.

Source: "Fast keyed hash/pseudo-random function using SIMD multiply and permute" (Alakuijala, Cox, Wassenberg), portable
form: four lanes of 64 bits in v0, v1, mul0 and mul1; each 32-byte packet is added, multiplied in, and mixed by a byte
permutation. It is pure arithmetic in Python, so the lanes are locals of one loop and the permutation is one
`bytes.translate`: 3 to 4 µs a packet.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, TypeAlias

_M64: Final = 0xFFFFFFFFFFFFFFFF
_M32: Final = 0xFFFFFFFF
_LANES: Final = Struct("<4Q")
_MUL0: Final = (0xDBE6D5D5FE4CCE2F, 0xA4093822299F31D0, 0x13198A2E03707344, 0x243F6A8885A308D3)
_MUL1: Final = (0x3BD39E10CB0EF593, 0xC0ACF169B5F18A8C, 0xBE5466CF34E90C6C, 0x452821E638D01377)
_FINAL_ROUNDS: Final = 4

# Where each byte of a mixed pair of lanes comes from; the table given to `translate` is the state itself.
_PAIR: Final = (3, 12, 2, 5, 14, 1, 15, 0, 11, 4, 10, 13, 9, 6, 8, 7)
_MIX: Final = bytes(_PAIR) + bytes(16 + at for at in _PAIR)
_PAD: Final = bytes(224)

Four: TypeAlias = tuple[int, int, int, int]


class HighwayHash64:
    """Hashes messages with one key of 32 bytes."""

    __slots__ = ("_v0", "_v1")

    def __init__(self, key: bytes) -> None:
        k0, k1, k2, k3 = _LANES.unpack(key)
        self._v0: Four = (k0 ^ _MUL0[0], k1 ^ _MUL0[1], k2 ^ _MUL0[2], k3 ^ _MUL0[3])
        r0, r1, r2, r3 = (key >> 32 | (key & _M32) << 32 for key in (k0, k1, k2, k3))
        self._v1: Four = (r0 ^ _MUL1[0], r1 ^ _MUL1[1], r2 ^ _MUL1[2], r3 ^ _MUL1[3])

    def digest(self, data: bytes) -> bytes:
        """Return the 8 bytes of the hash, little-endian as the archives hold them.

        Longer than functions should be: a call per round would cost as much as the round.
        """
        v00, v01, v02, v03 = self._v0
        v10, v11, v12, v13 = self._v1
        (a0, a1, a2, a3), (b0, b1, b2, b3) = _MUL0, _MUL1
        pack, unpack, mix, pad, m64, m32 = _LANES.pack, _LANES.unpack, _MIX.translate, _PAD, _M64, _M32
        size = len(data) & 31
        packets: list[Four | None] = list(_LANES.iter_unpack(data[: len(data) - size]))
        if size:
            packets.append(None)
        packets.extend(_FINALS)
        for packet in packets:
            if packet is None:
                if size:  # the incomplete packet: its size goes into the state first
                    grow = (size << 32) + size
                    v00, v01, v02, v03 = v00 + grow & m64, v01 + grow & m64, v02 + grow & m64, v03 + grow & m64
                    v10, v11, v12, v13 = (_turned(lane, size) for lane in (v10, v11, v12, v13))
                    p0, p1, p2, p3 = _last_packet(data[len(data) - size :])
                    size = 0
                else:
                    p0, p1 = v02 >> 32 | (v02 & m32) << 32, v03 >> 32 | (v03 & m32) << 32
                    p2, p3 = v00 >> 32 | (v00 & m32) << 32, v01 >> 32 | (v01 & m32) << 32
            else:
                p0, p1, p2, p3 = packet
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
        return ((v00 + v10 + a0 + b0) & m64).to_bytes(8, "little")


_FINALS: Final = (None,) * _FINAL_ROUNDS


def _turned(lane: int, count: int) -> int:
    """Return a lane with both of its halves rotated left by `count` bits."""
    low, high = lane & _M32, lane >> 32
    low = (low << count | low >> (32 - count)) & _M32
    high = (high << count | high >> (32 - count)) & _M32
    return high << 32 | low


def _last_packet(rest: bytes) -> Four:
    """Return the lanes of an incomplete packet, laid out as the hash wants it."""
    size = len(rest)
    whole, odd = size & ~3, size & 3
    packet = bytearray(32)
    packet[:whole] = rest[:whole]
    if size & 16:
        packet[28:] = rest[-4:]
    elif odd:
        packet[16] = rest[whole]
        packet[17] = rest[whole + (odd >> 1)]
        packet[18] = rest[-1]
    p0, p1, p2, p3 = _LANES.unpack(packet)
    return p0, p1, p2, p3
