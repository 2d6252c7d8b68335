"""Checks for monitoring: thresholds and status, and the checks of JetStream assets, servers and services.

A threshold is reached by a value that is equal to it. More is worse of times and shares, less of remaining resources;
of other numbers more is worse unless the critical threshold is the smaller one.
"""

from __future__ import annotations

import base64
import enum
import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from natsctl.api.errors import ApiResponseError, NatsctlError, UnreachableError, UsageError
from natsctl.api.headers import parse as parse_headers
from natsctl.api.times import ZERO_TIME, parse_time
from natsctl.client.manager import Manager
from natsctl.client.message import NO_RESPONDERS, DryRunError, Planned
from natsctl.client.system.reports import span_ns
from natsctl.client.system.system_account import ServerAnswer, System

Limits = Mapping[str, Any]
"""Thresholds and switches by name (`lag-critical`): durations in nanoseconds, sizes in bytes."""

NS_PER_S = 1e9
METADATA = "io.nats.monitor."
"""Prefix of metadata of streams and consumers that set a threshold."""


class CheckStatus(enum.IntEnum):
    """Outcome of a check, with Nagios's numbers."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


@dataclass(frozen=True, slots=True)
class CheckMetric:
    """One measured value; times are seconds."""

    name: str
    value: float
    help: str
    unit: str = ""
    warning: float | None = None
    critical: float | None = None


@dataclass(slots=True)
class MonitoringCheck:
    """A check under way, or done; `suite` is its kind, `name` the checked asset."""

    suite: str
    name: str
    critical: list[str] = field(default_factory=list)
    warning: list[str] = field(default_factory=list)
    ok: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    metrics: list[CheckMetric] = field(default_factory=list)

    @property
    def status(self) -> CheckStatus:
        if self.critical:
            return CheckStatus.CRITICAL
        if self.unknown:
            return CheckStatus.UNKNOWN
        return CheckStatus.WARNING if self.warning else CheckStatus.OK

    def measure(self, name: str, value: float, help: str, unit: str = "") -> None:
        self.metrics.append(CheckMetric(name, value, help, unit))

    def compare(
        self,
        metric: CheckMetric,
        text: str,
        warning: float | None = None,
        critical: float | None = None,
        *,
        low: bool | None = None,
    ) -> None:
        """Record a value, and report `text` with the status that its thresholds give.

        Without thresholds report nothing.

        `low`: whether less is worse; without it the order of the thresholds decides. Negative ones count as none, and
        where more is worse 0 does too.
        """
        warning, critical = _set(warning), _set(critical)
        falling = warning is not None and critical is not None and critical < warning if low is None else low
        if not falling:
            warning, critical = warning or None, critical or None
        self.metrics.append(CheckMetric(metric.name, metric.value, metric.help, metric.unit, warning, critical))
        if warning is None and critical is None:
            return
        if _reached(metric.value, critical, falling):
            self.critical.append(text)
        elif _reached(metric.value, warning, falling):
            self.warning.append(text)
        else:
            self.ok.append(text)

    def require(self, condition: bool, held: str, broken: str) -> None:
        (self.ok if condition else self.critical).append(held if condition else broken)


def _set(threshold: float | None) -> float | None:
    return None if threshold is None or threshold < 0 else threshold


def _reached(value: float, threshold: float | None, falling: bool) -> bool:
    if threshold is None:
        return False
    return value <= threshold if falling else value >= threshold


def seconds(limits: Limits, name: str) -> float | None:
    """Return a threshold that is a duration, in seconds."""
    ns = limits.get(name)
    return None if ns is None else ns / NS_PER_S


def active(limits: Limits, name: str) -> bool:
    value = limits.get(name)
    return value is not None and value > 0


Readers = Mapping[str, Callable[[str], Any]]
"""Parser of the text of each threshold."""


_GONE = (b"DEL", b"PURGE", b"MaxAge", b"Purge", b"Remove")


def with_metadata(limits: Limits, readers: Readers, raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return the thresholds of the metadata, overridden by the given ones.

    Raises NatsctlError for one of the metadata.
    """
    metadata = (raw.get("config") or {}).get("metadata") or {}
    said = {}
    for key, text in metadata.items():
        name = key.removeprefix(METADATA)
        if key.startswith(METADATA) and name in readers and name not in limits:
            try:
                said[name] = readers[name](str(text))
            except UsageError as failure:
                raise NatsctlError(f"metadata {key}: {str(failure).removeprefix(f'--{name}: ')}") from None
    return {**said, **limits}


