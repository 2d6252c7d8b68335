"""Static authentication by one token, one user, or a list of users in the configuration.

Theory of operation. One authenticator serves one kind of listener: WebSocket clients have their own where their block
says so. The first that a client shows decides, in nats-server's order: a public nkey, then the names in its certificate
where they are mapped, then its user name, then the token. A client without credentials becomes `no_auth_user`.
Secrets that are bcrypt hashes are compared in a thread (`Pending`). If there is one, every refusal for a name or a
secret takes as long as the most costly hash, whether the name is unknown, its secret plain, or a hash of less cost, so
that neither the time nor a pause of the loop reveals which users exist.

Plain secrets are compared in constant time. A bcrypt comparison takes 50 to 100 ms. A password that matched its hash is
remembered by a digest, so that the next client that shows it, or the thousand that reconnect at once, cost nothing.
Wrong passwords are never remembered: every guess costs the full comparison.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from functools import partial
from typing import ClassVar, Final

from msgspec.structs import replace

from natsctl.api.model import Confidential
from natsctl.broker.auth.credentials import (
    PROXY_REQUIRED,
    ConnectOptions,
    Credentials,
    DistinguishedName,
    Grant,
    LoginCertificate,
    LoginRefusal,
    Pending,
    in_any_order,
    parse_dn,
)
from natsctl.broker.auth.permissions import SubjectPermissions

MAX_KNOWN: Final = 4096
"""Maximum number of hashes with a remembered password; the least recently used is dropped."""
MAX_BCRYPT_BYTES: Final = 72
"""Bytes of a password that bcrypt looks at."""

_COSTS: Final = range(4, 32)
_DECOY: Final = b"Ro0CUfOqk6cXEKf3dyaM7OhSCvnwM9s4wIX9JeLapehKK5YdLxKcm"
"""Salt and hash of a password that no user has."""
_BCRYPT: Final = re.compile(r"\$2[abxy]\$\d{2}\$")
_WHOLE: Final = re.compile(r"\$2[abxy]\$(\d{2})\$[./A-Za-z0-9]{53}")
_known: OrderedDict[str, bytes] = OrderedDict()


def is_bcrypt(configured: str) -> bool:
    """Return whether a configured secret is a bcrypt hash; nats-server's expression."""
    return _BCRYPT.match(configured) is not None


def cost_of(configured: str) -> int:
    """Return the cost of a bcrypt hash (each step doubles the work); 0 for anything else."""
    match = _WHOLE.fullmatch(configured)
    return int(match[1]) if match is not None and int(match[1]) in _COSTS else 0


def spend(cost: int, spent: int = 0) -> None:
    """Work as long as a comparison of `cost` takes, one of the cost `spent` being done; 0: none."""
    import bcrypt

    for each in range(spent, cost) if spent else (cost,) if cost else ():
        bcrypt.checkpw(b"", b"$2b$%02d$%b" % (each, _DECOY))


def is_known(configured: str, given: str) -> bool:
    """Return whether `given` has matched the bcrypt hash `configured` before."""
    known = _known.get(configured)
    return known is not None and hmac.compare_digest(known, _digest(configured, given))


def secret_matches(configured: str, given: str) -> bool:
    """Compare a secret with a plain one or a bcrypt hash; slow if the hash's password is not remembered."""
    if not is_bcrypt(configured):
        return hmac.compare_digest(configured.encode(), given.encode())
    if is_known(configured, given):
        return True
    import bcrypt

    try:
        matches = bcrypt.checkpw(given.encode()[:MAX_BCRYPT_BYTES], configured.encode())
    except ValueError:
        return False
    if matches:
        _known[configured] = _digest(configured, given)
        while len(_known) > MAX_KNOWN:
            _known.popitem(last=False)
    return matches


def _digest(configured: str, given: str) -> bytes:
    return hmac.digest(configured.encode(), given.encode(), hashlib.sha256)


CONNECTION_TYPES: Final = frozenset({
    "STANDARD", "WEBSOCKET", "LEAFNODE", "LEAFNODE_WS", "MQTT", "MQTT_WS", "IN_PROCESS",
})  # fmt: skip
"""Values of `allowed_connection_types`."""


class User(Confidential, frozen=True):
    """One configured user; `password` is plain or a bcrypt hash."""

    UNSHOWN: ClassVar = ("password",)

    name: str
    password: str
    account: str = "$G"
    nkey: str = ""
    """A public user key, instead of name and password."""
    permissions: SubjectPermissions | None = None
    connection_types: frozenset[str] = frozenset()
    """The kinds of connections that may use it; empty: all."""
    proxy_required: bool = False
    """Only through a trusted proxy."""

    @property
    def identity(self) -> str:
        return self.nkey or self.name

    def may_use(self, connection_type: str) -> bool:
        return not self.connection_types or connection_type in self.connection_types


