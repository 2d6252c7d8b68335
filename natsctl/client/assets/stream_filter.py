"""Which streams meet criteria: what `stream find` and `stream cluster balance` choose by."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from natsctl.api.errors import UsageError
from natsctl.api.times import is_zero, parse_time
from natsctl.api.versions import LEVEL_KEY, REQUIRED_LEVEL_KEY
from natsctl.client.assets.expression import compile_condition

if TYPE_CHECKING:
    from natsctl.api.stream import StreamInfo
    from natsctl.client.answer import Answer
    from natsctl.client.manager import Manager

STREAMS_AT_ONCE = 8
"""Streams whose consumers are asked for at a time."""


class Found(NamedTuple):
    """A stream that is judged: as the server sent it, typed, when it was last used, and what time it is."""

    raw: Mapping[str, Any]
    info: StreamInfo
    used_ns: int
    now_ns: int


Test = Callable[[Found], bool]


def _pattern(flag: str, text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as failure:
        raise UsageError(f"{flag}: {text!r} is not a regular expression: {failure}") from failure


def servers_of(info: StreamInfo) -> list[str]:
    """The servers that a stream is on, its leader first."""
    cluster = info.cluster
    if cluster is None:
        return []
    return [name for name in (cluster.leader, *(peer.name for peer in cluster.replicas or ())) if name]


def _on_server(text: str) -> Test:
    pattern = _pattern("--server-name", text)
    return lambda one: any(pattern.search(name) for name in servers_of(one.info))


def _in_cluster(text: str) -> Test:
    pattern = _pattern("--cluster", text)
    return lambda one: one.info.cluster is not None and pattern.search(one.info.cluster.name) is not None


def _by_expression(text: str) -> Test:
    condition = compile_condition(text)

    def test(one: Found) -> bool:
        state, config = one.raw.get("state") or {}, one.raw.get("config") or {}
        return condition({"config": config, "state": state, "info": one.raw, "Info": one.raw})

    return test


def level_of(info: StreamInfo) -> int:
    """The API level that a stream's server has, 0 where it does not say."""
    return _number(info, LEVEL_KEY)


def required_level(info: StreamInfo) -> int:
    """The API level that a stream needs."""
    return _number(info, REQUIRED_LEVEL_KEY)


def _number(info: StreamInfo, key: str) -> int:
    text = (info.config.metadata or {}).get(key, "")
    return int(text) if text.isdigit() else 0


CRITERIA: dict[str, Callable[[Any], Test]] = {
    "server_name": _on_server,
    "cluster": _in_cluster,
    "empty": lambda wanted: lambda one: (one.info.state.messages == 0) is wanted,
    "idle": lambda ns: lambda one: one.now_ns - one.used_ns > ns,
    "created": lambda ns: lambda one: one.now_ns - parse_time(one.info.created) > ns,
    "consumers": lambda most: lambda one: most < 0 or one.info.state.consumer_count < most,
    "replicas": lambda most: lambda one: one.info.config.num_replicas <= most,
    "sourced": lambda wanted: lambda one: bool(one.info.config.sources) is wanted,
    "mirrored": lambda wanted: lambda one: (one.info.config.mirror is not None) is wanted,
    "leader": lambda name: lambda one: one.info.cluster is not None and one.info.cluster.leader == name,
    "api_level": lambda least: lambda one: required_level(one.info) >= least,
    "expression": _by_expression,
}
"""A test for each criterion, made of its wanted value. `--subject` is not here: the server selects by it."""


async def matching(
    manager: Manager, streams: Sequence[Answer[StreamInfo]], wanted: Mapping[str, Any], *, invert: bool, now_ns: int
) -> list[Answer[StreamInfo]]:
    """The streams that meet every criterion, or with `invert` the opposite of every one."""
    tests = [CRITERIA[name](value) for name, value in wanted.items()]
    delivered = await _last_deliveries(manager, streams) if "idle" in wanted else {}

    def meets(answer: Answer[StreamInfo]) -> bool:
        info = answer.value
        used_ns = max(_moment(info.state.last_ts), delivered.get(info.config.name, 0), parse_time(info.created))
        found = Found(answer.raw, info, used_ns, now_ns)
        return all(test(found) is not invert for test in tests)

    return [one for one in streams if meets(one)]


def _moment(text: str | None) -> int:
    return 0 if text is None or is_zero(text) else parse_time(text)


async def _last_deliveries(manager: Manager, streams: Sequence[Answer[StreamInfo]]) -> dict[str, int]:
    """When each stream's consumers last delivered, ns since the epoch."""
    room = asyncio.Semaphore(STREAMS_AT_ONCE)

    async def last(stream: str) -> int:
        async with room:
            consumers = await manager.consumer_list(stream)
        return max((_moment(one.value.delivered.last_active) for one in consumers), default=0)

    names = [one.value.config.name for one in streams if one.value.state.consumer_count]
    return dict(zip(names, await asyncio.gather(*(last(name) for name in names)), strict=True))
