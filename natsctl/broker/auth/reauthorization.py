"""Clients that are in, held to what users and limits are after a reload."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from natsctl.broker.auth.grant import Grant, Refusal
from natsctl.broker.auth.login import ACCOUNT_FULL
from natsctl.broker.reasons import CloseReason

if TYPE_CHECKING:
    from natsctl.broker.account import Account
    from natsctl.broker.broker import Broker
    from natsctl.broker.session import Session


def reauthorize(broker: Broker, unchanged: Collection[str], known: Collection[str]) -> None:
    """Close the clients that would not be let in as the same any more, and hold the others to their permissions now.

    Users whose name is in `unchanged` are as they were: their secrets are not compared again. `known` are all names;
    a client whose name is not among them is closed without a word, like one whose user is in another account now.
    """
    for session in tuple(broker.sessions.values()):
        if session.close_reason is None and session.login.authenticated:
            if session.login.grant.user in unchanged:
                session.login.follow_listener()
                hold_to_limits(session)
            else:
                _ask_again(session, known)
    for account in broker.accounts.values():
        _close_crowd(account)


def _close_crowd(account: Account) -> None:
    """Close the clients that are more than their account may have now: those that came last."""
    most = account.config.limits.max_connections
    if 0 <= most < len(account.sessions):
        clients = [session for session in account.sessions if session.close_reason is None]
        for session in sorted(clients, key=lambda session: session.cid)[most:]:
            session.broker.notice(session, ACCOUNT_FULL)
            session.close(CloseReason.MAX_ACCOUNT_CONNECTIONS_EXCEEDED, ACCOUNT_FULL)


def _ask_again(session: Session, known: Collection[str]) -> None:
    login, answer = session.login, session.login.asked_again()
    claimed = login.options.nkey or login.options.user
    if isinstance(answer, Grant) and answer == login.grant:
        hold_to_limits(session)
    elif isinstance(answer, Refusal) and not (claimed and claimed not in known):
        login.refuse(answer)
    elif isinstance(answer, Refusal) or (answer.account, answer.user) != (login.grant.account, login.grant.user):
        session.close(CloseReason.CLIENT_CLOSED)
    else:
        login.grant = answer
        session.hold_to(answer, session.account)
        session.review_subscriptions()


def hold_to_limits(session: Session) -> None:
    """Give a session the limits of the server as they are now; its permissions stay, with what they remember."""
    permit = session.permit
    session.hold_to(session.login.grant, session.account)
    session.permit = permit


def close_excess(broker: Broker) -> int:
    """Close the clients that are more than the server may have now, and return how many."""
    sessions = [session for session in broker.sessions.values() if session.close_reason is None]
    excess = sessions[: max(len(sessions) - broker.options.max_connections, 0)]
    for session in excess:
        session.close(CloseReason.MAX_CONNECTIONS_EXCEEDED, "maximum connections exceeded")
    return len(excess)
