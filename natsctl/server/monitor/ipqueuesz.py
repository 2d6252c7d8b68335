"""`/ipqueuesz`: queues between the parts of the server that have something in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from natsctl.server.monitor.query import Query

if TYPE_CHECKING:
    from natsctl.server.view import ServerView


class IpqueueszOptions(msgspec.Struct, kw_only=True):
    """What is asked of `ipqueuesz`."""

    all: bool = False
    filter: str = ""


def read(query: Query) -> IpqueueszOptions:
    """Return the options of a query. Raises Refused."""
    return IpqueueszOptions(all=query.flag("all"), filter=query.text("queues"))


def ipqueuesz(server: ServerView, options: IpqueueszOptions) -> dict[str, Any]:
    """Return queues by name: one for each stream whose newest messages await their sync."""
    engine = server.engine
    if engine is None:
        return {}
    waiting = {
        f"[ACC:{js.name}] stream '{stream.name}' messages": stream.store.last_seq - stream.store.durable_seq
        for js in engine.accounts.values()
        for stream in js.streams.values()
    }
    return {
        name: {"pending": count}
        for name, count in sorted(waiting.items())
        if (count or options.all) and options.filter in name
    }
