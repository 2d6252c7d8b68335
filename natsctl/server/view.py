"""The view of a running server for endpoints of monitoring and of the system account.

They take this and not the server itself, which makes them: imports would go round in a circle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from natsctl.broker.broker import Broker
    from natsctl.jetstream.engine import Engine
    from natsctl.server.committer import Committer
    from natsctl.server.leaf.leafs import LeafNodes
    from natsctl.server.options import ServerOptions
    from natsctl.server.process.log import Log


class ServerView(Protocol):
    """State of one running server, to be read."""

    options: ServerOptions
    log: Log
    server_id: str
    leafs: LeafNodes | None
    """Leaf nodes, where the server accepts them or connects as one."""
    http_requests: dict[str, int]
    """Requests to each endpoint of monitoring."""
    config_load_ns: int
    """Time of the last reload of the configuration, wall clock; 0: none since the start."""

    @property
    def broker(self) -> Broker:
        """Return the broker."""

    @property
    def engine(self) -> Engine | None:
        """Return the JetStream engine, None where it is off."""

    @property
    def committer(self) -> Committer | None:
        """Return the writer of streams, None without JetStream."""

    @property
    def lag_s(self) -> float:
        """Return the longest delay of the event loop within the last minute, in seconds."""

    def port_of(self, kind: str) -> int:
        """Return the port of a listener (`clients`, `websocket`, `monitoring`, `leafnodes`), 0 without one."""
