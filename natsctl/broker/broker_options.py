"""Options of a broker, with the limits of core NATS, and the random source that it draws from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from natsctl.api.units import SECOND
from natsctl.api.versions import SERVER_VERSION
from natsctl.broker.auth.credentials import Authenticator
from natsctl.wire.ops import Limits


class Rng(Protocol):
    """The part of random.Random that broker and JetStream draw from."""

    def random(self) -> float:
        """Return a number from 0 up to, not including, 1."""

    def getrandbits(self, k: int, /) -> int:
        """Return a number of `k` random bits."""

    def choices(self, population: Sequence[str], *, k: int) -> list[str]:
        """Return `k` of `population`, each time any of them."""


class WebSocketListener(msgspec.Struct):
    """Address of WebSocket clients in their INFO."""

    host: str
    port: int
    tls: bool


class BrokerOptions(msgspec.Struct, kw_only=True):
    """Options of a broker; the defaults are nats-server's."""

    server_id: str = ""
    """56 characters that begin with N; made from the random source where empty."""
    server_name: str = ""
    """The server id where empty."""
    version: str = SERVER_VERSION
    tags: list[str] = msgspec.field(default_factory=list)
    go: str = "natsctl"
    """INFO's field for the implementation's tool chain; clients only show it."""
    host: str = "0.0.0.0"  # nosec B104 # the field of INFO; nothing listens here
    port: int = 4222
    system_account: str = "$SYS"
    """The account of the server's own requests and events; empty: none, and nobody gets or asks for them."""
    headers: bool = True
    """Whether clients may use message headers."""
    jetstream: bool = False
    domain: str = ""
    tls_required: bool = False
    tls_verify: bool = False
    tls_available: bool = False
    connect_urls: list[str] = msgspec.field(default_factory=list)
    ws_connect_urls: list[str] = msgspec.field(default_factory=list)
    limits: Limits = msgspec.field(default_factory=Limits)
    auth: Authenticator | None = None
    listener_auth: dict[str, Authenticator | None] = msgspec.field(default_factory=dict)
    """Authenticators of connection types (STANDARD, WEBSOCKET, …) that do not use `auth`."""
    trusted_proxies: tuple[str, ...] = ()
    auth_timeout_ns: int = 2 * SECOND
    listener_auth_timeout_ns: dict[str, int] = msgspec.field(default_factory=dict)
    """Timeouts of connection types that do not use `auth_timeout_ns`."""
    ping_interval_ns: int = 120 * SECOND
    listener_ping_interval_ns: dict[str, int] = msgspec.field(default_factory=dict)
    """Intervals of connection types that do not use `ping_interval_ns`."""
    websocket: WebSocketListener | None = None
    ping_max: int = 2
    """Number of unanswered PINGs before a connection is closed."""
    first_ping_ns: int = 2 * SECOND
    max_pending: int = 64 << 20
    """Bytes that may wait for a client; beyond them it is disconnected as a slow consumer."""
    max_connections: int = 65536
    max_subscriptions: int = 0
    """Per connection; 0: no limit."""
    max_subscription_tokens: int = 0
    """Tokens that a subscription's subject may have; 0: any number."""
    max_closed_clients: int = 10000
    """Closed connections that CONNZ still lists."""

    def auth_of(self, connection_type: str) -> Authenticator | None:
        """Return the authenticator of a connection type; None accepts every client."""
        return self.listener_auth.get(connection_type, self.auth)

    def auth_timeout_of(self, connection_type: str) -> int:
        return self.listener_auth_timeout_ns.get(connection_type, self.auth_timeout_ns)

    def ping_interval_of(self, connection_type: str) -> int:
        return self.listener_ping_interval_ns.get(connection_type, self.ping_interval_ns)
