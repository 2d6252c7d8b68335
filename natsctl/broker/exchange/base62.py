"""Random names and hashes of base62 digits, as nats-server makes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from natsctl.broker.options import Rng

_DIGITS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_BITS: Final = 16
"""Random bits of each digit: more than six, so that no digit is noticeably likelier than another."""


def draw_digits(rng: Rng, length: int) -> str:
    """Return a random name."""
    bits = rng.getrandbits(_BITS * length)
    return "".join(_DIGITS[(bits >> _BITS * at & 0xFFFF) % 62] for at in range(length))


def hash_digits(name: str, length: int) -> str:
    """Return the beginning of a name's SHA-256, a digit for each byte."""
    import hashlib  # loads OpenSSL's, which a plain server does without

    return "".join(_DIGITS[byte % 62] for byte in hashlib.sha256(name.encode()).digest()[:length])
