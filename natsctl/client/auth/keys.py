"""Nkeys of every kind: generating, reading and writing them, signatures, and encryption between two curve keys.

A seed is the private key as text, a public key identifies its holder. Both begin with letters of their kind (`SU…` and
`U…` of a user) and end in a checksum. Source: nats-io/nkeys, strkey.go and xkeys.go.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final

from natsctl.api.errors import NatsctlError, UsageError
from natsctl.api.jwt_token import PREFIXES, Kind, has_signed, raw_key
from natsctl.api.nkey_pairs import NONCE_BYTES, SEALED_HEAD, CurvePair, SealError, SigningPair, checked_text

KINDS: Final[tuple[Kind, ...]] = tuple(PREFIXES)
KEY_BYTES: Final = 32
_SEED: Final = 18 << 3
_SEED_LENGTH: Final = 58
_NO_CURVE: Final = "expected the other side's public curve key (it begins with X)"
_KIND_OF: Final = {prefix: kind for kind, prefix in PREFIXES.items()}


class KeyPair:
    """An nkey: public, and private if its seed is known."""

    def __init__(self, kind: Kind, public: str, secret: bytes | None = None) -> None:
        self.kind = kind
        self.public = public
        self._secret = secret

    def __repr__(self) -> str:
        return f"KeyPair({self.public})"

    @property
    def is_private(self) -> bool:
        return self._secret is not None

    @property
    def seed(self) -> str:
        """The private key as text; raises UsageError without one."""
        prefix = PREFIXES[self.kind]
        return checked_text(bytes((_SEED | prefix >> 5, (prefix & 31) << 3)) + self._private("a seed"))

    def sign(self, data: bytes) -> bytes:
        """Return the signature of `data`; raises UsageError for a public key or a curve key."""
        if self.kind == "curve":
            raise UsageError("a curve key encrypts and cannot sign", hint="sign with a key of another kind")
        return SigningPair(self.kind, self._private("signing")).sign(data)

    def verify(self, data: bytes, signature: bytes) -> None:
        """Check that the key has made `signature` of `data`; raises NatsctlError, UsageError for a curve key."""
        if self.kind == "curve":
            raise UsageError("a curve key encrypts and cannot verify", hint="verify with a key of another kind")
        if not has_signed(self.public, data, signature):
            raise NatsctlError("the signature is not valid")

    def seal(self, data: bytes, recipient: str) -> bytes:
        """Return `data` encrypted for the holder of the curve key `recipient`; raises UsageError."""
        import secrets

        pair = self._curve()
        _check_curve(recipient)
        try:
            return pair.seal(data, recipient.strip(), secrets.token_bytes(NONCE_BYTES))
        except SealError:
            raise UsageError(_NO_CURVE) from None

    def open(self, sealed: bytes, sender: str) -> bytes:
        """Open data that the owner of the curve key `sender` sealed for this one; raises NatsctlError, UsageError."""
        pair = self._curve()
        _check_curve(sender)
        if len(sealed) <= len(SEALED_HEAD) + NONCE_BYTES or not sealed.startswith(SEALED_HEAD):
            raise NatsctlError("this is not sealed data", hint="check --b64 and --no-b64")
        try:
            return pair.open(sealed, sender.strip())
        except SealError:
            raise NatsctlError("cannot open the data: it was sealed by, or for, another key") from None

    def _private(self, use: str) -> bytes:
        if self._secret is None:
            raise UsageError(f"{use} needs the private key of {self.public}", hint="give the file with its seed")
        return self._secret

    def _curve(self) -> CurvePair:
        if self.kind != "curve":
            raise UsageError(f"encryption needs a curve key, and this is a key of kind {self.kind}")
        return CurvePair(self._private("encryption"))


def generate_key(kind: Kind, entropy: bytes = b"") -> KeyPair:
    """Return a new key, made of 32 bytes of `entropy` or of the system's."""
    import secrets

    return _of_secret(kind, entropy or secrets.token_bytes(KEY_BYTES))


def parse_key(text: str, origin: str = "", *kinds: Kind) -> KeyPair:
    """Return the key of a seed or of a public key; raises UsageError, also for a kind that is not wanted.

    The error names `origin`, never the text: it may be a mistyped seed.
    """
    place = f"{origin}: " if origin else ""
    text = text.strip()
    found = _of_seed(text) if text.startswith("S") else None
    if found is None and (raw := raw_key(text)) is not None and raw[0] in _KIND_OF:
        found = KeyPair(_KIND_OF[raw[0]], text)
    if found is None:
        raise UsageError(f"{place}neither a seed nor a public nkey", hint="natsctl auth nkey gen KIND makes one")
    if kinds and found.kind not in kinds:
        raise UsageError(f"{place}expected a key of kind {' or '.join(kinds)}, not {found.kind}")
    return found


def find_key(text: str, origin: str, *kinds: Kind) -> KeyPair:
    """Return the key of the first line of a file that is a seed or a public key; raises UsageError.

    Such files are seeds, the output of `nkey gen --public`, and creds files.
    """
    for word in map(str.strip, text.splitlines()):
        if _of_seed(word) or kind_of(word):
            return parse_key(word, origin, *kinds)
    raise UsageError(f"{origin}: no nkey in it", hint="natsctl auth nkey gen KIND --output FILE makes one")


def is_seed(text: str) -> bool:
    """Return whether a text is a seed; no error may repeat it."""
    return _of_seed(text) is not None


def kind_of(public: str) -> Kind | None:
    raw = raw_key(public)
    return None if raw is None else _KIND_OF.get(raw[0])


def _of_seed(text: str) -> KeyPair | None:
    if len(text) != _SEED_LENGTH:
        return None
    try:
        raw = base64.b32decode(text + "=" * (-len(text) % 8))
    except (binascii.Error, ValueError):
        return None
    if binascii.crc_hqx(raw[:-2], 0).to_bytes(2, "little") != raw[-2:] or raw[0] & 0xF8 != _SEED:
        return None
    kind = _KIND_OF.get((raw[0] & 7) << 5 | (raw[1] & 0xF8) >> 3)
    return None if kind is None else _of_secret(kind, raw[2:-2])


def _of_secret(kind: Kind, secret: bytes) -> KeyPair:
    return KeyPair(kind, (CurvePair(secret) if kind == "curve" else SigningPair(kind, secret)).public, secret)


def _check_curve(text: str) -> None:
    if kind_of(text.strip()) != "curve":
        raise UsageError(_NO_CURVE)