class StaticAuthenticator:
    """One token, or users with passwords, nkeys or certificates."""

    def __init__(
        self,
        token: str = "",
        users: Sequence[User] = (),
        no_auth_user: str = "",
        *,
        map_certificates: bool = False,
        mapped_types: frozenset[str] = frozenset(),
        hidden_default: bool = False,
        proxy_required: bool = False,
    ) -> None:
        """Know the users of one kind of listener.

        `map_certificates`: the names in the certificate say who the client is. `mapped_types`: kinds of connections
        where that is so; a user without a password that comes over another one is refused. `hidden_default`: INFO
        asks for credentials anyway. `proxy_required`: only connections through a trusted proxy are accepted.
        """
        self._proxied = proxy_required
        self._token = token
        self._nkeys = {user.nkey: user for user in users if user.nkey}
        self._users = {user.name: user for user in users if not user.nkey}
        self._no_auth_user = no_auth_user
        self._map = map_certificates
        self._subjects = _Subjects(self._users.values()) if map_certificates else _Subjects(())
        self._mapped_types = mapped_types
        self._hidden = hidden_default
        self._cost = max(map(cost_of, (token, *(user.password for user in users))))

    @property
    def required(self) -> bool:
        return self._hidden or not self._no_auth_user

    @property
    def wants_nonce(self) -> bool:
        return bool(self._nkeys)

    @property
    def default(self) -> Grant | None:
        user = self._nkeys.get(self._no_auth_user) or self._users.get(self._no_auth_user)
        return _grant(user) if user and not user.proxy_required and not self._proxied else None

    def authenticate(self, credentials: Credentials) -> Grant | LoginRefusal | Pending:
        """Return the client's grant, its refusal, or the comparison that decides, for another thread."""
        return self._decide(credentials, self._cost)

    def _decide(self, credentials: Credentials, cost: int) -> Grant | LoginRefusal | Pending:
        """Answer as `authenticate` does; a refusal takes as long as a hash of `cost`."""
        options, kind = credentials.options, credentials.connection_type
        if self._proxied and not credentials.proxy:
            return _refused(PROXY_REQUIRED, cost)
        nothing = not (options.user or options.password or options.auth_token)
        if self._nkeys:
            nkey = options.nkey
            if nothing and not nkey and self._no_auth_user in self._nkeys:
                nkey = self._no_auth_user
            if nkey:
                return self._by_nkey(nkey, credentials)
        if self._users:
            if self._map:
                return self._by_certificate(credentials, cost)
            if nothing and self._no_auth_user in self._users:
                user = self._users[self._no_auth_user]
                if user.proxy_required and not credentials.proxy:
                    return PROXY_REQUIRED
                return _grant(user) if user.may_use(kind) else LoginRefusal("connection type not allowed")
            if options.user:
                return self._by_name(credentials, cost)
        if self._token:
            return _compared(self._token, options.auth_token, Grant("", "$G"), cost)
        return _refused(LoginRefusal("no credentials"), cost if options.password or options.auth_token else 0)

    def still_holds(self, grant: Grant, credentials: Credentials) -> bool:
        """Return whether the client would be accepted as the same user."""
        answer = self._decide(credentials, 0)
        return (answer.work() if isinstance(answer, Pending) else answer) == grant

    def find(self, credentials: Credentials) -> tuple[User | None, ConnectOptions]:
        """Return the user that a login is about, whatever its secret is worth, and the options with its name."""
        options = credentials.options
        nothing = not (options.user or options.password or options.auth_token)
        if self._nkeys:
            default = self._no_auth_user if nothing and self._no_auth_user in self._nkeys else ""
            nkey = options.nkey or default
            if nkey:
                return self._nkeys.get(nkey), replace(options, nkey=nkey)
        if not self._users:
            return None, options
        if self._map:
            certificate = credentials.certificate
            user = self._named_in(certificate, credentials.connection_type) if certificate is not None else None
            return user, replace(options, user=user.name) if user is not None else options
        if nothing and self._no_auth_user in self._users:
            user = self._users[self._no_auth_user]
            return user, replace(options, user=user.name, password=user.password)
        return self._users.get(options.user), options

    def _by_nkey(self, nkey: str, credentials: Credentials) -> Grant | LoginRefusal:
        user = self._nkeys.get(nkey)
        if user is None or not user.may_use(credentials.connection_type):
            return LoginRefusal("nkey not known, or not on this kind of connection")
        if user.proxy_required and not credentials.proxy:
            return PROXY_REQUIRED
        if nkey != self._no_auth_user and not _signed(nkey, credentials):
            return LoginRefusal("signature not verified")
        return _grant(user)

    def _by_name(self, credentials: Credentials, cost: int) -> Grant | LoginRefusal | Pending:
        user, password = self._users.get(credentials.options.user), credentials.options.password
        if user is None:
            return _refused(LoginRefusal("user not known"), cost)
        if not user.may_use(credentials.connection_type):
            return _refused(LoginRefusal("connection type not allowed"), cost)
        if user.proxy_required and not credentials.proxy:
            return _refused(PROXY_REQUIRED, cost)
        if not user.password and user.name != self._no_auth_user and any(map(user.may_use, self._mapped_types)):
            return _refused(LoginRefusal("a certificate is required"), cost)
        return _compared(user.password, password, _grant(user), cost)

    def _named_in(self, certificate: LoginCertificate, kind: str) -> User | None:
        """Return the user that a certificate names: by e-mail address, host name, URI, or subject.

        Source: nats-server, auth.go checkClientTLSCertSubject.
        """
        for name in (*certificate.emails, *certificate.dns_names, *certificate.uris):
            if (user := self._user(name, kind)) is not None:
                return user
        dn = certificate.dn
        by_subject = self._subjects.find(dn, kind) if dn else None
        return by_subject or self._user(certificate.domain_components, kind) or self._user(certificate.subject, kind)

    def _user(self, name: str, kind: str) -> User | None:
        user = self._users.get(name) if name else None
        return user if user is not None and user.may_use(kind) else None

    def _by_certificate(self, credentials: Credentials, cost: int) -> Grant | LoginRefusal | Pending:
        if credentials.certificate is None:
            return LoginRefusal("no certificate")
        user = self._named_in(credentials.certificate, credentials.connection_type)
        if user is None:
            return LoginRefusal("no user is named in the certificate")
        if user.proxy_required and not credentials.proxy:
            return _refused(PROXY_REQUIRED, cost)
        return _compared(user.password, credentials.options.password, _grant(user), cost)


