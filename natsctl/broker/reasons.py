"""Why a connection ended, in the words of the monitoring endpoint connz."""

from __future__ import annotations

from enum import Enum
from typing import Final

from natsctl.wire.faults import FaultKind


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
    MESSAGE_HEADER_VIOLATION = "Message Header Violation"
    NO_RESPONDERS_REQUIRES_HEADERS = "No Responders Requires Headers"
    WRONG_PORT = "Incorrect Port"
    WRONG_GATEWAY = "Wrong Gateway"
    DUPLICATE_REMOTE_LEAFNODE = "Duplicate Remote LeafNode Connection"
    MINIMUM_VERSION_REQUIRED = "Minimum Version Required"
    CLUSTER_NAMES_IDENTICAL = "Cluster Names Identical"
    KICKED = "Kicked"
    PROXY_REQUIRED = "Proxy Required"


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