async def check_stream(manager: Manager, check: MonitoringCheck, limits: Limits, readers: Readers) -> None:
    """Check that a stream is written to, its messages, subjects and replicas, and the streams that it copies."""
    raw = (await manager.stream_info(check.name)).raw
    judge_stream(check, raw, with_metadata(limits, readers, raw))


def judge_stream(check: MonitoringCheck, raw: Mapping[str, Any], limits: Limits) -> None:
    state = raw.get("state") or {}
    for name, value, low in (
        ("messages", int(state.get("messages") or 0), True),
        ("subjects", int(state.get("num_subjects") or 0), False),
    ):
        flag = "msgs" if name == "messages" else name
        warning, critical = limits.get(f"{flag}-warn"), limits.get(f"{flag}-critical")
        if warning is not None or critical is not None:
            metric = CheckMetric(name, value, f"{name.title()} in the stream")
            check.compare(metric, f"{value} {name}", warning, critical, low=low or None)
    _check_writes(check, raw)
    _check_peers(check, limits, raw)
    _check_origins(check, limits, raw)


def _check_writes(check: MonitoringCheck, raw: Mapping[str, Any]) -> None:
    """Report that the server writes nothing more to a stream, as natsctl's does in the stream's info."""
    if fault := raw.get("write_error"):
        check.critical.append(f"write error: {fault}")


def _check_peers(check: MonitoringCheck, limits: Limits, raw: Mapping[str, Any]) -> None:
    cluster = raw.get("cluster") or {}
    replicas = cluster.get("replicas") or []
    if raw.get("cluster") is not None and not cluster.get("leader"):
        check.critical.append("no leader")
    peers = len(replicas) + 1
    if active(limits, "peer-expect"):
        expected = limits["peer-expect"]
        check.require(peers == expected, f"{peers} peers", f"{peers} peers, expected {expected}")
    if active(limits, "peer-lag-critical"):
        late = [replica for replica in replicas if int(replica.get("lag") or 0) >= limits["peer-lag-critical"]]
        check.require(not late, "no peer lags", f"peers that lag: {_names(late)}")
    if active(limits, "peer-seen-critical"):
        silent = [replica for replica in replicas if _silent(replica, limits["peer-seen-critical"])]
        check.require(not silent, "all peers are seen", f"peers not seen: {_names(silent)}")
    if any(active(limits, name) for name in ("peer-expect", "peer-lag-critical", "peer-seen-critical")):
        off = [replica for replica in replicas if replica.get("offline") or not replica.get("current")]
        check.require(not off, "all peers are current", f"peers that are not current: {_names(off)}")


def _check_origins(check: MonitoringCheck, limits: Limits, raw: Mapping[str, Any]) -> None:
    sources, mirror = raw.get("sources") or [], raw.get("mirror")
    least, most = limits.get("min-sources"), limits.get("max-sources")
    check.metrics.append(CheckMetric("sources", len(sources), "Streams that this one sources", "", least, most))
    fits = (least or 0) <= len(sources) and (most is None or most < 0 or len(sources) <= most)
    check.require(fits, f"{len(sources)} sources", f"{len(sources)} sources, expected {_range(least, most)}")
    lag, seen = limits.get("lag-critical") or 0, limits.get("seen-critical") or 0
    if lag <= 0 and seen <= 0:
        return
    origins = [*sources, *([mirror] if mirror else ())]
    if not origins:
        check.critical.append("neither a mirror nor sources")
        return
    if mirror:
        check.measure("lag", int(mirror.get("lag") or 0), "Messages that the mirror is behind")
        check.measure("active", max(0, int(mirror.get("active") or 0)) / NS_PER_S, "Time since it was seen", "s")
    late = [origin for origin in origins if 0 < lag <= int(origin.get("lag") or 0)]
    silent = [origin for origin in origins if seen > 0 and _silent(origin, seen)]
    check.measure("sources_lagged", len(late), "Origins that lag")
    check.measure("sources_inactive", len(silent), "Origins not seen")
    if lag > 0:
        check.require(not late, "no origin lags", f"origins that lag: {_names(late)}")
    if seen > 0:
        check.require(not silent, "all origins are seen", f"origins not seen: {_names(silent)}")


