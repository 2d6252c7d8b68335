"""Where the JWTs of accounts come from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class Resolver(Protocol):
    """Knows account JWTs by the accounts' public keys."""

    def fetch(self, account: str) -> str | None:
        """Return the JWT of an account, None where there is none."""


class AccountStoreError(Exception):
    """A store could not do what it was asked; the text says why."""


class Store(Resolver, Protocol):
    """A resolver that keeps what it is sent."""

    @property
    def full(self) -> bool:
        """True where it keeps every account, False where those that are in use."""

    @property
    def may_delete(self) -> bool:
        """True where operators may have accounts deleted."""

    def save(self, account: str, token: str) -> bool:
        """Keep a JWT and return whether it is another than before; raises AccountStoreError."""

    def delete(self, account: str) -> None:
        """Forget an account, if it is there; raises AccountStoreError."""

    def accounts(self) -> list[str]:
        """Return the accounts that are kept."""

    def digest(self) -> bytes:
        """Return 32 bytes that say what is kept: the exclusive or of the JWTs' SHA-256."""


class MemoryResolver:
    """The JWTs that configuration lists."""

    def __init__(self, preload: Mapping[str, str]) -> None:
        """Know the JWTs of `preload`, by account."""
        self._preload = dict(preload)

    def fetch(self, account: str) -> str | None:
        """Return the JWT of an account, None where there is none."""
        return self._preload.get(account)
