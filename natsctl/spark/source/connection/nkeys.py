"""NKey seeds as text, and what a login makes of them."""

from __future__ import annotations

import base64
import binascii
from typing import Final

from natsctl.spark.source.connection.ed25519 import public_key, sign
from natsctl.spark.source.errors import OptionError

SEED_PREFIX: Final = 18 << 3
"""The letter S, five bits of the first byte."""
SEED_BYTES: Final = 36
"""Two of prefixes, 32 of the seed, two of the check sum."""


def public_key_text(seed: str) -> str:
    """Return the public NKey of a seed (U…, A…); raises OptionError for what is no seed."""
    kind, raw = _opened(seed)
    body = bytes([kind]) + public_key(raw)
    return base64.b32encode(body + _check_sum(body)).decode().rstrip("=")


def signature_text(seed: str, nonce: bytes) -> str:
    """Return the signature of a server's nonce as CONNECT wants it: base64 for URLs, without padding."""
    return base64.urlsafe_b64encode(sign(_opened(seed)[1], nonce)).decode().rstrip("=")


def _opened(text: str) -> tuple[int, bytes]:
    """Return the prefix byte of the public key (user, account, …) and the raw seed."""
    text = text.strip()
    try:
        data = base64.b32decode(text + "=" * (-len(text) % 8))
    except (binascii.Error, ValueError) as failure:
        raise OptionError("nkey, credentials: the NKey seed in it is not valid") from failure
    if len(data) != SEED_BYTES or data[0] & 0xF8 != SEED_PREFIX or _check_sum(data[:-2]) != data[-2:]:
        raise OptionError("nkey, credentials: the NKey seed in it is not valid")
    return (data[0] & 7) << 5 | data[1] >> 3, data[2:-2]


def _check_sum(data: bytes) -> bytes:
    """CRC-16 of XMODEM, low byte first."""
    return binascii.crc_hqx(data, 0).to_bytes(2, "little")
