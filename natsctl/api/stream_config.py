"""Normalisation and validation of stream configurations, and the fields that an update may change.

`CHECKS` has nats-server's order, so the same one of two mistakes is reported. Source:
docs/compatibility.md#stream-configuration and docs/compatibility.md#stream-updates.

Mirrors and sources of this account are checked: their messages must fit, and no stream may be its own origin.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable
from typing import Final

import msgspec

from natsctl.api.catalogue import ApiError, error
from natsctl.api.codec import go_quote
from natsctl.api.errors import ErrCode
from natsctl.api.stream import (
    DiscardPolicy,
    RetentionPolicy,
    StreamConfig,
    StreamConsumerSource,
    StreamSource,
    SubjectTransform,
)
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
    finding_fault,
    invalid,
    pedantry,
    settle_limits,
    settle_markers,
    settle_placement,
    settle_replicas,
    settle_republish,
    settle_schedules,
    settle_subjects,
    settle_window,
)
from natsctl.api.subject_index import Steps, SubjectIndex, cost_of, finish, first_covered, first_overlap
from natsctl.api.subjects import API_PREFIX, is_asset_name, is_literal, is_valid_subject, overlaps

MAX_ORIGINS: Final = 10_000
"""Streams that the search for a cycle looks at; more than that feed nothing that could be served."""

MAPPING_COST: Final = 8
"""Cost of the check of one transform, in subjects."""
SOURCE_COST: Final = 2
"""Cost of the check of one source."""

_SEPARATE: Final = (
    ("first_seq", ErrCode.MIRROR_WITH_FIRST_SEQ),
    ("subjects", ErrCode.MIRROR_WITH_SUBJECTS),
    ("sources", ErrCode.MIRROR_WITH_SOURCES),
    ("allow_msg_counter", ErrCode.MIRROR_WITH_COUNTERS),
    ("allow_atomic", ErrCode.MIRROR_WITH_ATOMIC_PUBLISH),
    ("allow_batched", ErrCode.MIRROR_WITH_BATCH_PUBLISH),
    ("allow_msg_schedules", ErrCode.MIRROR_WITH_MSG_SCHEDULES),
)
"""Fields that a mirror cannot have, being a copy, and the error for each."""


def settle_mirror(draft: Draft) -> Steps[ApiError | None]:
    """Check a mirror; it answers direct gets if its origin does."""
    config, mirror = draft.config, draft.config.mirror
    if mirror is None:
        return None
    code = next((code for name, code in _SEPARATE if getattr(config, name)), 0)
    if code:
        return error(code)
    if mirror.consumer is not None and _is_bad_consumer(mirror, mirror.consumer):
        return error(ErrCode.MIRROR_DURABLE_CONSUMER_CFG_INVALID)
    if mirror.filter_subject and mirror.subject_transforms:
        return error(ErrCode.MIRROR_MULTIPLE_FILTERS_NOT_ALLOWED)
    if config.subject_delete_marker_ttl > 0:
        return invalid("subject delete markers forbidden on mirrors")
    refusal = yield from _check_mirror_transforms(mirror.subject_transforms)
    return refusal or _settle_mirror_origin(draft, mirror)


def _settle_mirror_origin(draft: Draft, mirror: StreamSource) -> ApiError | None:
    if mirror.external is not None:
        return None
    if not is_asset_name(mirror.name):
        return error(ErrCode.MIRROR_INVALID_STREAM_NAME)
    origin = draft.origin(mirror.name)
    if origin is None:
        return None
    if 0 < draft.config.max_msg_size < origin.max_msg_size:
        return error(ErrCode.MIRROR_MAX_MESSAGE_SIZE_TOO_BIG)
    if draft.pedantic and draft.config.mirror_direct != origin.allow_direct:
        return pedantry("origin stream has direct get set, mirror has it disabled")
    draft.config.mirror_direct = origin.allow_direct
    return None


def _check_mirror_transforms(transforms: list[SubjectTransform]) -> Steps[ApiError | None]:
    overlap = yield from first_overlap([transform.src for transform in transforms])
    for place, transform in enumerate(transforms):
        if transform.src and not is_valid_subject(transform.src):
            return error(ErrCode.MIRROR_INVALID_SUBJECT_FILTER, err=f"invalid subject {transform.src}")
        fault = yield from finding_fault(transform.src, transform.dest)
        if fault:
            return error(ErrCode.MIRROR_INVALID_TRANSFORM_DESTINATION, err=fault)
        if overlap is not None and place == overlap[0]:
            return error(ErrCode.MIRROR_OVERLAPPING_SUBJECT_FILTERS)
        yield MAPPING_COST * cost_of(transform.src + transform.dest)
    return None


def _is_bad_consumer(source: StreamSource, consumer: StreamConsumerSource) -> bool:
    """Return whether an existing consumer cannot be used for sourcing."""
    if not is_asset_name(consumer.name) or not is_valid_subject(consumer.deliver_subject):
        return True
    if not is_literal(consumer.deliver_subject):
        return True
    return bool(source.opt_start_seq or source.opt_start_time is not None or source.filter_subject)


def check_sources(draft: Draft) -> Steps[ApiError | None]:
    """Check each source, and that no two are the same."""
    config = draft.config
    if config.sources and config.allow_msg_schedules:
        return error(ErrCode.SOURCE_WITH_MSG_SCHEDULES)
    seen: set[object] = set()
    consumers: set[object] = set()
    for source in config.sources:
        if not is_asset_name(source.name):
            return error(ErrCode.SOURCE_INVALID_STREAM_NAME)
        if _identity(source) in seen:
            return error(ErrCode.SOURCE_DUPLICATE_DETECTED)
        seen.add(_identity(source))
        refusal = yield from _check_source(draft, source, consumers)
        if refusal is not None:
            return refusal
        yield SOURCE_COST
    return None


def _identity(source: StreamSource) -> object:
    """Return the identity of a source: its origin, and its subjects with their destinations."""
    api = source.external.api if source.external is not None else None
    consumer = source.consumer.name if source.consumer is not None else None
    wanted = source.subject_transforms or [SubjectTransform(src=source.filter_subject)]
    return (source.name, api, consumer, *((each.src or ">", each.dest or ">") for each in wanted))


def _check_source(draft: Draft, source: StreamSource, consumers: set[object]) -> Steps[ApiError | None]:
    if source.filter_subject and source.subject_transforms:
        return error(ErrCode.SOURCE_MULTIPLE_FILTERS_NOT_ALLOWED)
    refusal = yield from _check_source_transforms(source.subject_transforms)
    if refusal is not None:
        return refusal
    if source.consumer is not None:
        if _is_bad_consumer(source, source.consumer):
            return error(ErrCode.SOURCE_DURABLE_CONSUMER_CFG_INVALID)
        used = (source.name, source.external.api if source.external is not None else None, source.consumer.name)
        if used in consumers:
            return error(ErrCode.SOURCE_DURABLE_CONSUMER_DUPLICATE_DETECTED)
        consumers.add(used)
    origin = draft.origin(source.name) if source.external is None else None
    if origin is not None and 0 < draft.config.max_msg_size < origin.max_msg_size:
        return error(ErrCode.SOURCE_MAX_MESSAGE_SIZE_TOO_BIG)
    return None


def _check_source_transforms(transforms: list[SubjectTransform]) -> Steps[ApiError | None]:
    for transform in transforms:
        if transform.src and not is_valid_subject(transform.src):
            return error(ErrCode.SOURCE_INVALID_SUBJECT_FILTER, err=f"invalid subject {transform.src}")
        fault = yield from finding_fault(transform.src, transform.dest)
        if fault:
            return error(ErrCode.SOURCE_INVALID_TRANSFORM_DESTINATION, err=fault)
        yield MAPPING_COST * cost_of(transform.src + transform.dest)
    first = yield from first_covered([transform.src for transform in transforms])
    return error(ErrCode.SOURCE_OVERLAPPING_SUBJECT_FILTERS) if first is not None else None


def check_prefixes(draft: Draft) -> Steps[ApiError | None]:
    """Check the subjects that lead to streams of other accounts and domains."""
    origins = ([draft.config.mirror] if draft.config.mirror is not None else []) + draft.config.sources
    external = [each.external for each in origins if each.external is not None]
    if not external:
        return None
    subjects: list[str] = []
    for name in dict.fromkeys(each.name for each in origins if each.external is None):
        origin = draft.origin(name)
        subjects += [subject for subject in origin.subjects if ">" in subject] if origin is not None else ()
        yield 1
    refusal = yield from _check_deliveries([each.deliver for each in external if each.deliver], subjects)
    return refusal or (yield from _check_apis([each.api for each in external if each.api]))


def _check_deliveries(prefixes: Iterable[str], subjects: list[str]) -> Steps[ApiError | None]:
    """Refuse a prefix under which a subject would be delivered to itself; only one that ends in `>` can be."""
    index: SubjectIndex[int] = SubjectIndex()
    for place, subject in enumerate(subjects):
        index.add(subject.encode(), place)
        yield cost_of(subject)
    for prefix in prefixes:
        if not is_valid_subject(prefix) or not is_literal(prefix):
            return error(ErrCode.STREAM_INVALID_EXTERNAL_DELIVERY_SUBJ, prefix=prefix)
        candidates: list[int] = []
        for places in index.meeting(f"{prefix}.>".encode()):
            candidates += places
            yield cost_of(prefix) + index.take_cost()
        for candidate in sorted(candidates):
            if overlaps(subjects[candidate], f"{prefix}.{subjects[candidate]}"):
                return error(ErrCode.STREAM_EXTERNAL_DEL_PREFIX_OVERLAPS, prefix=prefix, subject=subjects[candidate])
            yield cost_of(subjects[candidate])
    return None


def _check_apis(prefixes: Iterable[str]) -> Steps[ApiError | None]:
    for prefix in prefixes:
        if not is_valid_subject(prefix) or not is_literal(prefix):
            return invalid(f"stream external api prefix {go_quote(prefix)} must be a valid subject without wildcards")
        if overlaps(prefix, API_PREFIX):
            return error(ErrCode.STREAM_EXTERNAL_API_OVERLAP, prefix=prefix, subject=API_PREFIX)
        yield cost_of(prefix)
    return None


def check_cycles(draft: Draft) -> Steps[ApiError | None]:
    """Refuse a stream that would feed itself, directly or through others."""
    waiting, known = deque([draft.config]), {draft.config.name}
    visited: set[str] = set()

    def visit(name: str) -> None:
        origin = draft.origin(name) if name not in known and len(known) < MAX_ORIGINS else None
        if origin is not None:
            known.add(name)
            waiting.append(origin)

    while waiting:
        config = waiting.popleft()
        visited.add(config.name)
        captured: SubjectIndex[str] | None = None
        for source in config.sources:
            yield 1
            if source.external is not None:
                continue
            if source.name not in visited:
                visit(source.name)
                continue
            if captured is None:
                captured = SubjectIndex()
                for subject in dict.fromkeys(config.subjects):
                    captured.add(subject.encode(), subject)
                    yield cost_of(subject)
            if not source.filter_subject:
                return invalid("detected cycle")
            for meeting in captured.meeting(source.filter_subject.encode()):
                if meeting:
                    return invalid("detected cycle")
                yield captured.take_cost()
        mirror = config.mirror
        if mirror is not None and mirror.external is None:
            if mirror.name in visited:
                return invalid("detected cycle")
            visit(mirror.name)
    return None


def check_filters(config: StreamConfig) -> ApiError | None:
    """Refuse filters of a new stream that are no subjects; an update takes them, as nats-server does."""
    mirror = config.mirror
    if mirror is not None and mirror.filter_subject and not is_valid_subject(mirror.filter_subject):
        return error(
            ErrCode.STREAM_CREATE, err=f"subject filter '{mirror.filter_subject}' for the mirror invalid subject"
        )
    for source in config.sources:
        wanted = source.filter_subject
        if not source.subject_transforms and wanted and not is_valid_subject(wanted):
            return error(ErrCode.STREAM_CREATE, err=f"subject filter '{wanted}' for the source: invalid subject")
    return None


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
