"""Accounts whose JWT is loaded: the JWTs in force, and what follows from them for each other.

Theory of operation. An account is activated when a user of it connects or when an active account imports from it; its
JWT is requested from the resolver, checked against the trusted operators, and kept. The broker is configured
(`BrokerAccountSink.configure`) with its claims and those of its imports that the exporters' claims and the activation
tokens allow, so a change of one account may change the configuration of others: `_refresh` looks at those that import
from it. Accounts that are activated together are configured together, because imports may go round. Nothing here
reads a clock: the caller passes the time, and calls `tick` for what expires.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

from natsctl.api.jwt_claims import AccountClaims, OperatorClaims, UserScope, decode
from natsctl.api.jwt_token import JwtError, is_public
from natsctl.api.jwt_validation import account_faults, time_faults
from natsctl.api.model import Confidential
from natsctl.api.units import SECOND
from natsctl.broker.jwt.account_setup import account_config, imports_in_effect

if TYPE_CHECKING:
    from natsctl.broker.jwt.authenticator import BrokerAccountSink


class Resolver(Protocol):
    """A source of account JWTs by the accounts' public keys."""

    def fetch(self, account: str) -> str | None:
        """Return the JWT of an account, None where there is none."""


class RemoteResolver(Resolver, Protocol):
    """A resolver that has to ask elsewhere, which must not be waited for."""

    def fetch_all(self, account: str, known: Collection[str]) -> Any:
        """Fetch an account and those that it imports from, but for `known`; in any thread, touching nothing else."""

    def take(self, fetched: Any) -> None:
        """Offer what `fetch_all` has returned to `fetch`, until the next call; None: nothing."""


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


class Trust(Confidential, frozen=True):
    """The keys that may sign accounts, and what else operators ask for."""

    UNSHOWN: ClassVar = ("sentinel",)

    keys: frozenset[str] = frozenset()
    strict_keys: frozenset[str] = frozenset()
    """Signing keys of operators that want accounts, too, to sign with signing keys alone."""
    operator: str = ""
    """The first operator's own key, empty where keys are trusted without an operator."""
    strict: bool = False
    """The first operator does not sign accounts with its own key."""
    system_account: str = ""
    pinned: frozenset[str] | None = None
    """The only accounts whose users may connect; None: every one."""
    sentinel: str = ""
    """The JWT of clients that bring none; empty: they are refused."""


def trust_of(
    operators: Sequence[OperatorClaims],
    keys: Sequence[str] = (),
    system_account: str = "",
    pinned: Sequence[str] = (),
    sentinel: str = "",
) -> Trust:
    """Return what operators and plain keys together are trusted with; `system_account` wins over an operator's."""
    trusted, strict_keys = set(keys), set[str]()
    for claims in operators:
        trusted.update(claims.nats.signing_keys)
        if claims.nats.strict_signing_key_usage:
            strict_keys.update(claims.nats.signing_keys)
        else:
            trusted.add(claims.sub)
    system = system_account or (operators[0].nats.system_account if len(operators) == 1 else "")
    return Trust(
        keys=frozenset(trusted),
        strict_keys=frozenset(strict_keys),
        operator=operators[0].sub if operators else "",
        strict=bool(operators) and operators[0].nats.strict_signing_key_usage,
        system_account=system,
        pinned=frozenset((*pinned, system)) - {""} if pinned else None,
        sentinel=sentinel,
    )


NEVER_S: Final = 1 << 62
"""A time that does not come."""
ASK_AGAIN_S: Final = 1
"""Time before the resolver is asked again for an expired account. Source: nats-server, updateAccount."""

INVALID: Final = "account validation failed"


