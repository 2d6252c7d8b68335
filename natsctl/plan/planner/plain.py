"""Tells without models that an asset is as its document says, where both are plain: most are, most of the time.

A field is plain where a server keeps it as it is given and makes nothing of other fields by it. What is not plain, or
not equal at first sight, is left to the comparison of settled configurations, which alone tells differences.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from natsctl.plan import labels
from natsctl.plan.asset import AssetKey
from natsctl.plan.planner.compare import same
from natsctl.plan.planner.settle import ConfigRefused, Surroundings, settled

Config = Mapping[str, Any]

STREAM: Final = frozenset(
    (
        "name", "description", "subjects", "retention", "max_consumers", "max_msgs", "max_bytes", "max_age",
        "max_msgs_per_subject", "max_msg_size", "discard", "storage", "num_replicas", "no_ack", "duplicate_window",
        "compression", "allow_direct", "discard_new_per_subject", "deny_delete", "deny_purge", "allow_rollup_hdrs",
        "allow_msg_ttl", "allow_atomic", "allow_batched", "metadata",
    )
)  # fmt: skip
CONSUMER: Final = frozenset(
    (
        "name", "durable_name", "description", "deliver_policy", "ack_policy", "ack_wait", "max_deliver",
        "filter_subject", "filter_subjects", "replay_policy", "rate_limit_bps", "sample_freq", "max_waiting",
        "max_ack_pending", "flow_control", "headers_only", "max_batch", "max_expires", "max_bytes", "deliver_subject",
        "deliver_group", "idle_heartbeat", "inactive_threshold", "mem_storage", "metadata",
    )
)  # fmt: skip
_NAMES: Final = frozenset(("name", "durable_name", "metadata"))
_OF_NO_STREAM: Final = AssetKey("natsctl")


class Plain:
    """Knows what servers of one account fill in for plain assets."""

    def __init__(self, limits: Config, stream_config: Callable[[str], Config | None]) -> None:
        self._around = Surroundings(limits=limits)
        self._stream_config = stream_config
        self._filled: dict[tuple[Any, ...], dict[str, Any] | None] = {}

    def is_so(self, key: AssetKey, live: Config, config: Config) -> bool:
        """Whether a live asset is what a document asks for, labels aside; False where that is not plain to see."""
        filled = self._consumer(key, config) if key.consumer else self._stream(config)
        if filled is None or not _same_metadata(live, config):
            return False
        for name, value in config.items():
            if name not in _NAMES and not _equal(name, value, live.get(name)):
                return False
        return all(
            name in _NAMES or name in config or _equal(name, filled.get(name), value) for name, value in live.items()
        )

    def _stream(self, config: Config) -> Config | None:
        if not config.keys() <= STREAM or not config.get("subjects"):
            return None
        age_ns = config.get("max_age") or 0
        return self._kept((age_ns,), _OF_NO_STREAM, {"subjects": ["natsctl"], "max_age": age_ns})

    def _consumer(self, key: AssetKey, config: Config) -> Config | None:
        stream = self._stream_config(key.stream)
        if not config.keys() <= CONSUMER or stream is None or stream.get("consumer_limits"):
            return None
        if config.get("ack_policy") == "flow_control" or (stream.get("num_replicas") or 1) != 1:
            return None
        durable = bool(config.get("durable_name") or not config.get("name"))
        kind = {name: config[name] for name in ("deliver_subject", "ack_policy") if config.get(name)}
        sort = (durable, bool(kind.get("deliver_subject")), kind.get("ack_policy"))
        if "deliver_subject" in kind:
            kind["deliver_subject"] = "natsctl.plain"
        return self._kept(sort, AssetKey("natsctl", "plain"), kind | ({} if durable else {"name": "plain"}))

    def _kept(self, sort: tuple[Any, ...], key: AssetKey, config: Config) -> Config | None:
        """What a server makes of an asset of one sort, made once."""
        if sort not in self._filled:
            try:
                self._filled[sort] = settled(key, config, self._around)
            except ConfigRefused:
                self._filled[sort] = None
        return self._filled[sort]


def _equal(name: str, one: Any, other: Any) -> bool:
    return one == other or same(name, one, other)


def _same_metadata(live: Config, config: Config) -> bool:
    has = live.get("metadata") or {}
    own = {
        name: value
        for name, value in has.items()
        if name not in labels.LABELS and not name.startswith(labels.SERVER_MADE)
    }
    return own == (config.get("metadata") or {})
