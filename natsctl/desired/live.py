"""The live state of an account: every stream and consumer with its configuration, as the server returns it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from natsctl.api import endpoints
from natsctl.api.errors import ApiResponseError, ErrCode, NotAuthorisedError
from natsctl.client.manager import Manager
from natsctl.client.requests import side_by_side
from natsctl.desired.assets import AssetKey

REQUESTS_AT_ONCE: Final = 64
"""Lists of consumers that are requested concurrently."""
FEW_STREAMS: Final = 16
"""Maximum number of streams to request by name; for more, the whole list is read."""


@dataclass(frozen=True, slots=True)
class LiveAsset:
    """One asset as it is: `config` and `info` are the server's JSON objects, unknown keys and all."""

    key: AssetKey
    info: dict[str, Any]

    @property
    def config(self) -> dict[str, Any]:
        """Its configuration, including metadata added by the server."""
        return dict(self.info.get("config") or {})


@dataclass(frozen=True, slots=True)
class LiveState:
    """An account at one moment; `server` identifies the server, `limits` are its caps (fields of an account's info).

    Consumers are known of the streams that were requested.
    """

    assets: dict[AssetKey, LiveAsset] = field(default_factory=dict)
    server: dict[str, Any] = field(default_factory=dict)
    limits: dict[str, Any] = field(default_factory=dict)
    unreadable: dict[str, str] = field(default_factory=dict)
    """Streams that exist and that the server could not show, each with the reason."""
    now_ns: int = 0
    total: int = 0
    """The number of streams and consumers of the account, as the server counts them."""


async def read_live_state(manager: Manager, streams: Collection[str] | None = None) -> LiveState:
    """Return the account with all its streams and consumers, or with these streams and their consumers only."""
    account, (infos, unreadable) = await asyncio.gather(_account(manager), _streams(manager, streams))
    assets = {AssetKey(name): LiveAsset(AssetKey(name), info) for name, info in infos.items()}
    peopled = [name for name, info in infos.items() if (info.get("state") or {}).get("consumer_count", 1)]
    for found in await side_by_side(partial(_consumers, manager), peopled, REQUESTS_AT_ONCE):
        assets |= {live.key: live for live in found}
    said = manager.connection.info
    server = {name: said[name] for name in ("server_name", "version", "server_id") if said.get(name)}
    server |= {"api_level": account["api"]["level"]} if (account.get("api") or {}).get("level") else {}
    limits = {**(account.get("limits") or {}), **({"tiers": account["tiers"]} if account.get("tiers") else {})}
    total = max(len(assets), int(account.get("streams") or 0) + int(account.get("consumers") or 0))
    return LiveState(assets, server, limits, unreadable, time.time_ns(), total)


async def _account(manager: Manager) -> dict[str, Any]:
    """Return the account's info; an empty one where the user may not request it."""
    try:
        return (await manager.account_info()).raw
    except NotAuthorisedError:
        return {}


async def _streams(
    manager: Manager, wanted: Collection[str] | None
) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Return the info of streams by name, and the reasons why existing streams are not shown."""
    if wanted is not None and len(wanted) <= FEW_STREAMS:
        return await _each_stream(manager, wanted)
    pages = await manager.requests.pages(endpoints.STREAM_LIST, "streams")
    infos = {str(info["config"]["name"]): info for page in pages for info in page.get("streams") or ()}
    absent = {str(name) for page in pages for name in [*(page.get("missing") or ()), *(page.get("offline") or ())]}
    if wanted is not None:
        infos = {name: info for name, info in infos.items() if name in wanted}
        absent &= set(wanted)
    more, unreadable = await _each_stream(manager, absent - infos.keys())
    return infos | more, unreadable


async def _each_stream(manager: Manager, names: Collection[str]) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    found: dict[str, dict[str, Any]] = {}
    unreadable: dict[str, str] = {}

    async def ask(name: str) -> None:
        try:
            found[name] = (await manager.stream_info(name)).raw
        except ApiResponseError as failure:
            if failure.err_code != ErrCode.STREAM_NOT_FOUND:
                unreadable[name] = failure.text

    await asyncio.gather(*(ask(name) for name in sorted(names)))
    return {name: found[name] for name in sorted(found)}, unreadable


async def _consumers(manager: Manager, stream: str) -> list[LiveAsset]:
    """Return the consumers of a stream, or an empty list if it no longer exists."""
    try:
        pages = await manager.requests.pages(endpoints.CONSUMER_LIST, "consumers", stream)
    except ApiResponseError as failure:
        if failure.err_code == ErrCode.STREAM_NOT_FOUND:
            return []
        raise
    infos = [info for page in pages for info in page.get("consumers") or ()]
    for name in [str(name) for page in pages for name in page.get("missing") or ()]:
        try:
            infos.append((await manager.consumer_info(stream, name)).raw)  # a leader may have been elected by now
        except ApiResponseError as failure:
            if failure.err_code != ErrCode.CONSUMER_NOT_FOUND:
                failure.hint = failure.hint or f"the server could not show consumer {stream} > {name}"
                raise
    return [LiveAsset(AssetKey(stream, str(info["name"])), info) for info in infos]
