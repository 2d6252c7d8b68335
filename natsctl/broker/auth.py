"""Who a client is: static tokens and users."""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

BCRYPT_PREFIXES: Final = ("$2a$", "$2b$", "$2y$")


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
    account: str = ""


def parse_connect(body: bytes) -> ConnectOptions | None:
    """Return the options of a CONNECT body; None where it is not what the protocol asks for."""
    try:
        given = msgspec.json.decode(body, type=dict[str, object] | None) or {}
        known = {key: value for key, value in given.items() if value is not None}
        return msgspec.convert(known, ConnectOptions)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError):
        return None


@dataclass(frozen=True, slots=True)
class User:
    """One configured user; `password` is plain or a bcrypt hash."""

    name: str
    password: str
    account: str = "$G"


@dataclass(frozen=True, slots=True)
class Grant:
    """What a client was let in as; `user` is what connz shows, empty for tokens."""

    user: str
    account: str


class Authenticator:
    """Static authentication: one token, or users with passwords."""

    __slots__ = ("_no_auth_user", "_token", "_users")

    def __init__(self, token: str = "", users: Sequence[User] = (), no_auth_user: str = "") -> None:
        self._token = token
        self._users = {user.name: user for user in users}
        self._no_auth_user = self._users.get(no_auth_user)

    @property
    def required(self) -> bool:
        """False where a client without credentials is let in."""
        return self._no_auth_user is None

    @property
    def default(self) -> Grant | None:
        """What a client without credentials is let in as."""
        user = self._no_auth_user
        return Grant(user.name, user.account) if user else None

    def authenticate(self, options: ConnectOptions) -> Grant | None:
        """Return what the client is let in as; None is a refusal."""
        if self._token:
            return Grant("", "$G") if secret_matches(self._token, options.auth_token) else None
        if not (options.user or options.password or options.auth_token):
            return self.default
        user = self._users.get(options.user)
        # An unknown name costs a comparison too, so that the time tells nothing.
        matches = secret_matches(user.password if user else options.password + "x", options.password)
        return Grant(user.name, user.account) if user and matches else None


def secret_matches(configured: str, given: str) -> bool:
    """Compare a secret in constant time; one that begins like a bcrypt hash is one."""
    if configured.startswith(BCRYPT_PREFIXES):
        import bcrypt

        try:
            return bcrypt.checkpw(given.encode(), configured.encode())
        except ValueError:
            return False
    return hmac.compare_digest(configured.encode(), given.encode())
