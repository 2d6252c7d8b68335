"""Checks of what JetStream holds: a stream, a consumer, a message, a bucket."""

from __future__ import annotations

import base64
import re
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from natsctl.api.err_codes import ErrCode
from natsctl.api.errors import ApiResponseError, UsageError
from natsctl.api.headers import parse as parse_headers
from natsctl.api.times import ZERO_TIME, parse_time
from natsctl.client.checks.check import METADATA, NS_PER_S, Check, Limits, Metric, active, seconds

if TYPE_CHECKING:
    from natsctl.client.manager import Manager

Readers = Mapping[str, Callable[[str], Any]]
"""How the text of each threshold is read."""

_GONE = (b"DEL", b"PURGE", b"MaxAge", b"Purge", b"Remove")


def with_metadata(limits: Limits, readers: Readers, raw: Mapping[str, Any]) -> dict[str, Any]:
    """The thresholds that metadata sets, and over them those that were given; raises UsageError for a bad one."""
    metadata = (raw.get("config") or {}).get("metadata") or {}
    said = {
        key.removeprefix(METADATA): readers[key.removeprefix(METADATA)](str(text))
        for key, text in metadata.items()
        if key.startswith(METADATA) and key.removeprefix(METADATA) in readers
    }
    return {**said, **limits}


async def check_stream(manager: Manager, check: Check, limits: Limits, readers: Readers) -> None:
    """Check that a stream is written to, its messages, subjects and replicas, and the streams that it copies."""
    raw = (await manager.stream_info(check.name)).raw
    limits = with_metadata(limits, readers, raw)
    state = raw.get("state") or {}
    for name, value, low in (
        ("messages", int(state.get("messages") or 0), True),
        ("subjects", int(state.get("num_subjects") or 0), False),
    ):
        flag = "msgs" if name == "messages" else name
        warning, critical = limits.get(f"{flag}-warn"), limits.get(f"{flag}-critical")
        if warning is not None or critical is not None:
            metric = Metric(name, value, f"{name.title()} in the stream")
            check.compare(metric, f"{value} {name}", warning, critical, low=low or None)
    _check_writes(check, raw)
    _check_peers(check, limits, raw)
    _check_origins(check, limits, raw)


def _check_writes(check: Check, raw: Mapping[str, Any]) -> None:
    """Report that the server writes nothing more to a stream, as natsctl's does in the stream's info."""
    if fault := raw.get("write_error"):
        check.critical.append(f"write error: {fault}")


def _check_peers(check: Check, limits: Limits, raw: Mapping[str, Any]) -> None:
    cluster = raw.get("cluster") or {}
    replicas = cluster.get("replicas") or []
    if raw.get("cluster") is not None and not cluster.get("leader"):
        check.critical.append("no leader")
    peers = len(replicas) + 1
    if active(limits, "peer-expect"):
        expected = limits["peer-expect"]
        check.require(peers == expected, f"{peers} peers", f"{peers} peers, expected {expected}")
    if active(limits, "peer-lag-critical"):
        late = [one for one in replicas if int(one.get("lag") or 0) >= limits["peer-lag-critical"]]
        check.require(not late, "no peer lags", f"peers that lag: {_names(late)}")
    if active(limits, "peer-seen-critical"):
        silent = [one for one in replicas if _silent(one, limits["peer-seen-critical"])]
        check.require(not silent, "all peers are seen", f"peers not seen: {_names(silent)}")
    if any(active(limits, name) for name in ("peer-expect", "peer-lag-critical", "peer-seen-critical")):
        off = [one for one in replicas if one.get("offline") or not one.get("current")]
        check.require(not off, "all peers are current", f"peers that are not current: {_names(off)}")


def _check_origins(check: Check, limits: Limits, raw: Mapping[str, Any]) -> None:
    sources, mirror = raw.get("sources") or [], raw.get("mirror")
    least, most = limits.get("min-sources"), limits.get("max-sources")
    check.metrics.append(Metric("sources", len(sources), "Streams that this one sources", "", least, most))
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
    late = [one for one in origins if 0 < lag <= int(one.get("lag") or 0)]
    silent = [one for one in origins if seen > 0 and _silent(one, seen)]
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
    manager: Manager, check: Check, stream: str, consumer: str, limits: Limits, readers: Readers
) -> None:
    """Check what a consumer has not delivered, what is not acknowledged, and when it last did something."""
    raw = (await manager.consumer_info(stream, consumer)).raw
    limits = with_metadata(limits, readers, raw)
    for flag, metric, key, what in (
        ("outstanding-ack", "ack_pending", "num_ack_pending", "messages not acknowledged"),
        ("waiting", "pull_waiting", "num_waiting", "waiting pulls"),
        ("unprocessed", "pending", "num_pending", "messages not delivered"),
        ("redelivery", "redelivered", "num_redelivered", "messages redelivered"),
    ):
        value = int(raw.get(key) or 0)
        check.compare(
            Metric(metric, value, what.capitalize()), f"{value} {what}", critical=limits.get(f"{flag}-critical")
        )
    for flag, metric, key, what in (
        ("last-delivery", "last_delivery", "delivered", "delivery"),
        ("last-ack", "last_ack", "ack_floor", "acknowledgement"),
    ):
        _check_last(check, limits, flag, metric, (raw.get(key) or {}).get("last_active"), what)
    if limits.get("pinned"):
        _check_pinned(check, raw)


