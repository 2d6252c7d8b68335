"""What a connection shows of who it is, and what it is let in as."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Final, Protocol

import msgspec

from natsctl.api.model import Confidential
from natsctl.broker.auth.connect_options import ConnectOptions
from natsctl.broker.auth.distinguished_names import DistinguishedName
from natsctl.broker.auth.permissions import Permissions
from natsctl.broker.reasons import CloseReason

UNLIMITED: Final = -1


class Certificate(msgspec.Struct, frozen=True):
    """The names in a client's verified certificate; `subject` is the text that nats-server makes of it.

    That text lacks attributes, and has the others in an order of its own; `dn` is the whole subject.
    """

    subject: str = ""
    emails: tuple[str, ...] = ()
    dns_names: tuple[str, ...] = ()
    uris: tuple[str, ...] = ()
    domain_components: str = ""
    """The subject's text and after it its DC attributes, empty where there are none."""
    dn: DistinguishedName | None = None
    """None where an attribute's type has no name."""


class Credentials(msgspec.Struct, frozen=True):
    """Everything an authenticator may look at."""

    options: ConnectOptions
    nonce: bytes = b""
    """Nonce in this connection's INFO, empty without one."""
    certificate: Certificate | None = None
    connection_type: str = "STANDARD"
    """STANDARD, WEBSOCKET, LEAFNODE, LEAFNODE_WS or IN_PROCESS, as configuration and JWTs spell it."""
    host: str = ""
    now_ns: int = 0
    """The wall clock, since the epoch."""


class Grant(Confidential, frozen=True):
    """Result of a login; `user` is the name in connz, empty for tokens.

    Limits of `UNLIMITED` leave those of the account and of the server.
    """

    UNSHOWN: ClassVar = ("jwt",)

    user: str
    account: str
    permissions: Permissions | None = None
    expires_ns: int = 0
    """When the connection is to be closed, wall clock; 0: never."""
    max_subscriptions: int = UNLIMITED
    max_payload: int = UNLIMITED
    nkey: str = ""
    issuer: str = ""
    """The account's key that signed the user's JWT."""
    jwt: str = ""
    name_tag: str = ""
    tags: tuple[str, ...] = ()


class Refusal(msgspec.Struct, frozen=True):
    """Reason for a refused login: the client's error, connz's term, and `detail` for debugging; never a secret."""

    detail: str = ""
    text: str = "Authorization Violation"
    reason: CloseReason = CloseReason.AUTHENTICATION_VIOLATION


class Pending(msgspec.Struct, frozen=True):
    """An answer that takes long to work out (bcrypt): `work` does it, in any thread, and touches nothing else.

    A session waits for it with everything that follows its CONNECT; a caller that cannot wait calls `work` directly.
    """

    work: Callable[[], Grant | Refusal]


class Authenticator(Protocol):
    """Source of users: static configuration, or the JWTs of an operator."""

    @property
    def required(self) -> bool:
        """False where a client without credentials is let in."""

    @property
    def wants_nonce(self) -> bool:
        """True where INFO carries something to sign."""

    @property
    def default(self) -> Grant | None:
        """Grant of a client without credentials."""

    def authenticate(self, credentials: Credentials) -> Grant | Refusal | Pending:
        """Return what the client is let in as, or why not, or how that is found out where it takes long."""

    def still_holds(self, grant: Grant, credentials: Credentials) -> bool:
        """Return whether a client that was let in as `grant` would be let in as the same now; asked after a reload."""
