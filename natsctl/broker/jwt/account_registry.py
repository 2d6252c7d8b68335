"""Accounts with a loaded JWT: the JWTs in force, and their effects on each other.

Theory of operation. An account is activated when a user of it connects or when an active account imports from it; its
JWT is requested from the resolver, checked against the trusted operators, and kept. The broker is configured
(`BrokerAccountSink.configure`) with its claims and the imports that the exporters' claims and the activation
tokens allow, so a change of one account may change the configuration of others: `_apply` checks accounts that import
from it. Accounts that are activated together are configured together, because imports may go round. Nothing here
reads a clock: the caller passes the time, and calls `tick` for what expires.

JWTs may be long, so changes are made in steps, by one job after another (`jobs`). Accounts stay as they were until the
step that gives the broker the new configuration.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

from natsctl.api.jwt_claims import AccountClaims, OperatorClaims, UserScope, decoding
from natsctl.api.jwt_token import JwtError, is_public
from natsctl.api.jwt_validation import CHECKED_AT_ONCE, account_checks, time_faults
from natsctl.api.model import Confidential
from natsctl.api.subject_index import Steps, finish
from natsctl.api.units import SECOND
from natsctl.broker.auth.permissions import SubjectPermissions
from natsctl.broker.deferred_work import LongWork
from natsctl.broker.imports.account_config import AccountConfig
from natsctl.broker.jwt.account_setup import ExportIndex, account_config, imports_in_effect
from natsctl.broker.ordered_jobs import OrderedJobs

if TYPE_CHECKING:
    from natsctl.broker.jwt.authenticator import BrokerAccountSink


class Resolver(Protocol):
    """A source of account JWTs by the accounts' public keys."""

    def fetch(self, account: str) -> str | None:
        """Return the JWT of an account, or None."""


class RemoteResolver(Resolver, Protocol):
    """A resolver that has to ask another server; callers must not wait for it."""

    def fetch_all(self, account: str, known: Collection[str]) -> Any:
        """Fetch an account and the accounts it imports from, except `known`; in any thread, touching nothing else."""

    def take(self, fetched: Any) -> None:
        """Offer what `fetch_all` has returned to `fetch`, until the next call; None: nothing."""


class AccountStoreError(Exception):
    """A store failed; the text has the reason."""


class JwtStore(Resolver, Protocol):
    @property
    def full(self) -> bool:
        """True if it keeps every account, False if only accounts in use."""

    @property
    def may_delete(self) -> bool:
        """True where operators may have accounts deleted."""

    def save(self, account: str, token: str) -> bool:
        """Keep a JWT and return whether it is another than before; raises AccountStoreError."""

    def delete(self, account: str) -> None:
        """Forget an account, if it is there; raises AccountStoreError."""

    def accounts(self) -> list[str]:
        """Return the accounts that are kept."""


class MemoryResolver:
    def __init__(self, preload: Mapping[str, str]) -> None:
        self._preload = dict(preload)

    def fetch(self, account: str) -> str | None:
        return self._preload.get(account)


