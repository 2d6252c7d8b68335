"""Protocols of a session and its broker, as the parts of a session use them: login, deadlines and deferred work.

The parts name these instead of `Session` and `Broker`, which avoids import circles.
"""

from __future__ import annotations

from collections.abc import Iterator, Sized
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from natsctl.api.times import Clock
    from natsctl.broker.auth.credentials import ConnectOptions, Delegation, Grant, Refusal
    from natsctl.broker.auth.login import Login
    from natsctl.broker.broker_options import BrokerOptions, Rng
    from natsctl.broker.deferred_work import DeferredWork
    from natsctl.broker.refusals import CloseReason
    from natsctl.broker.timers import Timers
    from natsctl.wire.ops import Op


class ServerContext(Protocol):
    """The broker, as the parts of its sessions use it."""

    options: BrokerOptions
    clock: Clock
    secret_rng: Rng
    stale_connections: int

    @property
    def unfinished(self) -> Sized:
        """The sessions with deferred work."""

    def tick_by(self, at_ns: int) -> None:
        """Call `tick` at `at_ns` of the monotonic clock, or before."""


class SessionContext(Protocol):
    """One connection, as its parts use it."""

    host: str
    verbose: bool
    start_ns: int
    rtt_ns: int
    last_active_ns: int
    close_reason: CloseReason | None
    deferred: DeferredWork | None
    unread: int

    @property
    def broker(self) -> ServerContext:
        """The broker of the session."""

    @property
    def login(self) -> Login:
        """The credentials and the grant of the session."""

    @property
    def timers(self) -> Timers:
        """The deadlines of the session."""

    @property
    def connection_type(self) -> str:
        """The kind of connection as users and JWTs name it."""

    def start_timers(self) -> None:
        """Start all deadlines from now."""

    def write(self, data: bytes) -> None:
        """Queue protocol bytes other than a message for the client."""

    def notice(self, text: str) -> None:
        """Report a line to the operator."""

    def close(self, reason: CloseReason, text: str = "") -> None:
        """Ask the shell to close after writing `-ERR 'text'`."""

    def close_if_full(self) -> bool:
        """Close a client that has too many subscriptions, or may have none at all."""

    def receive(self, chunk: bytes) -> None:
        """Carry out every operation that `chunk` completes."""

    def resume(self, ops: Iterator[Op], chunk: bytes) -> None:
        """Carry out operations that were deferred, or that arrived while the login was checked."""

    def has_room(self, account: str) -> bool:
        """Return whether an account may have this connection besides those that it has."""

    def wait_for_login(self) -> None:
        """Ask the shell to check the login outside the event loop."""

    def ask_callout(self, delegation: Delegation) -> None:
        """Ask the service that a login is delegated to."""

    def forget_callout(self) -> None:
        """Expect no response of a service any more."""

    def login_decided(self) -> None:
        """Report that the answer to the login has come."""

    def wait_for_turn(self) -> None:
        """Queue behind the other sessions that have deferred work."""

    def enter(self, grant: Grant) -> bool:
        """Put the session into the account of a grant, with its permissions; return False where the account is full."""

    def drop_subscriptions(self) -> None:
        """End all subscriptions."""

    def set_client_info(self, options: ConnectOptions) -> None:
        """Record the client's name, language and version."""

    def apply(self, options: ConnectOptions) -> None:
        """Apply the options of CONNECT."""

    def on_connected(self) -> None:
        """Report that the client's CONNECT was accepted."""

    def on_refused(self, refusal: Refusal) -> None:
        """Report that the client was refused."""
