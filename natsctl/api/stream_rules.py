"""Rules for the fields of a stream configuration. Source: docs/compatibility.md#stream-configuration.

Plain fields are names, sizes, limits, window, subjects and placement. Features set requirements on other fields:
counters, markers, schedules, persistence, mappings. Each check corrects its fields of a draft in place and returns the
error of a refusal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import msgspec

from natsctl.api.catalogue import ApiError, error
from natsctl.api.codec import go_quote
from natsctl.api.errors import ErrCode
from natsctl.api.stream import DiscardPolicy, PersistMode, Placement, RetentionPolicy, StorageType, StreamConfig
from natsctl.api.subject_index import STEP, Steps, cost_of, first_overlap
from natsctl.api.subject_transform import SubjectMapping, TransformError, checking_mapping
from natsctl.api.subjects import (
    MAX_NAME_BYTES,
    is_asset_name,
    is_subset,
    is_too_long,
    is_valid_subject,
    overlaps,
    tokens_overlap,
)
from natsctl.api.units import MILLISECOND, MINUTE, SECOND, format_duration


def no_origin(name: str) -> StreamConfig | None:
    """Return None: no other stream of the account is known."""
    return None


def no_limits(config: StreamConfig) -> ApiError | None:
    """Return why the account refuses the size of a stream: here it never does."""
    return None


class Draft(msgspec.Struct, kw_only=True):
    """A configuration that is to be accepted, and the limits it is checked against; checks change `config` in place."""

    config: StreamConfig
    pedantic: bool = False
    """Refuse values that would have to be corrected."""
    max_window_ns: int = 0
    """Largest duplicate window of the server; 0: no limit."""
    origin: Callable[[str], StreamConfig | None] = no_origin
    refuse_bytes: Callable[[StreamConfig], ApiError | None] = no_limits


Check: TypeAlias = "Callable[[Draft], ApiError | Steps[ApiError | None] | None]"
"""Steps come from a check of something that there may be very many of."""


def invalid(text: str) -> ApiError:
    """Return the error of a configuration that is refused."""
    return error(ErrCode.STREAM_INVALID_CONFIG, err=text)


def pedantry(text: str) -> ApiError:
    """Return the error of a pedantic request for a value that would be corrected."""
    return error(ErrCode.PEDANTIC, err=text)


DEFAULT_DUPLICATE_WINDOW_NS: Final = 2 * MINUTE
MIN_AGE_NS: Final = 100 * MILLISECOND
MAX_DESCRIPTION_BYTES: Final = 4096
MAX_METADATA_BYTES: Final = 128 * 1024
MAX_REPLICAS: Final = 5

_UNLIMITED: Final = ("max_msgs", "max_msgs_per_subject", "max_bytes", "max_msg_size", "max_consumers")


def check_name(draft: Draft) -> ApiError | None:
    """Refuse names that can be no token."""
    name = draft.config.name
    if not is_asset_name(name):
        return invalid("stream name is required and can not contain '.', '*', '>', '\\', '/'")
    if "\0" in name:  # nats-server finds no file name for it
        return error(ErrCode.STREAM_CREATE, err="error creating store for stream")
    if is_too_long(name):
        return invalid(f"stream name is too long, maximum allowed is {MAX_NAME_BYTES}")
    return None


def check_size(draft: Draft) -> ApiError | None:
    """Refuse descriptions and metadata that are too long."""
    config = draft.config
    if len(config.description.encode()) > MAX_DESCRIPTION_BYTES:
        return invalid(f"stream description is too long, maximum allowed is {MAX_DESCRIPTION_BYTES}")
    if sum(len(k.encode()) + len(v.encode()) for k, v in config.metadata.items()) > MAX_METADATA_BYTES:
        return invalid(f"stream metadata exceeds maximum size of {MAX_METADATA_BYTES} bytes")
    return None


def settle_replicas(draft: Draft) -> ApiError | None:
    """Make no replicas one."""
    config = draft.config
    config.num_replicas = config.num_replicas or 1
    if config.num_replicas > MAX_REPLICAS:
        return invalid(f"maximum replicas is {MAX_REPLICAS}")
    return error(ErrCode.REPLICAS_COUNT_CANNOT_BE_NEGATIVE) if config.num_replicas < 0 else None


def settle_limits(draft: Draft) -> ApiError | None:
    """Make every limit that limits nothing -1."""
    for name in _UNLIMITED:
        value = getattr(draft.config, name)
        if value < -1 and draft.pedantic:
            return pedantry(f"{name} must be set to -1")
        if value == 0 or value < -1:
            setattr(draft.config, name, -1)
    return None


def check_age(draft: Draft) -> ApiError | None:
    """Refuse ages that expiry cannot keep."""
    if draft.config.max_age < 0:
        return invalid("max age can not be negative")
    return invalid("max age needs to be >= 100ms") if 0 < draft.config.max_age < MIN_AGE_NS else None


def settle_window(draft: Draft) -> ApiError | None:
    """Give a stream that clients publish to a duplicate window."""
    config, most_ns = draft.config, draft.max_window_ns
    if not config.duplicate_window and config.mirror is None and not config.sources:
        refusal = _default_window(draft)
        if refusal is not None:
            return refusal
    window_ns = config.duplicate_window
    if window_ns < 0:
        return invalid("duplicates window can not be negative")
    if 0 < config.max_age < window_ns:
        return invalid("duplicates window can not be larger then max age")
    if 0 < most_ns < window_ns:
        return invalid(f"duplicates window can not be larger then server limit of {format_duration(most_ns)}")
    if 0 < window_ns < MIN_AGE_NS:
        return invalid("duplicates window needs to be >= 100ms")
    return None


def _default_window(draft: Draft) -> ApiError | None:
    config, window_ns = draft.config, DEFAULT_DUPLICATE_WINDOW_NS
    if 0 < draft.max_window_ns < window_ns:
        if draft.pedantic:
            return pedantry("duplicate window limits are higher than current limits")
        window_ns = draft.max_window_ns
    if 0 < config.max_age < window_ns:
        if draft.pedantic:
            return pedantry("duplicate window cannot be bigger than max age")
        window_ns = config.max_age
    config.duplicate_window = window_ns
    return None


def check_rollups(draft: Draft) -> ApiError | None:
    """Refuse roll-ups if purging is denied."""
    both = draft.config.deny_purge and draft.config.allow_rollup_hdrs
    return invalid("roll-ups require the purge permission") if both else None


def check_discard_per_subject(draft: Draft) -> ApiError | None:
    """Refuse discard per subject without the fields that it depends on."""
    config = draft.config
    if config.discard_new_per_subject:
        if config.discard is not DiscardPolicy.NEW:
            return invalid("discard new per subject requires discard new policy to be set")
        if config.max_msgs_per_subject <= 0:
            return invalid("discard new per subject requires max msgs per subject > 0")
    return None


def settle_subjects(draft: Draft) -> Steps[ApiError | None]:
    """Set the subjects to the stream's name where subjects, mirror and sources are absent."""
    config = draft.config
    if not config.subjects and config.mirror is None and not config.sources:
        config.subjects = [config.name]
        return None
    overlap = yield from first_overlap(config.subjects)
    cost = 0
    for place, subject in enumerate(config.subjects):
        if not is_valid_subject(subject):
            return invalid("invalid subject")
        refusal = _check_space(config, subject)
        if refusal is not None:
            return refusal
        if overlap is not None and place == overlap[0]:
            return invalid(f"subject {go_quote(subject)} overlaps with {go_quote(config.subjects[overlap[1]])}")
        cost += cost_of(subject)
        if cost >= STEP:
            yield cost
            cost = 0
    return None