class Trust(Confidential, frozen=True):
    """The keys that may sign accounts, and what else operators ask for."""

    UNSHOWN: ClassVar = ("sentinel",)

    keys: frozenset[str] = frozenset()
    strict_keys: frozenset[str] = frozenset()
    """Signing keys of operators that also require accounts to sign only with signing keys."""
    operator: str = ""
    """The first operator's own key, empty where keys are trusted without an operator."""
    strict: bool = False
    """The first operator does not sign accounts with its own key."""
    system_account: str = ""
    pinned: frozenset[str] | None = None
    """The only accounts with users that may connect; None: all."""
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

    __slots__ = ("claims", "config", "expired", "imports_end_s", "permissions", "signers", "token", "updated_s")

    def __init__(self, claims: AccountClaims, token: str, *, strict: bool, now_s: int) -> None:
        self.claims = claims
        self.token = token
        self.signers: dict[str, UserScope | None] = claims.signers()
        if not strict:
            self.signers[claims.sub] = None
        self.permissions: dict[str, SubjectPermissions | None] = {}
        """Permissions that users share: the default ones ("") and those of the templates of signing keys."""
        self.updated_s = now_s
        self.expired = 0 < claims.exp <= now_s
        self.config = AccountConfig(claims.sub)
        self.imports_end_s = 0
        """Earliest expiry of an activation token of an import in effect; 0: never."""

    @property
    def name(self) -> str:
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
        self.jobs = OrderedJobs(LongWork())
        """Queue of the work on accounts; the broker's, if there is one."""
        self._held: dict[str, ActiveAccount] = {}
        self._importers: dict[str, set[str]] = {}
        """Importers of an account, active or not."""
        self._due_s = NEVER_S

    @property
    def due_s(self) -> int:
        """Return when `tick` has something to do, in seconds since the epoch."""
        return self._due_s

    def get(self, name: str) -> ActiveAccount | None:
        return self._held.get(name)

    def is_active(self, name: str) -> bool:
        """Return whether an account is alive, and not only until its resolver is asked for a newer JWT."""
        held = self._held.get(name)
        return held is not None and not held.expired

    def needs_fetch(self, name: str, now_ns: int) -> bool:
        """Return whether `look_up` would ask the resolver."""
        held = self._held.get(name)
        if held is None or not held.token:
            return True
        return held.expired and now_ns // SECOND - held.updated_s >= ASK_AGAIN_S

    def names(self) -> frozenset[str]:
        return frozenset(self._held)

    def look_up(self, name: str, now_ns: int) -> Steps[ActiveAccount]:
        """Return an account, loaded from now on; an expired one only if its resolver has a newer JWT.

        Raises JwtError.
        """
        now_s = now_ns // SECOND
        self.tick(now_ns)
        held = self._held.get(name)
        if held is None:
            held = yield from self._fetched(name, now_s)
            yield from self._apply([held], now_s)
        elif held.expired:
            token = self.resolver.fetch(name) if now_s - held.updated_s >= ASK_AGAIN_S else None
            if token is None:
                raise JwtError("account expired")
            yield from self.update(name, token, now_ns)
        return self._held[name]

    def provide(self, claims: AccountClaims, now_ns: int) -> None:
        """Bring an account to life without a JWT, until there is one."""
        held = ActiveAccount(claims, "", strict=False, now_s=now_ns // SECOND)
        finish(self._apply([held], now_ns // SECOND))

    def update(self, name: str, token: str, now_ns: int, faultless: AccountClaims | None = None) -> Steps[None]:
        """Apply a newer JWT of an active account; the same one has no effect. Raises JwtError.

        `faultless` are its claims, if they have been read and `account_faults` found nothing.
        """
        before, now_s = self._held.get(name), now_ns // SECOND
        if before is None or before.token == token:
            return
        held = yield from self._checked(name, token, now_s, faultless)
        yield from self._apply([held], now_s)
        if self.keeper is not None:
            yield from self.keeper.account_changed(held, before)

    def replace_resolver(self, resolver: Resolver, now_ns: int) -> Steps[list[str]]:
        """Ask another resolver for every loaded account; return accounts that it does not know or that are invalid.

        They are unloaded; only the system account stays unchanged.
        """
        self.resolver = resolver
        gone: list[str] = []
        for name in [name for name in self._held if name != self.trust.system_account or resolver.fetch(name)]:
            yield 1
            token = resolver.fetch(name)
            try:
                if token is None:
                    raise JwtError("account missing")
                yield from self.update(name, token, now_ns)
            except JwtError:
                gone.append(name)
                yield from self.forget(name, expired=False)
        return gone

    def forget(self, name: str, *, expired: bool = True) -> Steps[None]:
        """Drop an account: its clients are closed, as `expired` or as not authorized."""
        held = self._held.get(name)
        if held is None:
            return
        self._drop(held)
        if self.keeper is not None:
            yield from self.keeper.account_gone(held, expired)

    def tick(self, now_ns: int) -> None:
        """Handle timers: accounts and activation tokens that expire."""
        now_s = now_ns // SECOND
        if now_s < self._due_s:
            return
        accounts = tuple(self._held.values())
        for held in accounts:
            if not held.expired and 0 < held.claims.exp <= now_s:
                held.expired = True
                if self.keeper is not None:
                    self.jobs.run(self.keeper.account_expired(held))
        if due := [held for held in accounts if 0 < held.imports_end_s <= now_s]:
            for held in due:
                held.imports_end_s = 0
            self.jobs.run(self._apply([], now_s, due))
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

    def _awaken_exporters(self, accounts: dict[str, ActiveAccount], now_s: int) -> Steps[None]:
        """Add to some accounts the unloaded accounts that they import from, recursively."""
        wanted = [item.account for held in accounts.values() for item in held.claims.nats.imports]
        while wanted:
            name = wanted.pop()
            if name in accounts or name in self._held:
                continue
            try:
                held = yield from self._fetched(name, now_s)
            except JwtError:
                continue  # imports from it come into effect once it is loaded
            accounts[name] = held
            wanted += [item.account for item in held.claims.nats.imports]

    def _fetched(self, name: str, now_s: int) -> Steps[ActiveAccount]:
        if not is_public(name, "account"):
            raise JwtError("will only fetch valid account keys")
        token = self.resolver.fetch(name)
        if token is None:
            raise JwtError("account missing")
        return (yield from self._checked(name, token, now_s))

    def _checked(
        self, name: str, token: str, now_s: int, faultless: AccountClaims | None = None
    ) -> Steps[ActiveAccount]:
        claims = faultless or (yield from decoding(token, AccountClaims))
        if claims.iss not in self.trust.keys or claims.sub != name:
            raise JwtError(INVALID)
        for fault in () if faultless is not None else account_checks(claims):
            if fault:
                raise JwtError(INVALID)
            yield CHECKED_AT_ONCE
        if any(time_faults(claims, now_s)):
            raise JwtError(INVALID)
        return ActiveAccount(claims, token, strict=claims.iss in self.trust.strict_keys, now_s=now_s)

    # From accounts to the broker's configuration

    def _apply(
        self, coming: Iterable[ActiveAccount], now_s: int, refreshed: Iterable[ActiveAccount] = ()
    ) -> Steps[None]:
        """Load accounts, new or again, with the accounts they import from; check the imports of `refreshed` again.

        The broker is configured with new and changed accounts.
        """
        accounts = {held.name: held for held in coming}
        yield from self._awaken_exporters(accounts, now_s)
        importers = {name for exporter in accounts for name in self._importers.get(exporter, ())}
        affected = {held.name: held for held in refreshed if self._held.get(held.name) is held}
        affected |= {name: self._held[name] for name in sorted(importers)}
        affected |= accounts
        ends: dict[str, int] = {}
        configs: dict[str, AccountConfig] = {}
        exports: dict[str, ExportIndex] = {}
        for held in affected.values():
            imports, ends[held.name] = yield from imports_in_effect(
                held.claims, partial(self._known, accounts), now_s, exports
            )
            config = yield from account_config(held.claims, imports)
            before = self._held.get(held.name)
            if before is None or config != before.config:
                configs[held.name] = config

        def apply() -> None:
            for held in accounts.values():
                before = self._held.get(held.name)
                if before is not None:
                    held.config = before.config
                    self._drop(before)
                self._hold(held)
            for name, held in affected.items():
                held.config, held.imports_end_s = configs.get(name, held.config), ends[name]
                self._due_s = min(self._due_s, held.due_s)

        if self.keeper is not None and configs:
            yield from self.keeper.configure(tuple(configs.values()), apply)
        else:
            apply()

    def _known(self, coming: Mapping[str, ActiveAccount], name: str) -> ActiveAccount | None:
        return coming.get(name) or self._held.get(name)
