"""Validation of normalised consumer configurations.

The order of `CHECKS` is that of nats-server: of two mistakes a client gets the same one. Source:
docs/compatibility.md#consumer-configuration.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

from natsctl.api.catalogue import ApiError, error
from natsctl.api.codec import go_quote
from natsctl.api.config.consumer_config import (
    FLOW_CONTROL_HEARTBEAT_NS,
    ConsumerBounds,
    filters_of,
    is_durable,
    needs_ack,
)
from natsctl.api.consumer import AckPolicy, ConsumerConfig, DeliverPolicy, PriorityPolicy
from natsctl.api.err_codes import ErrCode
from natsctl.api.model import INT64_MAX
from natsctl.api.stream import RetentionPolicy, StreamConfig
from natsctl.api.subjects import has_wildcard, is_asset_name, is_subset, is_valid_subject
from natsctl.api.units import MILLISECOND, format_duration

MIN_HEARTBEAT_NS: Final = 100 * MILLISECOND
MAX_DESCRIPTION_BYTES: Final = 4096
MAX_METADATA_BYTES: Final = 128 * 1024

_BAD_NAME: Final = "can not contain '.', '*', '>', '\\', '/'"
_GROUP_NAME: Final = re.compile(r"[a-zA-Z0-9/_=-]{1,16}")

Check: TypeAlias = "Callable[[ConsumerConfig, StreamConfig, ConsumerBounds], ApiError | None]"


def check(config: ConsumerConfig, stream: StreamConfig, bounds: ConsumerBounds) -> ApiError | None:
    """Return why a normalised config is refused, or None."""
    found = (step(config, stream, bounds) for step in CHECKS)
    return next((refusal for refusal in found if refusal is not None), None)


def _check_names(config: ConsumerConfig, stream: StreamConfig, bounds: ConsumerBounds) -> ApiError | None:
    if config.name and not is_asset_name(config.name):
        return error(ErrCode.STREAM_INVALID_CONFIG, err=f"consumer name {_BAD_NAME}")
    if config.durable_name and not is_asset_name(config.durable_name):
        return error(ErrCode.STREAM_INVALID_CONFIG, err=f"consumer durable name {_BAD_NAME}")
    return None


def _check_replicas(config: ConsumerConfig, stream: StreamConfig, bounds: ConsumerBounds) -> ApiError | None:
    if config.num_replicas > stream.num_replicas:
        return error(ErrCode.CONSUMER_REPLICAS_EXCEEDS_STREAM)
    if config.num_replicas < 0:
        return error(ErrCode.REPLICAS_COUNT_CANNOT_BE_NEGATIVE)
    if stream.retention is not RetentionPolicy.LIMITS and config.num_replicas not in (0, stream.num_replicas):
        return error(ErrCode.CONSUMER_REPLICAS_SHOULD_MATCH_STREAM)
    return None


def _check_waits(config: ConsumerConfig, stream: StreamConfig, bounds: ConsumerBounds) -> ApiError | None:
    if any(wait < 0 for wait in config.backoff):
        return error(ErrCode.CONSUMER_BACK_OFF_NEGATIVE)
    return error(ErrCode.CONSUMER_ACK_WAIT_NEGATIVE) if config.ack_wait < 0 else None


def _check_flow_acks(config: ConsumerConfig, stream: StreamConfig, bounds: ConsumerBounds) -> ApiError | None:
    """Acks that are flow control answers need a consumer that asks for such answers and waits for nothing else."""
    if config.ack_policy is not AckPolicy.FLOW_CONTROL:
        return None
    if not config.deliver_subject:
        return error(ErrCode.CONSUMER_ACK_FC_REQUIRES_PUSH)
    if not config.flow_control:
        return error(ErrCode.CONSUMER_ACK_FC_REQUIRES_FC)
    if config.idle_heartbeat != FLOW_CONTROL_HEARTBEAT_NS:
        return error(ErrCode.STREAM_INVALID_CONFIG, err="flow control ack policy heartbeat needs to be 1s")
    if config.max_ack_pending <= 0:
        return error(ErrCode.CONSUMER_ACK_FC_REQUIRES_MAX_ACK_PENDING)
    if config.ack_wait or config.backoff:
        return error(ErrCode.CONSUMER_ACK_FC_REQUIRES_NO_ACK_WAIT)
    return error(ErrCode.CONSUMER_ACK_FC_REQUIRES_NO_MAX_DELIVER) if config.max_deliver > 0 else None


def _check_texts(config: ConsumerConfig, stream: StreamConfig, bounds: ConsumerBounds) -> ApiError | None:
    if config.backoff and config.max_deliver != -1 and len(config.backoff) > config.max_deliver:
        return error(ErrCode.CONSUMER_MAX_DELIVER_BACKOFF)
    if len(config.description.encode()) > MAX_DESCRIPTION_BYTES:
        return error(ErrCode.CONSUMER_DESCRIPTION_TOO_LONG, max=MAX_DESCRIPTION_BYTES)
    return None


def _check_delivery(config: ConsumerConfig, stream: StreamConfig, bounds: ConsumerBounds) -> ApiError | None:
    return _check_push(config, stream) if config.deliver_subject else _check_pull(config, stream, bounds)


def _check_push(config: ConsumerConfig, stream: StreamConfig) -> ApiError | None:
    to = config.deliver_subject
    if has_wildcard(to):
        return error(ErrCode.CONSUMER_DELIVER_TO_WILDCARDS)
    if not is_valid_subject(to):
        return error(ErrCode.CONSUMER_INVALID_DELIVER_SUBJECT)
    if any(is_subset(to, subject) for subject in stream.subjects):
        return error(ErrCode.CONSUMER_DELIVER_CYCLE)
    if config.max_waiting:
        return error(ErrCode.CONSUMER_PUSH_MAX_WAITING)
    if config.max_ack_pending > 0 and not needs_ack(config):
        return error(ErrCode.CONSUMER_MAX_PENDING_ACK_POLICY_REQUIRED)
    return error(ErrCode.CONSUMER_SMALL_HEARTBEAT) if 0 < config.idle_heartbeat < MIN_HEARTBEAT_NS else None


def _check_pull(config: ConsumerConfig, stream: StreamConfig, bounds: ConsumerBounds) -> ApiError | None:
    refused = (
        (not needs_ack(config) and stream.retention is RetentionPolicy.WORKQUEUE, ErrCode.CONSUMER_PULL_REQUIRES_ACK),
        (config.rate_limit_bps > 0, ErrCode.CONSUMER_PULL_WITH_RATE_LIMIT),
        (config.idle_heartbeat > 0, ErrCode.CONSUMER_HB_REQUIRES_PUSH),
        (config.flow_control, ErrCode.CONSUMER_FC_REQUIRES_PUSH),
        (0 < config.max_expires < MILLISECOND, ErrCode.CONSUMER_MAX_REQUEST_EXPIRES_TOO_SMALL),
    )
    code = next((code for bad, code in refused if bad), 0)
    if code:
        return error(code)
    if 0 < bounds.max_request_batch < config.max_batch:
        return error(ErrCode.CONSUMER_MAX_REQUEST_BATCH_EXCEEDED, limit=bounds.max_request_batch)
    return None


def _check_limits(config: ConsumerConfig, stream: StreamConfig, bounds: ConsumerBounds) -> ApiError | None:
    limits = stream.consumer_limits
    for limit in (bounds.server_max_ack_pending, bounds.max_ack_pending, limits.max_ack_pending):
        if 0 < limit < config.max_ack_pending:
            return error(ErrCode.CONSUMER_MAX_PENDING_ACK_EXCESS, limit=limit)
    if 0 < limits.inactive_threshold < config.inactive_threshold:
        return error(ErrCode.CONSUMER_INACTIVE_THRESHOLD_EXCESS, limit=format_duration(limits.inactive_threshold))
    return None


def _check_direct(config: ConsumerConfig, stream: StreamConfig, bounds: ConsumerBounds) -> ApiError | None:
    if not config.direct:
        return None
    if not config.deliver_subject:
        return error(ErrCode.CONSUMER_DIRECT_REQUIRES_PUSH)
    return error(ErrCode.CONSUMER_DIRECT_REQUIRES_EPHEMERAL) if is_durable(config) else None


def _check_filters(config: ConsumerConfig, stream: StreamConfig, bounds: ConsumerBounds) -> ApiError | None:
    if config.filter_subject and config.filter_subjects:
        return error(ErrCode.CONSUMER_DUPLICATE_FILTER_SUBJECTS)
    filters = filters_of(config)
    if not all(filters):
        return error(ErrCode.CONSUMER_EMPTY_FILTER)
    patterns = _tree_of([subject for subject in filters if "*" in subject or ">" in subject])
    twice = {subject for subject, times in Counter(filters).items() if times > 1}
    for subject in filters:
        if not is_valid_subject(subject):
            return error(ErrCode.STREAM_INVALID_CONFIG, err="invalid subject")
        if subject in twice or _is_covered(subject, patterns):
            return error(ErrCode.CONSUMER_OVERLAPPING_SUBJECT_FILTERS)
    return None


def _tree_of(patterns: Iterable[str]) -> dict[str, Any]:
    """Return patterns as a tree of their tokens; what ends at a node stands there under ""."""
    root: dict[str, Any] = {}
    for pattern in patterns:
        node = root
        for token in pattern.split("."):
            node = node.setdefault(token, {})
        node[""] = pattern
    return root


def _is_covered(subject: str, patterns: dict[str, Any]) -> bool:
    """Return whether another pattern of a tree covers `subject` (`is_subset`, for hundreds of filters)."""
    level = [patterns]
    for token in subject.split("."):
        if any(node[">"].get("", subject) != subject for node in level if ">" in node):
            return True
        steps = {token, "*"} - {">"} if token != ">" else set()
        level = [node[step] for node in level for step in steps if step in node]
    return any(node.get("", subject) != subject for node in level)


_POLICY_TEXT: Final = {
    DeliverPolicy.ALL: "all",
    DeliverPolicy.LAST: "last",
    DeliverPolicy.LAST_PER_SUBJECT: "last per subject",
    DeliverPolicy.NEW: "new",
    DeliverPolicy.BY_START_SEQUENCE: "by start sequence",
    DeliverPolicy.BY_START_TIME: "by start time",
}


def _check_start(config: ConsumerConfig, stream: StreamConfig, bounds: ConsumerBounds) -> ApiError | None:
    fault = _start_fault(config)
    if not fault:
        return None
    return error(
        ErrCode.CONSUMER_INVALID_POLICY,
        err=f"consumer delivery policy is deliver {_POLICY_TEXT[config.deliver_policy]}, but {fault}",
    )


def _start_fault(config: ConsumerConfig) -> str:
    """Return what is wrong between the deliver policy and the start it needs or cannot have, or ""."""
    policy, seq, at = config.deliver_policy, config.opt_start_seq, config.opt_start_time
    if policy is DeliverPolicy.BY_START_SEQUENCE:
        if not seq:
            return "optional start sequence is not set"
        return "" if at is None else "optional start time is also set"
    if policy is DeliverPolicy.BY_START_TIME:
        if at is None:
            return "optional start time is not set"
        return "optional start start sequence is also set" if seq else ""
    if seq:
        return "optional start sequence is also set"
    if at is not None:
        return "optional start time is also set"
    unfiltered = policy is DeliverPolicy.LAST_PER_SUBJECT and not filters_of(config)
    return "optional filter subject is not set" if unfiltered else ""


def _check_sampling(config: ConsumerConfig, stream: StreamConfig, bounds: ConsumerBounds) -> ApiError | None:
    fault = sampling_fault(config.sample_freq)
    return error(ErrCode.CONSUMER_INVALID_SAMPLING, err=fault) if fault else None


def sampling_fault(text: str) -> str:
    """Return Go's text for a sample_freq that is no whole number with an optional percent sign, "" for a good one."""
    digits = text.removesuffix("%")
    if not text:
        return ""
    sign = digits[:1] in ("+", "-")
    if not digits[sign:].isascii() or not digits[sign:].isdigit():
        return f"strconv.Atoi: parsing {go_quote(digits)}: invalid syntax"
    if not -INT64_MAX - 1 <= int(digits) <= INT64_MAX:
        return f"strconv.Atoi: parsing {go_quote(digits)}: value out of range"
    return "<nil>" if int(digits) < 0 else ""


