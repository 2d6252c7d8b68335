"""The accounts that have JetStream, from their creation to their removal.

Theory of operation. The configuration of an account decides who answers its API: its JetStream where it has limits for
it, else a refusal, else (where it imports the API of another account) nothing. Switching JetStream off leaves stored
data in place; switching it on serves that data again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from natsctl.api.account import UNLIMITED, AccountLimits
from natsctl.api.subjects import API_PREFIX, is_subset
from natsctl.jetstream.account import JetStreamAccount
from natsctl.jetstream.domain import map_domain
from natsctl.jetstream.endpoints.dispatcher import Dispatcher
from natsctl.jetstream.endpoints.refused_api import RefusedApi, SystemApi
from natsctl.jetstream.engine_context import EngineContext

if TYPE_CHECKING:
    from natsctl.broker.account import Account

_INFO: Final = f"{API_PREFIX}.INFO"


class AccountHost(EngineContext, Protocol):
    """An engine, as it holds the accounts that have JetStream."""

    accounts: dict[str, JetStreamAccount]

    def adopt(self, account: str) -> None:
        """Recover the streams of an account that JetStream was switched on for."""


class AccountLifecycle:
    """The accounts of one engine, with JetStream and without."""

    __slots__ = ("_engine", "_refusals")

    def __init__(self, engine: AccountHost) -> None:
        """Follow the accounts of the broker."""
        self._engine = engine
        self._refusals: dict[str, RefusedApi] = {}
        engine.broker.on_account_added(self._meet)
        engine.broker.on_account_changed(self.follow)

    def _meet(self, account: Account) -> None:
        domain = self._engine.options.domain
        if domain:
            map_domain(account, domain)
        if account is self._engine.broker.system_account:
            SystemApi(self._engine, account)
        else:
            self.follow(account)

    def limits_of(self, account: Account) -> AccountLimits | None:
        """Return what an account may use, None where it has no JetStream."""
        named = self._engine.options.accounts
        if account is self._engine.broker.system_account or account.name not in self._engine.broker.accounts:
            return None
        return UNLIMITED if named is None else named.get(account.name, account.config.jetstream)

    def follow(self, account: Account) -> None:
        """Switch JetStream on or off for an account, or change its limits, as it is configured now."""
        engine, name = self._engine, account.name
        if account is engine.broker.system_account:
            return
        limits, js = self.limits_of(account), engine.accounts.get(name)
        if limits is None:
            if js is not None and js.account is account:
                del engine.accounts[name]
                js.stop()
            self._refuse(account)
        elif js is not None:
            js.limit(limits)
        else:
            self._admit(account)
            engine.accounts[name] = JetStreamAccount(engine, account, limits, Dispatcher)
            engine.adopt(name)

    def _admit(self, account: Account) -> None:
        refusal = self._refusals.pop(account.name, None)
        if refusal is not None:
            refusal.stop()

    def _refuse(self, account: Account) -> None:
        """Answer the clients of an account that it has no JetStream, unless it imports another account's."""
        here = account.name in self._engine.broker.accounts
        if not here or any(is_subset(_INFO, link.local) for link in account.exchange.services):
            self._admit(account)
        elif account.name not in self._refusals:
            self._refusals[account.name] = RefusedApi(self._engine, account)
