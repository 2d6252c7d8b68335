"""Streams as pages and tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from natsctl.api.times import parse_time
from natsctl.api.units import format_size
from natsctl.cli.render.change import SERVER_OWNED
from natsctl.cli.render.page import Page, Section
from natsctl.cli.render.values import (
    age_limit,
    ago,
    count,
    duration,
    is_zero,
    limit,
    listed,
    safe,
    size_limit,
    stamp,
    when,
    yes,
)

if TYPE_CHECKING:
    from natsctl.api.answers import StreamInfoAnswer, StreamTemplateInfo
    from natsctl.api.stream import (
        ClusterInfo,
        StreamAlternate,
        StreamConfig,
        StreamInfo,
        StreamSource,
        StreamSourceInfo,
        SubjectTransform,
    )

    AnyStreamInfo = StreamInfo | StreamInfoAnswer

NO_STREAMS = "This template has created no Streams yet"
RETENTION = {"limits": "Limits", "interest": "Interest", "workqueue": "WorkQueue"}


def render_stream(info: AnyStreamInfo) -> Page:
    """Everything there is to know about a stream: configuration, then state."""
    config = info.config
    page = Page(f"Information for Stream {safe(config.name)} created {when(info.created)}")
    _identity(page.section(), config)
    _options(page.section("Options"), config)
    _limits(page.section("Limits"), config)
    render_metadata(page, config.metadata)
    _replication(page.section("Replication"), config)
    render_cluster(page, info.cluster, info.ts)
    if info.mirror is not None:
        _source_info(page.section("Mirror Information"), info.mirror)
    for number, source in enumerate(info.sources or ()):
        _source_info(page.section("" if number else "Source Information"), source)
    _state(page.section("State"), info)
    return page


def render_template(info: StreamTemplateInfo) -> Page:
    """A stream template: how its streams are configured, and which ones it has made."""
    config = info.config.config
    page = Page(f"Information for Stream Template {safe(info.config.name)}")
    section = page.section("Configuration")
    _identity(section, config)
    _options(page.section("Options"), config)
    limits = page.section("Limits")
    _limits(limits, config)
    limits.row("Maximum Streams", limit(info.config.max_streams))
    render_metadata(page, config.metadata)
    managed = page.section("Managed Streams")
    managed.many("Streams" if info.streams else "", [safe(name) for name in info.streams] or [NO_STREAMS])
    return page


def render_stream_state(info: AnyStreamInfo) -> Page:
    """A stream's state only."""
    page = Page(f"State for Stream {safe(info.config.name)} created {when(info.created)}")
    render_cluster(page, info.cluster, info.ts)
    _state(page.section("State"), info)
    return page


def _identity(section: Section, config: StreamConfig) -> None:
    section.maybe("Description", safe(config.description))
    section.maybe("Subjects", listed(config.subjects))
    section.row("Replicas", count(config.num_replicas))
    section.maybe("Sealed", "true" if config.sealed else "")
    section.row("Storage", str(config.storage.value).capitalize())
    if config.compression.value != "none":
        section.row("Compression", f"{config.compression.value.upper()} Compression")
    if config.persist_mode and str(getattr(config.persist_mode, "value", config.persist_mode)) == "async":
        section.row("Persistence Mode", "Async")
    section.maybe("First Sequence", count(config.first_seq) if config.first_seq else "")
    if config.placement is not None:
        section.maybe("Placement Cluster", safe(config.placement.cluster))
        section.maybe("Placement Tags", listed(config.placement.tags))


