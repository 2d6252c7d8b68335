"""Refusals and ends of sessions: reasons for closing, spelled as in the monitoring endpoint connz, and log lines."""

from __future__ import annotations

import re
from enum import Enum
from typing import TYPE_CHECKING, Final

from natsctl.api.codec import go_quote
from natsctl.wire.ops import FaultKind

if TYPE_CHECKING:
    from natsctl.broker.session import Session

_BYTE: Final = r"\\udc([0-9a-f]{2})"


def quoted(data: bytes) -> str:
    """Return bytes of a client as Go's %q writes them: safe in a line of a log or of the protocol."""
    return re.sub(_BYTE, r"\\x\1", go_quote(data.decode("utf-8", "surrogateescape")))


def refuse_publish(session: Session, subject: bytes) -> str:
    """Report that publishing to `subject` is not allowed, and return the error that the client gets."""
    text = quoted(subject)
    error = f"Permissions Violation for Publish to {text}"
    session.err(error)
    session.notice(f"Publish Violation - Subject {text}")
    return error


def refuse_reply(session: Session, reply: bytes) -> str:
    """Report that `reply` is not allowed as a reply subject, and return the error that the client gets."""
    text = quoted(reply)
    error = f"Permissions Violation for Publish with Reply of {text}"
    session.err(error)
    session.notice(f"Publish Violation - Reply {text}")
    return error


def refuse_subscription(session: Session, subject: bytes, queue: bytes, sid: bytes) -> None:
    text, number = quoted(subject), sid.decode("utf-8", "replace")
    if queue:
        group = quoted(queue)
        session.err(f"Permissions Violation for Subscription to {text} using queue {group}")
        session.notice(f"Subscription Violation - Subject {text}, Queue: {group}, SID {number}")
    else:
        session.err(f"Permissions Violation for Subscription to {text}")
        session.notice(f"Subscription Violation - Subject {text}, SID {number}")


def refuse_depth(session: Session, subject: bytes, sid: bytes) -> None:
    """Report that `subject` has more tokens than a subscription may have."""
    text = quoted(subject)
    session.err(f"Permissions Violation for Subscription to {text}, too many tokens")
    session.notice(f"Subscription Violation Too Many Tokens - Subject {text}, SID {sid.decode('utf-8', 'replace')}")


class CloseReason(Enum):
    """Value: the text that connz shows."""

    CLIENT_CLOSED = "Client Closed"
    AUTHENTICATION_TIMEOUT = "Authentication Timeout"
    AUTHENTICATION_VIOLATION = "Authentication Failure"
    TLS_HANDSHAKE_ERROR = "TLS Handshake Failure"
    SLOW_CONSUMER_PENDING_BYTES = "Slow Consumer (Pending Bytes)"
    SLOW_CONSUMER_WRITE_DEADLINE = "Slow Consumer (Write Deadline)"
    WRITE_ERROR = "Write Error"
    READ_ERROR = "Read Error"
    PARSE_ERROR = "Parse Error"
    STALE_CONNECTION = "Stale Connection"
    PROTOCOL_VIOLATION = "Protocol Violation"
    BAD_CLIENT_PROTOCOL_VERSION = "Bad Client Protocol Version"
    MAX_CONNECTIONS_EXCEEDED = "Maximum Connections Exceeded"
    MAX_ACCOUNT_CONNECTIONS_EXCEEDED = "Maximum Account Connections Exceeded"
    MAX_PAYLOAD_EXCEEDED = "Maximum Message Payload Exceeded"
    MAX_CONTROL_LINE_EXCEEDED = "Maximum Control Line Exceeded"
    MAX_SUBSCRIPTIONS_EXCEEDED = "Maximum Subscriptions Exceeded"
    SERVER_SHUTDOWN = "Server Shutdown"
    AUTHENTICATION_EXPIRED = "Authentication Expired"
    MISSING_ACCOUNT = "Missing Account"
    REVOKED = "Credentials Revoked"
    NO_RESPONDERS_REQUIRES_HEADERS = "No Responders Requires Headers"
    WRONG_PORT = "Incorrect Port"
    WRONG_GATEWAY = "Wrong Gateway"
    DUPLICATE_REMOTE_LEAFNODE = "Duplicate Remote LeafNode Connection"
    MINIMUM_VERSION_REQUIRED = "Minimum Version Required"
    CLUSTER_NAMES_IDENTICAL = "Cluster Names Identical"
    KICKED = "Kicked"
    PROXY_REQUIRED = "Proxy Required"
    PROXY_NOT_TRUSTED = "Proxy Not Trusted"


FAULT_REASONS: Final = {
    FaultKind.UNKNOWN_OPERATION: CloseReason.PROTOCOL_VIOLATION,
    FaultKind.MALFORMED: CloseReason.PROTOCOL_VIOLATION,
    FaultKind.MAX_PAYLOAD: CloseReason.MAX_PAYLOAD_EXCEEDED,
    FaultKind.MAX_CONTROL_LINE: CloseReason.MAX_CONTROL_LINE_EXCEEDED,
}
FAULT_NOTICES: Final = {
    FaultKind.UNKNOWN_OPERATION: "Client parser ERROR, proto=%s",
    FaultKind.MALFORMED: "parse error: %s",
    FaultKind.MAX_PAYLOAD: "maximum payload exceeded: %s",
    FaultKind.MAX_CONTROL_LINE: "maximum control line exceeded%.0s",
}
"""Log text of a fault; a longer line than allowed is not repeated."""