def _silent(one: Mapping[str, Any], most_ns: int) -> bool:
    since = int(one.get("active") or 0)
    return since < 0 or since >= most_ns


def _names(several: list[Any]) -> str:
    return ", ".join(str(one.get("name")) for one in several)


def _range(least: int | None, most: int | None) -> str:
    return f"{least or 0} to {most}" if most is not None and most >= 0 else f"at least {least}"


async def check_consumer(
    manager: Manager, check: MonitoringCheck, stream: str, consumer: str, limits: Limits, readers: Readers
) -> None:
    """Check a consumer's undelivered and unacknowledged messages, and its last activity."""
    raw = (await manager.consumer_info(stream, consumer)).raw
    judge_consumer(check, raw, with_metadata(limits, readers, raw))


def judge_consumer(check: MonitoringCheck, raw: Mapping[str, Any], limits: Limits, now_ns: int | None = None) -> None:
    """Check a consumer by its information, at a time that is not now if `now_ns` is given."""
    now_ns = now_ns or time.time_ns()
    for flag, metric, key, what in (
        ("outstanding-ack", "ack_pending", "num_ack_pending", "messages not acknowledged"),
        ("waiting", "pull_waiting", "num_waiting", "waiting pulls"),
        ("unprocessed", "pending", "num_pending", "messages not delivered"),
        ("redelivery", "redelivered", "num_redelivered", "messages redelivered"),
    ):
        value = int(raw.get(key) or 0)
        check.compare(
            CheckMetric(metric, value, what.capitalize()), f"{value} {what}", critical=limits.get(f"{flag}-critical")
        )
    for flag, metric, key, what in (
        ("last-delivery", "last_delivery", "delivered", "delivery"),
        ("last-ack", "last_ack", "ack_floor", "acknowledgement"),
    ):
        moment = (raw.get(key) or {}).get("last_active")
        if not moment or moment == ZERO_TIME:
            if active(limits, f"{flag}-critical"):
                check.critical.append(f"no {what} yet")
            continue
        since_s = (now_ns - parse_time(moment)) / NS_PER_S
        found = CheckMetric(metric, since_s, f"Time since the last {what}", "s")
        check.compare(found, f"last {what} {since_s:.2f}s ago", critical=seconds(limits, f"{flag}-critical"))
    if limits.get("pinned"):
        _check_pinned(check, raw)


def _check_pinned(check: MonitoringCheck, raw: Mapping[str, Any]) -> None:
    if (raw.get("config") or {}).get("priority_policy") != "pinned_client":
        check.critical.append("its priority policy is not pinned_client")
        return
    bare = [
        str(priority_group.get("group"))
        for priority_group in raw.get("priority_groups") or ()
        if not priority_group.get("pinned_client_id")
    ]
    check.require(not bare, "every group has a pinned client", f"groups without a pinned client: {', '.join(bare)}")