def _options(section: Section, config: StreamConfig) -> None:
    if config.subject_transform is not None:
        section.row("Subject Transform", _transform(config.subject_transform))
    if config.republish is not None:
        section.row("Republishing", f"{safe(config.republish.src or '>')} to {safe(config.republish.dest)}")
        section.maybe("Republishing Headers", "only" if config.republish.headers_only else "")
    section.row("Retention", RETENTION.get(config.retention.value, str(config.retention.value)))
    section.row("Acknowledgments", yes(not config.no_ack))
    per_subject = " Per Subject" if config.discard_new_per_subject else ""
    section.row("Discard Policy", config.discard.value.capitalize() + per_subject)
    section.row("Duplicate Window", duration(config.duplicate_window))
    section.maybe("Direct Get", "true" if config.allow_direct else "")
    section.maybe("Mirror Direct Get", "true" if config.mirror_direct else "")
    section.row("Allows Atomic Batch Publish", yes(config.allow_atomic))
    section.row("Allows Fast Batch Publish", yes(config.allow_batched))
    section.row("Allows Counters", yes(config.allow_msg_counter))
    section.row("Allows Msg Delete", yes(not config.deny_delete))
    section.row("Allows Per-Message TTL", yes(config.allow_msg_ttl))
    section.row("Allows Purge", yes(not config.deny_purge))
    section.row("Allows Schedules", yes(config.allow_msg_schedules))
    if config.subject_delete_marker_ttl:
        section.row("Subject Delete Markers TTL", duration(config.subject_delete_marker_ttl))
    section.row("Allows Rollups", yes(config.allow_rollup_hdrs))


def _limits(section: Section, config: StreamConfig) -> None:
    section.row("Maximum Messages", limit(config.max_msgs))
    section.row("Maximum Per Subject", limit(config.max_msgs_per_subject))
    section.row("Maximum Bytes", size_limit(config.max_bytes))
    section.row("Maximum Age", age_limit(config.max_age))
    section.row("Maximum Message Size", size_limit(config.max_msg_size))
    section.row("Maximum Consumers", limit(config.max_consumers))
    bounds = config.consumer_limits
    if bounds is not None:
        section.maybe(
            "Consumer Inactive Threshold", duration(bounds.inactive_threshold) if bounds.inactive_threshold else ""
        )
        section.maybe("Consumer Max Ack Pending", count(bounds.max_ack_pending) if bounds.max_ack_pending else "")


def render_metadata(page: Page, metadata: Mapping[str, str] | None) -> None:
    """Add what people attached to a stream or consumer; what the server keeps there stays hidden."""
    section = page.section("Metadata")
    for key, value in sorted((metadata or {}).items()):
        if not key.startswith(SERVER_OWNED):
            section.row(safe(key), safe(value))


def _replication(section: Section, config: StreamConfig) -> None:
    if config.mirror is not None:
        section.row("Mirror", _source(config.mirror))
    section.many("Sources", [_source(source) for source in config.sources or ()])


def _source(source: StreamSource) -> str:
    parts = [safe(source.name)]
    if source.filter_subject:
        parts.append(f"filter {safe(source.filter_subject)}")
    parts += [f"transform {_transform(transform)}" for transform in source.subject_transforms or ()]
    if source.opt_start_seq:
        parts.append(f"from sequence {count(source.opt_start_seq)}")
    if source.opt_start_time and not is_zero(source.opt_start_time):
        parts.append(f"from {when(source.opt_start_time)}")
    if source.external is not None:
        parts.append(f"API prefix {safe(source.external.api)}")
        if source.external.deliver:
            parts.append(f"delivery prefix {safe(source.external.deliver)}")
    return ", ".join(parts)


def _transform(transform: SubjectTransform) -> str:
    return f"{safe(transform.src or '>')} to {safe(transform.dest)}"


def render_cluster(page: Page, cluster: ClusterInfo | None, ts: str = "", group: str = "Cluster Group") -> None:
    """Add where a stream or consumer lives in its cluster; with `ts`, the time of the answer, how long it has been led.

    `group` is the label of its Raft group.

    A server on its own calls itself leader, which says nothing.
    """
    if cluster is None or not (cluster.name or cluster.replicas):
        return
    section = page.section("Cluster Information")
    section.maybe("Name", safe(cluster.name))
    section.maybe(group, safe(cluster.raft_group))
    section.maybe("Leader", safe(cluster.leader) + _since(cluster.leader_since, ts) if cluster.leader else "")
    for replica in cluster.replicas or ():
        state = ["OFFLINE" if replica.offline else "current" if replica.current else "outdated"]
        state.append(f"seen {duration(replica.active)} ago" if replica.active > 0 else "not seen")
        if replica.lag:
            state.append(f"{count(replica.lag)} operations behind")
        section.row("Replica", ", ".join([safe(replica.name), *state]))


