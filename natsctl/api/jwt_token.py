"""NATS JWTs as text, and public nkeys.

A JWT has three parts: a signature that its issuer made, and claims of a known version and kind. An nkey has a kind and
verifies signatures.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any, Final, Literal

import msgspec

from natsctl.api.codec import BYTES_PER_COST, InvalidJSONError, reading_folded
from natsctl.api.subject_index import Steps, finish

Kind = Literal["operator", "account", "user", "server", "cluster", "curve"]

PREFIXES: Final[dict[Kind, int]] = {
    "operator": 14 << 3, "account": 0, "user": 20 << 3, "server": 13 << 3, "cluster": 2 << 3, "curve": 23 << 3,
}  # fmt: skip
"""First byte of public nkeys, by kind. Source: nats-io/nkeys, PrefixByte."""
_TEXT_LENGTH: Final = 56
"""Characters of prefix, 32 bytes of key and checksum in base 32."""


def raw_key(text: str) -> bytes | None:
    """Return (prefix, key), or None if the text is not a public nkey."""
    if len(text) != _TEXT_LENGTH:
        return None
    try:
        raw = base64.b32decode(text)
    except (binascii.Error, ValueError):
        return None
    return raw[:33] if binascii.crc_hqx(raw[:33], 0).to_bytes(2, "little") == raw[33:] else None


def is_public(text: str, kind: Kind | None = None) -> bool:
    """Return whether `text` is a public nkey of that kind, without one of any kind."""
    raw = raw_key(text)
    return raw is not None and raw[0] in (PREFIXES.values() if kind is None else (PREFIXES[kind],))


def has_signed(key: str, data: bytes, signature: bytes) -> bool:
    """Return whether `signature` is a valid signature of `data` by the owner of a public nkey.

    Nobody has signed nothing: a connection that began before its server wanted signatures has an empty nonce, and
    clients sign that one too, for anyone who asks.
    """
    from nacl.exceptions import CryptoError
    from nacl.signing import VerifyKey

    raw = raw_key(key)
    if raw is None or not data:
        return False
    try:
        VerifyKey(raw[1:]).verify(data, signature)
    except (CryptoError, ValueError):
        return False
    return True


MAX_TOKEN_BYTES: Final = 1 << 20
"""Longest JWT. Source: nats-server, jwt.MaxTokenSize."""
NEWEST_VERSION: Final = 2
ISSUERS: Final[dict[str, tuple[Kind, ...]]] = {
    "operator": ("operator",),
    "account": ("account", "operator"),
    "user": ("account",),
    "activation": ("account", "operator"),
    "authorization_request": ("server",),
    "authorization_response": ("account",),
}
"""Kinds of keys that may sign a JWT, by its type."""

ANY_VERSION: Final = frozenset({"authorization_request", "authorization_response"})
"""Types that may have version 0, signed like version 1. Source: nats-server, loadAuthorizationResponse."""
_CALLED: Final = {"authorization_response": "an authorization request"}
"""Names of types in errors, where nats-server has others."""

_OF_VERSION_1: Final = ("type", "tags", "issuer_account")
"""Keys that claims of version 1 have outside of `nats`."""
_NOT_URL_BASE64: Final = re.compile(r"[^A-Za-z0-9_-]")
_URL_BASE64: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
_TO_STANDARD: Final = bytes.maketrans(b"-_", b"+/")


class JwtError(Exception):
    """A rejected JWT; the text is nats-server's if it has one, and never contains the JWT."""


class ProxyRequiredError(JwtError):
    """A user that must connect through a trusted proxy."""

    def __init__(self) -> None:
        super().__init__("proxy connection required")


def decode_base64url(text: str) -> bytes:
    """Decode unpadded URL-safe base64, ignoring line ends as Go does; raises JwtError."""
    text = text.replace("\r", "").replace("\n", "")
    raw = text.encode("utf-8", "surrogatepass")
    if raw.translate(None, _URL_BASE64):
        wrong = _NOT_URL_BASE64.search(text)
        raise JwtError(f"illegal base64 data at input byte {wrong.start() if wrong is not None else 0}")
    try:
        return binascii.a2b_base64(raw.translate(_TO_STANDARD) + b"=" * (-len(raw) % 4))
    except binascii.Error:
        raise JwtError(f"illegal base64 data at input byte {len(text)}") from None


class _JwtHeader(msgspec.Struct):
    """The keys of the first part."""

    typ: str = ""
    alg: str = ""


class _AnyBody(msgspec.Struct):
    """The keys that the claims of any kind have in `nats`."""

    type: str = ""
    version: int = 0
    accounts: list[str] = []


class _AnyClaims(msgspec.Struct):
    """The keys that the claims of any kind have."""

    iss: str = ""
    sub: str = ""
    nats: _AnyBody = msgspec.field(default_factory=_AnyBody)


def verified_claims(token: str, kind: str, wanted: type[Any] = _AnyClaims) -> dict[str, Any]:
    """Run all steps of `verifying_claims`."""
    return finish(verifying_claims(token, kind, wanted))


