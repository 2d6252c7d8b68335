"""Interfaces between the broker and its parts.

`Broker` provides `BrokerContext`, which accounts, sessions and their parts use instead of it. `EventListener` hears of
connections, and `LeafPeer` is a leaf node connection, dialled or accepted, as monitoring shows it (`Broker.leafs`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from natsctl.broker.session_context import ServerContext

if TYPE_CHECKING:
    from natsctl.broker.account import Account
    from natsctl.broker.auth.credentials import Delegation, Refusal, TlsFacts
    from natsctl.broker.broker_options import Rng
    from natsctl.broker.session import Session


class CalloutService(Protocol):
    """The authentication callouts of a broker."""

    @property
    def xkey(self) -> str:
        """Public curve key for which services may seal their responses."""

    def ask(self, session: Session, delegation: Delegation) -> None:
        """Ask the service that a login is delegated to; the answer goes to `session.login.decide`."""

    def forget(self, session: Session) -> None:
        """Expect no response for a session any more."""

    @property
    def arrived(self) -> Session | None:
        """Session whose response is the next to be judged, None where none has arrived."""

    def judge(self) -> None:
        """Judge the next response."""


class BrokerContext(ServerContext, Protocol):
    """The members of a broker that its accounts and sessions use."""

    rng: Rng
    server_name: str
    accounts: dict[str, Account]
    system_account: Account
    sessions: dict[int, Session]
    dirty: list[Session]
    """Sessions that have output or want to be closed."""
    slow_consumers: int
    event_listener: EventListener
    log_info: Callable[[str], None]
    notice: Callable[[Session, str], None]
    pending_logins: list[Session]
    callouts: CalloutService | None
    login_decided: Callable[[Session], None]
    unfinished: deque[Session]
    """Sessions with deferred work."""
    long_work: deque[Iterator[None]]
    """Work on many subscriptions that is still to be done."""
    on_tick: list[Callable[[], None]]
    storing: dict[str, Any] | None
    """Event in a trace of the message that a stream is being handed; the stream adds why it refuses it."""

    def account(self, name: str) -> Account:
        """Return the account of that name; it is made where it is new."""

    def ended(self, session: Session) -> None:
        """Count and remember a session that has ended, and report it."""

    def info_json(self, session: Session, *, connect_info: bool = False, lame_duck: bool = False) -> bytes:
        """Return INFO's body for one session."""

    def server_info(self) -> dict[str, object]:
        """Return the facts about this server in system messages; each call counts one message."""

    def publish_traced(
        self, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Session | None
    ) -> int:
        """Deliver one message of a client, publish its trace, and return the number of receivers."""

    def report_refusal(
        self, origin: Session, subject: bytes, to: bytes, header: bytes, payload: bytes, text: str
    ) -> None:
        """Publish the trace of a message that its publisher was not allowed to send."""


class EventListener(Protocol):
    """Listener to the events of connections; it must not close sessions."""

    def connected(self, session: Session) -> None:
        """Handle a client whose CONNECT was accepted."""

    def refused(self, session: Session, refusal: Refusal) -> None:
        """Handle a client that was refused; `disconnected` follows."""

    def disconnected(self, session: Session) -> None:
        """Handle the end of a connection; its `close_reason` and `stop_ns` are set."""


class NullListener:
    """Event listener that ignores every event."""

    __slots__ = ()

    def connected(self, session: Session) -> None:
        """Do nothing."""

    def refused(self, session: Session, refusal: Refusal) -> None:
        """Do nothing."""

    def disconnected(self, session: Session) -> None:
        """Do nothing."""


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
        """Return whether this server is the one that dialled."""

    @property
    def is_isolated(self) -> bool:
        """Return whether the other end is kept apart from other leaf nodes."""

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
    def proxy(self) -> str:
        """Key of the trusted proxy that passes the other end on; empty: none."""

    @property
    def tls(self) -> TlsFacts | None:
        """Result of the TLS handshake."""

    @property
    def websocket(self) -> bool:
        """Return whether it runs over WebSocket."""

    @property
    def compression(self) -> str:
        """The compression that was settled, as nats-server spells it; empty for none was spoken of."""

    @property
    def start_ns(self) -> int:
        """Return when it was made, wall clock."""

    @property
    def last_data_ns(self) -> int:
        """Return when something other than protocol chatter last went either way, monotonic clock."""

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
