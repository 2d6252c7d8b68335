"""Configuration of one account, from a file or a JWT: exports, imports, mappings and limits."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from natsctl.api.account import AccountLimits

GLOBAL_ACCOUNT: Final = "$G"
SYSTEM_ACCOUNT: Final = "$SYS"
UNLIMITED: Final = -1
"""No limit of connections, subscriptions or sizes; any other negative number refuses everything, as in nats-server."""
TRACE_DEST_LINE: Final = b"\r\nNats-Trace-Dest:"
"""Mark of a header that asks for a trace by itself."""
TRACE_PARENT: Final = b"traceparent"
"""Header of the W3C trace context, in any case."""
RESPONSE_THRESHOLD_NS: Final = 120 * 1_000_000_000
"""Default time for the response of an exported service."""

ResponseType = Literal["single", "stream", "chunked"]


def limit_of(value: int) -> int:
    """Return a limit of a JWT as nats-server keeps it, in 32 bits."""
    return max(min(value, (1 << 31) - 1), -(1 << 31))


class Latency(msgspec.Struct, frozen=True):
    """Sampling rate for the latency of an exported service, and the subject of the results.

    `sampling` is a percentage; 0 means requests that carry a tracing header.
    """

    subject: str
    sampling: int = 100


class StreamExport(msgspec.Struct, frozen=True):
    """Messages that other accounts may subscribe to; `accounts` None: every account."""

    subject: str
    accounts: tuple[str, ...] | None = None
    account_token_position: int = 0
    """Number of the token that holds the importing account's name, 1-based; 0: none."""
    token_required: bool = False
    """The import needs an activation token (JWT only)."""


class ServiceExport(msgspec.Struct, frozen=True):
    """Requests that other accounts may send; `accounts` None: every account."""

    subject: str
    accounts: tuple[str, ...] | None = None
    response: ResponseType = "single"
    response_threshold_ns: int = RESPONSE_THRESHOLD_NS
    latency: Latency | None = None
    account_token_position: int = 0
    token_required: bool = False
    allow_trace: bool = False
    """Whether the trace of a request goes on in the exporting account."""


class StreamImport(msgspec.Struct, frozen=True):
    """Messages of another account, seen here on `to`; empty: on their own subject."""

    account: str
    subject: str
    to: str = ""
    token: str = ""
    """Activation token of a private export."""
    allow_trace: bool = False
    """Whether the trace of a message goes on in the importing account."""


class ServiceImport(msgspec.Struct, frozen=True):
    """A service of another account, asked here on `to`; empty: on its own subject."""

    account: str
    subject: str
    to: str = ""
    share: bool = False
    """Whether the service gets the facts about the requester."""
    token: str = ""


class Destination(msgspec.Struct, frozen=True):
    """Destination of a part of the messages of a mapping, in percent."""

    subject: str
    weight: int = 100


class SubjectMap(msgspec.Struct, frozen=True):
    """Mapping of messages that clients publish on `source` to destinations; the rest of their weights stays."""

    source: str
    destinations: tuple[Destination, ...]


class ConnectionLimits(msgspec.Struct, frozen=True):
    """Limits of an account's connections together, and of each one."""

    max_connections: int = UNLIMITED
    max_leafnodes: int = UNLIMITED
    max_subscriptions: int = UNLIMITED
    max_payload: int = UNLIMITED


class AccountConfig(msgspec.Struct, frozen=True):
    name: str
    jetstream: AccountLimits | None = None
    exports: tuple[StreamExport | ServiceExport, ...] = ()
    imports: tuple[StreamImport | ServiceImport, ...] = ()
    mappings: tuple[SubjectMap, ...] = ()
    limits: ConnectionLimits = msgspec.field(default_factory=ConnectionLimits)
    display_name: str = ""
    """Display name where `name` is a key."""
    jetstream_tiers: tuple[tuple[str, AccountLimits], ...] = ()
    """JetStream limits for each number of replicas, if they differ."""
    trace_dest: str = ""
    """Destination of reports about messages with a sampled `traceparent`; empty: they are not traced."""
    trace_sampling: int = 100
    """Percentage of those messages that are traced."""

    def asks_for_trace(self, header: bytes) -> bool:
        """Return whether a message may have to be traced: a quick check before `publish_traced`."""
        return TRACE_DEST_LINE in header or (self.trace_dest != "" and TRACE_PARENT in header.lower())
