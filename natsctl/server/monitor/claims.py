"""What JWTs say of users, accounts and operators, as connz, accountz and varz show it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from natsctl.api.times import format_time
from natsctl.server.monitor.ages import SECOND_NS

if TYPE_CHECKING:
    from natsctl.broker.jwt.account_book import HeldAccount
    from natsctl.server.view import ServerView


def presentable(token: str) -> str:
    """Return a user's JWT; empty where it is all that its bearer needs, or can not be read."""
    body = payload(token).get("nats")
    return token if isinstance(body, dict) and not body.get("bearer_token") else ""


def payload(token: str) -> dict[str, Any]:
    """Return what a JWT says, unverified; empty where it can not be read."""
    from natsctl.api.codec import InvalidJSONError, read_folded
    from natsctl.broker.jwt.claims import UserClaims
    from natsctl.broker.jwt.token import JwtError, decode_base64url

    try:
        found = read_folded(decode_base64url(token.split(".")[1]), UserClaims)
    except (IndexError, InvalidJSONError, JwtError):
        return {}
    return found if isinstance(found, dict) else {}


def held_account(server: ServerView, name: str) -> HeldAccount | None:
    """Return an account of an operator with its JWT, None where accounts are not an operator's."""
    if server.options.operator is None:
        return None
    from natsctl.broker.jwt.authenticator import JwtAuthenticator

    auth = server.broker.options.auth
    return auth.book.get(name) if isinstance(auth, JwtAuthenticator) else None


def account_claims(held: HeldAccount) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what stands before and what stands behind an account's tag."""
    claims = held.claims
    revoked = {who: format_time(when * SECOND_NS) for who, when in sorted(claims.nats.revocations.items())}
    behind: dict[str, Any] = {"tags": list(claims.nats.tags)} if claims.nats.tags else {}
    behind["decoded_jwt"] = payload(held.token)
    if revoked:
        behind["revoked_user"] = revoked
    return {"jwt": held.token, "issuer_key": claims.iss}, behind


def operator_claims(server: ServerView) -> dict[str, Any]:
    """Return what the operators' JWTs say, as one key; the tokens themselves stay here."""
    options = server.options.operator
    if options is None or not options.operators:
        return {}
    return {"trusted_operators_claim": [_said(msgspec.to_builtins(claims)) for claims in options.operators]}


def _said(value: Any) -> Any:
    """Return a value without what is empty."""
    if isinstance(value, dict):
        return {key: _said(item) for key, item in value.items() if item}
    return value
