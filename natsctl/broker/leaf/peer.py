"""A leaf node connection, dialled or accepted, as monitoring shows it; `Broker.leafs` holds them by cid."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from natsctl.broker.account import Account
    from natsctl.broker.auth.credentials import TlsFacts


class LeafPeer(Protocol):
    """Facts about one leaf node connection for monitoring; times are of the broker's clocks."""

    @property
    def cid(self) -> int:
        """The number of the connection, of the same count as those of clients."""

    @property
    def name(self) -> str:
        """The name of the server at the other end."""

    @property
    def is_spoke(self) -> bool:
        """Whether this server is the one that dialled."""

    @property
    def is_isolated(self) -> bool:
        """Whether the other end is kept apart from other leaf nodes."""

    @property
    def account(self) -> Account:
        """The account that is shared."""

    @property
    def host(self) -> str:
        """The address of the other end."""

    @property
    def port(self) -> int:
        """The port of the other end."""

    @property
    def user(self) -> str:
        """User of the other end; empty without users."""

    @property
    def tls(self) -> TlsFacts | None:
        """Result of the TLS handshake."""

    @property
    def websocket(self) -> bool:
        """Whether it runs over WebSocket."""

    @property
    def compression(self) -> str:
        """The compression that was settled, as nats-server spells it; empty for none was spoken of."""

    @property
    def start_ns(self) -> int:
        """When it was made, wall clock."""

    @property
    def last_data_ns(self) -> int:
        """When something other than protocol chatter last went either way, monotonic clock."""

    @property
    def rtt_ns(self) -> int:
        """The last round trip, 0 where none was measured."""

    @property
    def pending_bytes(self) -> int:
        """Bytes that wait to be written."""

    @property
    def in_msgs(self) -> int:
        """Messages from the other end."""

    @property
    def in_bytes(self) -> int:
        """Bytes from the other end."""

    @property
    def out_msgs(self) -> int:
        """Messages to the other end."""

    @property
    def out_bytes(self) -> int:
        """Bytes to the other end."""

    def subjects(self) -> Iterable[bytes]:
        """Return the subjects that the other end is interested in."""
