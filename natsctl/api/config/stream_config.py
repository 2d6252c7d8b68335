"""Normalisation and validation of stream configurations. Source: docs/compatibility.md#stream-configuration.

The order of `CHECKS` is that of nats-server: of two mistakes a client gets the same one.
"""

from __future__ import annotations

from typing import Final

import msgspec

from natsctl.api.catalogue import ApiError
from natsctl.api.config import feature_config, source_config, stream_check
from natsctl.api.config.stream_draft import Check, Draft
from natsctl.api.stream import StreamConfig

CHECKS: Final[tuple[Check, ...]] = (
    stream_check.check_name,
    stream_check.check_size,
    stream_check.settle_replicas,
    stream_check.settle_limits,
    stream_check.check_age,
    stream_check.settle_window,
    stream_check.check_rollups,
    feature_config.check_counter,
    stream_check.check_discard_per_subject,
    feature_config.settle_markers,
    feature_config.settle_schedules,
    feature_config.check_persistence,
    source_config.settle_mirror,
    source_config.check_sources,
    source_config.check_prefixes,
    source_config.check_cycles,
    stream_check.settle_subjects,
    stream_check.check_bytes,
    feature_config.check_transform,
    feature_config.settle_republish,
    stream_check.settle_placement,
)


def settle(draft: Draft) -> ApiError | None:
    """Normalise a configuration in place; return why it is refused, or None."""
    return next((refusal for refusal in (check(draft) for check in CHECKS) if refusal is not None), None)


def copy(config: StreamConfig) -> StreamConfig:
    """Return an independent copy."""
    return msgspec.convert(msgspec.to_builtins(config), StreamConfig)
