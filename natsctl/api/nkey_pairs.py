"""Key pairs of a server: an nkey that signs, and a curve key that encrypts for one reader.

Sealed data has the format of nats-io/nkeys, version 1 (xkeys.go): `xkv1`, a nonce of 24 bytes, and the box of NaCl that
X25519, XSalsa20 and Poly1305 make of it. Seeds and nonces come from the caller, so that nothing here draws at random.
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Final

from natsctl.api.jwt_token import PREFIXES, Kind, raw_key

if TYPE_CHECKING:
    from nacl.public import Box

SEED_BYTES: Final = 32
NONCE_BYTES: Final = 24
"""Length of a nonce; one that is drawn at random never comes twice."""
SEALED_HEAD: Final = b"xkv1"
"""First bytes of everything sealed. Source: nats-io/nkeys, XKeyVersionV1."""


class SealError(Exception):
    """Sealed bytes that cannot be opened; the text is from nats-io/nkeys."""


def public_text(kind: Kind, raw: bytes) -> str:
    """Return 32 bytes of a public key as the nkey of a kind."""
    return checked_text(bytes([PREFIXES[kind]]) + raw)


def checked_text(raw: bytes) -> str:
    """Return bytes and their checksum in base 32 without padding, as nkeys and seeds are written."""
    return base64.b32encode(raw + binascii.crc_hqx(raw, 0).to_bytes(2, "little")).rstrip(b"=").decode()


class SigningPair:
    """An nkey of one kind that signs."""

    def __init__(self, kind: Kind, seed: bytes) -> None:
        """Make the pair of a raw seed of `SEED_BYTES`."""
        from nacl.signing import SigningKey

        self._key = SigningKey(seed)
        self.public = public_text(kind, self._key.verify_key.encode())

    def sign(self, data: bytes) -> bytes:
        """Return the signature of `data`."""
        return self._key.sign(data).signature


class CurvePair:
    """A curve key (x25519): only its owner can open data sealed for it."""

    def __init__(self, seed: bytes) -> None:
        """Make the pair of a raw seed of `SEED_BYTES`."""
        from nacl.public import PrivateKey

        self._key = PrivateKey(seed)
        self.public = public_text("curve", self._key.public_key.encode())

    def seal(self, data: bytes, recipient: str, nonce: bytes) -> bytes:
        """Return `data` sealed for a public curve key, with a nonce that no other message has."""
        box = self._box(recipient)
        if box is None:
            raise SealError("nkeys: not a valid recipient public curve key")
        return SEALED_HEAD + nonce + box.encrypt(data, nonce).ciphertext

    def open(self, sealed: bytes, sender: str) -> bytes:
        """Open data that the owner of `sender` sealed for this key; raises SealError."""
        from nacl.exceptions import CryptoError

        head = len(SEALED_HEAD)
        if len(sealed) <= head + NONCE_BYTES:
            raise SealError("nkeys: encrypted input is not valid")
        if sealed[:head] != SEALED_HEAD:
            raise SealError("nkeys: encrypted input wrong version")
        box = self._box(sender)
        if box is None:
            raise SealError("nkeys: not a valid sender public curve key")
        try:
            return box.decrypt(sealed[head + NONCE_BYTES :], sealed[head : head + NONCE_BYTES])
        except CryptoError:
            raise SealError("nkeys: could not decrypt input") from None

    def _box(self, other: str) -> Box | None:
        """Return the box between this key and a public one, or None if that is not a curve key."""
        from nacl.exceptions import CryptoError
        from nacl.public import Box, PublicKey

        raw = raw_key(other)
        if raw is None or raw[0] != PREFIXES["curve"]:
            return None
        try:
            return Box(self._key, PublicKey(raw[1:]))
        except CryptoError:  # a key that shares the same secret with everyone
            return None
