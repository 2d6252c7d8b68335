"""Credentials of a connection, the decision of an authenticator about them, and the values they are made of.

These are the body of CONNECT, the facts that a TLS handshake settled (as connz shows them), and distinguished names of
certificates and users: `CN=a,OU=b,O=c`, as RFC 4514 writes them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, TypeAlias

import msgspec

from natsctl.api.codec import InvalidJSONError, fold, read_folded
from natsctl.api.model import Confidential
from natsctl.broker.auth.permissions import SubjectPermissions
from natsctl.broker.imports.account_config import UNLIMITED
from natsctl.broker.refusals import CloseReason

if TYPE_CHECKING:
    from natsctl.api.jwt_claims import UserClaims, UserLimits
    from natsctl.broker.jwt.callout import ConfiguredTerms, OperatedTerms


class ConnectOptions(msgspec.Struct, kw_only=True):
    """The body of CONNECT, with the defaults of a client that never sends it."""

    verbose: bool = True
    pedantic: bool = True
    echo: bool = True
    headers: bool = False
    no_responders: bool = False
    protocol: int = 0
    name: str = ""
    lang: str = ""
    version: str = ""
    auth_token: str = ""
    user: str = ""
    password: str = msgspec.field(default="", name="pass")
    jwt: str = ""
    nkey: str = ""
    sig: str = ""
    proxy_sig: str = ""
    """Signature of the nonce by the proxy that passes the client on."""
    account: str = ""
    new_account: bool = False

    def __repr__(self) -> str:
        """Return the representation without secrets."""
        return f"ConnectOptions(user={self.user!r}, nkey={self.nkey!r}, name={self.name!r}, …)"


_NAMES: Final = frozenset(ConnectOptions.__struct_encode_fields__)


def parse_connect(body: bytes, before: ConnectOptions | None = None) -> ConnectOptions | None:
    """Return the options of a CONNECT body, or None if it violates the protocol.

    Missing fields keep the values of `before`, an earlier CONNECT.
    """
    try:
        given = msgspec.json.decode(body, type=dict[str, object] | None) or {}
        if any(key not in _NAMES and fold(key) in _NAMES for key in given):
            given = read_folded(body, ConnectOptions)
        known = {key: value for key, value in given.items() if value is not None}
        return msgspec.convert(known if before is None else msgspec.to_builtins(before) | known, ConnectOptions)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError, InvalidJSONError):
        return None


_PART: Final = r" *([A-Za-z][A-Za-z0-9-]*|\d+(?:\.\d+)*) *= *((?:[^\\,+]|\\.)*?) *([,+]|\Z)"
_ESCAPED: Final = rb"\\(?:([0-9A-Fa-f]{2})|(.))"
"""Compiled when first used: a server without TLS starts without."""

RelativeName = tuple[tuple[str, str], ...]
"""The (type, value) pairs of one element, sorted, as their order means nothing; types in capitals."""
DistinguishedName = tuple[RelativeName, ...]
"""The elements, most specific first; a certificate has the opposite order."""


def parse_dn(text: str) -> DistinguishedName | None:
    """Return the elements of a distinguished name, or None if it is invalid. Source: nats-server, internal/ldap."""
    elements: list[RelativeName] = []
    element: list[tuple[str, str]] = []
    at, parts, escaped = 0, re.compile(_PART, re.DOTALL), re.compile(_ESCAPED, re.DOTALL)
    while at < len(text):
        part = parts.match(text, at)
        if part is None or part[2].startswith("#"):  # a value in BER
            return None
        raw = escaped.sub(lambda found: bytes.fromhex(found[1].decode()) if found[1] else found[2], part[2].encode())
        try:
            element.append((part[1].upper(), raw.decode()))
        except UnicodeDecodeError:
            return None
        if part[3] != "+":
            elements.append(tuple(sorted(element)))
            element = []
        at = part.end()
    return tuple(elements) if elements and not element else None


def in_any_order(name: DistinguishedName) -> DistinguishedName:
    """Return the same for all names that have the same elements."""
    return tuple(sorted(name))


class LoginCertificate(msgspec.Struct, frozen=True):
    """The names in a client's verified certificate; `subject` is the text that nats-server makes of it.

    That text lacks attributes, and has the others in an order of its own; `dn` is the whole subject.
    """

    subject: str = ""
    emails: tuple[str, ...] = ()
    dns_names: tuple[str, ...] = ()
    uris: tuple[str, ...] = ()
    domain_components: str = ""
    """The subject's text, then its DC attributes, if any."""
    dn: DistinguishedName | None = None
    """None if an attribute's type has no name."""


