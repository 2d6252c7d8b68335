"""One subscriber of messages: a client's subscription, or a handler inside the server."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

from natsctl.wire.ops import Op

if TYPE_CHECKING:
    from natsctl.broker.account import Account
    from natsctl.broker.delivery import Delivery
    from natsctl.broker.session import Session

Handler: TypeAlias = "Callable[[bytes, bytes, bytes, bytes, Session | None], bool | None]"
"""Called with (subject, reply, header, payload, origin); False means "not mine" and does not count as a taker."""

PublishBatchHandler: TypeAlias = "Callable[[bytes, Sequence[Op]], None]"
"""Called with PUB operations, all without headers, in order, and their subject, b"" where they are on several.

It takes every one of them.
"""

DeliveryBatchHandler: TypeAlias = "Callable[[Sequence[Delivery]], None]"
"""Called with deliveries (subject, reply, header, payload) in order; it takes every one of them."""


class InterestListener(Protocol):
    """Listener to an account's subscriptions: leaf nodes."""

    def subscribed(self, sub: Subscription) -> None:
        """Handle one more subscription."""

    def unsubscribed(self, sub: Subscription) -> None:
        """Handle the end of a subscription."""

    def offered(self, subject: bytes) -> None:
        """Handle interest behind a wider handler, which is not announced itself."""

    def withdrawn(self, subject: bytes) -> None:
        """Handle the end of such an interest."""

    def reoffered(self, before: Sequence[bytes], now: Sequence[bytes]) -> None:
        """Handle several changes, of which some may be ends and others may be new."""


class InterestSource(Protocol):
    """Owner of one wide handler whose interest is announced subject by subject."""

    def subjects(self) -> Iterable[bytes]:
        """Return the subjects at this moment."""


def not_mine(subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Session | None) -> bool:
    """Refuse a message: the handler of a subscription that has ended."""
    return False


class Subscription:
    """A subject pattern with its taker: `session` for clients, `handler` inside the server."""

    __slots__ = (
        "account",
        "client",
        "delivered",
        "foreign",
        "guard",
        "handler",
        "import_proxies",
        "max",
        "queue",
        "run",
        "session",
        "sid",
        "sid_field",
        "stream",
        "subject",
        "take_all",
    )

    def __init__(
        self,
        account: Account,
        subject: bytes,
        queue: bytes = b"",
        *,
        handler: Handler = not_mine,
        run: PublishBatchHandler | None = None,
        take_all: DeliveryBatchHandler | None = None,
        session: Session | None = None,
        sid: bytes = b"",
    ) -> None:
        self.account = account
        self.subject = subject
        self.queue = queue
        self.handler = handler
        self.run = run
        self.take_all = take_all
        self.session = session
        self.sid = sid
        self.sid_field = b" " + sid + b" "
        self.delivered = 0
        self.max = 0
        """Deliveries after which the subscription ends, counted from its creation; 0: none."""
        self.client: Subscription | None = None
        """The client's subscription that this handler is the guard of."""
        self.guard: Subscription | None = None
        """The handler that stands in the routing table instead of this one (auth/permissions.py)."""
        self.foreign = False
        """Whether it serves other accounts, so that it takes nothing of what they export."""
        self.stream = ""
        """The stream that takes the messages, where it is one."""
        self.import_proxies: tuple[Subscription, ...] = ()
        """Handlers that take messages for this one in accounts that are imported from; they end with it."""

    def has_left(self) -> bool:
        """Return whether its session has closed or let it go, so that it only waits for its removal."""
        sub = self.behind()
        session = sub.session
        return session is not None and (session.close_reason is not None or session.subs.get(sub.sid) is not sub)

    def behind(self) -> Subscription:
        """Return the subscription that messages end up at: the one that this one stands for, or itself."""
        return self.client or self
