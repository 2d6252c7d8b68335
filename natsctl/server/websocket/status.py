"""The status of the close frame for each reason why the server ends a WebSocket connection."""

from __future__ import annotations

from typing import Final

from wsproto.frame_protocol import CloseReason as Status

from natsctl.broker.reasons import CloseReason

STATUSES: Final = {
    CloseReason.CLIENT_CLOSED: Status.NORMAL_CLOSURE,
    CloseReason.AUTHENTICATION_TIMEOUT: Status.POLICY_VIOLATION,
    CloseReason.AUTHENTICATION_VIOLATION: Status.POLICY_VIOLATION,
    CloseReason.SLOW_CONSUMER_PENDING_BYTES: Status.POLICY_VIOLATION,
    CloseReason.SLOW_CONSUMER_WRITE_DEADLINE: Status.POLICY_VIOLATION,
    CloseReason.MAX_ACCOUNT_CONNECTIONS_EXCEEDED: Status.POLICY_VIOLATION,
    CloseReason.MAX_CONNECTIONS_EXCEEDED: Status.POLICY_VIOLATION,
    CloseReason.MAX_CONTROL_LINE_EXCEEDED: Status.POLICY_VIOLATION,
    CloseReason.MAX_SUBSCRIPTIONS_EXCEEDED: Status.POLICY_VIOLATION,
    CloseReason.MISSING_ACCOUNT: Status.POLICY_VIOLATION,
    CloseReason.AUTHENTICATION_EXPIRED: Status.POLICY_VIOLATION,
    CloseReason.REVOKED: Status.POLICY_VIOLATION,
    CloseReason.TLS_HANDSHAKE_ERROR: Status.TLS_HANDSHAKE_FAILED,
    CloseReason.PARSE_ERROR: Status.PROTOCOL_ERROR,
    CloseReason.PROTOCOL_VIOLATION: Status.PROTOCOL_ERROR,
    CloseReason.BAD_CLIENT_PROTOCOL_VERSION: Status.PROTOCOL_ERROR,
    CloseReason.MAX_PAYLOAD_EXCEEDED: Status.MESSAGE_TOO_BIG,
    CloseReason.WRITE_ERROR: Status.GOING_AWAY,
    CloseReason.READ_ERROR: Status.GOING_AWAY,
    CloseReason.STALE_CONNECTION: Status.GOING_AWAY,
    CloseReason.SERVER_SHUTDOWN: Status.GOING_AWAY,
}
"""What the close frame says for each reason; any other is an internal error."""
