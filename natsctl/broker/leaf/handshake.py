"""Bodies of INFO and CONNECT between servers, keys in nats-server's order, and the options of leaf nodes.

The options apply to connections that a server accepts, and to connections it makes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Protocol, TypeAlias, TypeVar

import msgspec

from natsctl.api.codec import InvalidJSONError, fold, read_folded
from natsctl.api.model import blank, zero
from natsctl.api.units import SECOND
from natsctl.broker.auth.credentials import Authenticator
from natsctl.broker.auth.permissions import SubjectRules

_Body = TypeVar("_Body", bound=msgspec.Struct)


PROTOCOL: Final = 3
"""The protocol between servers that trace messages. Source: nats-server, MsgTraceProto."""


class SubjectLists(msgspec.Struct, omit_defaults=True, kw_only=True):
    """One direction of a user's permissions."""

    allow: list[str] | None = None
    deny: list[str] | None = None


class LeafInfo(msgspec.Struct, omit_defaults=True, kw_only=True):
    """INFO on a leaf node connection, from either side."""

    server_id: str = msgspec.field(default_factory=blank)
    server_name: str = msgspec.field(default_factory=blank)
    version: str = msgspec.field(default_factory=blank)
    proto: int = msgspec.field(default_factory=zero)
    go: str = msgspec.field(default_factory=blank)
    host: str = msgspec.field(default_factory=blank)
    port: int = msgspec.field(default_factory=zero)
    headers: bool = False
    auth_required: bool = False
    tls_required: bool = False
    tls_verify: bool = False
    tls_available: bool = False
    """Only the other side may offer TLS without requiring it."""
    max_payload: int = msgspec.field(default_factory=zero)
    jetstream: bool = False
    ip: str = ""
    client_id: int = 0
    nonce: str = ""
    cluster: str = ""
    domain: str = ""
    ws_connect_urls: list[str] | None = None
    compression: str = ""
    connect_info: bool = False
    remote_account: str = ""
    acc_is_sys: bool = False
    api_lvl: int = 0
    import_: SubjectLists | None = msgspec.field(default=None, name="import")
    export: SubjectLists | None = None
    info_on_connect: bool = False
    leafnode_urls: list[str] | None = None


class LeafConnect(msgspec.Struct, omit_defaults=True, kw_only=True):
    """CONNECT of a server; who it is as which user is in the same fields as a client's."""

    version: str = ""
    nkey: str = ""
    jwt: str = ""
    sig: str = ""
    user: str = ""
    password: str = msgspec.field(default="", name="pass")
    auth_token: str = ""
    server_id: str = ""
    domain: str = ""
    name: str = ""
    is_hub: bool = False
    cluster: str = ""
    headers: bool = False
    jetstream: bool = False
    deny_pub: list[str] | None = None
    isolate: bool = False
    compress_mode: str = ""
    gateway: str = ""
    remote_account: str = ""
    protocol: int = 0
    lang: str = ""
    """Clients say this, servers do not."""


def parse_body(body: bytes, kind: type[_Body]) -> _Body | None:
    """Return the fields of INFO or CONNECT, or None if it violates the protocol."""
    try:
        given = msgspec.json.decode(body, type=dict[str, object])
        names = kind.__struct_encode_fields__
        if any(key not in names and fold(key) in names for key in given):
            given = read_folded(body, kind)
        return msgspec.convert({key: value for key, value in given.items() if value is not None}, kind)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError, InvalidJSONError):
        return None


def subject_lists(rules: SubjectRules) -> SubjectLists | None:
    """Return the rules of one direction as INFO has them, None without rules."""
    if rules.allow is None and not rules.deny:
        return None
    allow = None if rules.allow is None else list(rules.allow)
    return SubjectLists(allow=allow, deny=list(rules.deny) or None)


def version_at_least(version: str, least: str) -> bool:
    """Return whether one dotted version is not older than another; text that is no version is older than all."""
    have, want = version_parts(version), version_parts(least)
    return have is not None and want is not None and have >= want


def version_parts(version: str) -> tuple[int, int, int] | None:
    """Return the three numbers of a version; what follows them is left out."""
    numbers = version.removeprefix("v").partition("-")[0].split(".")
    if len(numbers) != 3 or not all(number.isdecimal() for number in numbers):
        return None
    return int(numbers[0]), int(numbers[1]), int(numbers[2])


FIRST_INFO_NS: Final = SECOND
"""Time within which a hub must send INFO. Source: nats-server, DEFAULT_LEAFNODE_INFO_WAIT."""

Signer: TypeAlias = Callable[[bytes], Mapping[str, str]]
"""Called with the hub's nonce; returns the fields of CONNECT that say who we are. Raises RemoteCredentialsError."""


class RemoteCredentialsError(Exception):
    """The credentials of a remote cannot be used; the text is for the log."""


class LinkLog(Protocol):
    """Log for lines about connections."""

    def info(self, text: str) -> None:
        """Log a line at level INF."""

    def warn(self, text: str) -> None:
        """Log a line at level WRN."""

    def error(self, text: str) -> None:
        """Log a line at level ERR."""

    def debug(self, text: str) -> None:
        """Log a line at level DBG."""


class LeafOptions(msgspec.Struct, frozen=True):
    """Options for accepting leaf nodes, and this server's INFO on both kinds of connections."""

    host: str = ""
    port: int = 0
    """Address for leaf nodes in INFO."""
    urls: tuple[str, ...] = ()
    """Addresses in INFO for reconnecting; empty if none are advertised."""
    cluster: str = ""
    """Cluster name of a server with remotes; messages do not go back to a cluster of the same name."""
    tls_required: bool = False
    tls_verify: bool = False
    auth: Authenticator | None = None
    """The users of the block `leafnodes`; None: those of the server."""
    account: str = ""
    """Account of leaf nodes without credentials; empty: the global account."""
    auth_timeout_ns: int = 2 * SECOND
    min_version: str = ""
    isolate: bool = False
    """Whether interest of one leaf node is kept from others."""
    undivided: frozenset[str] = frozenset()
    """Accounts that share the other side's JetStream."""


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
    tls: bool = False
    """Whether the hub must be reached under TLS; one that asks for it is in any case."""
    signer: Signer = lambda nonce: {}
