"""The API level that a configuration needs, kept in its metadata, and the levels that answers add.

Only the required level is stored; the answers of create, update and info add the server's version and level.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from natsctl.api.consumer import AckPolicy, ConsumerConfig, ConsumerInfo, PriorityPolicy
from natsctl.api.headers import REQUIRED_API_LEVEL
from natsctl.api.headers import get as header_of
from natsctl.api.stream import PersistMode, StreamConfig, StreamInfo
from natsctl.api.times import is_zero
from natsctl.api.versions import API_LEVEL, LEVEL_KEY, REQUIRED_LEVEL_KEY, VERSION_KEY, is_level_met

C = TypeVar("C", StreamConfig, ConsumerConfig)


def is_refused(header: bytes) -> bool:
    """Return whether a request asks in its header for a level that this server does not have."""
    level = header_of(header, REQUIRED_API_LEVEL) if header else None
    return bool(level) and not is_level_met(level or b"")


def unmet(metadata: dict[str, str]) -> str:
    """Return why a stored configuration is too new for this server, or ""."""
    level = metadata.get(REQUIRED_LEVEL_KEY, "")
    if not level or is_level_met(level):
        return ""
    return f"unsupported - required API level: {level}, current API level: {API_LEVEL}"


def stream_level(config: StreamConfig) -> int:
    if config.allow_batched:
        return 4
    newer = config.allow_msg_counter or config.allow_atomic or config.allow_msg_schedules
    if newer or config.persist_mode is PersistMode.ASYNC:
        return 2
    return 1 if config.allow_msg_ttl or config.subject_delete_marker_ttl > 0 else 0


def consumer_level(config: ConsumerConfig) -> int:
    if config.ack_policy is AckPolicy.FLOW_CONTROL:
        return 4
    policy = config.priority_policy not in (None, PriorityPolicy.NONE)
    grouped = policy or config.priority_timeout != 0 or bool(config.priority_groups)
    return 1 if grouped or not is_zero(config.pause_until) else 0


def stamp(config: StreamConfig | ConsumerConfig) -> None:
    """Write the required level into the metadata, over whatever a client sent under the server's keys."""
    level = stream_level(config) if isinstance(config, StreamConfig) else consumer_level(config)
    _drop_shown(config)
    config.metadata = _in_order({**config.metadata, REQUIRED_LEVEL_KEY: str(level)})


def carry(config: C, stored: C) -> None:
    """Give `config` the level that `stored` has, so that the two can be compared by what clients wrote."""
    _drop_shown(config)
    config.metadata.pop(REQUIRED_LEVEL_KEY, None)
    if REQUIRED_LEVEL_KEY in stored.metadata:
        config.metadata[REQUIRED_LEVEL_KEY] = stored.metadata[REQUIRED_LEVEL_KEY]
    config.metadata = _in_order(config.metadata)


def _drop_shown(config: StreamConfig | ConsumerConfig) -> None:
    for key in (VERSION_KEY, LEVEL_KEY):
        config.metadata.pop(key, None)


def show(info: StreamInfo | ConsumerInfo, version: str) -> None:
    """Add the server's version and level to an answer; the stored configuration stays unchanged."""
    added = {**info.config.metadata, LEVEL_KEY: str(API_LEVEL), VERSION_KEY: version}
    if isinstance(info, StreamInfo):
        info.config = msgspec.structs.replace(info.config, metadata=_in_order(added))
    else:
        info.config = msgspec.structs.replace(info.config, metadata=_in_order(added))


def _in_order(metadata: dict[str, str]) -> dict[str, str]:
    """Return metadata as Go writes maps: sorted by key."""
    return dict(sorted(metadata.items()))