async def check_message(manager: Manager, check: MonitoringCheck, stream: str, limits: Limits) -> None:
    """Check the age and the body of the newest message on `limits["subject"]`, or of all when that is `>`."""
    subject = str(limits.get("subject") or ">")
    which: dict[str, Any] = {"last_by_subj": subject}
    if subject == ">":
        which = {"seq": int(((await manager.stream_info(stream)).raw.get("state") or {}).get("last_seq") or 0)}
        if not which["seq"]:
            check.critical.append("the stream is empty")
            return
    answer = await manager.find_message(stream, **which)
    if answer is None:
        check.critical.append(f"no message on {subject}")
        return
    message = answer.raw.get("message") or {}
    body = base64.b64decode(message.get("data") or "")
    sent_ns = parse_time(str(message.get("time")))
    if limits.get("body-timestamp"):
        try:
            sent_ns = int(float(body.decode().strip()) * NS_PER_S)
        except (ValueError, OverflowError):
            check.critical.append("the body is not a Unix time")
            return
    age_s = (time.time_ns() - sent_ns) / NS_PER_S
    age = CheckMetric("age", age_s, "Age of the message", "s")
    check.compare(age, f"{age_s:.2f}s old", seconds(limits, "age-warn"), seconds(limits, "age-critical"), low=False)
    check.measure("size", len(body), "Size of the body", "B")
    if pattern := limits.get("content"):
        match = compiled(pattern, "--content").search(body.decode("utf-8", "replace"))
        check.require(match is not None, f"the body matches {pattern}", f"the body does not match {pattern}")
    if not check.warning and not check.critical:
        check.ok.append(f"Valid message on {stream} > {subject}")


def compiled(pattern: str, flag: str) -> re.Pattern[str]:
    """Return a regular expression; raises UsageError that names the flag."""
    try:
        return re.compile(pattern)
    except re.error as failure:
        raise UsageError(f"{flag}: {failure}") from failure


async def check_kv(manager: Manager, check: MonitoringCheck, bucket: str, limits: Limits) -> None:
    """Check that a bucket exists, how many values it has, and that a key has one."""
    stream = f"KV_{bucket}"
    info = await manager.find_stream(stream)
    if info is None:
        check.critical.append(f"there is no bucket {bucket}")
        return
    raw = info.raw
    check.ok.append(f"bucket {bucket}")
    _check_writes(check, raw)
    if key := limits.get("key"):
        there = await _has_value(manager, stream, f"$KV.{bucket}.{key}")
        check.require(there, f"key {key} has a value", f"key {key} has no value")
    state = raw.get("state") or {}
    values = int(state.get("messages") or 0)
    found = CheckMetric("values", values, "Values in the bucket, history included")
    check.compare(found, f"{values} values", limits.get("values-warn"), limits.get("values-critical"))
    check.measure("bytes", int(state.get("bytes") or 0), "Size of the bucket", "B")
    check.measure("replicas", int((raw.get("config") or {}).get("num_replicas") or 1), "Replicas of the bucket")


async def check_deadletters(manager: Manager, check: MonitoringCheck, stream: str, limits: Limits) -> None:
    """Check the number and age of dead letters of a stream, or with "" of all streams."""
    from natsctl.client.deadletters.capture import NoDeadLettersError
    from natsctl.client.deadletters.letters import LetterFilter, count_letters, read_letters

    consumers = [str(limits["consumer"])] if limits.get("consumer") else []
    try:
        letters = await read_letters(manager, LetterFilter(stream, consumers))
    except NoDeadLettersError as failure:
        check.critical.append(failure.text)
        return
    metric = CheckMetric("dead_letters", len(letters), "Messages that consumers gave up or terminated")
    check.compare(metric, f"{len(letters)} dead letters", limits.get("msgs-warn"), limits.get("msgs-critical"))
    age_s = (time.time_ns() - parse_time(letters[0].time)) / NS_PER_S if letters else 0.0
    age = CheckMetric("oldest", age_s, "Age of the oldest dead letter", "s")
    warning, critical = seconds(limits, "age-warn"), seconds(limits, "age-critical")
    check.compare(age, f"oldest {age_s:.0f}s old", warning, critical, low=False)
    for row in count_letters(letters)[:MAX_ROWS] if check.warning or check.critical else ():
        (check.critical or check.warning).append(f"{row.stream} > {row.consumer}: {row.messages} {row.reason}")


MAX_ROWS = 5
"""Kinds of dead letters that a check lists."""


async def _has_value(manager: Manager, stream: str, subject: str) -> bool:
    answer = await manager.find_message(stream, last_by_subj=subject)
    if answer is None:
        return False
    block = base64.b64decode((answer.raw.get("message") or {}).get("hdrs") or "")
    marks = dict(parse_headers(block)) if block else {}
    return not any(marks.get(name) in _GONE for name in (b"KV-Operation", b"Nats-Marker-Reason"))


