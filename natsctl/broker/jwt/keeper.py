"""What accounts claim, made true in the broker: their configuration, and who of their clients may stay."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from msgspec.structs import replace

from natsctl.broker.broker import Broker
from natsctl.broker.exchange.account_config import UNLIMITED, AccountConfig
from natsctl.broker.jwt.account_book import SECOND_NS, HeldAccount
from natsctl.broker.jwt.authenticator import JwtAuthenticator
from natsctl.broker.jwt.claims import UserClaims
from natsctl.broker.jwt.token import JwtError
from natsctl.broker.jwt.user_grant import permissions_in, rules_of
from natsctl.broker.reasons import CloseReason
from natsctl.broker.session import Session


class BrokerKeeper:
    """Binds the accounts of an authenticator to a broker."""

    def __init__(self, broker: Broker, auth: JwtAuthenticator) -> None:
        """Begin to keep accounts, and to look at the clock for them."""
        self._broker = broker
        self._auth = auth
        auth.book.keeper = self
        broker.on_tick.append(self._tick)
        broker.alarms.append(self._alarm_ns)

    def _tick(self) -> None:
        self._auth.book.tick(self._broker.clock.now_ns())

    def _alarm_ns(self) -> int:
        clock = self._broker.clock
        return clock.monotonic_ns() + self._auth.book.due_s * SECOND_NS - clock.now_ns()

    def configure(self, configs: Sequence[AccountConfig]) -> None:
        """Configure accounts."""
        self._broker.configure_accounts(configs)

    def account_expired(self, held: HeldAccount) -> None:
        """Close the clients of an account."""
        for session in self._sessions(held):
            session.close(CloseReason.AUTHENTICATION_EXPIRED, "Account Authentication Expired")

    def account_gone(self, held: HeldAccount, expired: bool) -> None:
        """Close the clients of an account, and leave it with nothing."""
        if expired:
            self.account_expired(held)
        for session in self._sessions(held):
            session.close(CloseReason.AUTHENTICATION_VIOLATION, "Authorization Violation")
        self.configure([AccountConfig(held.name)])

    def account_changed(self, held: HeldAccount, before: HeldAccount) -> None:
        """Hold the clients of an account to its new claims: the youngest beyond its limit go first of all."""
        most = held.claims.nats.limits.conn
        for place, session in enumerate(self._sessions(held)):
            if most != UNLIMITED and place >= most:
                reason = CloseReason.MAX_ACCOUNT_CONNECTIONS_EXCEEDED
                session.close(reason, "maximum account active connections exceeded")
                continue
            try:
                user = self._auth.user_claims(session.login.grant.jwt)
            except JwtError:
                continue  # let in without a JWT: not one of ours
            _hold_to(session, user, held, before)
            if session.close_reason is None and session in session.account.sessions:
                _limit(
                    session, user, held
                )  # a leaf node has its permissions from the handshake: it reconnects for others

    def _sessions(self, held: HeldAccount) -> list[Session]:
        """Return the clients and leaf nodes of an account, the oldest first."""
        account = self._broker.accounts.get(held.name)
        return self._broker.members(account) if account is not None else []


def _hold_to(session: Session, user: UserClaims, held: HeldAccount, before: HeldAccount) -> None:
    """Close a client that would not be let in any more."""
    if user.nats.bearer_token and held.claims.nats.limits.disallow_bearer:
        session.close(CloseReason.AUTHENTICATION_VIOLATION, "Authorization Violation")
    elif held.claims.revokes(user):
        session.close(CloseReason.REVOKED, "User Authentication Revoked")
    elif user.nats.issuer_account and _signer_changed(user.iss, held, before):
        session.close(CloseReason.AUTHENTICATION_VIOLATION)


def _limit(session: Session, user: UserClaims, held: HeldAccount) -> None:
    """Give a client the limits and default permissions that it would be let in with now."""
    login = session.login
    try:
        rules, permissions = rules_of(user, held), permissions_in(user, held)
    except JwtError:
        return  # the account's own key may sign no more; who is in stays in
    same, permit = permissions == login.grant.permissions, session.permit
    login.grant = replace(login.grant, permissions=permissions, max_subscriptions=rules.subs, max_payload=rules.payload)
    session.hold_to(login.grant, session.account)
    if same:
        session.permit = permit  # which knows what may be answered
    else:
        session.review_subscriptions(partial(_close_excess, session))
        return
    _close_excess(session)


def _close_excess(session: Session) -> None:
    """Close a client that has more subscriptions than it may have now."""
    if 0 <= session.max_subscriptions <= len(session.subs):
        session.close(CloseReason.MAX_SUBSCRIPTIONS_EXCEEDED, "maximum subscriptions exceeded")


def _signer_changed(key: str, held: HeldAccount, before: HeldAccount) -> bool:
    return key not in held.signers or held.signers[key] != before.signers.get(key)
