"""What a user's verified JWT lets a connection be: the checks in nats-server's order, and the grant."""

from __future__ import annotations

import base64
import binascii

from natsctl.broker.auth.grant import Credentials, Grant
from natsctl.broker.auth.permissions import Permissions
from natsctl.broker.auth.static_auth import CONNECTION_TYPES
from natsctl.broker.jwt.account_book import HeldAccount
from natsctl.broker.jwt.claims import UserBody, UserClaims, UserLimits
from natsctl.broker.jwt.connect_times import SECOND_NS, is_inside, may_connect_for_ns
from natsctl.broker.jwt.nkey import has_signed
from natsctl.broker.jwt.rules import permissions_of
from natsctl.broker.jwt.templates import filled
from natsctl.broker.jwt.token import JwtError, ProxyRequiredError, decode_base64url


def rules_of(user: UserClaims, held: HeldAccount) -> UserLimits:
    """Return the rules that a user is under: its own, or those of the signing key's template. Raises JwtError."""
    if user.iss not in held.signers:
        raise JwtError("User JWT issuer is not known")
    scope = held.signers[user.iss]
    if scope is None:
        return user.nats
    body = user.nats
    bare = UserBody(issuer_account=body.issuer_account, tags=body.tags, type=body.type, version=body.version)
    if body != bare:
        raise JwtError("scoped users require no permissions or limits set")
    return filled(scope.template, user, held.claims)


def permissions_in(user: UserClaims, held: HeldAccount) -> Permissions | None:
    """Return the permissions of a user, the account's default ones where it has none. Raises JwtError."""
    return permissions_of(rules_of(user, held)) or permissions_of(held.claims.nats.default_permissions)


def grant_of(user: UserClaims, held: HeldAccount, credentials: Credentials, token: str) -> Grant:
    """Return what a connection that shows the JWT `token` is let in as; raises JwtError where it is not."""
    rules = rules_of(user, held)
    if held.expired:
        raise JwtError("Account JWT has expired")
    if rules.bearer_token and held.claims.nats.limits.disallow_bearer:
        raise JwtError("Account does not allow bearer tokens")
    if rules.proxy_required:
        raise ProxyRequiredError
    _check_connection_type(rules, credentials.connection_type)
    if not rules.bearer_token:
        _check_signature(user.sub, credentials)
    if held.claims.revokes(user):
        raise JwtError("User authentication revoked")
    if not is_inside(credentials.host, rules.networks):
        raise JwtError(f"Bad src Ip {credentials.host}")
    stay_ns = may_connect_for_ns(rules.times, rules.times_location, credentials.now_ns)
    if stay_ns is None:
        raise JwtError("Outside connect times")
    ends = [user.exp * SECOND_NS] if user.exp else []
    ends += [credentials.now_ns + stay_ns] if stay_ns else []
    return Grant(
        user=user.sub,
        account=held.name,
        permissions=permissions_of(rules) or permissions_of(held.claims.nats.default_permissions),
        expires_ns=min(ends, default=0),
        max_subscriptions=rules.subs,
        max_payload=rules.payload,
        issuer=user.iss if user.nats.issuer_account else held.name,
        jwt=token,
        name_tag=user.name,
        tags=tuple(user.nats.tags),
    )


def _check_connection_type(rules: UserLimits, kind: str) -> None:
    """Skip unknown types, unless there are no others: then other kinds of clients are meant."""
    named = {name.upper() for name in rules.allowed_connection_types}
    if named and kind not in named & CONNECTION_TYPES:
        raise JwtError("Connection type not allowed")


def _check_signature(key: str, credentials: Credentials) -> None:
    text = credentials.options.sig
    if not text:
        raise JwtError("Signature missing")
    if not has_signed(key, credentials.nonce, _signature(text)):
        raise JwtError("Signature not verified")


def _signature(text: str) -> bytes:
    """Return a signature of base 64 for URLs without padding, or else the usual one with."""
    try:
        return decode_base64url(text)
    except JwtError:
        pass
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise JwtError("Signature not valid base64") from None