LISTENERS = ("cluster", "gateway", "leaf", "mqtt", "websocket")
"""Listeners that may have a certificate of their own, next to the one for clients."""


async def check_connection(manager: Manager, check: MonitoringCheck, connect_s: float, limits: Limits) -> None:
    """Check how long connecting took, how quickly the server answers a PING, and a message to ourselves."""
    connection = manager.connection
    rtt_s = await connection.rtt_s()
    begin_s = time.perf_counter()
    inbox = connection.new_inbox()
    subscription = await connection.subscribe(inbox, limit=1)
    await connection.publish(inbox, b"natsctl")
    if await subscription.next(connection.timeout_s) is None:
        raise UnreachableError("a message to ourselves did not come back")
    request_s = time.perf_counter() - begin_s
    url = connection.url
    for name, flag, value, text, help in (
        ("connect_time", "connect", connect_s, f"connected to {url} in {connect_s:.6f}s", "Time to connect"),
        ("rtt", "rtt", rtt_s, f"rtt time {rtt_s * 1000:.3f}ms", "Time for a PING to be answered"),
        ("request_time", "req", request_s, f"round trip took {request_s:.6f}s", "Time for a message to return"),
    ):
        metric = CheckMetric(name, value, help, "s")
        check.compare(metric, text, seconds(limits, f"{flag}-warn"), seconds(limits, f"{flag}-critical"), low=False)


async def check_request(manager: Manager, check: MonitoringCheck, limits: Limits) -> None:
    """Check that a service answers, how quickly, and with what."""
    body, headers = str(limits.get("payload") or "").encode(), limits.get("headers") or None
    if manager.connection.dry_run:
        raise DryRunError(Planned(check.name, body, headers))
    begin_s = time.perf_counter()
    try:
        answer = await manager.connection.request(check.name, body, headers=headers)
    except UnreachableError as failure:
        check.critical.append(failure.text)
        return
    elapsed_s = time.perf_counter() - begin_s
    metric = CheckMetric("time", elapsed_s, "Time for the request to be answered", "s")
    if answer.status == NO_RESPONDERS:
        check.critical.append("the subject has no subscriber")
        return
    warning, critical = seconds(limits, "response-warn"), seconds(limits, "response-critical")
    check.compare(metric, f"answered in {elapsed_s * 1000:.1f}ms", warning, critical, low=False)
    check.ok.append("Valid response")
    if pattern := limits.get("match-payload"):
        found = compiled(pattern, "--match-payload").search(answer.body.decode("utf-8", "replace"))
        check.require(found is not None, f"the answer matches {pattern}", f"the answer does not match {pattern}")
    for name, pattern in (limits.get("match-headers") or {}).items():
        value = answer.headers.get(name, "")
        found = compiled(pattern, "--match-headers").search(value) if name in answer.headers else None
        check.require(found is not None, f"header {name} matches", f"header {name} is {value!r}, not {pattern}")


async def check_server(manager: Manager, check: MonitoringCheck, limits: Limits) -> None:
    """Check one server's uptime and load, and its required features."""
    answer = await System(manager).ask_one(str(limits.get("name") or ""), "VARZ")
    check.name = answer.name or check.name
    varz = answer.data
    for flag, held, on, off in (
        ("js-required", (varz.get("jetstream") or {}).get("config"), "JetStream is on", "JetStream is off"),
        ("auth-required", varz.get("auth_required"), "authentication is required", "authentication is not required"),
        ("tls-required", varz.get("tls_required"), "TLS is required", "TLS is not required"),
    ):
        if limits.get(flag):
            check.require(bool(held), on, off)
    _check_load(check, varz, limits)
    _check_certificates(check, varz, limits)


