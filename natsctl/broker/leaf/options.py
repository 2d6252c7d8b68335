"""What a server is told about its leaf nodes: the ones it accepts, and the ones it connects as."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Protocol, TypeAlias

import msgspec

from natsctl.broker.auth.grant import Authenticator
from natsctl.broker.options import SECOND_NS

FIRST_INFO_NS: Final = SECOND_NS
"""How long a hub may take for its INFO. Source: nats-server, DEFAULT_LEAFNODE_INFO_WAIT."""

Signer: TypeAlias = Callable[[bytes], Mapping[str, str]]
"""Called with the hub's nonce; returns the fields of CONNECT that say who we are. Raises RemoteCredentialsError."""


class RemoteCredentialsError(Exception):
    """The credentials of a remote can not be used; the text is for the log."""


def anonymous(nonce: bytes) -> Mapping[str, str]:
    """Return the fields of somebody who shows nothing."""
    return {}


class LinkLog(Protocol):
    """Where the lines about connections go."""

    def info(self, text: str) -> None:
        """Note what operators expect to see."""

    def warn(self, text: str) -> None:
        """Note what they should look at."""

    def error(self, text: str) -> None:
        """Note what went wrong."""

    def debug(self, text: str) -> None:
        """Note what helps to find a fault."""


class LeafOptions(msgspec.Struct, frozen=True):
    """How leaf nodes are accepted, and what this server says of itself on both kinds of connections."""

    host: str = ""
    port: int = 0
    """Where leaf nodes connect, as INFO says it."""
    urls: tuple[str, ...] = ()
    """What INFO offers to connect to again; empty where nothing is advertised."""
    cluster: str = ""
    """What a server with remotes calls itself; messages do not go back to who is called the same."""
    tls_required: bool = False
    tls_verify: bool = False
    auth: Authenticator | None = None
    """The users of the block `leafnodes`; None: those of the server."""
    account: str = ""
    """Where who needs no credentials is bound; empty: the global account."""
    auth_timeout_ns: int = 2 * SECOND_NS
    min_version: str = ""
    isolate: bool = False
    """Interest of one leaf node is not told to another."""
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
