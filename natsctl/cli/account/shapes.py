"""What `account … -j` prints beside the server's own answers."""

from __future__ import annotations

from typing import Any

import msgspec

from natsctl.api.account import AccountInfo
from natsctl.cli.server.overview import Server


class AccountOverview(AccountInfo):
    """The server's answer to `$JS.API.INFO`, and beside it who is logged in (`user`) and where (`server`).

    Where JetStream does not answer, only those two are there.
    """

    type: str = ""
    user: dict[str, Any] = msgspec.field(default_factory=dict)
    server: dict[str, Any] = msgspec.field(default_factory=dict)


class Moved(msgspec.Struct):
    """How much was moved."""

    msgs: int
    bytes: int


class AccountStatistics(msgspec.Struct):
    """What one server counts for the account."""

    acc: str
    conns: int
    leafnodes: int
    num_subscriptions: int
    sent: Moved
    received: Moved
    slow_consumers: int
    server: Server