def _check_load(check: MonitoringCheck, varz: dict[str, Any], limits: Limits) -> None:
    started = varz.get("start")
    uptime_ns = time.time_ns() - parse_time(str(started)) if started else span_ns(varz.get("uptime"))
    uptime_s = uptime_ns / NS_PER_S
    uptime = CheckMetric("uptime", uptime_s, "Time since the server started", "s")
    check.compare(
        uptime, f"up {uptime_s:.0f}s", seconds(limits, "uptime-warn"), seconds(limits, "uptime-critical"), low=True
    )
    for flag, metric, key, unit, what in (
        ("cpu", "cpu", "cpu", "%", "CPU use"),
        ("mem", "mem", "mem", "", "bytes of memory"),
        ("conn", "connections", "connections", "", "connections"),
        ("subs", "subscriptions", "subscriptions", "", "subscriptions"),
    ):
        value = float(varz.get(key) or 0)
        text = f"{value:.0f}% CPU" if flag == "cpu" else f"{value:.0f} {what}"
        found = CheckMetric(metric, value, what[0].upper() + what[1:], unit)
        check.compare(found, text, limits.get(f"{flag}-warn"), limits.get(f"{flag}-critical"))


def _check_certificates(check: MonitoringCheck, varz: dict[str, Any], limits: Limits) -> None:
    warning, critical = seconds(limits, "tls-cert-warn"), seconds(limits, "tls-cert-crit")
    if warning is None and critical is None:
        return
    listeners = {"client": varz, **{name: varz.get(name) or {} for name in LISTENERS}}
    ends = {name: part["tls_cert_not_after"] for name, part in listeners.items() if part.get("tls_cert_not_after")}
    if not ends:
        check.critical.append("no TLS certificate to check")
    for name, end in ends.items():
        left_s = (parse_time(str(end)) - time.time_ns()) / NS_PER_S
        metric = CheckMetric(f"tls_{name}", left_s, f"Time until the {name} certificate expires", "s")
        check.compare(metric, f"{name} certificate expires in {left_s / 86400:.1f}d", warning, critical, low=True)


async def check_meta(manager: Manager, check: MonitoringCheck, limits: Limits) -> None:
    """Check the group of servers that runs JetStream's cluster."""
    answers = await System(manager).ask("JSZ")
    leader = next((answer for answer in answers if _leads(answer)), None)
    if leader is None:
        clustered = [answer for answer in answers if (answer.data.get("meta_cluster") or {}).get("cluster_size")]
        check.critical.append("the cluster has no leader" if clustered else "JetStream is not clustered")
        return
    meta = leader.data["meta_cluster"]
    replicas = meta.get("replicas") or []
    expected, lag, seen = limits["expect"], limits.get("lag-critical") or 0, limits.get("seen-critical") or 0
    peers = len(replicas) + 1
    check.metrics.append(CheckMetric("peers", peers, "Servers of the group", "", expected, expected))
    check.require(peers == expected, f"{peers} peers led by {leader.name}", f"{peers} peers, expected {expected}")
    for name, what, found in (
        ("peer_offline", "offline", [replica for replica in replicas if replica.get("offline")]),
        ("peer_not_current", "not current", [replica for replica in replicas if not replica.get("current")]),
        ("peer_inactive", "not seen", [replica for replica in replicas if 0 < seen <= int(replica.get("active") or 0)]),
        ("peer_lagged", "behind", [replica for replica in replicas if 0 < lag <= int(replica.get("lag") or 0)]),
    ):
        check.measure(name, len(found), f"Servers of the group that are {what}")
        if found:
            check.critical.append(f"{what}: {', '.join(str(one.get('name')) for one in found)}")


def _leads(one: ServerAnswer) -> bool:
    meta = one.data.get("meta_cluster") or {}
    return bool(meta.get("leader")) and meta["leader"] in (one.name, one.id) and bool(meta.get("cluster_size"))