class _Subjects:
    """The users that are called by a distinguished name, by that name and by its elements in any order."""

    def __init__(self, users: Iterable[User]) -> None:
        self._exact: dict[DistinguishedName, list[User]] = {}
        self._reordered: dict[DistinguishedName, list[User]] = {}
        for user in users:
            name = parse_dn(user.name)
            if name is not None:
                self._exact.setdefault(name, []).append(user)
                self._reordered.setdefault(in_any_order(name), []).append(user)

    def find(self, name: DistinguishedName, kind: str) -> User | None:
        """Return the user of a subject; one that has its elements in the same order comes first."""
        found = self._exact.get(name, []) + self._reordered.get(in_any_order(name), [])
        return next((user for user in found if user.may_use(kind)), None)


def _signed(nkey: str, credentials: Credentials) -> bool:
    """Return whether the client has signed the nonce; the signature is base64url, or plain base64 with padding."""
    from natsctl.api.jwt_token import has_signed

    text = credentials.options.sig
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_" if not set("+/") & set(text) else None)
    except (binascii.Error, ValueError):
        return False
    return has_signed(nkey, credentials.nonce, raw)


def _compared(configured: str, given: str, answer: Grant, cost: int) -> Grant | LoginRefusal | Pending:
    """Return `answer` if a secret is right; slow comparisons run in a thread."""
    if is_bcrypt(configured) and not is_known(configured, given):
        return Pending(partial(_answer, configured, given, answer, cost))
    return answer if secret_matches(configured, given) else _refused(LoginRefusal("wrong secret"), cost)


def _answer(configured: str, given: str, answer: Grant, cost: int) -> Grant | LoginRefusal:
    """Compare a hash; a refusal takes as long as one of `cost`."""
    if secret_matches(configured, given):
        return answer
    spend(cost, cost_of(configured))
    return LoginRefusal("wrong secret")


def _refused(refusal: LoginRefusal, cost: int) -> LoginRefusal | Pending:
    """Return a refusal, or a pending one as slow as checking a hash of `cost`."""
    return Pending(partial(_late, refusal, cost)) if cost else refusal


def _late(refusal: LoginRefusal, cost: int) -> LoginRefusal:
    spend(cost)
    return refusal


def _grant(user: User) -> Grant:
    return Grant(user.identity, user.account, user.permissions, nkey=user.nkey)
