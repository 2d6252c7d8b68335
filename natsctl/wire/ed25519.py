"""Signatures of NKey seeds, for logins: Ed25519 of RFC 8032 in plain Python.

It replaces a library because Spark's executors have no library for it, and because importing one costs a command more
than a signature. Every multiplication does the same steps for any scalar; a signature takes about 3 milliseconds.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final, TypeAlias

P: Final = 2**255 - 19
ORDER: Final = 2**252 + 27742317777372353535851937790883648493
D: Final = -121665 * pow(121666, P - 2, P) % P
SCALAR_BITS: Final = 256

Point: TypeAlias = tuple[int, int, int, int]
"""Extended coordinates X, Y, Z, T of -x² + y² = 1 + d·x²·y², with x = X/Z, y = Y/Z, x·y = T/Z."""

BASE_Y: Final = 4 * pow(5, P - 2, P) % P
BASE_X: Final = 15112221349535400772501151409588531511454012693041857206046113283949847762202
BASE: Final[Point] = (BASE_X, BASE_Y, 1, BASE_X * BASE_Y % P)
NEUTRAL: Final[Point] = (0, 1, 1, 0)

SEED_PREFIX: Final = 18 << 3
"""The letter S, five bits of the first byte."""
SEED_BYTES: Final = 36
"""Two bytes of prefixes, 32 of the seed, two of the checksum."""


class SeedError(ValueError):
    """The text is not an NKey seed; the reason does not repeat it."""


def public_nkey(seed: str) -> str:
    """Return the public NKey of a seed (U…, A…); raises SeedError."""
    kind, raw = _decode_seed(seed)
    body = bytes([kind]) + public_key(raw)
    return base64.b32encode(body + _checksum(body)).decode().rstrip("=")


def nonce_signature(seed: str, nonce: bytes) -> str:
    """Return the signature as CONNECT has it: base64 for URLs, without padding; raises SeedError."""
    return base64.urlsafe_b64encode(sign(_decode_seed(seed)[1], nonce)).decode().rstrip("=")


def check_seed(seed: str) -> None:
    """Raise SeedError if the text is not an NKey seed."""
    _decode_seed(seed)


def public_key(seed: bytes) -> bytes:
    """Return the 32 bytes of the public key of a 32-byte seed."""
    return _packed(_times_base(_secret(seed)[0]))


def sign(seed: bytes, message: bytes) -> bytes:
    """Return the 64 bytes of the signature."""
    scalar, prefix = _secret(seed)
    public = _packed(_times_base(scalar))
    nonce = _hashed(prefix + message)
    commitment = _packed(_times_base(nonce))
    answer = (nonce + _hashed(commitment + public + message) * scalar) % ORDER
    return commitment + answer.to_bytes(32, "little")


def _secret(seed: bytes) -> tuple[int, bytes]:
    """Return the secret scalar and the prefix of nonces."""
    digest = _sha512(seed)
    scalar = int.from_bytes(digest[:32], "little")
    return scalar & ((1 << 254) - 8) | 1 << 254, digest[32:]


def _hashed(data: bytes) -> int:
    return int.from_bytes(_sha512(data), "little") % ORDER


def _sha512(data: bytes) -> bytes:
    import hashlib  # not for commands without a seed

    return hashlib.sha512(data).digest()


def _sum(left: Point, right: Point) -> Point:
    """Add two points, also equal ones: the formula has no exceptions on this curve."""
    a = (left[1] - left[0]) * (right[1] - right[0]) % P
    b = (left[1] + left[0]) * (right[1] + right[0]) % P
    c = 2 * left[3] * right[3] * D % P
    d = 2 * left[2] * right[2] % P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % P, g * h % P, f * g % P, e * h % P


def _times_base(scalar: int) -> Point:
    sums, point = [NEUTRAL, NEUTRAL], BASE
    for _ in range(SCALAR_BITS):
        bit = scalar & 1
        sums[bit] = _sum(sums[bit], point)  # an addition for a 0 too: time must not depend on the scalar
        point = _sum(point, point)
        scalar >>= 1
    return sums[1]


def _packed(point: Point) -> bytes:
    """Encode a point: y, and in the last bit whether x is odd."""
    inverse = pow(point[2], P - 2, P)
    x, y = point[0] * inverse % P, point[1] * inverse % P
    return (y | (x & 1) << 255).to_bytes(32, "little")


def _decode_seed(text: str) -> tuple[int, bytes]:
    """Return the prefix byte of the public key (user, account, …) and the raw seed."""
    text = text.strip()
    try:
        data = base64.b32decode(text + "=" * (-len(text) % 8))
    except (binascii.Error, ValueError):
        raise SeedError("not base32") from None
    if len(data) != SEED_BYTES or data[0] & 0xF8 != SEED_PREFIX or _checksum(data[:-2]) != data[-2:]:
        raise SeedError("not a seed, or damaged")
    return (data[0] & 7) << 5 | data[1] >> 3, data[2:-2]


def _checksum(data: bytes) -> bytes:
    """Return the CRC-16 (XMODEM), low byte first."""
    return binascii.crc_hqx(data, 0).to_bytes(2, "little")
