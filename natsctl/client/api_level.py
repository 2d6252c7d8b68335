"""Which JetStream API level a configuration needs, and whether the server has it: asked before, not found out after.

Servers below a level ignore the fields that came with it, so a request that has them names the level in a header, by
which a server that knows the header refuses; one that does not is asked for its level first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from natsctl.api.errors import NatsctlError, NotAuthorisedError

if TYPE_CHECKING:
    from natsctl.client.manager import Manager

REQUIRED_LEVEL: Final = "Nats-Required-Api-Level"

STREAM_LEVELS: Final[dict[str, int]] = {
    "allow_msg_ttl": 1,
    "subject_delete_marker_ttl": 1,
    "allow_atomic": 2,
    "allow_msg_counter": 2,
    "allow_msg_schedules": 2,
    "persist_mode": 2,
    "allow_batched": 3,
    "mirror.consumer": 4,
    "sources.consumer": 4,
}
"""The level that a field of a stream came with; fields of level 0 are left out.

Source: docs/compatibility.md#flags-and-fields.
"""

CONSUMER_LEVELS: Final[dict[str, int]] = {
    "pause_until": 1,
    "priority_policy": 1,
    "priority_groups": 1,
    "priority_timeout": 1,
}
"""The same for consumers."""


_UNSET: Final[tuple[Any, ...]] = (None, False, 0, "", "default", [], {})
"""What a field may be without asking for anything."""


class Need(NamedTuple):
    """A level, and the field that needs it."""

    level: int
    field: str


def need(config: Any, levels: Mapping[str, int]) -> Need:
    """The highest level that a field which is set needs; level 0 and no field where none does."""
    plain = config if isinstance(config, Mapping) else msgspec.to_builtins(config)
    needs = [Need(level, path) for path, level in levels.items() if _is_set(plain, path)]
    return max(needs, default=Need(0, ""), key=lambda one: one.level)


async def check_level(manager: Manager, config: Any, levels: Mapping[str, int], what: str) -> dict[str, str] | None:
    """The headers that the request has to carry; raises NatsctlError where the server is too old for a field."""
    needed = need(config, levels)
    if not needed.level:
        return None
    try:
        has = (await manager.account_info()).value.api.level
    except NotAuthorisedError:
        has = needed.level  # who may not ask relies on the header
    if has < needed.level:
        version = manager.connection.info.get("version", "")
        raise NatsctlError(
            f"{what}: {needed.field} needs JetStream API level {needed.level}, the server {version} has {has}",
            hint="leave the field out, or use a newer server",
        )
    return {REQUIRED_LEVEL: str(needed.level)}


def _is_set(value: Any, path: str) -> bool:
    head, _, rest = path.partition(".")
    if not rest:
        return isinstance(value, Mapping) and value.get(head) not in _UNSET
    below = value.get(head) if isinstance(value, Mapping) else None
    return any(_is_set(one, rest) for one in (below if isinstance(below, list) else [below]))
