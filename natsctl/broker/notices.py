"""What the broker tells an operator of a session: how log lines call it, and the words for what it did."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from natsctl.api.syntax import go_quote

if TYPE_CHECKING:
    from natsctl.broker.session import Session

_BYTE: Final = r"\\udc([0-9a-f]{2})"
_LETTERS: Final = {"websocket": "wid", "leafnode": "lid"}
"""Prefix of a session's number; clients have `cid`."""


def quoted(data: bytes) -> str:
    """Return bytes of a client as Go's %q writes them: safe in a line of a log or of the protocol."""
    return re.sub(_BYTE, r"\\x\1", go_quote(data.decode("utf-8", "surrogateescape")))


def log_name(session: Session) -> str:
    """Return how log lines call a session: `host:port - cid:5 - "v1:lang:name" - "account/user:name"`."""
    host = f"[{session.host}]" if ":" in session.host else session.host
    name = f"{host}:{session.port} - {_LETTERS.get(session.kind, 'cid')}:{session.cid}"
    if session.login.credentials is None or not session.login.authenticated:
        return name
    version = f"v{session.version}" if session.version else ""
    client = ":".join(part for part in (version, session.lang, session.name) if part)
    user, account = session.login.label, session.account
    label = f"{account.name}/{account.config.display_name}" if account.config.display_name else account.name
    parts = [client, f"{label}/{user}" if user else ""]
    return " - ".join([name, *(go_quote(part) for part in parts if part)])


def refuse_publish(session: Session, subject: bytes) -> None:
    """Report that publishing to `subject` is not allowed."""
    text = quoted(subject)
    session.err(f"Permissions Violation for Publish to {text}")
    session.broker.notice(session, f"Publish Violation - Subject {text}")


def refuse_reply(session: Session, reply: bytes) -> None:
    """Report that `reply` is not allowed as a reply subject."""
    text = quoted(reply)
    session.err(f"Permissions Violation for Publish with Reply of {text}")
    session.broker.notice(session, f"Publish Violation - Reply {text}")


def refuse_subscription(session: Session, subject: bytes, queue: bytes, sid: bytes) -> None:
    """Report that subscribing to `subject` is not allowed."""
    text, number = quoted(subject), sid.decode("utf-8", "replace")
    if queue:
        group = quoted(queue)
        session.err(f"Permissions Violation for Subscription to {text} using queue {group}")
        session.broker.notice(session, f"Subscription Violation - Subject {text}, Queue: {group}, SID {number}")
    else:
        session.err(f"Permissions Violation for Subscription to {text}")
        session.broker.notice(session, f"Subscription Violation - Subject {text}, SID {number}")


def refuse_depth(session: Session, subject: bytes, sid: bytes) -> None:
    """Report that `subject` has more tokens than a subscription may have."""
    text = quoted(subject)
    session.err(f"Permissions Violation for Subscription to {text}, too many tokens")
    session.broker.notice(
        session, f"Subscription Violation Too Many Tokens - Subject {text}, SID {sid.decode('utf-8', 'replace')}"
    )


def withdraw_subscription(session: Session, subject: bytes, queue: bytes, sid: bytes) -> None:
    """Report that a subscription has ended because it is not allowed any more."""
    group = f" using queue {quoted(queue)}" if queue else ""
    session.err(f"Permissions Violation for Subscription to {quoted(subject)}{group} (sid {quoted(sid)})")
    claim = session.login.claim or 'User "N/A"'
    session.broker.inform(f"Removed sub {quoted(subject)}{group} (sid {quoted(sid)}) for {claim} - not authorized")
