"""The public name of one server run: 56 characters that begin with `N`, spelled like a server's public nkey."""

import base64
from typing import Final

_SERVER_PREFIX: Final = 13 << 3
"""The nkey prefix byte whose base32 spelling is `N`."""


def server_id(seed: bytes) -> str:
    """Return the server id made of 32 random bytes; there is no private key behind it."""
    if len(seed) != 32:
        raise ValueError("a server id is made of 32 bytes")
    body = bytes((_SERVER_PREFIX,)) + seed
    return base64.b32encode(body + crc16(body).to_bytes(2, "little")).decode()


def crc16(data: bytes) -> int:
    """Return the CRC-16/XMODEM of `data`, the check at the end of every nkey."""
    crc = 0
    for byte in data:
        crc ^= byte << 8
        for _ in range(8):
            crc = (crc << 1) ^ 0x1021 if crc & 0x8000 else crc << 1
        crc &= 0xFFFF
    return crc
