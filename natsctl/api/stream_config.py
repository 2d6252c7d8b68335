"""Normalisation and validation of stream configurations, and the fields that an update may change.

`CHECKS` has nats-server's order, so that of two mistakes the same one is reported. Source:
docs/compatibility.md#stream-configuration and docs/compatibility.md#stream-updates.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

import msgspec

from natsctl.api.catalogue import ApiError, error
from natsctl.api.errors import ErrCode
from natsctl.api.source_rules import check_cycles, check_prefixes, check_sources, settle_mirror
from natsctl.api.stream import DiscardPolicy, RetentionPolicy, StreamConfig
from natsctl.api.stream_rules import (
    Check,
    Draft,
    check_age,
    check_bytes,
    check_counter,
    check_discard_per_subject,
    check_name,
    check_persistence,
    check_rollups,
    check_size,
    check_transform,
    invalid,
    settle_limits,
    settle_markers,
    settle_placement,
    settle_replicas,
    settle_republish,
    settle_schedules,
    settle_subjects,
    settle_window,
)
from natsctl.api.subject_index import Steps, finish

CHECKS: Final[tuple[Check, ...]] = (
    check_name,
    check_size,
    settle_replicas,
    settle_limits,
    check_age,
    settle_window,
    check_rollups,
    check_counter,
    check_discard_per_subject,
    settle_markers,
    settle_schedules,
    check_persistence,
    settle_mirror,
    check_sources,
    check_prefixes,
    check_cycles,
    settle_subjects,
    check_bytes,
    check_transform,
    settle_republish,
    settle_placement,
)


def refusal_of(check: Check, draft: Draft) -> ApiError | None:
    """Return why one check refuses a draft, or None."""
    refusal = check(draft)
    return finish(refusal) if isinstance(refusal, Generator) else refusal


def settle(draft: Draft) -> ApiError | None:
    """Do what `settling` does in one go."""
    return finish(settling(draft))


def settling(draft: Draft) -> Steps[ApiError | None]:
    """Normalise a configuration in place; return why it is refused, or None."""
    for check in CHECKS:
        refusal = check(draft)
        if isinstance(refusal, Generator):
            refusal = yield from refusal
        if refusal is not None:
            return refusal
    return None


def copy(config: StreamConfig) -> StreamConfig:
    """Return an independent copy."""
    return msgspec.convert(msgspec.to_builtins(config), StreamConfig)


def check_update(old: StreamConfig, new: StreamConfig) -> ApiError | None:
    """Return why the change from `old` to `new`, both normalised, is refused, or None."""
    for refused, text in _first_changes(old, new):
        if refused:
            return invalid(f"stream configuration update can not {text}")
    if new.mirror is not None and new.mirror != old.mirror:
        return error(ErrCode.STREAM_MIRROR_NOT_UPDATABLE)
    for refused, text in _last_changes(old, new):
        if refused:
            return invalid(text)
    return None


def _first_changes(old: StreamConfig, new: StreamConfig) -> tuple[tuple[bool, str], ...]:
    queue = RetentionPolicy.WORKQUEUE in (old.retention, new.retention)
    return (
        (old.storage is not new.storage, "change storage type"),
        (queue and old.retention is not new.retention, "change retention policy to/from workqueue"),
        (old.sealed and not new.sealed, "unseal a sealed stream"),
        (old.deny_delete and not new.deny_delete, "cancel deny message deletes"),
        (old.deny_purge and not new.deny_purge, "cancel deny purge"),
    )


def _last_changes(old: StreamConfig, new: StreamConfig) -> tuple[tuple[bool, str], ...]:
    counter = old.allow_msg_counter is not new.allow_msg_counter
    schedules = old.allow_msg_schedules and not new.allow_msg_schedules
    persistence = old.persist_mode is not new.persist_mode
    return (
        (old.allow_msg_ttl and not new.allow_msg_ttl, "message TTL status can not be disabled"),
        (counter, "stream configuration update can not change message counter setting"),
        (schedules, "message schedules can not be disabled"),
        (persistence, "stream configuration update can not change persist mode"),
    )


def seal(config: StreamConfig) -> None:
    """Set the fields of a sealed stream."""
    config.max_age = 0
    config.discard = DiscardPolicy.NEW
    config.deny_delete = config.deny_purge = True
    config.allow_rollup_hdrs = False
