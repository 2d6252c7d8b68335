"""Public nkeys: what kind one is of, and whether it signed something."""

from __future__ import annotations

import base64
import binascii
from typing import Final, Literal

Kind = Literal["operator", "account", "user", "curve"]

_PREFIXES: Final[dict[Kind, int]] = {"operator": 14 << 3, "account": 0, "user": 20 << 3, "curve": 23 << 3}
_TEXT_LENGTH: Final = 56
"""Characters of prefix, 32 bytes of key and checksum in base 32."""


def raw_key(text: str) -> bytes | None:
    """Return prefix and key of a public nkey, None where it is none."""
    if len(text) != _TEXT_LENGTH:
        return None
    try:
        raw = base64.b32decode(text)
    except (binascii.Error, ValueError):
        return None
    return raw[:33] if binascii.crc_hqx(raw[:33], 0).to_bytes(2, "little") == raw[33:] else None


def is_public(text: str, kind: Kind) -> bool:
    """Return whether `text` is a public nkey of that kind."""
    raw = raw_key(text)
    return raw is not None and raw[0] == _PREFIXES[kind]


def has_signed(key: str, data: bytes, signature: bytes) -> bool:
    """Return whether `signature` is what the holder of a public nkey made of `data`."""
    from nacl.exceptions import CryptoError
    from nacl.signing import VerifyKey

    raw = raw_key(key)
    if raw is None:
        return False
    try:
        VerifyKey(raw[1:]).verify(data, signature)
    except (CryptoError, ValueError):
        return False
    return True
