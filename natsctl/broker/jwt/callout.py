"""Authentication callout: the logins that a service decides about, and its allowed responses.

Theory of operation. With `auth_callout` in the configuration, a login is first checked as without it; then everyone but
the `auth_users`, who are the service, is delegated to it, whether the login was good or not, except where
`allowed_accounts` leaves an account out. In operator mode the JWT of an account says the same of its users, and only a
good login is delegated. The response names the account: in the configuration's mode by the audience of the user's JWT,
which the configured issuer signs, with an operator by the key that signs it.

The terms of a delegation say which service is asked and check the signers of requests and responses; the request and
the rest of the response are in `callout_requests.py`. Texts are nats-server's. Source: auth.go, auth_callout.go.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec
from msgspec.structs import replace

from natsctl.api.codec import go_quote
from natsctl.api.jwt_claims import AuthorizationResponseClaims, UserClaims, UserLimits
from natsctl.api.jwt_token import JwtError
from natsctl.api.subject_index import Steps
from natsctl.broker.auth.credentials import (
    AccountPlacement,
    CalloutError,
    ConnectOptions,
    Credentials,
    Delegation,
    Grant,
    LoginRefusal,
    Pending,
)
from natsctl.broker.auth.permissions import SubjectPermissions, SubjectRules
from natsctl.broker.auth.static_auth import StaticAuthenticator, User
from natsctl.broker.imports.account_config import GLOBAL_ACCOUNT
from natsctl.broker.jwt.account_registry import AccountRegistry, ActiveAccount
from natsctl.broker.jwt.user_grant import fill, is_bare, permissions_of, permissions_under

CALLOUT_SUBJECT: Final = "$SYS.REQ.USER.AUTH"
"""Request subject of services; clients must not use it themselves."""
UNKNOWN_SIGNER: Final = "auth callout signing key is unknown"
ANY_ACCOUNT: Final = "*"
"""As the only entry of `allowed_accounts` in an account's JWT it means every account."""


class CalloutSettings(msgspec.Struct, frozen=True):
    """The block `auth_callout` of a configuration."""

    issuer: str
    """Public account key that signs responses and users; no account need have it."""
    auth_users: tuple[str, ...]
    """Users by name or nkey that nobody is asked about: they are the service."""
    account: str = GLOBAL_ACCOUNT
    xkey: str = ""
    allowed_accounts: tuple[str, ...] = ()


def without_callout(grant: Grant) -> Grant:
    """Return a grant that may not publish requests of callouts: those are the server's."""
    given = grant.permissions or SubjectPermissions()
    if CALLOUT_SUBJECT in given.publish.deny:
        return grant
    publish = SubjectRules(given.publish.allow, (*given.publish.deny, CALLOUT_SUBJECT))
    return replace(grant, permissions=replace(given, publish=publish))


def may_be_asked(grant: Grant) -> bool:
    """Return whether a client is in an account of a service: it may not publish requests of callouts."""
    return grant.permissions is not None and CALLOUT_SUBJECT in grant.permissions.publish.deny


class ConfiguredTerms:
    def __init__(self, settings: CalloutSettings, exists: Callable[[str], bool]) -> None:
        """`exists` returns whether there is an account of a name."""
        self._settings = settings
        self._exists = exists

    @property
    def account(self) -> str:
        return self._settings.account

    @property
    def subject(self) -> str:
        return self._settings.issuer

    @property
    def xkey(self) -> str:
        """Public curve key that requests are sealed for."""
        return self._settings.xkey

    def check_signer(self, response: AuthorizationResponseClaims) -> None:
        """Raise CalloutError where another key than the configured one has signed a response."""
        if response.iss != self._settings.issuer:
            raise CalloutError(UNKNOWN_SIGNER)

    def place(self, user: UserClaims, now_ns: int) -> Steps[AccountPlacement]:
        """Return the account that the audience of a user's JWT names; raises CalloutError."""
        asked, issuer = go_quote(self.account), self._settings.issuer
        if user.nats.issuer_account:
            raise CalloutError(f"error non operator mode account {asked}: attempted to use issuer_account")
        if user.iss != issuer:
            raise CalloutError(
                f"wrong issuer for auth callout response on account {asked}, "
                f"expected {go_quote(issuer)} got {go_quote(user.iss)}"
            )
        if not self._exists(user.aud):
            raise CalloutError(_no_account(user.aud, self.account, "account missing"))
        yield 1
        return AccountPlacement(user.aud, user.nats, permissions_of(user.nats), user.aud)