class ActiveAccount:
    """One account with its JWT in force."""

    __slots__ = ("claims", "config", "expired", "imports_end_s", "signers", "token", "updated_s")

    def __init__(self, claims: AccountClaims, token: str, *, strict: bool, now_s: int) -> None:
        self.claims = claims
        self.token = token
        self.signers: dict[str, UserScope | None] = claims.signers()
        if not strict:
            self.signers[claims.sub] = None
        self.updated_s = now_s
        self.expired = 0 < claims.exp <= now_s
        self.config = account_config(claims, ())
        self.imports_end_s = 0
        """Time at which the first activation token of an import in effect expires; 0: never."""

    @property
    def name(self) -> str:
        """The account's public key."""
        return self.claims.sub

    @property
    def due_s(self) -> int:
        """Return when something of it expires next, in seconds since the epoch."""
        ends = (0 if self.expired else self.claims.exp, self.imports_end_s)
        return min((end for end in ends if end > 0), default=NEVER_S)


class AccountRegistry:
    """The accounts that are alive, by their public keys."""

    def __init__(self, trust: Trust, resolver: Resolver) -> None:
        self.trust = trust
        self.resolver = resolver
        self.keeper: BrokerAccountSink | None = None
        self._held: dict[str, ActiveAccount] = {}
        self._importers: dict[str, set[str]] = {}
        """Importers of an account, active or not."""
        self._due_s = NEVER_S

    @property
    def due_s(self) -> int:
        """Return when `tick` has something to do, in seconds since the epoch."""
        return self._due_s

    def get(self, name: str) -> ActiveAccount | None:
        """Return an account that is alive."""
        return self._held.get(name)

    def needs_fetch(self, name: str, now_ns: int) -> bool:
        """Return whether `look_up` would ask the resolver."""
        held = self._held.get(name)
        if held is None or not held.token:
            return True
        return held.expired and now_ns // SECOND - held.updated_s >= ASK_AGAIN_S

    def names(self) -> frozenset[str]:
        """Return the accounts that are alive."""
        return frozenset(self._held)

    def look_up(self, name: str, now_ns: int) -> ActiveAccount:
        """Return an account, alive from now on; one that has expired only where its resolver has a newer JWT.

        Raises JwtError.
        """
        now_s = now_ns // SECOND
        self.tick(now_ns)
        held = self._held.get(name)
        if held is None:
            return self._wake(name, now_s)
        if held.expired:
            token = self.resolver.fetch(name) if now_s - held.updated_s >= ASK_AGAIN_S else None
            if token is None:
                raise JwtError("account expired")
            self.update(name, token, now_ns)
        return self._held[name]

    def provide(self, claims: AccountClaims, now_ns: int) -> None:
        """Bring an account to life without a JWT, until there is one."""
        held = ActiveAccount(claims, "", strict=False, now_s=now_ns // SECOND)
        self._hold(held)
        self._refresh([], now_ns // SECOND, [held])

    def update(self, name: str, token: str, now_ns: int, faultless: AccountClaims | None = None) -> None:
        """Apply a newer JWT of an active account; the same one has no effect. Raises JwtError.

        `faultless` are its claims, where they have been read and `account_faults` found nothing.
        """
        before, now_s = self._held[name], now_ns // SECOND
        if before.token == token:
            return
        held = self._checked(name, token, now_s, faultless)
        self._drop(before)
        self._hold(held)
        fresh = self._awaken_exporters([held], now_s)
        held.config = before.config
        self._refresh([held, *self._importers_of([held, *fresh])], now_s, fresh)
        if self.keeper is not None:
            self.keeper.account_changed(held, before)

    def replace_resolver(self, resolver: Resolver, now_ns: int) -> list[str]:
        """Ask another resolver for every account that is alive; return those that it does not know or are not good.

        They are gone, but for the system account, which stays as it is.
        """
        self.resolver = resolver
        gone: list[str] = []
        for name in [name for name in self._held if name != self.trust.system_account or resolver.fetch(name)]:
            token = resolver.fetch(name)
            try:
                if token is None:
                    raise JwtError("account missing")
                self.update(name, token, now_ns)
            except JwtError:
                gone.append(name)
                self.forget(name, expired=False)
        return gone

    def forget(self, name: str, *, expired: bool = True) -> None:
        """Drop an account: its clients are closed, as `expired` or as not authorized."""
        held = self._held.get(name)
        if held is None:
            return
        self._drop(held)
        if self.keeper is not None:
            self.keeper.account_gone(held, expired)

    def tick(self, now_ns: int) -> None:
        """Do what is due: accounts and activation tokens that expire."""
        now_s = now_ns // SECOND
        if now_s < self._due_s:
            return
        accounts = tuple(self._held.values())
        for held in accounts:
            if not held.expired and 0 < held.claims.exp <= now_s:
                held.expired = True
                if self.keeper is not None:
                    self.keeper.account_expired(held)
        self._refresh([held for held in accounts if 0 < held.imports_end_s <= now_s], now_s)
        self._due_s = min((held.due_s for held in accounts), default=NEVER_S)

    def _hold(self, held: ActiveAccount) -> None:
        self._held[held.name] = held
        for item in held.claims.nats.imports:
            self._importers.setdefault(item.account, set()).add(held.name)
        self._due_s = min(self._due_s, held.due_s)

    def _drop(self, held: ActiveAccount) -> None:
        del self._held[held.name]
        for item in held.claims.nats.imports:
            importers = self._importers.get(item.account, set())
            importers.discard(held.name)
            if not importers:
                self._importers.pop(item.account, None)

    # From text to an account that is alive

    def _wake(self, name: str, now_s: int) -> ActiveAccount:
        held = self._fetched(name, now_s)
        self._hold(held)
        fresh = [held, *self._awaken_exporters([held], now_s)]
        self._refresh(self._importers_of(fresh), now_s, fresh)
        return held

    def _awaken_exporters(self, accounts: list[ActiveAccount], now_s: int) -> list[ActiveAccount]:
        """Bring to life what accounts import from, and what those import from; return what was not alive."""
        fresh: list[ActiveAccount] = []
        wanted = [item.account for held in accounts for item in held.claims.nats.imports]
        while wanted:
            name = wanted.pop()
            if name in self._held:
                continue
            try:
                held = self._fetched(name, now_s)
            except JwtError:
                continue  # what is imported from it comes into effect when it is there
            self._hold(held)
            fresh.append(held)
            wanted += [item.account for item in held.claims.nats.imports]
        return fresh

    def _fetched(self, name: str, now_s: int) -> ActiveAccount:
        if not is_public(name, "account"):
            raise JwtError("will only fetch valid account keys")
        token = self.resolver.fetch(name)
        if token is None:
            raise JwtError("account missing")
        return self._checked(name, token, now_s)

    def _checked(self, name: str, token: str, now_s: int, faultless: AccountClaims | None = None) -> ActiveAccount:
        claims = faultless or decode(token, AccountClaims)
        if claims.iss not in self.trust.keys or claims.sub != name:
            raise JwtError(INVALID)
        if (faultless is None and any(account_faults(claims))) or any(time_faults(claims, now_s)):
            raise JwtError(INVALID)
        return ActiveAccount(claims, token, strict=claims.iss in self.trust.strict_keys, now_s=now_s)

    # From accounts to the broker's configuration

    def _refresh(self, accounts: Iterable[ActiveAccount], now_s: int, fresh: Iterable[ActiveAccount] = ()) -> None:
        """Check the imports of accounts again, and configure the broker with what is new or has changed."""
        changed = {held.name: held for held in fresh}
        for held in (*changed.values(), *accounts):
            imports, held.imports_end_s = imports_in_effect(held.claims, self._claims_of, self._signs, now_s)
            self._due_s = min(self._due_s, held.due_s)
            config = account_config(held.claims, imports)
            if config != held.config:
                held.config = config
                changed[held.name] = held
        if self.keeper is not None and changed:
            self.keeper.configure([held.config for held in changed.values()])

    def _importers_of(self, exporters: list[ActiveAccount]) -> list[ActiveAccount]:
        """Return the other accounts that import from some."""
        names = {name for held in exporters for name in self._importers.get(held.name, ())}
        return [self._held[name] for name in sorted(names - {held.name for held in exporters})]

    def _claims_of(self, name: str) -> AccountClaims | None:
        held = self._held.get(name)
        return held.claims if held is not None else None

    def _signs(self, account: str, key: str) -> bool:
        held = self._held.get(account)
        return held is not None and key in held.signers