class CertificateChain(msgspec.Struct, frozen=True):
    """The certificates that a client has shown, in DER, its own first; a verified chain ends with an authority."""

    verified: bool = False
    certificates: tuple[bytes, ...] = ()


class Credentials(msgspec.Struct, frozen=True):
    """Everything an authenticator may look at."""

    options: ConnectOptions
    nonce: bytes = b""
    """Nonce in this connection's INFO, empty without one."""
    certificate: LoginCertificate | None = None
    connection_type: str = "STANDARD"
    """STANDARD, WEBSOCKET, LEAFNODE, LEAFNODE_WS or IN_PROCESS, as configuration and JWTs spell it."""
    host: str = ""
    now_ns: int = 0
    """The wall clock, since the epoch."""
    proxy: str = ""
    """Key of the trusted proxy that passes the client on; empty: none."""


class Grant(Confidential, frozen=True):
    """Result of a login; `user` is the name in connz, empty for tokens.

    Limits of `UNLIMITED` leave those of the account and of the server.
    """

    UNSHOWN: ClassVar = ("jwt",)

    user: str
    account: str
    permissions: SubjectPermissions | None = None
    expires_ns: int = 0
    """Time for closing the connection, wall clock; 0: never."""
    max_subscriptions: int = UNLIMITED
    max_payload: int = UNLIMITED
    nkey: str = ""
    issuer: str = ""
    """The account's key that signed the user's JWT."""
    jwt: str = ""
    name_tag: str = ""
    tags: tuple[str, ...] = ()
    assigned: UserClaims | None = None
    """Claims of the JWT from an authentication callout that accepted the client, or None."""


class LoginRefusal(msgspec.Struct, frozen=True):
    """Reason for a refused login: the client's error, connz's term, and `detail` for debugging; never a secret."""

    detail: str = ""
    text: str = "Authorization Violation"
    reason: CloseReason = CloseReason.AUTHENTICATION_VIOLATION
    account: str = ""
    """Account that gets the event of the refusal; empty: the client's own."""
    cause: str | None = None
    """Reason in that event, if more specific than connz's term."""
    came: Grant | None = None
    """Grant of the client's own JWT, if a service refused it anyway."""


NOT_TRUSTED: Final = LoginRefusal("proxy is not trusted", reason=CloseReason.PROXY_NOT_TRUSTED)
PROXY_REQUIRED: Final = LoginRefusal("proxy connection required", reason=CloseReason.PROXY_REQUIRED)


def proxy_of(options: ConnectOptions, nonce: bytes, trusted: Sequence[str]) -> str | LoginRefusal:
    """Return the key of the client's trusted proxy, "" without proxy; NOT_TRUSTED if no trusted one has signed.

    A proxy signs the nonce of the forwarded connection, in addition to the client's credentials. Without trusted
    proxies a signature means nothing. Source: nats-server, auth.go proxyCheck.
    """
    if not options.proxy_sig or not trusted:
        return ""
    from natsctl.api.jwt_token import JwtError, decode_base64url, has_signed

    try:
        signature = decode_base64url(options.proxy_sig)
    except JwtError:
        return NOT_TRUSTED
    return next((key for key in trusted if has_signed(key, nonce, signature)), NOT_TRUSTED)


