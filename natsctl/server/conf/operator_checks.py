"""What must hold between operators and other options; the sentences are nats-server's."""

from __future__ import annotations

from collections.abc import Iterator

from natsctl.api.versions import SERVER_VERSION
from natsctl.broker.jwt.claims import OperatorClaims, UserClaims, decode
from natsctl.broker.jwt.nkey import is_public
from natsctl.broker.jwt.token import JwtError
from natsctl.server.auth.operator_options import OperatorOptions
from natsctl.server.options import ServerOptions


def operator_complaints(options: ServerOptions) -> Iterator[tuple[str, str]]:
    """Yield what is wrong between operators and other options: the key it is about, and nats-server's sentence."""
    operator = options.operator
    if operator is None:
        return
    if not operator.operators:
        if operator.sentinel:
            yield "default_sentinel", "default sentinel requires operators and accounts"
        return
    if operator.sentinel:
        yield from _about_sentinel(operator.sentinel)
    if not operator.memory and operator.directory is None:
        yield "operator", "operators require an account resolver to be configured"
    if options.accounts:
        yield "accounts", "operators do not allow Accounts to be configured directly"
    if options.users:
        yield "authorization", "operators do not allow users to be configured directly"
    if options.no_auth_user:
        yield "no_auth_user", "no_auth_user not compatible with Trusted Operator"
    if operator.trusted_keys:
        yield "trusted_keys", "conflicting options for 'TrustedKeys' and 'TrustedOperators'"
    yield from _about_system_account(options, operator)
    yield from _about_keys(operator)


def _about_sentinel(token: str) -> Iterator[tuple[str, str]]:
    try:
        user = decode(token, UserClaims)
    except JwtError:
        yield "default_sentinel", "default sentinel JWT not valid"
        return
    if not user.nats.bearer_token and not user.nats.issuer_account:
        yield "default_sentinel", "default sentinel must be a bearer token"


def _about_system_account(options: ServerOptions, operator: OperatorOptions) -> Iterator[tuple[str, str]]:
    named = [claims.nats.system_account for claims in operator.operators if claims.nats.system_account]
    if options.system_account:
        if named and options.system_account not in named:
            yield "system_account", "system_account in config and operator JWT must be identical"
    elif operator.directory is not None and not operator.operators[0].nats.system_account:
        yield (
            "resolver",
            (
                "using nats based account resolver - the system account needs to be specified in configuration "
                "or the operator jwt"
            ),
        )


def _about_keys(operator: OperatorOptions) -> Iterator[tuple[str, str]]:
    for claims in operator.operators:
        for key in (claims.sub, *claims.nats.signing_keys):
            if not is_public(key, "operator"):
                yield "operator", f'trusted Keys "{key}" are required to be a valid public operator nkey'
        yield from (("operator", text) for text in _version_complaints(claims))
    for key in operator.pinned:
        if not is_public(key, "account"):
            yield "resolver_pinned_accounts", f'pinned account key "{key}" is not a valid public account nkey'


def _version_complaints(claims: OperatorClaims) -> Iterator[str]:
    """Yield that an operator wants a newer server."""
    wanted = claims.nats.assert_server_version
    if not wanted:
        return
    numbers = wanted.split(".")
    if len(numbers) != 3 or not all(number.isdecimal() for number in numbers):
        yield (
            f"operator {claims.sub} expects version {wanted} got error instead: "
            "asserted server version must be of the form <major>.<minor>.<update>"
        )
        return
    own = [int(number) for number in SERVER_VERSION.split("-")[0].split(".")]
    for name, number, have in zip(("major", "minor", "update"), map(int, numbers), own, strict=True):
        if number != have:
            if number > have:
                yield f"operator {claims.sub} expected {name} version {number} > server {name} version {have}"
            return