def _check_space(config: StreamConfig, subject: str) -> ApiError | None:
    """Refuse to acknowledge the server's own messages."""
    if config.no_ack:
        wide = subject == ">" and config.num_replicas != 1
        return invalid("capturing all subjects requires replicas of 1") if wide else None
    if subject[:1] not in ("$", "*", ">"):
        return None
    if subject == ">":
        return invalid("capturing all subjects requires no-ack to be true")
    api = any(overlaps(subject, space) for space in ("$JS.>", "$JSC.>", "$NRG.>"))
    if api and not is_subset(subject, "$JS.EVENT.>"):
        return invalid("subjects that overlap with jetstream api require no-ack to be true")
    if overlaps(subject, "$SYS.>") and not is_subset(subject, "$SYS.ACCOUNT.>"):
        return invalid("subjects that overlap with system api require no-ack to be true")
    return None


def check_bytes(draft: Draft) -> ApiError | None:
    """Refuse a size that the account does not allow one stream."""
    return draft.refuse_bytes(draft.config)


def settle_placement(draft: Draft) -> ApiError | None:
    """Drop a placement that says nothing."""
    config = draft.config
    if config.placement == Placement():
        config.placement = None
    if config.placement is not None and config.placement.preferred:
        return invalid("preferred server not permitted in placement")
    return None


MIN_MARKER_TTL_NS: Final = SECOND


