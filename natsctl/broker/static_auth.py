"""Static authentication: one token, or the users that configuration lists."""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from natsctl.broker.grant import Credentials, Grant, Refusal
from natsctl.broker.permissions import Permissions

BCRYPT_PREFIXES: Final = ("$2a$", "$2b$", "$2y$")


@dataclass(frozen=True, slots=True)
class User:
    """One configured user; `password` is plain or a bcrypt hash."""

    name: str
    password: str
    account: str = "$G"
    nkey: str = ""
    """A public user key, instead of name and password."""
    permissions: Permissions | None = None
    connection_types: frozenset[str] = frozenset()
    """The kinds of connections that may use it; empty: all."""


class StaticAuthenticator:
    """One token, or users with passwords, nkeys or certificates."""

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
    def wants_nonce(self) -> bool:
        """True where a user has an nkey."""
        return any(user.nkey for user in self._users.values())

    @property
    def default(self) -> Grant | None:
        """What a client without credentials is let in as."""
        user = self._no_auth_user
        return _grant(user) if user else None

    def authenticate(self, credentials: Credentials) -> Grant | Refusal:
        """Return what the client is let in as, or why not."""
        options = credentials.options
        if self._token:
            return Grant("", "$G") if secret_matches(self._token, options.auth_token) else Refusal()
        if not (options.user or options.password or options.auth_token):
            return self.default or Refusal()
        user = self._users.get(options.user)
        # An unknown name costs a comparison too, so that the time tells nothing.
        matches = secret_matches(user.password if user else options.password + "x", options.password)
        return _grant(user) if user and matches else Refusal()

    def still_holds(self, grant: Grant, credentials: Credentials) -> bool:
        """Return whether the client would be let in as the same."""
        return self.authenticate(credentials) == grant


def _grant(user: User) -> Grant:
    return Grant(user.name, user.account, user.permissions)


def secret_matches(configured: str, given: str) -> bool:
    """Compare a secret in constant time; one that begins like a bcrypt hash is one."""
    if configured.startswith(BCRYPT_PREFIXES):
        import bcrypt

        try:
            return bcrypt.checkpw(given.encode(), configured.encode())
        except ValueError:
            return False
    return hmac.compare_digest(configured.encode(), given.encode())