def verifying_claims(token: str, kind: str, wanted: type[Any] = _AnyClaims) -> Steps[dict[str, Any]]:
    """Verify a JWT of that kind and return its claims; claims of version 1 are converted to version 2.

    Keys are spelled as in `wanted`. Neither times nor trust in the issuer are checked. Raises JwtError.
    """
    claims, version, found = yield from _signed_claims(token, wanted)
    _check_issuer(claims["iss"], found)
    if found != kind:
        raise JwtError(f"not {_CALLED.get(kind, kind)} claim")
    return _as_version_2(claims) if version == 1 else claims


def _check_issuer(issuer: str, kind: str) -> None:
    if kind in ISSUERS and not any(is_public(issuer, prefix) for prefix in ISSUERS[kind]):
        raise JwtError(f"unable to validate expected prefixes - [{' '.join(ISSUERS[kind])}]")


def any_claims(token: str) -> tuple[dict[str, Any], str]:
    """Return the claims of a JWT of any kind, as `verified_claims` does, and the kind; raises JwtError."""
    claims, version, found = finish(_signed_claims(token, _AnyClaims))
    _check_issuer(claims["iss"], found)
    return (_as_version_2(claims) if version == 1 else claims), found


def generic_claims(token: str) -> dict[str, Any]:
    """Verify a JWT of any kind and return its claims; raises JwtError."""
    return finish(_signed_claims(token, _AnyClaims))[0]


def _signed_claims(token: str, wanted: type[Any]) -> Steps[tuple[dict[str, Any], int, str]]:
    """Return claims, version and type of a JWT that its issuer signed."""
    if len(token) > MAX_TOKEN_BYTES:
        raise JwtError(f"token size {len(token)} exceeds maximum of {MAX_TOKEN_BYTES} bytes: token too large")
    parts = token.split(".")
    if len(parts) != 3:
        raise JwtError("expected 3 chunks")
    _check_header((yield from _json(parts[0], _JwtHeader)))
    claims = yield from _json(parts[1], wanted)
    version, kind = _version_and_kind(claims)
    signature = decode_base64url(parts[2])
    first = version == 1 or (version < 1 and kind in ANY_VERSION)
    signed = parts[1] if first else f"{parts[0]}.{parts[1]}"
    issuer = claims.get("iss")
    yield len(token) // BYTES_PER_COST
    if not isinstance(issuer, str) or not has_signed(issuer, signed.encode(), signature):
        raise JwtError(f"claim failed V{1 if version <= 1 else 2} signature verification")
    return claims, version, kind


def _json(part: str, wanted: type[Any]) -> Steps[dict[str, Any]]:
    raw = decode_base64url(part)
    yield len(part) // BYTES_PER_COST
    try:
        found = yield from reading_folded(raw, wanted, *_OF_VERSION_1)
    except InvalidJSONError:
        raise JwtError("invalid JSON") from None
    if not isinstance(found, dict):
        raise JwtError("invalid JSON")
    return found


def _check_header(header: dict[str, Any]) -> None:
    kind, algorithm = header.get("typ", ""), header.get("alg", "")
    if not isinstance(kind, str) or kind.upper() != "JWT":
        raise JwtError(f'not supported type "{kind}"')
    if not isinstance(algorithm, str) or algorithm.lower() not in ("ed25519", "ed25519-nkey"):
        raise JwtError(f'unexpected "{algorithm}" algorithm')


def _version_and_kind(claims: dict[str, Any]) -> tuple[int, str]:
    """Return version and type; where the type stands outside `nats`, the version is 1."""
    body = claims.get("nats", {})
    if not isinstance(body, dict):
        raise JwtError("invalid JSON")
    if claims.get("type"):
        return 1, str(claims["type"])
    version, kind = body.get("version", 0), str(body.get("type", ""))
    if not isinstance(version, int) or version > NEWEST_VERSION:
        raise JwtError("JWT was generated by a newer version ")
    if kind in ISSUERS and version < 1 and kind not in ANY_VERSION:
        raise JwtError(f"library supports version {NEWEST_VERSION} or less - received {version}")
    return version, kind


def _as_version_2(claims: dict[str, Any]) -> dict[str, Any]:
    """Return claims of version 1 with tags, type and issuing account in `nats`, and limits if they were missing."""
    body = dict(claims.get("nats", {}))
    kind = claims["type"]
    if kind == "activation":
        body["kind"] = body.pop("type", "")
    elif kind == "user":
        body = {"subs": -1, "data": -1, "payload": -1, **body}
    elif kind == "account" and isinstance(body.get("limits"), dict):
        kept = ("subs", "data", "payload", "imports", "exports", "wildcards", "disallow_bearer", "conn", "leaf")
        body["limits"] = {key: value for key, value in body["limits"].items() if key in kept}
    body |= {"type": kind, "version": 1, "tags": claims.get("tags", [])}
    if "issuer_account" in claims:
        body["issuer_account"] = claims["issuer_account"]
    return {**claims, "nats": body}
