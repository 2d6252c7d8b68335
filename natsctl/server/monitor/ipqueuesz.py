"""`/ipqueuesz`: queues between the parts of the server that have something in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from natsctl.server.monitor.query import Query

if TYPE_CHECKING:
    from natsctl.server.instance import ServerInstance


class IpqueueszOptions(msgspec.Struct, kw_only=True):
    """What is asked of `ipqueuesz`."""

    all: bool = False
    filter: str = ""


def read(query: Query) -> IpqueueszOptions:
    """Return the options of a query. Raises Refused."""
    return IpqueueszOptions(all=query.flag("all"), filter=query.text("queues"))


def ipqueuesz(server: ServerInstance, options: IpqueueszOptions) -> dict[str, Any]:
    """Return queues by name."""
    return {}
