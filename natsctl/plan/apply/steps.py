"""What each kind of change sends. Every step may be repeated: what it finds done is done.

A creation that finds an equal asset is done, one that finds another is a conflict, and so is an update, a replacement
or a removal of what is no longer as the plan found it. In a dry run a step raises DryRunError with its requests.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from msgspec import structs

from natsctl.api.err_codes import ErrCode
from natsctl.api.errors import ApiResponseError, NatsctlError
from natsctl.client.message import DryRunError, Planned
from natsctl.plan.apply.conflict import check_not_replaced, check_unchanged, gone, made_otherwise
from natsctl.plan.apply.execution import Done
from natsctl.plan.apply.sent import merged_config, wanted_config
from natsctl.plan.change import Action, Change
from natsctl.plan.planner.compare import moment

if TYPE_CHECKING:
    from natsctl.client.manager import Manager
    from natsctl.client.requests import Answer

T = TypeVar("T")

BY_OTHERS = "had been done already"
PAUSES_S = (0.05, 0.1, 0.2, 0.4)
"""Pauses before a stream is requested again that the server could not store."""
_ABSENT = frozenset((ErrCode.STREAM_NOT_FOUND, ErrCode.CONSUMER_NOT_FOUND))
_EXISTS = frozenset((ErrCode.STREAM_NAME_EXIST, ErrCode.CONSUMER_ALREADY_EXISTS))


class Keeper(Protocol):
    """Replacement of a stream that keeps its messages."""

    async def replace(self, change: Change, live: dict[str, Any]) -> Done:
        """Replace the stream; `live` is its information."""


class Steps:
    """Requests for changes on a connection, which may differ from step to step; without `keeper` messages are lost."""

    def __init__(self, manager: Callable[[], Manager], keeper: Keeper | None = None) -> None:
        self._manager, self._keeper = manager, keeper
        self._carried_over: set[str] = set()
        """Streams that were replaced and have their consumers back."""
        self._ways = {
            Action.CREATE: self._create,
            Action.UPDATE: self._update,
            Action.REPLACE: self._replace,
            Action.DELETE: self._delete,
            Action.NONE: self._leave,
        }

    async def take(self, change: Change) -> Done:
        """Make one change.

        Raises PlanConflictError, ApiResponseError, UnreachableError or any other error that prevents it.
        """
        return await self._ways[change.action](change)

    async def _leave(self, change: Change) -> Done:
        return Done()

    async def _create(self, change: Change) -> Done:
        begun = time.monotonic()
        try:
            answer = await self._send(change, wanted_config(change), "create")
        except ApiResponseError as failure:
            if failure.err_code not in _EXISTS:
                raise
            live = await self._live(change)
            if live is None:
                raise
            if change.consumer and change.stream in self._carried_over:
                return await self._bring_round(change, live)
            raise made_otherwise(change, live.get("config") or {}) from failure
        if change.stream not in self._carried_over and _was_there(answer, time.monotonic() - begun):
            return Done(BY_OTHERS, by_others=True)
        return Done()

    async def _bring_round(self, change: Change, live: dict[str, Any]) -> Done:
        """Change a consumer that came back with its stream, in place if the server does that."""
        try:
            await self._send(change, merged_config(change, live.get("config") or {}), "update")
        except ApiResponseError:
            await self._remake(change)
            return Done("made anew", (f"{change.key} starts from its beginning: it could not be changed in place",))
        return Done("changed as it came back with its stream")

    async def _update(self, change: Change) -> Done:
        live = await self._live(change)
        if live is None:
            raise gone(change)
        config = live.get("config") or {}
        check_not_replaced(change, config)
        if not check_unchanged(change, config):
            return Done(BY_OTHERS, by_others=True)
        requests: list[Coroutine[Any, Any, Any]] = [self._send(change, merged_config(change, config), "update")]
        if any(one.path == "pause_until" for one in change.differences):
            requests.append(self._pause(change))
        await _in_turn(*requests)
        return Done()

    async def _pause(self, change: Change) -> None:
        """Start or end a pause: an update of a consumer leaves it unchanged."""
        until = (change.config or {}).get("pause_until") or ""
        await self._manager().consumer_pause(change.stream, change.consumer, until)

    async def _replace(self, change: Change) -> Done:
        live = await self._live(change)
        if live is None:
            raise gone(change)
        check_not_replaced(change, live.get("config") or {})
        if not check_unchanged(change, live.get("config") or {}):
            return Done(BY_OTHERS, by_others=True)
        if self._keeper is not None and not change.consumer:
            done = await self._keeper.replace(change, live)
            self._carried_over.add(change.stream)
            return done
        await _to_the_end(self._remake(change))
        return Done()

    async def _remake(self, change: Change) -> None:
        """Remove and create; if the creation is refused, the old asset is created again, empty."""
        await _in_turn(self._remove(change), self._make_anew(change))

    async def _make_anew(self, change: Change) -> None:
        try:
            await self._send(change, wanted_config(change), "create")
        except ApiResponseError as failure:
            failure.hint = await self._made_again(change) or failure.hint
            raise

    async def _made_again(self, change: Change) -> str:
        before = structs.replace(change, config=change.before)
        try:
            await self._send(before, wanted_config(before), "create")
        except NatsctlError as failure:
            return f"{change.key} is removed, and could not be made again as it was: {failure}"
        lost = "from its beginning" if change.consumer else "without its messages"
        return f"{change.key} is there again as it was configured before, {lost}"

    async def _delete(self, change: Change) -> Done:
        live = await self._live(change)
        if live is None:
            return Done("was gone already", by_others=True)
        check_not_replaced(change, live.get("config") or {})
        check_unchanged(change, live.get("config") or {})
        try:
            await self._remove(change)
        except ApiResponseError as failure:
            if failure.err_code not in _ABSENT:
                raise
            return Done("was gone already", by_others=True)
        return Done()

    async def _live(self, change: Change) -> dict[str, Any] | None:
        """Return the information about the asset, None if there is none."""
        manager = self._manager()
        asked: Awaitable[Answer[Any]] = (
            manager.consumer_info(change.stream, change.consumer)
            if change.consumer
            else manager.stream_info(change.stream)
        )
        try:
            return (await asked).raw
        except ApiResponseError as failure:
            if failure.err_code not in _ABSENT:
                raise
            return None

    async def _send(self, change: Change, config: dict[str, Any], action: str) -> dict[str, Any]:
        """Send a configuration, and return the server's answer."""
        manager = self._manager()
        if change.consumer:
            return (await manager.consumer_create(change.stream, config, action=action)).raw
        if action == "update":
            return (await manager.stream_update(config)).raw
        return await _created(manager, config)

    async def _remove(self, change: Change) -> None:
        manager = self._manager()
        if change.consumer:
            await manager.consumer_delete(change.stream, change.consumer)
        else:
            await manager.stream_delete(change.stream)


