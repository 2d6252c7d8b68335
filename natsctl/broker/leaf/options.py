"""What a server is told about its leaf nodes: the ones it accepts, and the ones it connects as."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Protocol, TypeAlias

import msgspec

from natsctl.broker.auth.grant import Authenticator
from natsctl.broker.options import SECOND_NS

FIRST_INFO_NS: Final = SECOND_NS
"""Time within which a hub must send INFO. Source: nats-server, DEFAULT_LEAFNODE_INFO_WAIT."""

Signer: TypeAlias = Callable[[bytes], Mapping[str, str]]
"""Called with the hub's nonce; returns the fields of CONNECT that say who we are. Raises RemoteCredentialsError."""


class RemoteCredentialsError(Exception):
    """The credentials of a remote cannot be used; the text is for the log."""


def anonymous(nonce: bytes) -> Mapping[str, str]:
    """Return the fields of a connection without credentials."""
    return {}


class LinkLog(Protocol):
    """Log for lines about connections."""

    def info(self, text: str) -> None:
        """Note what operators expect to see."""

    def warn(self, text: str) -> None:
        """Note what they should look at."""

    def error(self, text: str) -> None:
        """Note what went wrong."""

    def debug(self, text: str) -> None:
        """Note what helps to find a fault."""


class LeafOptions(msgspec.Struct, frozen=True):
    """Options for accepting leaf nodes, and this server's INFO on both kinds of connections."""

    host: str = ""
    port: int = 0
    """Address for leaf nodes in INFO."""
    urls: tuple[str, ...] = ()
    """Addresses in INFO for connecting again; empty where none are advertised."""
    cluster: str = ""
    """Cluster name of a server with remotes; messages do not go back to a cluster of the same name."""
    tls_required: bool = False
    tls_verify: bool = False
    auth: Authenticator | None = None
    """The users of the block `leafnodes`; None: those of the server."""
    account: str = ""
    """Account of leaf nodes without credentials; empty: the global account."""
    auth_timeout_ns: int = 2 * SECOND_NS
    min_version: str = ""
    isolate: bool = False
    """Whether interest of one leaf node is kept from others."""
    undivided: frozenset[str] = frozenset()
    """Accounts whose JetStream is not kept apart from that of the other side."""


class RemoteOptions(msgspec.Struct, frozen=True):
    """One hub that this server connects to, for one of its accounts."""

    account: str = "$G"
    hub: bool = False
    """This side is the hub, although it connects."""
    deny_imports: tuple[str, ...] = ()
    deny_exports: tuple[str, ...] = ()
    isolate: bool = False
    request_isolation: bool = False
    first_info_ns: int = FIRST_INFO_NS
    signer: Signer = msgspec.field(default=anonymous)