def _check_rest(config: ConsumerConfig, stream: StreamConfig, bounds: ConsumerBounds) -> ApiError | None:
    if config.flow_control and not config.idle_heartbeat:
        return error(ErrCode.CONSUMER_WITH_FLOW_CONTROL_NEEDS_HEARTBEATS)
    if config.durable_name and config.name and config.name != config.durable_name:
        return error(ErrCode.CONSUMER_CREATE_DURABLE_AND_NAME_MISMATCH)
    if sum(len(k.encode()) + len(v.encode()) for k, v in config.metadata.items()) > MAX_METADATA_BYTES:
        return error(ErrCode.CONSUMER_METADATA_LENGTH, limit=f"{MAX_METADATA_BYTES // 1024}KB")
    return None


def _check_priority(config: ConsumerConfig, stream: StreamConfig, bounds: ConsumerBounds) -> ApiError | None:
    if config.priority_policy in (None, PriorityPolicy.NONE):
        if config.priority_groups:
            return error(ErrCode.CONSUMER_PRIORITY_GROUP_WITH_POLICY_NONE)
        return error(ErrCode.CONSUMER_PINNED_TTL_WITHOUT_PRIORITY_POLICY_NONE) if config.priority_timeout > 0 else None
    if config.deliver_subject:
        return error(ErrCode.CONSUMER_PUSH_WITH_PRIORITY_GROUP)
    if not config.priority_groups:
        return error(ErrCode.CONSUMER_PRIORITY_POLICY_WITHOUT_GROUP)
    for group in config.priority_groups:
        if not group:
            return error(ErrCode.CONSUMER_EMPTY_GROUP_NAME)
        if not _GROUP_NAME.fullmatch(group):
            return error(ErrCode.CONSUMER_INVALID_GROUP_NAME)
    return None


CHECKS: Final[tuple[Check, ...]] = (
    _check_names,
    _check_replicas,
    _check_waits,
    _check_flow_acks,
    _check_texts,
    _check_delivery,
    _check_limits,
    _check_direct,
    _check_filters,
    _check_start,
    _check_sampling,
    _check_rest,
    _check_priority,
)
