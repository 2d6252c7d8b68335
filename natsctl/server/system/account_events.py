"""How many connections an account has: told when one comes or goes, and again every 30 s while there are any.

Theory of operation. `_due` holds when each account with connections is to be told of again, by name; what is told moves
to the end, and all wait equally long, so the first entry is always the next one. Nothing is built where nobody listens.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from natsctl.api.codec import encode
from natsctl.broker.account import GLOBAL_ACCOUNT
from natsctl.broker.info import server_info
from natsctl.server.system.event import event_head

if TYPE_CHECKING:
    from natsctl.broker.account import Account
    from natsctl.broker.broker import Broker

HEARTBEAT_NS: Final = 30 * 1_000_000_000
"""Time between two events of an account whose connections stay. Source: nats-server, eventsHBInterval."""


class AccountEvents:
    """Tells of the numbers of connections of one broker's accounts."""

    __slots__ = ("_broker", "_due", "_stat")

    def __init__(self, broker: Broker, stat: Callable[[Account], dict[str, Any]]) -> None:
        """`stat` returns an account's counters."""
        self._broker = broker
        self._stat = stat
        self._due: dict[str, int] = {}

    def changed(self, account: Account) -> None:
        """Tell of an account's connections; the global account's are not told."""
        if account.name != GLOBAL_ACCOUNT:
            old, new = f"$SYS.SERVER.ACCOUNT.{account.name}.CONNS", f"$SYS.ACCOUNT.{account.name}.SERVER.CONNS"
            self.tell(account, old.encode(), new.encode())

    def tell(self, account: Account, *subjects: bytes) -> None:
        """Publish an account's numbers to those who listen, and remember when to tell them again."""
        self._due.pop(account.name, None)
        if account.sessions or any(peer.account is account for peer in self._broker.leafs.values()):
            self._due[account.name] = self._broker.clock.monotonic_ns() + HEARTBEAT_NS
        system = self._broker.system_account
        heard = [subject for subject in subjects if system.has_interest(subject)]
        if not heard:
            return
        event = event_head(self._broker, "account_connections") | self._stat(account)
        for index, subject in enumerate(heard):
            if index:
                event["server"] = server_info(self._broker)
            system.publish(subject, b"", b"", encode(event))

    def tick(self) -> None:
        """Tell again what is due."""
        now_ns = self._broker.clock.monotonic_ns()
        while self._due:
            name, due_ns = next(iter(self._due.items()))
            if due_ns > now_ns:
                return
            del self._due[name]
            account = self._broker.accounts.get(name)
            if account is not None:
                self.changed(account)
