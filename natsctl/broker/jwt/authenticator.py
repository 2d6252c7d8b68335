"""Authentication by JWTs of an operator, and the broker kept as the accounts' claims say.

Theory of operation. A connection shows the JWT of a user, signed by an account; the account's JWT is signed by a
trusted operator, and signs the nonce with the user's key. The signature of a user's JWT is verified once and its claims
kept by the text, so that clients that reconnect together cost one verification each, of the nonce. Everything that
changes with time or with the account's JWT is checked each time. Changed claims reach the broker as configuration, and
clients that they no longer admit are closed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from natsctl.api.jwt_claims import UserClaims, decode
from natsctl.api.jwt_token import JwtError, ProxyRequiredError
from natsctl.api.jwt_validation import time_faults, user_faults
from natsctl.api.subject_index import Steps, finish
from natsctl.api.units import SECOND
from natsctl.broker.auth.credentials import Answer, Credentials, DecidedLater, Delegation, Grant, LoginRefusal, Pending
from natsctl.broker.broker import Broker
from natsctl.broker.imports.account_config import UNLIMITED, AccountConfig, limit_of
from natsctl.broker.jwt.account_registry import AccountRegistry, ActiveAccount, RemoteResolver, Resolver, Trust
from natsctl.broker.jwt.callout import OperatedTerms, is_leaf, may_be_asked, without_callout
from natsctl.broker.jwt.user_grant import grant_of, permissions_under, rules_of
from natsctl.broker.refusals import CloseReason
from natsctl.broker.session import Session

NOT_MAPPED: Final = "Leafnode not mapped to a callout account"
"""nats-server's reason for refusing a leaf node after a failed login in an account with a callout."""
SESSION_COST: Final = 16
"""Cost of closing a session or of applying an account's new claims to it."""
MAX_KEPT: Final = 4096
"""Maximum user JWTs with cached verified claims; then the cache is cleared."""
MAX_KEPT_CHARS: Final = 8192
"""Longer JWTs are verified each time."""