def _check_last(check: Check, limits: Limits, flag: str, metric: str, moment: str | None, what: str) -> None:
    if not moment or moment == ZERO_TIME:
        if active(limits, f"{flag}-critical"):
            check.critical.append(f"no {what} yet")
        return
    since_s = (time.time_ns() - parse_time(moment)) / NS_PER_S
    found = Metric(metric, since_s, f"Time since the last {what}", "s")
    check.compare(found, f"last {what} {since_s:.2f}s ago", critical=seconds(limits, f"{flag}-critical"))


def _check_pinned(check: Check, raw: Mapping[str, Any]) -> None:
    if (raw.get("config") or {}).get("priority_policy") != "pinned_client":
        check.critical.append("its priority policy is not pinned_client")
        return
    bare = [str(one.get("group")) for one in raw.get("priority_groups") or () if not one.get("pinned_client_id")]
    check.require(not bare, "every group has a pinned client", f"groups without a pinned client: {', '.join(bare)}")


async def check_message(manager: Manager, check: Check, stream: str, limits: Limits) -> None:
    """Check the age and the body of the newest message on `limits["subject"]`, or of all when that is `>`."""
    subject = str(limits.get("subject") or ">")
    try:
        if subject == ">":
            seq = int(((await manager.stream_info(stream)).raw.get("state") or {}).get("last_seq") or 0)
            if not seq:
                check.critical.append("the stream is empty")
                return
            answer = await manager.message_get(stream, seq=seq)
        else:
            answer = await manager.message_get(stream, last_by_subj=subject)
    except ApiResponseError as failure:
        if failure.err_code != ErrCode.NO_MESSAGE_FOUND:
            raise
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
    age = Metric("age", age_s, "Age of the message", "s")
    check.compare(age, f"{age_s:.2f}s old", seconds(limits, "age-warn"), seconds(limits, "age-critical"), low=False)
    check.measure("size", len(body), "Size of the body", "B")
    if pattern := limits.get("content"):
        found = compiled(pattern, "--content").search(body.decode("utf-8", "replace"))
        check.require(found is not None, f"the body matches {pattern}", f"the body does not match {pattern}")
    if not check.warning and not check.critical:
        check.ok.append(f"Valid message on {stream} > {subject}")


def compiled(pattern: str, flag: str) -> re.Pattern[str]:
    """A regular expression; raises UsageError that names the flag."""
    try:
        return re.compile(pattern)
    except re.error as failure:
        raise UsageError(f"{flag}: {failure}") from failure


async def check_kv(manager: Manager, check: Check, bucket: str, limits: Limits) -> None:
    """Check that a bucket exists, how many values it has, and that a key has one."""
    stream = f"KV_{bucket}"
    try:
        raw = (await manager.stream_info(stream)).raw
    except ApiResponseError as failure:
        if failure.err_code != ErrCode.STREAM_NOT_FOUND:
            raise
        check.critical.append(f"there is no bucket {bucket}")
        return
    check.ok.append(f"bucket {bucket}")
    _check_writes(check, raw)
    if key := limits.get("key"):
        there = await _has_value(manager, stream, f"$KV.{bucket}.{key}")
        check.require(there, f"key {key} has a value", f"key {key} has no value")
    state = raw.get("state") or {}
    values = int(state.get("messages") or 0)
    found = Metric("values", values, "Values in the bucket, history included")
    check.compare(found, f"{values} values", limits.get("values-warn"), limits.get("values-critical"))
    check.measure("bytes", int(state.get("bytes") or 0), "Size of the bucket", "B")
    check.measure("replicas", int((raw.get("config") or {}).get("num_replicas") or 1), "Replicas of the bucket")


async def _has_value(manager: Manager, stream: str, subject: str) -> bool:
    try:
        answer = await manager.message_get(stream, last_by_subj=subject)
    except ApiResponseError as failure:
        if failure.err_code != ErrCode.NO_MESSAGE_FOUND:
            raise
        return False
    block = base64.b64decode((answer.raw.get("message") or {}).get("hdrs") or "")
    marks = dict(parse_headers(block)) if block else {}
    return not any(marks.get(name) in _GONE for name in (b"KV-Operation", b"Nats-Marker-Reason"))
