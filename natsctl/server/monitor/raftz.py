"""`/raftz`: the Raft groups of a cluster, of which one node has none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from natsctl.server.monitor.query import Query

if TYPE_CHECKING:
    from natsctl.server.view import ServerView


class RaftzOptions(msgspec.Struct, kw_only=True):
    """What is asked of `raftz`."""

    account: str = ""
    group: str = ""


def read(query: Query) -> RaftzOptions:
    """Return the options of a query. Raises Refused."""
    return RaftzOptions(account=query.text("acc"), group=query.text("group"))


def raftz(server: ServerView, options: RaftzOptions) -> dict[str, Any]:
    """Return the Raft groups."""
    return {}