def render_version(section: Section, metadata: Mapping[str, str]) -> None:
    """Add the server's version and the API level that a configuration needs, as the server notes them in metadata."""
    section.maybe("Host Version", safe(metadata.get("_nats.ver", "")))
    level, hosted = metadata.get("_nats.req.level"), metadata.get("_nats.level")
    if level is not None:
        section.row("Required API Level", safe(level) + (f" hosted at level {safe(hosted)}" if hosted else ""))


def _since(moment: str | None, ts: str) -> str:
    """How long before `ts` that was, in brackets, where both are known."""
    return "" if is_zero(moment) or is_zero(ts) else f" ({ago(moment, parse_time(ts))})"


def _source_info(section: Section, source: StreamSourceInfo) -> None:
    section.row("Stream Name", safe(source.name))
    section.maybe("Subject Filter", safe(source.filter_subject))
    transforms = [_transform(transform) for transform in source.subject_transforms or ()]
    section.many(f"Subject {'Filter and Transform' if len(transforms) == 1 else 'Filters and Transforms'}", transforms)
    section.row("Lag", count(source.lag))
    section.row("Last Seen", "never" if source.active < 0 else f"{duration(source.active)} ago")
    if source.external is not None:
        section.maybe("Ext. API Prefix", safe(source.external.api))
        section.maybe("Ext. Delivery Prefix", safe(source.external.deliver))
    if source.error is not None:
        section.row("Error", f"{safe(source.error.description)} ({source.error.err_code})")


def _state(section: Section, info: AnyStreamInfo) -> None:
    state = info.state
    render_version(section, info.config.metadata or {})
    section.row("Messages", count(state.messages))
    section.row("Bytes", format_size(state.bytes))
    if state.lost is not None:
        section.row("Lost Messages", f"{count(len(state.lost.msgs or ()))} ({format_size(state.lost.bytes)})")
    section.row("First Sequence", _sequence(state.first_seq, state.first_ts))
    section.row("Last Sequence", _sequence(state.last_seq, state.last_ts))
    section.maybe("Deleted Messages", count(state.num_deleted) if state.num_deleted else "")
    section.row("Active Consumers", count(state.consumer_count))
    section.maybe("Number of Subjects", count(state.num_subjects) if state.num_subjects else "")
    section.many("Alternates", [_alternate(alternate) for alternate in info.alternates or ()])
    section.maybe("Write Error", safe(info.write_error))


def _alternate(alternate: StreamAlternate) -> str:
    """A mirror that can be read instead, and where it is."""
    places = [("cluster", alternate.cluster), ("domain", alternate.domain)]
    where = ", ".join(f"{kind} {safe(name)}" for kind, name in places if name)
    return f"{safe(alternate.name)} ({where})" if where else safe(alternate.name)


def _sequence(seq: int, moment: str) -> str:
    return count(seq) if is_zero(moment) else f"{count(seq)} @ {when(moment)}"


def render_item(stream: str, seq: int, subject: str, moment: str, now_ns: int) -> str:
    """The line above a message that was fetched from a stream by sequence."""
    age = duration(max(0, now_ns - parse_time(moment)))
    return f"Item: {safe(stream)}#{count(seq)} received {stamp(parse_time(moment))} ({age}) on Subject {safe(subject)}"


def render_viewed(seq: int, subject: str, moment: str) -> str:
    """The line above a message of a page of them."""
    return f"[{count(seq)}] Subject: {safe(subject)} Received: {stamp(parse_time(moment))}"
