"""Searches for streams and consumers by criteria, as in `stream find`, `consumer find` and `stream cluster balance`.

Every given condition of a consumer search holds, or with `invert` none of them.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from natsctl.api.errors import UsageError
from natsctl.api.times import is_zero, parse_time
from natsctl.api.versions import LEVEL_KEY, REQUIRED_LEVEL_KEY
from natsctl.client.expression import compile_condition

if TYPE_CHECKING:
    from natsctl.api.stream import StreamInfo
    from natsctl.client.manager import Manager
    from natsctl.client.requests import Answer


STREAMS_AT_ONCE = 8
"""Streams whose consumers are asked for at a time."""


class Found(NamedTuple):
    """A stream that is judged: as the server sent it, typed, when it was last used, and what time it is."""

    raw: Mapping[str, Any]
    info: StreamInfo
    used_ns: int
    now_ns: int


StreamTest = Callable[[Found], bool]


def _pattern(flag: str, text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as failure:
        raise UsageError(f"{flag}: {text!r} is not a regular expression: {failure}") from failure


def servers_of(info: StreamInfo) -> list[str]:
    """Return the servers that a stream is on, its leader first."""
    cluster = info.cluster
    if cluster is None:
        return []
    return [name for name in (cluster.leader, *(peer.name for peer in cluster.replicas or ())) if name]


def _on_server(text: str) -> StreamTest:
    pattern = _pattern("--server-name", text)
    return lambda one: any(pattern.search(name) for name in servers_of(one.info))


def _in_cluster(text: str) -> StreamTest:
    pattern = _pattern("--cluster", text)
    return lambda one: one.info.cluster is not None and pattern.search(one.info.cluster.name) is not None


def _by_expression(text: str) -> StreamTest:
    condition = compile_condition(text)

    def test(one: Found) -> bool:
        state, config = one.raw.get("state") or {}, one.raw.get("config") or {}
        return condition({"config": config, "state": state, "info": one.raw, "Info": one.raw})

    return test


def level_of(info: StreamInfo) -> int:
    """Return the API level that a stream's server has, 0 where it does not say."""
    return _number(info, LEVEL_KEY)


def required_level(info: StreamInfo) -> int:
    """Return the API level that a stream needs."""
    return _number(info, REQUIRED_LEVEL_KEY)


def _number(info: StreamInfo, key: str) -> int:
    text = (info.config.metadata or {}).get(key, "")
    return int(text) if text.isdigit() else 0


CRITERIA: dict[str, Callable[[Any], StreamTest]] = {
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
    """Return the streams that meet every criterion, or with `invert` the opposite of every one."""
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
    """Last delivery of each stream's consumers, ns since the epoch."""
    room = asyncio.Semaphore(STREAMS_AT_ONCE)

    async def last(stream: str) -> int:
        async with room:
            consumers = await manager.consumer_list(stream)
        return max((_moment(one.value.delivered.last_active) for one in consumers), default=0)

    names = [one.value.config.name for one in streams if one.value.state.consumer_count]
    return dict(zip(names, await asyncio.gather(*(last(name) for name in names)), strict=True))


Info = Mapping[str, Any]
ConsumerTest = Callable[[Info], bool]

REQUIRED_LEVEL = "_nats.req.level"


@dataclass(frozen=True, slots=True)
class Wanted:
    """Criteria of a search; None, False and "" are not checked. Numbers are exclusive, except those of replicas."""

    pull: bool = False
    push: bool = False
    bound: bool = False
    waiting: int | None = None
    ack_pending: int | None = None
    pending: int | None = None
    idle_ns: int | None = None
    created_ns: int | None = None
    replicas: int | None = None
    leader: str = ""
    pinned: bool = False
    api_level: int | None = None
    expression: str = ""
    invert: bool = False

    def test(self, now_ns: int) -> ConsumerTest:
        """Return the predicate over a consumer's information. Raises UsageError."""
        tests = list(self._tests(now_ns))
        return lambda info: all(test(info) is not self.invert for test in tests)

    def _tests(self, now_ns: int) -> Iterator[ConsumerTest]:
        if self.pull:
            yield lambda info: not _push(info)
        if self.push:
            yield _push
        if self.bound:
            yield lambda info: bool(info.get("push_bound") if _push(info) else info.get("num_waiting"))
        for field, most in (
            ("num_waiting", self.waiting),
            ("num_ack_pending", self.ack_pending),
            ("num_pending", self.pending),
        ):
            if most is not None:
                yield _fewer(field, most)
        if self.idle_ns is not None:
            yield _idle_since(now_ns - self.idle_ns)
        if self.created_ns is not None:
            yield _created_before(now_ns - self.created_ns)
        yield from self._placed()

    def _placed(self) -> Iterator[ConsumerTest]:
        if self.replicas is not None:
            yield lambda info: copies(info) <= (self.replicas or 0)
        if self.leader:
            from natsctl.client.leaders import leader_of  # it imports the models, which a list of names does without

            yield lambda info: leader_of(info) == self.leader
        if self.pinned:
            yield _pinned
        if self.api_level is not None:
            yield lambda info: api_level(info) >= (self.api_level or 0)
        if self.expression:
            condition = compile_condition(self.expression)
            yield lambda info: condition(scope(info))


def scope(info: Info) -> Mapping[str, Any]:
    """Return the names that an expression about a consumer may use."""
    return {"config": info.get("config") or {}, "state": info, "info": info, "Info": info}


def copies(info: Info) -> int:
    """Return how many servers keep the consumer's state."""
    cluster = info.get("cluster") or {}
    return 1 + len(cluster.get("replicas") or ())


def api_level(info: Info) -> int:
    """Return the API level that the consumer's configuration needs."""
    text = ((info.get("config") or {}).get("metadata") or {}).get(REQUIRED_LEVEL, "")
    return int(text) if str(text).isdigit() else 0


def _push(info: Info) -> bool:
    return bool((info.get("config") or {}).get("deliver_subject"))


def _fewer(field: str, most: int) -> ConsumerTest:
    return lambda info: int(info.get(field) or 0) < most


def _created_before(moment_ns: int) -> ConsumerTest:
    return lambda info: parse_time(info["created"]) < moment_ns


def _idle_since(moment_ns: int) -> ConsumerTest:
    """Return whether nothing was delivered since then; what has never delivered anything is idle since it was made."""

    def test(info: Info) -> bool:
        last = (info.get("delivered") or {}).get("last_active")
        return parse_time(info["created"] if is_zero(last) else str(last)) < moment_ns

    return test


def _pinned(info: Info) -> bool:
    """Return whether every priority group has its pinned client."""
    groups = (info.get("config") or {}).get("priority_groups") or ()
    pinned = {one.get("group") for one in info.get("priority_groups") or () if one.get("pinned_client_id")}
    return bool(groups) and set(groups) <= pinned
