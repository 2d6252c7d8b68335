"""Options of leaf nodes: the block `leafnodes` of a configuration."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final
from urllib.parse import quote

import msgspec

from natsctl.api.model import Confidential
from natsctl.broker.auth.static_auth import User

if TYPE_CHECKING:
    from natsctl.server.options import TlsOptions

DEFAULT_LEAF_PORT: Final = 7422
"""Default port of a remote's url. Source: nats-server, DEFAULT_LEAFNODE_PORT."""
RECONNECT_S: Final = 1.0
FIRST_INFO_S: Final = 1.0
DIAL_TIMEOUT_S: Final = 1.0
AUTH_TIMEOUT_S: Final = 2.0


class LeafUrl(Confidential, frozen=True):
    """The address of a hub; user and password are those of the url."""

    UNSHOWN: ClassVar = ("password",)

    scheme: str
    host: str
    port: int
    user: str = ""
    password: str | None = None
    path: str = ""

    @property
    def address(self) -> str:
        """Host and port as log lines show them."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_websocket(self) -> bool:
        """Return whether it is reached over WebSocket."""
        return self.scheme in ("ws", "wss")

    @property
    def label(self) -> str:
        """The whole url as log lines show it, without its password."""
        user = quote(self.user) + (":xxxxx" if self.password is not None else "") + "@" if self.user else ""
        return f"{self.scheme}://{user}{self.address}{self.path}"


class LeafRemoteOptions(Confidential, frozen=True):
    """One hub, for one account."""

    UNSHOWN: ClassVar = ("nkey",)

    urls: tuple[LeafUrl, ...] = ()
    account: str = "$G"
    creds: Path | None = None
    nkey: str = ""
    """A user's seed."""
    tls: TlsOptions | None = None
    deny_imports: tuple[str, ...] = ()
    deny_exports: tuple[str, ...] = ()
    hub: bool = False
    ws_compression: bool = False
    ws_no_masking: bool = False
    no_randomize: bool = False
    first_info_timeout_s: float = FIRST_INFO_S
    dial_timeout_s: float = 0.0
    """0: as for all remotes."""
    disabled: bool = False
    ignore_discovered_servers: bool = False
    isolate: bool = False
    request_isolation: bool = False

    @property
    def key(self) -> tuple[object, ...]:
        """The identity of the remote, for comparisons at a reload."""
        return (self.urls, self.account, self.creds, self.nkey)

    @property
    def label(self) -> str:
        """Its name in log lines."""
        urls = " ".join(f'"{url.label}"' for url in self.urls)
        secret = f', credentials="{self.creds}"' if self.creds is not None else ""
        secret += ', nkey="[REDACTED]"' if self.nkey else ""
        return f'urls=[{urls}], account="{self.account}"{secret}'


class LeafNodesOptions(msgspec.Struct, frozen=True):
    """The listener, where `port` is not 0, and the remotes."""

    host: str = "0.0.0.0"
    port: int = 0
    tls: TlsOptions | None = None
    users: tuple[User, ...] = ()
    """Users that may connect; empty: the users of the server."""
    account: str = ""
    """The account of leaf nodes that need no credentials."""
    auth_timeout_s: float = 0.0
    """Time limit of a server's CONNECT; 0: as in `login_timeout_s`."""
    advertise: str = ""
    no_advertise: bool = False
    min_version: str = ""
    isolate: bool = False
    write_deadline_s: float = 0.0
    """0: as for clients."""
    reconnect_s: float = RECONNECT_S
    dial_timeout_s: float = DIAL_TIMEOUT_S
    remotes: tuple[LeafRemoteOptions, ...] = ()

    @property
    def login_timeout_s(self) -> float:
        """Time limit of a server's CONNECT, its handshake included."""
        if self.auth_timeout_s > 0:
            return self.auth_timeout_s
        return self.tls.timeout_s + 1 if self.tls is not None else AUTH_TIMEOUT_S