def check_counter(draft: Draft) -> ApiError | None:
    """Refuse to count in a stream that loses or invents messages."""
    config = draft.config
    if not config.allow_msg_counter:
        return None
    if config.discard is DiscardPolicy.NEW:
        return invalid("counter stream cannot use discard new")
    if config.allow_msg_ttl:
        return invalid("counter stream cannot use message TTLs")
    if config.allow_msg_schedules:
        return invalid("counter stream cannot use message schedules")
    if config.retention is not RetentionPolicy.LIMITS:
        return invalid("counter stream can only use limits retention")
    return None


def settle_markers(draft: Draft) -> ApiError | None:
    """Switch on the features that delete markers need."""
    config = draft.config
    if config.subject_delete_marker_ttl < 0:
        return invalid("subject delete marker TTL must not be negative")
    if not config.subject_delete_marker_ttl:
        return None
    if config.subject_delete_marker_ttl < MIN_MARKER_TTL_NS:
        return invalid("subject delete marker TTL must be at least 1 second")
    if not config.allow_msg_ttl:
        if draft.pedantic:
            return invalid("subject delete marker cannot be set if message TTLs are disabled")
        config.allow_msg_ttl = True
    return _need_rollups(draft, "subject delete marker cannot be set if roll-ups are disabled")


def settle_schedules(draft: Draft) -> ApiError | None:
    """Switch on the features that scheduled messages need."""
    if not draft.config.allow_msg_schedules:
        return None
    if draft.config.discard is DiscardPolicy.NEW:
        return invalid("message scheduling cannot use discard new")
    return _need_rollups(draft, "message scheduling cannot be set if roll-ups are disabled")


def _need_rollups(draft: Draft, text: str) -> ApiError | None:
    config = draft.config
    if not config.allow_rollup_hdrs:
        if draft.pedantic:
            return invalid(text)
        config.allow_rollup_hdrs, config.deny_purge = True, False
    return None


def check_persistence(draft: Draft) -> ApiError | None:
    """Refuse asynchronous persistence where other settings need synced messages; the default is not stored."""
    config = draft.config
    if config.persist_mode is not PersistMode.ASYNC:
        config.persist_mode = None
        return None
    if config.storage is not StorageType.FILE:
        return invalid("async persist mode is only supported on file storage")
    if config.num_replicas > 1:
        return invalid("async persist mode is not supported on replicated streams")
    if config.allow_atomic:
        return invalid("async persist mode is not supported with atomic batch publish")
    return None


def check_transform(draft: Draft) -> Steps[ApiError | None]:
    """Refuse a subject transform that maps nothing."""
    transform = draft.config.subject_transform
    if transform is None:
        return None
    if transform.src and not is_valid_subject(transform.src):
        return error(ErrCode.STREAM_TRANSFORM_INVALID_SOURCE, err=f"invalid subject {transform.src}")
    fault = yield from finding_fault(transform.src, transform.dest)
    return error(ErrCode.STREAM_TRANSFORM_INVALID_DESTINATION, err=fault) if fault else None


def finding_fault(src: str, dest: str) -> Steps[str]:
    """Return the fault of a mapping in a configuration, or ""."""
    try:
        yield from checking_mapping(src, dest)
    except TransformError as fault:
        return fault.text
    return ""


def settle_republish(draft: Draft) -> Steps[ApiError | None]:
    """Fill in the source, and the transform's destination where everything is to go out under the new subject."""
    config, republish = draft.config, draft.config.republish
    if republish is None:
        return None
    if not republish.src:
        if draft.pedantic:
            return pedantry("republish source can not be empty")
        republish.src = ">"
    if republish.src == republish.dest == ">" and _maps_the_only_subject(config):
        if draft.pedantic:
            return pedantry("implicit republish based on subject transform")
        assert config.subject_transform is not None
        republish.src = republish.dest = config.subject_transform.dest
    longest = max((subject.count(".") for subject in config.subjects), default=0)
    destination = republish.dest.split(".", longest + 1)
    cost = 0
    for subject in config.subjects:
        if tokens_overlap(destination, subject.split("."), "*", ">"):
            return invalid("stream configuration for republish destination forms a cycle")
        cost += cost_of(subject)
        if cost >= STEP:
            yield cost
            cost = 0
    try:
        yield from SubjectMapping.compiling(republish.src, republish.dest)
    except TransformError:
        return invalid(
            f"stream configuration for republish with transform from '{republish.src}' to '{republish.dest}' not valid"
        )
    return None


def _maps_the_only_subject(config: StreamConfig) -> bool:
    return config.subject_transform is not None and config.subjects == [config.subject_transform.src]