async def check_jetstream(manager: Manager, check: MonitoringCheck, limits: Limits) -> None:
    """Check an account's use of its limits, and that every replica of its streams is healthy."""
    try:
        info = (await manager.account_info()).raw
    except (ApiResponseError, UnreachableError) as failure:
        check.critical.append(f"JetStream is not available: {failure}")
        return
    for flag, name, key, most, unit in (
        ("mem", "memory", "memory", "max_memory", "B"),
        ("store", "storage", "storage", "max_storage", "B"),
        ("streams", "streams", "streams", "max_streams", ""),
        ("consumers", "consumers", "consumers", "max_consumers", ""),
    ):
        check.measure(name, int(info.get(key) or 0), f"{name.title()} in use", unit)
        percent = _percent(info, key, most)
        metric = CheckMetric(f"{name}_pct", percent, f"{name.title()} in use, of the limit", "%")
        warning, critical = limits.get(f"{flag}-warn"), limits.get(f"{flag}-critical")
        shares = False if flag in ("mem", "store") else None  # the others may be watched for running low
        check.compare(metric, f"{name} {percent:.0f}% of the limit", warning, critical, low=shares)
    if limits.get("replicas", True):
        await _check_replicas(manager, check, limits)


def _percent(info: dict[str, Any], key: str, most: str) -> float:
    """Return how much of the limit is used; of an account with tiers, in the tier that is nearest to its limit."""
    tiers = list((info.get("tiers") or {}).values()) or [info]
    shares = []
    for tier in tiers:
        limit = int((tier.get("limits") or {}).get(most) or 0)
        shares.append(100 * int(tier.get(key) or 0) / limit if limit > 0 else 0.0)
    return max(shares)


async def _check_replicas(manager: Manager, check: MonitoringCheck, limits: Limits) -> None:
    lag, seen = limits.get("replica-lag-critical") or 0, limits.get("replica-seen-critical") or 0
    found: dict[str, list[str]] = {"no_leader": [], "missing_replicas": [], "lagged": [], "not_seen": [], "fail": []}
    well = 0
    for answer in await manager.stream_list():
        name = str((answer.raw.get("config") or {}).get("name"))
        cluster = answer.raw.get("cluster")
        replicas = (cluster or {}).get("replicas") or []
        wanted = int((answer.raw.get("config") or {}).get("num_replicas") or 1)
        ills = {
            "no_leader": cluster is not None and not cluster.get("leader"),
            "missing_replicas": cluster is not None and wanted > 1 and len(replicas) + 1 < wanted,
            "lagged": any(0 < lag <= int(replica.get("lag") or 0) for replica in replicas),
            "not_seen": any(0 < seen <= int(replica.get("active") or 0) for replica in replicas),
            "fail": any(replica.get("offline") for replica in replicas),
        }
        for ill, has_it in ills.items():
            if has_it:
                found[ill].append(name)
        well += not any(ills.values())
    check.measure("replicas_ok", well, "Streams with healthy replicas")
    for ill, text, unit, limit in (
        ("no_leader", "without a leader", "", None),
        ("missing_replicas", "without enough replicas", "", None),
        ("lagged", "with replicas that lag", "", lag),
        ("not_seen", "with replicas not seen", "s", seen / NS_PER_S),
        ("fail", "with replicas that are offline", "", None),
    ):
        check.metrics.append(CheckMetric(f"replicas_{ill}", len(found[ill]), f"Streams {text}", unit, None, limit))
        if found[ill]:
            check.critical.append(f"streams {text}: {', '.join(found[ill])}")


def check_credential(check: MonitoringCheck, jwt: str, limits: Limits) -> None:
    """Check how long a user JWT is still valid."""
    try:
        claims = json.loads(base64.urlsafe_b64decode(jwt.split(".")[1] + "==="))
        expires_s = float(claims.get("exp") or 0)
    except (IndexError, ValueError, AttributeError, TypeError):
        check.critical.append("the JWT in it does not read")
        return
    if not expires_s:
        if limits.get("require-expiry", True):
            check.critical.append("it never expires")
        else:
            check.ok.append("it never expires")
        return
    left_s = expires_s - time.time()
    metric = CheckMetric("expiry", left_s, "Time until it expires", "s")
    if left_s <= 0:
        check.measure(metric.name, left_s, metric.help, metric.unit)
        check.critical.append(f"expired {-left_s:.0f}s ago")
        return
    text = f"expires in {left_s / 86400:.2f}d"
    check.compare(metric, text, seconds(limits, "validity-warn"), seconds(limits, "validity-critical"), low=True)
    if not check.ok and not check.warning and not check.critical:
        check.ok.append(text)
