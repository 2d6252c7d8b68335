"""Streams of an account that are stored and not served: damaged, without some of their files or with files of others,
or written by a newer version.

They are shown with the reason, refuse everything, keep their names, and stay untouched until they are deleted
(STREAM.DELETE), puts back what is missing, or has `natsctl server repair` make a stream of what can be read.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from natsctl.api.catalogue import ApiError, error
from natsctl.api.err_codes import ErrCode
from natsctl.broker.account import GLOBAL_ACCOUNT

if TYPE_CHECKING:
    from natsctl.jetstream.engine_context import DurableChange, EngineContext


class OfflineStreams:
    """The streams of one account that are offline."""

    __slots__ = ("_account", "_engine")

    def __init__(self, engine: EngineContext, account: str) -> None:
        self._engine = engine
        self._account = account

    def reasons(self) -> dict[str, str]:
        """Return why each is not served, by name."""
        found = self._engine.offline
        return {name: found[key] for name, key in sorted(self._keys(found).items())}

    def refusal(self, name: str) -> ApiError:
        """Return the error for a name that is not served: offline where something is stored, else not found."""
        why = self.reasons().get(name)
        return error(ErrCode.STREAM_NOT_FOUND) if why is None else error(ErrCode.STREAM_OFFLINE_REASON, err=why)

    def remove(self, name: str) -> DurableChange:
        """Delete one; `on_durable` of the returned object calls back when it is gone. KeyError for other names."""
        engine = self._engine
        key = self._keys(engine.offline)[name]
        if key in engine.store.damaged:
            return engine.store.discard(key)
        engine.forget_unreadable(key)
        return engine.store.delete(key)

    def _keys(self, keys: Iterable[str]) -> dict[str, str]:
        """Return the store's keys by name; one whose name is lost is listed by its folder, in the global account."""
        found = {}
        for key in keys:
            account, slash, name = key.partition("/")
            if (account if slash else GLOBAL_ACCOUNT) == self._account:
                found[name or key] = key
        return found
