"""Requests of each kind of change, and checks that the account is as the plan assumes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import structs

from natsctl.api.consumer import ConsumerConfig
from natsctl.api.errors import ApiResponseError, ConflictError, ErrCode, NatsctlError
from natsctl.api.model import Shape, shape_of
from natsctl.api.stream import StreamConfig
from natsctl.client.asset_config import LABELS
from natsctl.client.message import DryRunError, Planned
from natsctl.desired.apply.execution import Done
from natsctl.desired.apply.holding_stream import is_being_replaced
from natsctl.desired.assets import without_server_made
from natsctl.desired.plan import Action, Change, Difference, differences, moment

if TYPE_CHECKING:
    from natsctl.client.manager import Manager
    from natsctl.client.requests import Answer
    from natsctl.desired.apply.replacement import Replacement


PLAN_AGAIN = "plan again: natsctl plan shows what differs now"
_OF_LABELS = frozenset(f"metadata.{label}" for label in LABELS)


def check_unchanged(change: Change, live: Mapping[str, Any]) -> bool:
    """Return whether an asset is as in the plan; False if all changes of the plan have been made already.

    Raises ConflictError, with the fields, if it is neither.
    """
    found = differences(change.before or {}, without_server_made(live))
    if not found:
        return True
    if _said(found) == _said(change.differences):
        return False
    raise ConflictError(
        f"{change.key} differs from the plan's state: {_fields(found)} changed meanwhile", hint=PLAN_AGAIN
    )


def check_not_replaced(change: Change, live: Mapping[str, Any]) -> None:
    """Raise ConflictError if another process is replacing a stream, or was interrupted in doing so."""
    if not change.consumer and is_being_replaced(live):
        raise ConflictError(
            f"{change.key} is being replaced, or that was interrupted",
            hint="apply again when that has ended: apply finishes an interrupted run",
        )


def made_otherwise(change: Change, live: Mapping[str, Any]) -> ConflictError:
    """Return the error for an asset that exists already, with the fields that differ from the documents."""
    wanted = change.config or {}
    found = differences(wanted, {name: live.get(name) for name in wanted})
    how = f"another {_fields(found)}" if found else "fields that the document leaves out"
    return ConflictError(f"{change.key} was created meanwhile by another client, with {how}", hint=PLAN_AGAIN)


def gone(change: Change) -> ConflictError:
    """Return the error for an asset that was to be changed and does not exist."""
    return ConflictError(f"{change.key} does not exist any more", hint=PLAN_AGAIN)


def _said(found: list[Difference]) -> list[tuple[str, str]]:
    """Return differences as they can be compared; labels are left out, as they only record who made a change."""
    return sorted((one.path, repr(one.new or None)) for one in found if one.path not in _OF_LABELS)


def _fields(found: list[Difference]) -> str:
    return ", ".join(one.path for one in found)


def wanted_config(change: Change) -> dict[str, Any]:
    """Return the desired configuration of the asset, under its name."""
    config = dict(change.config or {})
    if not change.consumer:
        return {**config, "name": change.stream}
    return config if config.get("durable_name") or config.get("name") else {**config, "durable_name": change.consumer}


def merged_config(change: Change, live: Mapping[str, Any]) -> dict[str, Any]:
    """Return the same, with fields of a newer server that the live asset has and no document could mention."""
    shape = shape_of(ConsumerConfig if change.consumer else StreamConfig)
    return _with_unknown(wanted_config(change), live, shape)


def _with_unknown(config: dict[str, Any], live: Mapping[str, Any], shape: Shape) -> dict[str, Any]:
    merged = dict(config)
    for key, value in live.items():
        known = shape.fields.get(key)
        if known is None:
            merged.setdefault(key, value)
        elif known.shape.kind == "struct" and isinstance(merged.get(key), dict) and isinstance(value, Mapping):
            merged[key] = _with_unknown(merged[key], value, known.shape)
        elif known.shape.kind == "list" and known.shape.elements().kind == "struct":
            merged |= _each(key, merged.get(key), value, known.shape.elements())
    return merged


def _each(key: str, ours: Any, theirs: Any, shape: Shape) -> dict[str, Any]:
    """Merge objects of a list pairwise if they have the same position and name."""
    if not isinstance(ours, list) or not isinstance(theirs, list) or len(ours) != len(theirs):
        return {}
    pairs = list(zip(ours, theirs, strict=True))
    if any(one.get("name") != other.get("name") for one, other in pairs):
        return {}
    return {key: [_with_unknown(one, other, shape) for one, other in pairs]}


T = TypeVar("T")

BY_OTHERS = "had been done already"
PAUSES_S = (0.05, 0.1, 0.2, 0.4)
"""Pauses before a stream is requested again that the server could not store."""
_ABSENT = frozenset((ErrCode.STREAM_NOT_FOUND, ErrCode.CONSUMER_NOT_FOUND))
_EXISTS = frozenset((ErrCode.STREAM_NAME_EXIST, ErrCode.CONSUMER_ALREADY_EXISTS))


class Steps:
    """Send requests for changes on the connection of the moment. Without `keeper` a replacement loses messages."""

    def __init__(self, manager: Callable[[], Manager], keeper: Replacement | None = None) -> None:
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

        Raises ConflictError, ApiResponseError, UnreachableError or any other error that prevents it.
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
            return Done("recreated", (f"{change.key} starts from its beginning: it could not be changed in place",))
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
        if any(difference.path == "pause_until" for difference in change.differences):
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
            return Done("was already deleted", by_others=True)
        check_not_replaced(change, live.get("config") or {})
        check_unchanged(change, live.get("config") or {})
        try:
            await self._remove(change)
        except ApiResponseError as failure:
            if failure.err_code not in _ABSENT:
                raise
            return Done("was already deleted", by_others=True)
        return Done()

    async def _live(self, change: Change) -> dict[str, Any] | None:
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

    nats-server removes an account's folder after answering that its last stream is deleted, and with it the folder of
    a stream that is being created.
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
    """Send the requests in order; in a dry run raise DryRunError with all of them."""
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
