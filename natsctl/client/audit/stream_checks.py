"""Checks of streams and consumers, as every server of a bundle has them.

The limits in the metadata of streams and consumers (`io.nats.monitor.*`) are checked as `natsctl server check` checks
them, at the time of the bundle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from natsctl.api.times import parse_time
from natsctl.api.units import parse_length, plural
from natsctl.client.audit.analysis import AuditInspection, CheckOutcome, Threshold, percent, registered
from natsctl.client.audit.bundle import STREAM_TYPE
from natsctl.client.checks import METADATA, MonitoringCheck, judge_consumer, judge_stream

Document = Mapping[str, Any]
NEAR_PERCENT: Final = 90.0
"""Use of a limit that is reported, in percent."""


def _streams(inspection: AuditInspection) -> Iterator[tuple[str, str, str, dict[str, Any]]]:
    """Yield account, stream, server and document of every replica, grouped by stream."""
    found = [
        (artifact.tags.get("account", ""), artifact.tags.get("stream", ""), artifact.server, artifact)
        for artifact in inspection.bundle.find(artifact_type=STREAM_TYPE)
    ]
    for account, stream, server, artifact in sorted(found, key=lambda one: (*one[:3], one[3].path)):
        yield account, stream, server, inspection.bundle.load(artifact)


def _number(part: Document, section: str, key: str) -> int:
    return int((part.get(section) or {}).get(key) or 0)


@registered(
    "JETSTREAM_001",
    "jetstream",
    "Stream Lagging Replicas",
    "All replicas of a stream are keeping up",
    percent("last_seq", "How far a replica may be behind the highest known last sequence", 10),
)
def lagging_replicas(inspection: AuditInspection) -> CheckOutcome:
    ends: dict[tuple[str, str], dict[str, int]] = {}
    for account, stream, server, document in _streams(inspection):
        ends.setdefault((account, stream), {})[server] = _number(document, "state", "last_seq")
    for (account, stream), servers in ends.items():
        ahead, highest = max(servers.items(), key=lambda one: one[1])
        least = highest - int(highest * inspection.value("last_seq") / 100)
        for server, last in servers.items():
            if last < least:
                inspection.fault(
                    f"{account}/{stream} server {server} lastSequence: {last} is behind "
                    f"highest lastSequence: {highest} on server: {ahead}"
                )
    inspection.log(f"{plural(len(ends), 'stream')} inspected")
    return inspection.outcome(CheckOutcome.FAIL)


@registered(
    "JETSTREAM_002",
    "jetstream",
    "Stream High Cardinality",
    "Streams unique subjects do not exceed a given threshold",
    Threshold(
        key="subjects", description="Alerting threshold for unique subjects in a stream", default=1_000_000, unit="int"
    ),
)
def high_cardinality(inspection: AuditInspection) -> CheckOutcome:
    for account, stream, _, document in _streams(inspection):
        held = _number(document, "state", "num_subjects")
        if held > inspection.value("subjects"):
            inspection.fault(f"{account}/{stream}: {held} subjects")
    return inspection.outcome(CheckOutcome.WARN)


@registered(
    "JETSTREAM_003",
    "jetstream",
    "Stream Limits",
    "Stream usage is below the configured limits",
    percent("messages", "Alert if messages near configured limit", NEAR_PERCENT),
    percent("bytes", "Alert if size near configured limit", NEAR_PERCENT),
    percent("consumers", "Alert if consumer count near configured limit", NEAR_PERCENT),
)
def stream_limits(inspection: AuditInspection) -> CheckOutcome:
    for account, stream, server, document in _streams(inspection):
        for text in near_limits(document, inspection.value):
            inspection.fault(f"stream {stream} (in {account} on {server}) {text}")
    return inspection.outcome(CheckOutcome.WARN)


def near_limits(document: Document, percentage: Callable[[str], float] = lambda what: NEAR_PERCENT) -> Iterator[str]:
    """Yield a text for each limit that a stream uses by more than `percentage(what)` percent."""
    for what, held, most in (
        ("messages", "messages", "max_msgs"),
        ("bytes", "bytes", "max_bytes"),
        ("consumers", "consumer_count", "max_consumers"),
    ):
        value, limit = _number(document, "state", held), _number(document, "config", most)
        if limit > 0 and value > int(limit * percentage(what) / 100):
            yield f"using {value * 100 / limit:.1f}% of {what} limit ({value}/{limit})"


def _switch(text: str) -> bool:
    if text.lower() in ("1", "t", "true"):
        return True
    if text.lower() in ("0", "f", "false"):
        return False
    raise ValueError(f"expected true or false, not {text!r}")


Readers = Mapping[str, Callable[[str], Any]]
STREAM_READERS: Final[Readers] = {
    **dict.fromkeys(("lag-critical", "min-sources", "max-sources", "peer-expect", "peer-lag-critical"), int),
    **dict.fromkeys(("msgs-warn", "msgs-critical", "subjects-warn", "subjects-critical"), int),
    **dict.fromkeys(("seen-critical", "peer-seen-critical"), parse_length),
}
CONSUMER_READERS: Final[Readers] = {
    **dict.fromkeys(
        ("outstanding-ack-critical", "waiting-critical", "unprocessed-critical", "redelivery-critical"), int
    ),
    **dict.fromkeys(("last-delivery-critical", "last-ack-critical"), parse_length),
    "pinned": _switch,
}


def _limits(inspection: AuditInspection, asset: Document, readers: Readers, what: str) -> dict[str, Any] | None:
    """Return the limits in the metadata of a stream or consumer.

    None if monitoring is not enabled there, or if a limit is invalid (that is reported).
    """
    try:
        return monitoring_limits(asset, readers)
    except ValueError as failure:
        inspection.fault(f"WARNING: {what}: its metadata cannot be read: {failure}")
        return None


def monitoring_limits(asset: Document, readers: Readers) -> dict[str, Any] | None:
    """Return the limits in the metadata of a stream or consumer, None without monitoring. Raises ValueError."""
    metadata = (asset.get("config") or {}).get("metadata") or {}
    if not _switch(str(metadata.get(f"{METADATA}enabled", "false"))):
        return None
    return {key: read(str(metadata[METADATA + key])) for key, read in readers.items() if METADATA + key in metadata}


@registered(
    "JETSTREAM_004",
    "jetstream",
    "Stream Metadata based monitoring",
    "Stream health using the 'nats server check stream' metadata",
)
def monitored_streams(inspection: AuditInspection) -> CheckOutcome:
    critical = False
    for account, stream, server, document in _streams(inspection):
        if not _leads(document, server):
            continue
        what = f"stream {stream} in {account}"
        limits = _limits(inspection, document, STREAM_READERS, what)
        if limits is not None:
            check = MonitoringCheck("stream", stream)
            judge_stream(check, document, limits)
            critical = _report(inspection, check, what) or critical
    return inspection.outcome(CheckOutcome.FAIL if critical else CheckOutcome.WARN)


@registered(
    "JETSTREAM_005",
    "jetstream",
    "Consumer Metadata based monitoring",
    "Consumer health using the 'nats server check consumer' metadata",
)
def monitored_consumers(inspection: AuditInspection) -> CheckOutcome:
    critical = False
    try:
        now_ns = parse_time(inspection.bundle.metadata.capture_timestamp)
    except ValueError:
        now_ns = 0
    for account, stream, server, document in _streams(inspection):
        for consumer in document.get("consumer_detail") or ():
            if not _leads(consumer, server):
                continue
            check = MonitoringCheck("consumer", str(consumer.get("name")))
            what = f"consumer {check.name} in stream {stream} in {account}"
            limits = _limits(inspection, consumer, CONSUMER_READERS, what)
            if limits is not None:
                judge_consumer(check, consumer, limits, now_ns if now_ns > 0 else None)
                critical = _report(inspection, check, what) or critical
    return inspection.outcome(CheckOutcome.FAIL if critical else CheckOutcome.WARN)


def _leads(asset: Document, server: str) -> bool:
    cluster = asset.get("cluster")
    return cluster is None or cluster.get("leader") == server


def _report(inspection: AuditInspection, check: MonitoringCheck, what: str) -> bool:
    for text in check.warning:
        inspection.fault(f"WARNING: {what}: {text}")
    for text in check.critical:
        inspection.fault(f"CRITICAL: {what}: {text}")
    return bool(check.critical)