def _was_there(answer: dict[str, Any], took_s: float) -> bool:
    """Return whether an asset is older than its request, by the times in the answer.

    `did_create` does not answer this: servers also set it for an equal stream that existed.
    """
    created, now = moment(answer.get("created")), moment(answer.get("ts"))
    return isinstance(created, int) and isinstance(now, int) and created > 0 and now - created > took_s * 1e9


async def _created(manager: Manager, config: dict[str, Any]) -> dict[str, Any]:
    """Create a stream; retried while the server cannot store it yet.

    nats-server removes an account's folder after it has answered that its last stream is gone, and with it the folder
    of one that is being created.
    """
    for pause_s in PAUSES_S:
        try:
            return (await manager.stream_create(config)).raw
        except ApiResponseError as failure:
            if failure.err_code != ErrCode.STREAM_CREATE:
                raise
        await asyncio.sleep(pause_s)
    return (await manager.stream_create(config)).raw


async def _in_turn(*requests: Coroutine[Any, Any, Any]) -> None:
    """Send the requests one after the other; in a dry run raise DryRunError with all of them."""
    left, planned = list(requests), list[Planned]()
    try:
        while left:
            try:
                await left.pop(0)
            except DryRunError as preview:
                planned += preview.planned
    finally:
        for request in left:
            request.close()
    if planned:
        raise DryRunError(*planned)


async def _to_the_end(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of work that must finish once it has started, even if this task is cancelled."""
    task = asyncio.create_task(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        return await task
