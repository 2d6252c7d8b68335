"""The block `cluster` of nats.conf, of which a single node takes what opens no listener and no route."""

from __future__ import annotations

from typing import Final

from natsctl.server.conf.syntax import Item
from natsctl.server.conf.values import block_of, items_of, text_of
from natsctl.server.options import ServerOptions

SINGLE_NODE: Final = "natsctl server is a single node; run a cluster with nats-server"

_NETWORKED: Final = frozenset({"listen", "port", "routes"})
_UNHEEDED: Final = frozenset({
    "host", "net", "authorization", "tls", "cluster_advertise", "advertise", "no_advertise", "connect_retries",
    "connect_backoff", "permissions", "pool_size", "accounts", "compression", "ping_interval", "ping_max",
    "write_deadline", "write_timeout",
})  # fmt: skip
"""Keys that mean nothing without a listener and without routes."""


def cluster_block(options: ServerOptions, item: Item) -> ServerOptions:
    """Return `options` as they were: a cluster's name alone makes none; raises ConfError for everything that would."""
    for key, value in block_of(item).items():
        name = key.lower()
        if name == "name":
            if " " in text_of(value):
                raise value.fault("cluster name cannot contain spaces or newlines")
        elif name in _NETWORKED:
            if name != "routes" or items_of(value):
                raise value.fault(f"cluster: {SINGLE_NODE}")
        elif name not in _UNHEEDED:
            raise value.fault(f'unknown field "{key}"')
    return options
