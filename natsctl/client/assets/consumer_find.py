"""Which consumers answer to a description: every condition that was given holds, or with `invert` none of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from natsctl.api.times import is_zero, parse_time
from natsctl.client.assets.expression import compile_condition
from natsctl.client.assets.leaders import leader_of

Info = Mapping[str, Any]
Test = Callable[[Info], bool]

REQUIRED_LEVEL = "_nats.req.level"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is looked for; None, False and "" ask for nothing. Numbers are exclusive but those of replicas."""

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

    def test(self, now_ns: int) -> Test:
        """A function that tells of a consumer's information whether it is wanted. Raises UsageError."""
        tests = list(self._tests(now_ns))
        return lambda info: all(test(info) is not self.invert for test in tests)

    def _tests(self, now_ns: int) -> Iterator[Test]:
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

    def _placed(self) -> Iterator[Test]:
        if self.replicas is not None:
            yield lambda info: copies(info) <= (self.replicas or 0)
        if self.leader:
            yield lambda info: leader_of(info) == self.leader
        if self.pinned:
            yield _pinned
        if self.api_level is not None:
            yield lambda info: api_level(info) >= (self.api_level or 0)
        if self.expression:
            condition = compile_condition(self.expression)
            yield lambda info: condition(scope(info))


def scope(info: Info) -> Mapping[str, Any]:
    """The names that an expression about a consumer may use."""
    return {"config": info.get("config") or {}, "state": info, "info": info, "Info": info}


def copies(info: Info) -> int:
    """How many servers keep the consumer's state."""
    cluster = info.get("cluster") or {}
    return 1 + len(cluster.get("replicas") or ())


def api_level(info: Info) -> int:
    """The API level that the consumer's configuration needs."""
    text = ((info.get("config") or {}).get("metadata") or {}).get(REQUIRED_LEVEL, "")
    return int(text) if str(text).isdigit() else 0


def _push(info: Info) -> bool:
    return bool((info.get("config") or {}).get("deliver_subject"))


def _fewer(field: str, most: int) -> Test:
    return lambda info: int(info.get(field) or 0) < most


def _created_before(moment_ns: int) -> Test:
    return lambda info: parse_time(info["created"]) < moment_ns


def _idle_since(moment_ns: int) -> Test:
    """Whether nothing was delivered since then; what has never delivered anything is idle since it was made."""

    def test(info: Info) -> bool:
        last = (info.get("delivered") or {}).get("last_active")
        return parse_time(info["created"] if is_zero(last) else str(last)) < moment_ns

    return test


def _pinned(info: Info) -> bool:
    """Whether every priority group has its pinned client."""
    groups = (info.get("config") or {}).get("priority_groups") or ()
    pinned = {one.get("group") for one in info.get("priority_groups") or () if one.get("pinned_client_id")}
    return bool(groups) and set(groups) <= pinned
