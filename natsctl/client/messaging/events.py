"""Subjects and filters of events."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from natsctl.api.errors import NatsctlError, UsageError
from natsctl.api.subjects import ADVISORY_PREFIX, METRIC_PREFIX

if TYPE_CHECKING:
    from natsctl.client.connection import Connection

SOURCES: dict[str, tuple[str, ...]] = {
    "js_advisory": (f"{ADVISORY_PREFIX}.>",),
    "js_metric": (f"{METRIC_PREFIX}.>",),
    "srv_advisory": (
        "$SYS.ACCOUNT.*.CONNECT",
        "$SYS.ACCOUNT.*.DISCONNECT",
        "$SYS.SERVER.*.CLIENT.AUTH.ERR",
        "$SYS.ACCOUNT.*.SERVER.CONNS",
    ),
}
"""The subjects of each kind of events; server events only reach the system account."""
SYSTEM_ONLY = "srv_advisory"


_WHO = "$SYS.REQ.SERVER.PING.IDZ"
_WHO_S = 1.0


async def gets_server_events(connection: Connection) -> bool:
    """Return whether this is the system account: servers identify themselves only there."""
    try:
        return not (await connection.request(_WHO, timeout_s=_WHO_S)).status
    except NatsctlError:
        return False


def chosen(asked: Mapping[str, bool | None]) -> list[str]:
    """Return the chosen kinds: the requested ones, else all that were not excluded."""
    wanted = [kind for kind, said in asked.items() if said]
    return wanted or [kind for kind, said in asked.items() if said is not False]


@dataclass(frozen=True, slots=True)
class EventFilter:
    pattern: re.Pattern[str] | None = None
    types: tuple[str, ...] = ()
    stream: str = ""
    consumer: str = ""

    def passes(self, payload: bytes, event: Mapping[str, Any] | None) -> bool:
        """Return whether the event passes; `event` is its payload as an object, if it is one."""
        if self.pattern is not None and not self.pattern.search(payload.decode("utf-8", "replace")):
            return False
        fields = event or {}
        if self.types and not any(_is_type(str(fields.get("type", "")), one) for one in self.types):
            return False
        return (not self.stream or fields.get("stream") == self.stream) and (
            not self.consumer or fields.get("consumer") == self.consumer
        )


def make_filter(pattern: str, types: Sequence[str], consumer: str) -> EventFilter:
    """Return the filter of the command line's values; `consumer` is NAME or STREAM.NAME. Raises UsageError."""
    stream, _, name = consumer.rpartition(".")
    try:
        compiled = re.compile(pattern, re.IGNORECASE | re.DOTALL) if pattern else None
    except re.error as failure:
        raise UsageError(f"--filter: {failure}") from failure
    return EventFilter(compiled, tuple(types), stream, name)


def _is_type(kind: str, wanted: str) -> bool:
    """Return whether an event's type is the wanted one: whole, its last word, or with * and ?."""
    return fnmatchcase(kind, wanted) or fnmatchcase(kind.rpartition(".")[2], wanted)
