"""Requirements of a stream's features on its other fields: counters, markers, schedules, persistence, mappings.

Each check corrects its fields in place and returns the error of a refusal.
Source: docs/compatibility.md#stream-configuration.
"""

from __future__ import annotations

from typing import Final

from natsctl.api.catalogue import ApiError, error
from natsctl.api.config.stream_draft import Draft, invalid, pedantry
from natsctl.api.err_codes import ErrCode
from natsctl.api.stream import DiscardPolicy, PersistMode, RetentionPolicy, StorageType, StreamConfig
from natsctl.api.subject_transform import SubjectMapping, TransformError, check_mapping
from natsctl.api.subjects import is_valid_subject, overlaps
from natsctl.api.units import SECOND

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
    """Switch on what delete markers are made with."""
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
    """Switch on what scheduled messages need."""
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
    """Refuse acks ahead of the disk where something depends on it; default persistence is not written down."""
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


def check_transform(draft: Draft) -> ApiError | None:
    """Refuse a subject transform that maps nothing."""
    transform = draft.config.subject_transform
    if transform is None:
        return None
    if transform.src and not is_valid_subject(transform.src):
        return error(ErrCode.STREAM_TRANSFORM_INVALID_SOURCE, err=f"invalid subject {transform.src}")
    fault = mapping_fault(transform.src, transform.dest)
    return error(ErrCode.STREAM_TRANSFORM_INVALID_DESTINATION, err=fault) if fault else None


def mapping_fault(src: str, dest: str) -> str:
    """Return what is wrong with a mapping in a configuration, "" where nothing is."""
    try:
        check_mapping(src, dest)
    except TransformError as fault:
        return fault.text
    return ""


def settle_republish(draft: Draft) -> ApiError | None:
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
    if any(overlaps(republish.dest, subject) for subject in config.subjects):
        return invalid("stream configuration for republish destination forms a cycle")
    try:
        SubjectMapping.compile(republish.src, republish.dest)
    except TransformError:
        return invalid(
            f"stream configuration for republish with transform from '{republish.src}' to '{republish.dest}' not valid"
        )
    return None


def _maps_the_only_subject(config: StreamConfig) -> bool:
    return config.subject_transform is not None and config.subjects == [config.subject_transform.src]
