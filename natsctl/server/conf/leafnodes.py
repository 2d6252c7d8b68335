"""The block `leafnodes` of nats.conf."""

from __future__ import annotations

from dataclasses import replace

from natsctl.server.conf.syntax import Item
from natsctl.server.options import ServerOptions


def leafnodes_block(options: ServerOptions, item: Item) -> ServerOptions:
    """Return `options` with what the block sets; raises ConfError."""
    return replace(options, unserved=(*options.unserved, "leafnodes"))
