"""Claims of JWTs as editable documents: created, signed, read, and checked.

A document is the whole JSON object of a JWT, keys that natsctl does not know included. `typed` shows one as a value of
`natsctl.api.jwt_claims`. A key that is missing is zero or empty; `put` leaves such keys out, as other tools do.
"""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Iterable
from typing import Any, Final

import msgspec
import orjson

from natsctl.api.errors import NatsctlError, UsageError
from natsctl.api.jwt_claims import AccountClaims, ActivationClaims, AnyClaims, ClaimsData, OperatorClaims, UserClaims
from natsctl.api.jwt_token import ISSUERS, NEWEST_VERSION, JwtError, any_claims, verified_claims
from natsctl.api.jwt_validation import account_faults, activation_faults, operator_faults, time_faults, user_faults
from natsctl.client.auth.keys import KeyPair

Document = dict[str, Any]

NO_LIMIT: Final = -1
_HEADER: Final = {"typ": "JWT", "alg": "ed25519-nkey"}
_NO_USER_LIMITS: Final = {"subs": NO_LIMIT, "data": NO_LIMIT, "payload": NO_LIMIT}
_NO_ACCOUNT_LIMITS: Final = {
    **_NO_USER_LIMITS, "imports": NO_LIMIT, "exports": NO_LIMIT, "wildcards": True, "conn": NO_LIMIT, "leaf": NO_LIMIT,
}  # fmt: skip
_FIRST: Final = tuple(ClaimsData.__struct_fields__)
_LAST: Final = ("tags", "type", "version")


def new_claims(kind: str, subject: str, name: str) -> Document:
    """Return the claims of a new operator, account or user, without limits and without JetStream."""
    body: Document = {}
    if kind == "account":
        body = {
            "limits": dict(_NO_ACCOUNT_LIMITS),
            "default_permissions": {"pub": {}, "sub": {}},
            "authorization": {},
        }
    elif kind == "user":
        body = {"pub": {}, "sub": {}, **_NO_USER_LIMITS}
    return {"name": name, "sub": subject, "nats": {**body, "type": kind, "version": NEWEST_VERSION}}


def put(place: Document, key: str, value: Any) -> None:
    """Set a key of claims, or remove it where the value is zero or empty."""
    if value or isinstance(value, dict):
        place[key] = value
    else:
        place.pop(key, None)


def add_tags(claims: Document, tags: Iterable[str]) -> None:
    """Add tags: in lower case, without duplicates."""
    body = claims["nats"]
    held = list(body.get("tags") or [])
    held += [tag for tag in dict.fromkeys(map(_tag, tags)) if tag not in held]
    put(body, "tags", held)


def remove_tags(claims: Document, tags: Iterable[str]) -> None:
    """Remove tags; missing ones are skipped."""
    gone = set(map(_tag, tags))
    put(claims["nats"], "tags", [tag for tag in claims["nats"].get("tags") or [] if tag not in gone])


def _tag(text: str) -> str:
    tag = text.strip().lower()
    if not tag:
        raise UsageError("a tag cannot be empty")
    return tag


def sign(claims: Document, signer: KeyPair) -> tuple[str, Document]:
    """Return the JWT that the holder of a key issues now, and its claims; raises UsageError for a public key.

    Nothing is checked but the kind of the issuer.
    """
    kind = claims["nats"]["type"]
    if kind in ISSUERS and signer.kind not in ISSUERS[kind]:
        raise UsageError(f"a key of kind {signer.kind} cannot sign the JWT of a kind {kind}")
    said = {**claims, "iss": signer.public, "iat": int(time.time())}
    said.pop("jti", None)
    body = {key: value for key, value in said.pop("nats").items() if key not in _LAST}
    body |= {key: claims["nats"][key] for key in _LAST if key in claims["nats"]} | {"version": NEWEST_VERSION}
    digest = hashlib.sha256(orjson.dumps(said, option=orjson.OPT_SORT_KEYS)).digest()
    said["jti"] = base64.b32encode(digest).rstrip(b"=").decode()
    ordered = {key: said[key] for key in _FIRST if key in said}
    whole = {**ordered, **{key: value for key, value in said.items() if key not in ordered}, "nats": body}
    text = f"{_base64url(orjson.dumps(_HEADER))}.{_base64url(orjson.dumps(whole))}"
    return f"{text}.{_base64url(signer.sign(text.encode()))}", whole


def read_claims(token: str, kind: str, origin: str) -> Document:
    """Return the claims of a JWT of that kind after checking its signature; raises NatsctlError with `origin`."""
    try:
        return verified_claims(token.strip(), kind, TYPES[kind])
    except JwtError as failure:
        raise NatsctlError(f"{origin}: {failure}") from None


def read_any(token: str) -> tuple[Document, str]:
    """Return the claims and the kind of any JWT after checking its signature; raises NatsctlError."""
    try:
        return any_claims(token.strip())
    except JwtError as failure:
        raise NatsctlError(f"invalid JWT: {failure}") from None


def typed(claims: Document, wanted: type[AnyClaims]) -> AnyClaims:
    """Return claims as a value of that type; raises NatsctlError for a field of a wrong type."""
    try:
        return msgspec.convert(claims, wanted)
    except msgspec.ValidationError as failure:
        raise NatsctlError(f"invalid claims: {failure}") from None


def faults(claims: Document) -> list[str]:
    """Return the faults of claims, except times, with nats-server's texts."""
    match claims["nats"].get("type"):
        case "operator":
            return list(operator_faults(typed(claims, OperatorClaims)))
        case "account":
            return list(account_faults(typed(claims, AccountClaims)))
        case "user":
            return list(user_faults(typed(claims, UserClaims)))
        case "activation":
            return list(activation_faults(typed(claims, ActivationClaims)))
    return []


def faults_of_times(claims: Document) -> list[str]:
    """Return whether claims have expired or are not yet valid, as text."""
    try:
        times = msgspec.convert({key: claims[key] for key in _FIRST if key in claims}, ClaimsData)
    except msgspec.ValidationError as failure:
        return [str(failure)]
    return list(time_faults(times, int(time.time())))


def check(claims: Document) -> None:
    """Raise UsageError for the first thing that is wrong with claims, times included."""
    found = [*faults_of_times(claims), *faults(claims)]
    if found:
        raise UsageError(f"{claims['nats']['type']} {claims.get('name', '')}: {found[0]}")


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


TYPES: Final[dict[str, type[Any]]] = {
    "operator": OperatorClaims, "account": AccountClaims, "user": UserClaims, "activation": ActivationClaims,
}  # fmt: skip
