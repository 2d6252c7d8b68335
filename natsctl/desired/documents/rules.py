"""Validation of a set of documents by the servers' rules that can be checked offline.

Every configuration is normalised by the rules of natsctl's own server (`api`). Only the assets of the set are known as
neighbours: streams and consumers on the server are not.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from typing import Final, NamedTuple

from natsctl.api.consumer import ConsumerConfig, DeliverPolicy
from natsctl.api.consumer_config import filters_of
from natsctl.api.stream import RetentionPolicy, StreamConfig
from natsctl.api.subject_index import SubjectIndex
from natsctl.api.subjects import MAX_NAME_BYTES, is_too_long, is_valid_subject, overlaps, subject_fault
from natsctl.desired.assets import AssetKey, DesiredAsset
from natsctl.desired.server_defaults import (
    ALONE,
    ConfigRefusedError,
    ServerContext,
    normalised_consumer,
    normalised_stream,
    without_effect,
)


class RuleFinding(NamedTuple):
    """A fault of an asset; `fields` are the fields concerned, the likeliest first."""

    key: AssetKey
    reason: str
    fields: tuple[str, ...] = ()
    warning: bool = False
    """A server accepts it, but it is probably a mistake."""


_ABOUT: Final = (
    (r"stream name|consumer name|durable", ("name", "durable_name")),
    (r"description", ("description",)),
    (r"metadata", ("metadata",)),
    (r"replica", ("num_replicas",)),
    (r"max age|duplicate.? window", ("duplicate_window", "max_age")),
    (r"roll-ups", ("allow_rollup_hdrs", "deny_purge", "subject_delete_marker_ttl", "allow_msg_schedules")),
    (r"discard new per subject", ("discard_new_per_subject",)),
    (r"counter", ("allow_msg_counter",)),
    (r"delete marker|message TTL", ("subject_delete_marker_ttl", "allow_msg_ttl")),
    (r"schedul", ("allow_msg_schedules",)),
    (r"persist", ("persist_mode",)),
    (r"republish", ("republish",)),
    (r"mirror|external", ("mirror", "sources")),
    (r"source|cycle detected|detected cycle", ("sources", "mirror")),
    (r"transform", ("subject_transform",)),
    (r"placement|preferred", ("placement",)),
    (r"deliver subject", ("deliver_subject",)),
    (r"max waiting", ("max_waiting",)),
    (r"max ack pending", ("max_ack_pending",)),
    (r"heartbeat", ("idle_heartbeat", "flow_control")),
    (r"rate limit", ("rate_limit_bps",)),
    (r"flow control", ("flow_control", "ack_policy")),
    (r"direct", ("direct",)),
    (r"sampling", ("sample_freq",)),
    (r"request expires", ("max_expires",)),
    (r"request batch", ("max_batch",)),
    (r"backoff|max deliver", ("backoff", "max_deliver")),
    (r"ack wait", ("ack_wait",)),
    (r"inactive threshold", ("inactive_threshold",)),
    (r"priority|Priority|Group name|PinnedTTL", ("priority_groups", "priority_policy", "priority_timeout")),
    (r"delivery policy|deliver all", ("deliver_policy", "opt_start_seq", "opt_start_time")),
    (r"ack policy|explicit ack", ("ack_policy",)),
    (r"filter|Filter|unique", ("filter_subjects", "filter_subject")),
    (r"subject", ("subjects", "filter_subject", "filter_subjects", "deliver_subject")),
)
"""Phrases of refusals, and the fields that they concern."""


def check_rules(
    assets: Mapping[AssetKey, DesiredAsset], incomplete: Collection[AssetKey] = ()
) -> Iterator[RuleFinding]:
    """Return all faults and warnings of a set; assets that are only partly readable get warnings only."""
    wanted = {key: asset for key, asset in assets.items() if key not in incomplete}
    streams: dict[str, StreamConfig] = {}
    for key, asset in wanted.items():
        if not key.consumer:
            yield from _check_stream(key, asset, streams)
    yield from _check_origins(wanted, streams)
    yield from _check_subjects(wanted, streams)
    queues: dict[str, list[tuple[AssetKey, ConsumerConfig]]] = defaultdict(list)
    around = ServerContext(streams.get)
    for key, asset in assets.items():
        for fields, reason in without_effect(asset, asset.config):
            yield RuleFinding(key, reason, fields, warning=True)
        if key.consumer:
            yield from _check_filters(key, asset, assets, streams)
        if key.consumer and key in wanted:
            yield from _check_consumer(key, asset, around, queues[key.stream])
    for name, consumers in queues.items():
        if name in streams:
            yield from _check_consumers(streams[name], consumers)


def _refused(key: AssetKey, asset: DesiredAsset, refusal: ConfigRefusedError) -> RuleFinding:
    fields = [field for pattern, found in _ABOUT if re.search(pattern, refusal.text) for field in found]
    text = refusal.text
    if text == "invalid subject":
        given = [asset.config.get("filter_subject"), *_texts(asset, "subjects"), *_texts(asset, "filter_subjects")]
        text = next((fault for one in given if one and (fault := subject_fault(str(one)))), text)
    return RuleFinding(key, text, tuple(fields))


def _texts(asset: DesiredAsset, field: str) -> list[str]:
    return list(asset.config.get(field) or ())


def _check_stream(key: AssetKey, asset: DesiredAsset, streams: dict[str, StreamConfig]) -> Iterator[RuleFinding]:
    if "\0" in key.stream:
        yield RuleFinding(key, "a name cannot hold a zero character", ("name",))
        return
    try:
        streams[key.stream] = normalised_stream(key, asset.config, ALONE)
    except ConfigRefusedError as refusal:
        yield _refused(key, asset, refusal)


def _check_origins(wanted: Mapping[AssetKey, DesiredAsset], streams: dict[str, StreamConfig]) -> Iterator[RuleFinding]:
    around = ServerContext(streams.get)
    for name, config in list(streams.items()):
        if config.mirror is None and not config.sources:
            continue
        key = AssetKey(name)
        try:
            streams[name] = normalised_stream(key, wanted[key].config, around)
        except ConfigRefusedError as refusal:
            yield _refused(key, wanted[key], refusal)


def pattern_of(subject: str) -> bytes:
    """Return a subject as the index takes it; a document may hold characters that UTF-8 has no bytes for."""
    return subject.encode("utf-8", "surrogatepass")


def _check_subjects(
    wanted: Mapping[AssetKey, DesiredAsset], streams: Mapping[str, StreamConfig]
) -> Iterator[RuleFinding]:
    """Refuse streams that store the same subjects as an earlier one, also if another of their fields is refused."""
    index: SubjectIndex[tuple[str, str]] = SubjectIndex()
    for name, asset in ((key.stream, asset) for key, asset in wanted.items() if not key.consumer):
        reported: set[str] = set()
        subjects = (
            streams[name].subjects if name in streams else list(dict.fromkeys(asset.config.get("subjects") or ()))
        )
        for subject in subjects:
            for other, taken in index.overlapping(pattern_of(subject)):
                if other not in reported:
                    reported.add(other)
                    reason = f"subject {subject} overlaps with {taken} of stream {other}"
                    yield RuleFinding(AssetKey(name), reason, ("subjects", "name"))
        for subject in subjects:
            index.add(pattern_of(subject), (name, subject))


def _check_consumer(
    key: AssetKey, asset: DesiredAsset, around: ServerContext, normalised: list[tuple[AssetKey, ConsumerConfig]]
) -> Iterator[RuleFinding]:
    if is_too_long(key.consumer) or "\0" in key.consumer:
        yield RuleFinding(
            key, f"a name has at most {MAX_NAME_BYTES} bytes, none of them zero", ("durable_name", "name")
        )
        return
    stream = around.stream(key.stream)
    if stream is None:
        # The stream is the server's: every request of the consumer may be valid there.
        replicas = int(asset.config.get("num_replicas") or 1)
        around = ServerContext(lambda name: StreamConfig(name=name, num_replicas=max(replicas, 1)))
    try:
        config = normalised_consumer(key, asset.config, around)
    except ConfigRefusedError as refusal:
        yield _refused(key, asset, refusal)
        return
    normalised.append((key, config))


def _check_filters(
    key: AssetKey, asset: DesiredAsset, wanted: Mapping[AssetKey, DesiredAsset], streams: Mapping[str, StreamConfig]
) -> Iterator[RuleFinding]:
    """Warn of filters that match nothing which the stream stores, also if other fields of either are refused."""
    above = wanted.get(key.origin)
    # Messages from other streams, or stored under other subjects, are not covered by the stream's subjects.
    if above is None or any(above.config.get(name) for name in ("mirror", "sources", "subject_transform")):
        return
    subjects = streams[key.stream].subjects if key.stream in streams else _texts(above, "subjects")
    for subject in [*filter(None, [asset.config.get("filter_subject")]), *_texts(asset, "filter_subjects")]:
        if subjects and is_valid_subject(subject) and not any(overlaps(subject, other) for other in subjects):
            reason = f"filter {subject} matches nothing that stream {key.stream} stores ({', '.join(subjects[:5])})"
            yield RuleFinding(key, reason, ("filter_subject", "filter_subjects"), warning=True)


def _check_consumers(stream: StreamConfig, consumers: list[tuple[AssetKey, ConsumerConfig]]) -> Iterator[RuleFinding]:
    most = stream.max_consumers
    for key, _ in consumers[most:] if most > 0 else ():
        yield RuleFinding(key, f"stream {stream.name} takes {most} consumers (max_consumers), and has them already")
    if stream.retention is RetentionPolicy.WORKQUEUE:
        yield from _check_queue(consumers)


def _check_queue(consumers: list[tuple[AssetKey, ConsumerConfig]]) -> Iterator[RuleFinding]:
    """Refuse consumers of a work queue that would receive the same messages."""
    index: SubjectIndex[AssetKey] = SubjectIndex()
    for key, config in consumers:
        if config.deliver_policy is not DeliverPolicy.ALL:
            yield RuleFinding(key, "a consumer of a workqueue has to deliver all", ("deliver_policy",))
        filters = filters_of(config) or [">"]
        other = next((other for one in filters for other in index.overlapping(pattern_of(one))), None)
        if other is not None:
            reason = f"on a workqueue each message has one consumer: its filter overlaps that of {other.consumer}"
            yield RuleFinding(key, reason, ("filter_subject", "filter_subjects"))
        for one in filters:
            index.add(pattern_of(one), key)