class JwtAuthenticator:
    def __init__(self, trust: Trust, resolver: Resolver, remote: RemoteResolver | None = None) -> None:
        """Authenticate users of the accounts that `resolver` has; `remote` is the same one if it asks elsewhere."""
        self.trust = trust
        self.remote = remote
        self.book = AccountRegistry(trust, resolver)
        self._kept: dict[str, UserClaims] = {}

    @property
    def required(self) -> bool:
        return True

    @property
    def wants_nonce(self) -> bool:
        """Users prove that they have the key of their JWT."""
        return True

    @property
    def default(self) -> Grant | None:
        return None

    def authenticate(self, credentials: Credentials) -> Answer:
        """Return the client's grant or refusal, or the pending answer of a service or of an account to fetch."""
        remote, account = self.remote, self._to_fetch(credentials)
        if remote is None or not account:
            return self._answer_in_steps(credentials, self._decide(credentials))
        return Pending(partial(remote.fetch_all, account, self.book.names()), partial(self._fetched, credentials))

    def _to_fetch(self, credentials: Credentials) -> str:
        """Return the account of a client if it is not loaded yet, or ""."""
        if self.remote is None:
            return ""
        try:
            account = self.user_claims(credentials.options.jwt or self.trust.sentinel).account
        except JwtError:
            return ""
        pinned = self.trust.pinned
        wanted = (pinned is None or account in pinned) and self.book.needs_fetch(account, credentials.now_ns)
        return account if wanted else ""

    def _answer_in_steps(self, credentials: Credentials, deciding: Steps[Grant | LoginRefusal | Delegation]) -> Answer:
        """Return the answer, or a pending one if that takes long or has to wait for changes of accounts."""
        later = DecidedLater()

        def job() -> Steps[None]:
            later.decide((yield from deciding))

        self.book.jobs.run(job())
        return later.answer or Pending(partial(self._decide_now, credentials), decided=later)

    def _decide_now(self, credentials: Credentials) -> Grant | LoginRefusal | Delegation:
        if self.book.is_active(self.user_claims(credentials.options.jwt or self.trust.sentinel).account):
            return finish(self._decide(credentials))
        return LoginRefusal("account missing")

    def _fetched(self, credentials: Credentials, result: Any) -> Answer:
        return self._answer_in_steps(credentials, self._decide_with(credentials, result))

    def _decide_with(self, credentials: Credentials, fetched: Any) -> Steps[Grant | LoginRefusal | Delegation]:
        assert self.remote is not None
        self.remote.take(fetched)
        try:
            account = self.user_claims(credentials.options.jwt or self.trust.sentinel).account
            yield from self._revive(account, credentials.now_ns)
            return (yield from self._decide(credentials))
        except JwtError as fault:
            return LoginRefusal(str(fault))
        finally:
            self.remote.take(None)

    def _revive(self, account: str, now_ns: int) -> Steps[None]:
        """Give an account that was brought to life without a JWT the one that there is now."""
        held, token = self.book.get(account), self.book.resolver.fetch(account)
        if held is not None and not held.token and token:
            yield from self.book.update(account, token, now_ns)

    def _decide(self, credentials: Credentials) -> Steps[Grant | LoginRefusal | Delegation]:
        try:
            return (yield from self._answer(credentials))
        except ProxyRequiredError as fault:
            return LoginRefusal(str(fault), reason=CloseReason.PROXY_REQUIRED)
        except JwtError as fault:
            return LoginRefusal(str(fault))

    def still_holds(self, grant: Grant, credentials: Credentials) -> bool:
        """Return whether the client would be accepted as the same user now."""
        if grant.assigned is not None:
            return self._still_assigned(grant.assigned, credentials.now_ns)
        answer = self._decide_now(credentials)
        return isinstance(answer, Grant) and (answer.user, answer.account) == (grant.user, grant.account)

    def user_claims(self, token: str) -> UserClaims:
        """Return the claims of a user's JWT that is well formed and signed; raises JwtError."""
        known = self._kept.get(token)
        if known is not None:
            return known
        claims = decode(token, UserClaims)
        for fault in user_faults(claims):
            raise JwtError(f"User JWT no longer valid: {fault}")
        if len(token) <= MAX_KEPT_CHARS:
            if len(self._kept) >= MAX_KEPT:
                self._kept.clear()
            self._kept[token] = claims
        return claims

    def _still_assigned(self, user: UserClaims, now_ns: int) -> bool:
        """Return whether the account of a user accepted by a service would still accept it."""
        self.book.tick(now_ns)
        held = self.book.get(user.account)
        return held is not None and not held.expired and user.iss in held.signers and not held.claims.revokes(user)

    def _answer(self, credentials: Credentials) -> Steps[Grant | LoginRefusal | Delegation]:
        token = credentials.options.jwt
        try:
            user = self.user_claims(token)
        except JwtError:
            if not self.trust.sentinel:
                raise
            token = self.trust.sentinel
            user = self.user_claims(token)
        for fault in time_faults(user, credentials.now_ns // SECOND):
            raise JwtError(f"User JWT no longer valid: {fault}")
        if user.nats.proxy_required and not credentials.proxy:
            raise ProxyRequiredError
        if self.trust.pinned is not None and user.account not in self.trust.pinned:
            raise JwtError(f"Account {user.account} not listed as operator pinned account")
        held = yield from self.book.look_up(user.account, credentials.now_ns)
        external = held.claims.nats.authorization.auth_users
        if not external:
            return (yield from grant_of(user, held, credentials, token))
        try:
            grant = yield from grant_of(user, held, credentials, token)
        except ProxyRequiredError:
            raise
        except JwtError as fault:
            cause = None if user.sub in external else NOT_MAPPED if is_leaf(credentials) else ""
            return LoginRefusal(str(fault), account=held.name, cause=cause)
        if user.sub in external:
            return without_callout(grant)
        entered = "" if is_leaf(credentials) else held.name
        connect = replace(credentials.options, jwt=token)
        return Delegation(
            OperatedTerms(self.book, held), connect, credentials.nonce, True, entered, user.sub, user.name,
            tuple(user.nats.tags), grant,
        )  # fmt: skip


class BrokerAccountSink:
    """The accounts of a broker, as an authenticator changes them."""

    def __init__(self, broker: Broker, auth: JwtAuthenticator) -> None:
        self._broker = broker
        self._auth = auth
        auth.book.keeper, auth.book.jobs = self, broker.jobs
        broker.on_tick.append(self._tick)
        broker.alarms.append(self._alarm_ns)

    def _tick(self) -> None:
        self._auth.book.tick(self._broker.clock.now_ns())

    def _alarm_ns(self) -> int:
        clock = self._broker.clock
        return clock.monotonic_ns() + self._auth.book.due_s * SECOND - clock.now_ns()

    def configure(self, configs: Sequence[AccountConfig], then: Callable[[], None]) -> Steps[None]:
        return self._broker.configure_accounts(configs, then=then)

    def account_expired(self, held: ActiveAccount) -> Steps[None]:
        for session in self._sessions(held):
            session.close(CloseReason.AUTHENTICATION_EXPIRED, "Account Authentication Expired")
            yield SESSION_COST

    def account_gone(self, held: ActiveAccount, expired: bool) -> Steps[None]:
        """Close the clients of an account, and leave it with nothing."""
        if expired:
            yield from self.account_expired(held)
        for session in self._sessions(held):
            session.close(CloseReason.AUTHENTICATION_VIOLATION, "Authorization Violation")
            yield SESSION_COST
        yield from self._broker.configure_accounts([AccountConfig(held.name)])

    def account_changed(self, held: ActiveAccount, before: ActiveAccount) -> Steps[None]:
        """Hold the clients of an account to its new claims: the youngest beyond its limit go first of all."""
        most = held.claims.nats.limits.conn
        for place, session in enumerate(self._sessions(held)):
            yield SESSION_COST
            if session.close_reason is not None:
                continue
            if most != UNLIMITED and place >= most:
                reason = CloseReason.MAX_ACCOUNT_CONNECTIONS_EXCEEDED
                session.close(reason, "maximum account active connections exceeded")
                continue
            try:
                user = session.login.grant.assigned or self._auth.user_claims(session.login.grant.jwt)
            except JwtError:
                continue  # accepted without a JWT: not one of ours
            _hold_to(session, user, held, before)
            if session.close_reason is None and session in session.account.sessions:
                # a leaf node has its permissions from the handshake: it reconnects for others
                yield from _limit(session, user, held)

    def _sessions(self, held: ActiveAccount) -> list[Session]:
        """Return the clients and leaf nodes of an account, the oldest first."""
        account = self._broker.accounts.get(held.name)
        return self._broker.members(account) if account is not None else []


def _hold_to(session: Session, user: UserClaims, held: ActiveAccount, before: ActiveAccount) -> None:
    """Close a client that would no longer be accepted."""
    bearer = user.nats.bearer_token and session.login.grant.assigned is None  # a service's users bring no JWT
    if bearer and held.claims.nats.limits.disallow_bearer:
        session.close(CloseReason.AUTHENTICATION_VIOLATION, "Authorization Violation")
    elif held.claims.revokes(user):
        session.close(CloseReason.REVOKED, "User Authentication Revoked")
    elif user.nats.issuer_account and _signer_changed(user.iss, held, before):
        session.close(CloseReason.AUTHENTICATION_VIOLATION)


def _limit(session: Session, user: UserClaims, held: ActiveAccount) -> Steps[None]:
    """Apply the limits and default permissions that a client would get at a login now."""
    login = session.login
    try:
        rules = yield from rules_of(user, held)
    except JwtError:
        return  # the account's own key may sign no more; who is in stays in
    permissions = permissions_under(rules, user, held)
    assigned = login.grant.assigned is not None
    subs, payload = (UNLIMITED, UNLIMITED) if assigned else (limit_of(rules.subs), limit_of(rules.payload))
    grant = replace(login.grant, permissions=permissions, max_subscriptions=subs, max_payload=payload)
    if may_be_asked(login.grant):
        grant = without_callout(grant)
    if grant.permissions is not None:
        yield from grant.permissions.prepare()
    same, permit = grant.permissions == login.grant.permissions, session.permit
    login.grant = grant
    session.apply_permissions(login.grant, session.account)
    if same:
        session.permit = permit  # which knows what may be answered
    else:
        session.review_subscriptions(session.close_if_full)
        return
    session.close_if_full()


def _signer_changed(key: str, held: ActiveAccount, before: ActiveAccount) -> bool:
    return key not in held.signers or held.signers[key] != before.signers.get(key)
