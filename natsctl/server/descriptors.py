"""File descriptors: how many this process may have, and how clients and the store share them.

Clients come in any number, the store's files do not: a commit that finds no descriptor would fence its stream off. So a
part of the limit is kept from clients, and the store closes the files of idle streams before it needs more than that.
"""

import resource
from contextlib import suppress
from typing import Final, NamedTuple

CLIENTS_MOST: Final = 65_536
"""Clients at the same time; nats-server's max_connections."""

OPEN_STREAMS_MOST: Final = 256
"""Streams whose files stay open between commits, two descriptors each."""

KEPT_MOST: Final = 640
"""Descriptors kept from clients: two for each open stream, and the listener, locks, logs and what is read."""


class DescriptorShares(NamedTuple):
    """What a limit on descriptors is divided into."""

    clients: int
    open_streams: int


def descriptor_shares() -> DescriptorShares:
    """Return how many clients and how many open streams the process's present limit leaves room for."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        return DescriptorShares(CLIENTS_MOST, OPEN_STREAMS_MOST)
    kept = min(KEPT_MOST, limit // 2)
    return DescriptorShares(min(CLIENTS_MOST, limit - kept), min(OPEN_STREAMS_MOST, kept // 4))


def raise_descriptor_limit() -> None:
    """Give this process as many descriptors as the system lets it have, as servers written in Go do by themselves."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with suppress(OSError, ValueError):  # some systems name a limit that they do not grant
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
