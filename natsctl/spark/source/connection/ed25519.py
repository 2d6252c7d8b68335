"""Signatures of RFC 8032's Ed25519 in plain Python: a login on an executor needs one, and no library is there.

About a millisecond for a signature. Not constant in time: it signs one nonce per connection on a machine that holds
the seed anyway.
"""

from __future__ import annotations

import hashlib
from typing import Final

P: Final = 2**255 - 19
ORDER: Final = 2**252 + 27742317777372353535851937790883648493
D: Final = -121665 * pow(121666, P - 2, P) % P

Point = tuple[int, int, int, int]
"""Extended coordinates X, Y, Z, T of -x² + y² = 1 + d·x²·y², where x = X/Z, y = Y/Z, x·y = T/Z."""

BASE_Y: Final = 4 * pow(5, P - 2, P) % P
BASE_X: Final = 15112221349535400772501151409588531511454012693041857206046113283949847762202
BASE: Final[Point] = (BASE_X, BASE_Y, 1, BASE_X * BASE_Y % P)
NEUTRAL: Final[Point] = (0, 1, 1, 0)


def public_key(seed: bytes) -> bytes:
    """Return the 32 bytes of the public key of a 32-byte seed."""
    return _packed(_times(_secret(seed)[0], BASE))


def sign(seed: bytes, message: bytes) -> bytes:
    """Return the 64 bytes of the signature."""
    scalar, prefix = _secret(seed)
    own = _packed(_times(scalar, BASE))
    once = _number(prefix + message)
    commitment = _packed(_times(once, BASE))
    answer = (once + _number(commitment + own + message) * scalar) % ORDER
    return commitment + answer.to_bytes(32, "little")


def _secret(seed: bytes) -> tuple[int, bytes]:
    """Return the secret scalar and the prefix of nonces, out of a seed."""
    digest = hashlib.sha512(seed).digest()
    scalar = int.from_bytes(digest[:32], "little")
    return scalar & ((1 << 254) - 8) | 1 << 254, digest[32:]


def _number(data: bytes) -> int:
    """Return the hash of data as a number below the group's order."""
    return int.from_bytes(hashlib.sha512(data).digest(), "little") % ORDER


def _plus(one: Point, other: Point) -> Point:
    """Return the sum of two points, equal ones too: the formula has no exceptions on this curve."""
    a = (one[1] - one[0]) * (other[1] - other[0]) % P
    b = (one[1] + one[0]) * (other[1] + other[0]) % P
    c = 2 * one[3] * other[3] * D % P
    d = 2 * one[2] * other[2] % P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % P, g * h % P, f * g % P, e * h % P


def _times(scalar: int, point: Point) -> Point:
    """Return the point added to itself so many times."""
    total = NEUTRAL
    while scalar:
        if scalar & 1:
            total = _plus(total, point)
        point = _plus(point, point)
        scalar >>= 1
    return total


def _packed(point: Point) -> bytes:
    """Return the point as 32 bytes: y, and in the last bit whether x is odd."""
    inverse = pow(point[2], P - 2, P)
    x, y = point[0] * inverse % P, point[1] * inverse % P
    return (y | (x & 1) << 255).to_bytes(32, "little")