class OperatedTerms:
    """The terms of a callout that the JWT of an operator's account asks for."""

    def __init__(self, book: AccountRegistry, held: ActiveAccount) -> None:
        self._book = book
        self._began = held

    @property
    def _held(self) -> ActiveAccount:
        """The account as it is now; if it was removed, as at the request."""
        return self._book.get(self._began.name) or self._began

    @property
    def account(self) -> str:
        return self._began.name

    @property
    def subject(self) -> str:
        return self._began.name

    @property
    def xkey(self) -> str:
        """Public curve key that requests are sealed for."""
        return self._began.claims.nats.authorization.xkey

    def check_signer(self, response: AuthorizationResponseClaims) -> None:
        """Raise CalloutError if a response is not from the account."""
        account, of = self.account, response.nats.issuer_account
        if of and of != account:
            raise CalloutError(f"auth callout response issuer account {go_quote(of)} is not the callout account")
        if response.iss != account and response.iss not in self._held.signers:
            raise CalloutError(UNKNOWN_SIGNER)

    def place(self, user: UserClaims, now_ns: int) -> Steps[AccountPlacement]:
        """Return the account that has signed a user's JWT; raises CalloutError."""
        account = self.account
        if user.account != account and not self._may_assign(user.account):
            raise CalloutError(
                f"account {go_quote(user.iss)} not permitted as valid account option for auth callout for account "
                f"{go_quote(account)}"
            )
        try:
            held = yield from self._book.look_up(user.account, now_ns)
        except JwtError as fault:
            raise CalloutError(_no_account(user.account, account, str(fault))) from None
        rules = yield from _rules(user, held)
        issuer = user.iss if user.nats.issuer_account else held.name
        return AccountPlacement(held.name, rules, permissions_under(rules, user, held), issuer)

    def _may_assign(self, account: str) -> bool:
        allowed = self._held.claims.nats.authorization.allowed_accounts
        return allowed == [ANY_ACCOUNT] or account in allowed


def _no_account(name: str, asked: str, why: str) -> str:
    return f"no valid account {go_quote(name)} for auth callout response on account {go_quote(asked)}: {why}"


def _rules(user: UserClaims, held: ActiveAccount) -> Steps[UserLimits]:
    """Return the rules that a user is under: its own, or those of the signing key's template; raises CalloutError."""
    if user.iss not in held.signers:
        raise CalloutError(f"user JWT issuer {go_quote(user.iss)} is not known")
    scope = held.signers[user.iss]
    if scope is None:
        return user.nats
    if not is_bare(user):
        raise CalloutError("user JWT is not valid: scoped users require no permissions or limits set")
    try:
        return (yield from fill(scope.template, user, held.claims))
    except JwtError as fault:
        raise CalloutError(f"user JWT generated invalid permissions: {fault}") from None


def is_leaf(credentials: Credentials) -> bool:
    """Return whether the other side is a server."""
    return credentials.connection_type.startswith("LEAFNODE")


class CalloutAuthenticator:
    """The authenticator of configured users, for a configuration that delegates most logins to a service."""

    def __init__(
        self, known: StaticAuthenticator | None, settings: CalloutSettings, exists: Callable[[str], bool]
    ) -> None:
        """`known` are the configured users; `exists` returns whether there is an account of a name."""
        self._known = known
        self._settings = settings
        self._terms = ConfiguredTerms(settings, exists)

    @property
    def required(self) -> bool:
        """False if clients without credentials are accepted, if the service agrees."""
        return self._known is None or self._known.required

    @property
    def wants_nonce(self) -> bool:
        return self._known is not None and self._known.wants_nonce

    @property
    def default(self) -> Grant | None:
        """Grant of a client without credentials; None if the service decides about it."""
        found = self._known.default if self._known is not None else None
        return found if found is not None and not self._delegates(found.account) else None

    def authenticate(self, credentials: Credentials) -> Grant | LoginRefusal | Pending | Delegation:
        """Return a known user's grant or refusal, or the delegation to the service."""
        if self._known is None:
            return self._judged(LoginRefusal("no users"), None, credentials.options, credentials)
        user, options = self._known.find(credentials)
        answer = self._known.authenticate(credentials)
        if not isinstance(answer, Pending):
            return self._judged(answer, user, options, credentials)
        if user is None or (user.identity not in self._settings.auth_users and self._delegates(user.account)):
            # Whether the secret is right makes no difference, so that nobody has to wait for the comparison.
            account = user.account if user is not None else ""
            return self._delegation(account, options, credentials, named=user is not None)
        return Pending(partial(self._compared, answer, user, options, credentials))

    def _compared(
        self, pending: Pending, user: User, options: ConnectOptions, credentials: Credentials
    ) -> Grant | LoginRefusal | Delegation:
        answer = pending.work()
        assert not isinstance(answer, Delegation)
        return self._judged(answer, user, options, credentials)

    def _judged(
        self, answer: Grant | LoginRefusal, user: User | None, options: ConnectOptions, credentials: Credentials
    ) -> Grant | LoginRefusal | Delegation:
        """Return the meaning of the answer about a configured user if a service decides about the others."""
        settings = self._settings
        account = answer.account if isinstance(answer, Grant) else GLOBAL_ACCOUNT
        if not is_leaf(credentials) and not self._delegates(account):
            return answer
        if user is not None and user.identity in settings.auth_users:
            if isinstance(answer, LoginRefusal):
                return replace(answer, account=settings.account)
            return without_callout(answer) if answer.account == settings.account else answer
        entered = answer.account if isinstance(answer, Grant) and not is_leaf(credentials) else ""
        return self._delegation(entered, options, credentials, named=user is not None)

    def _delegates(self, account: str) -> bool:
        allowed = self._settings.allowed_accounts
        return account == GLOBAL_ACCOUNT or not allowed or account in allowed

    def _delegation(
        self, entered: str, options: ConnectOptions, credentials: Credentials, *, named: bool
    ) -> Delegation:
        # A JWT means nothing without an operator, and is left out.
        connect = replace(options, jwt="")
        return Delegation(self._terms, connect, credentials.nonce, named=named, entered=entered)

    def still_holds(self, grant: Grant, credentials: Credentials) -> bool:
        """Return whether the client would be accepted as the same user; always for clients accepted by the service."""
        if grant.assigned is not None:
            return True
        answer = self.authenticate(credentials)
        return (answer.work() if isinstance(answer, Pending) else answer) == grant