class Pending(msgspec.Struct, frozen=True):
    """An answer that takes long to work out (bcrypt): `work` does it, in any thread, and touches nothing else.

    A session waits for it with everything that follows its CONNECT; a caller that cannot wait calls `now`.
    """

    work: Callable[[], Any]
    then: Callable[[Any], Answer] | None = None
    """Makes the answer of what `work` has fetched, in the thread of the broker; None: that is the answer."""
    decided: DecidedLater | None = None
    """Brings an answer computed in the thread of the broker; `work` returns it for callers that cannot wait."""

    def answer(self, result: Any) -> Answer:
        found: Answer = result if self.then is None else self.then(result)
        return found

    def now(self) -> Grant | LoginRefusal | Delegation:
        """Return the answer without waiting for anything elsewhere."""
        answer = self.answer(self.work() if self.then is None else None)
        return answer.now() if isinstance(answer, Pending) else answer


class DecidedLater:
    """The answer to a login that is computed in steps."""

    def __init__(self) -> None:
        self.answer: Grant | LoginRefusal | Delegation | None = None
        self.bring: Callable[[Grant | LoginRefusal | Delegation], None] | None = None
        """Called with the answer; set by the login that waits for it."""

    def decide(self, answer: Grant | LoginRefusal | Delegation) -> None:
        self.answer = answer
        if self.bring is not None:
            self.bring(answer)


class CalloutError(Exception):
    """A response that lets nobody in; the text is nats-server's, its first letter in either case."""


class AccountPlacement(msgspec.Struct, frozen=True):
    """Place of a response's user: the account, its rules after templates, and the key that vouches for it."""

    account: str
    rules: UserLimits
    permissions: SubjectPermissions | None
    issuer: str


class Delegation(msgspec.Struct, frozen=True):
    """An answer from a service that is asked with a message (authentication callout).

    A session waits for it as for a `Pending`; nobody else can.
    """

    terms: ConfiguredTerms | OperatedTerms
    """The service's account and the answers that it may give."""
    connect: ConnectOptions
    """Fields of CONNECT for the service, including a default user's."""
    nonce: bytes = b""
    named: bool = False
    """The client has shown the name or key of a known user, or is the default one."""
    entered: str = ""
    """Account that must have room before anybody is asked; empty: none."""
    user: str = ""
    """Key of the user in the client's JWT; its name and tags follow."""
    name_tag: str = ""
    tags: tuple[str, ...] = ()
    came: Grant | None = None
    """Grant of the JWT by itself; None without a JWT."""


Answer: TypeAlias = Grant | LoginRefusal | Pending | Delegation
"""Result of a login, or how to come to one."""


class Authenticator(Protocol):
    """Source of users: static configuration, or the JWTs of an operator."""

    @property
    def required(self) -> bool:
        """False if clients without credentials are accepted."""

    @property
    def wants_nonce(self) -> bool:
        """True where INFO carries something to sign."""

    @property
    def default(self) -> Grant | None:
        """Grant of a client without credentials."""

    def authenticate(self, credentials: Credentials) -> Answer:
        """Return the client's grant, its refusal, or what decides: a comparison in another thread, or a service."""

    def still_holds(self, grant: Grant, credentials: Credentials) -> bool:
        """Return whether a client with `grant` would get the same grant now, after a reload."""


class PeerCertificate(msgspec.Struct, frozen=True):
    """One certificate of the client's chain; both digests are SHA-256 in hex, of its public key and of itself."""

    subject: str
    subject_pk_sha256: str
    cert_sha256: str


class TlsFacts(msgspec.Struct, frozen=True):
    """`version` is `1.2` or `1.3`, `cipher` the suite's IANA name; `first` where the handshake came before INFO."""

    version: str
    cipher: str
    first: bool = False
    peer_certificates: tuple[PeerCertificate, ...] = ()
