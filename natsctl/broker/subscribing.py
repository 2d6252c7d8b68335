"""What a client subscribes to: SUB, UNSUB, and what changes with its account and its permissions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from natsctl.api.subjects import has_valid_tokens
from natsctl.broker.auth.guard import guard_of
from natsctl.broker.notices import refuse_depth, refuse_subscription, withdraw_subscription
from natsctl.broker.routes import DOT
from natsctl.broker.subscription import Subscription
from natsctl.wire.encode import OK_LINE

if TYPE_CHECKING:
    from natsctl.broker.account import Account
    from natsctl.broker.session import Session

SERVER_QUEUE: Final = b"_sys_"
"""A queue group that belongs to the server."""


def subscribe(session: Session, subject: bytes, queue: bytes, sid: bytes) -> None:
    """Take a SUB; a sid that is in use stays what it was."""
    permit, depth = session.permit, session.broker.options.max_subscription_tokens
    if queue == SERVER_QUEUE or (permit is not None and not permit.may_subscribe(subject, queue)):
        refuse_subscription(session, subject, queue, sid)
    elif depth and subject.count(b".") >= depth:
        refuse_depth(session, subject, sid)
    elif 0 <= session.max_subscriptions <= len(session.subs):
        session.broker.notice(session, "maximum subscriptions exceeded")
        session.err("maximum subscriptions exceeded")
    elif (b">" in subject or b".." in subject or subject[0] == DOT or subject[-1] == DOT) and not has_valid_tokens(
        subject
    ):
        session.err("Invalid Subject")
    else:
        if sid not in session.subs:
            sub = Subscription(session.account, subject, queue, session=session, sid=sid)
            session.subs[sid] = sub
            session.last_data_ns = session.last_active_ns
            if permit is not None:
                sub.guard = guard_of(sub, permit)
            session.account.insert(sub)
        if session.verbose:
            session.write(OK_LINE)


def place(session: Session, sub: Subscription, account: Account) -> None:
    """Put a subscription into an account, behind a guard where the permissions ask for one."""
    sub.account = account
    if session.permit is not None:
        sub.guard = guard_of(sub, session.permit)
    account.insert(sub)


def unsubscribe(session: Session, sid: bytes, most: int) -> None:
    """Take an UNSUB: end a subscription, now or after `most` messages."""
    sub = session.subs.get(sid)
    if sub is not None:
        sub.max = most
        if sub.delivered >= most:
            session.end_subscription(sub)
    if session.verbose:
        session.write(OK_LINE)


def review(session: Session, sub: Subscription) -> None:
    """End a subscription that may no longer be, or place it anew, after the permissions have changed."""
    if session.permit is not None and not session.permit.may_subscribe(sub.subject, sub.queue):
        session.end_subscription(sub)
        withdraw_subscription(session, sub.subject, sub.queue, sub.sid)
    elif sub.guard is not None or guard_of(sub, session.permit) is not None:
        sub.account.unsubscribe(sub)
        place(session, sub, sub.account)


def answer_no_responders(session: Session, subject: bytes, reply: bytes) -> None:
    """Send a 503 to a publisher, on its own reply subscription: its request has no responders."""
    account = session.account
    subject = account.went_to(subject)
    clients, _, handlers = account.routes.exact.get(reply) or account.routes.find(reply)
    for sub in (*(taker[1] for taker in clients), *(sub.client for sub in handlers if sub.client is not None)):
        if sub.session is session:
            header = b"NATS/1.0 503\r\nNats-Subject: %b\r\n\r\n" % subject
            account.deliver_to(sub, reply, b"", header, b"")
            return
