"""Checks of servers and of what answers on them: a server, the JetStream cluster, a connection, a service."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from natsctl.api.errors import ApiResponseError, UnreachableError
from natsctl.api.times import parse_time
from natsctl.client.checks.assets import compiled
from natsctl.client.checks.check import NS_PER_S, Check, Limits, Metric, seconds
from natsctl.client.connection import NO_RESPONDERS
from natsctl.client.preview import DryRunError, Planned
from natsctl.client.settings import without_login
from natsctl.client.system.census import System
from natsctl.client.system.reports import span_ns

if TYPE_CHECKING:
    from natsctl.client.manager import Manager
    from natsctl.client.system.answers import ServerAnswer


LISTENERS = ("cluster", "gateway", "leaf", "mqtt", "websocket")
"""What may have a certificate of its own, beside the listener for clients."""


async def check_connection(manager: Manager, check: Check, connect_s: float, limits: Limits) -> None:
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
    url = without_login(connection.url)
    for name, flag, value, text, help in (
        ("connect_time", "connect", connect_s, f"connected to {url} in {connect_s:.6f}s", "Time to connect"),
        ("rtt", "rtt", rtt_s, f"rtt time {rtt_s * 1000:.3f}ms", "Time for a PING to be answered"),
        ("request_time", "req", request_s, f"round trip took {request_s:.6f}s", "Time for a message to return"),
    ):
        metric = Metric(name, value, help, "s")
        check.compare(metric, text, seconds(limits, f"{flag}-warn"), seconds(limits, f"{flag}-critical"), low=False)


async def check_request(manager: Manager, check: Check, limits: Limits) -> None:
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
    metric = Metric("time", elapsed_s, "Time for the request to be answered", "s")
    if answer.status == NO_RESPONDERS:
        check.critical.append("nobody listens on the subject")
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


async def check_server(manager: Manager, check: Check, limits: Limits) -> None:
    """Check one server's uptime and load, and that it has what is required of it."""
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


def _check_load(check: Check, varz: dict[str, Any], limits: Limits) -> None:
    started = varz.get("start")
    uptime_ns = time.time_ns() - parse_time(str(started)) if started else span_ns(varz.get("uptime"))
    uptime_s = uptime_ns / NS_PER_S
    uptime = Metric("uptime", uptime_s, "Time since the server started", "s")
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
        found = Metric(metric, value, what[0].upper() + what[1:], unit)
        check.compare(found, text, limits.get(f"{flag}-warn"), limits.get(f"{flag}-critical"))


def _check_certificates(check: Check, varz: dict[str, Any], limits: Limits) -> None:
    warning, critical = seconds(limits, "tls-cert-warn"), seconds(limits, "tls-cert-crit")
    if warning is None and critical is None:
        return
    listeners = {"client": varz, **{name: varz.get(name) or {} for name in LISTENERS}}
    ends = {name: part["tls_cert_not_after"] for name, part in listeners.items() if part.get("tls_cert_not_after")}
    if not ends:
        check.critical.append("no TLS certificate to check")
    for name, end in ends.items():
        left_s = (parse_time(str(end)) - time.time_ns()) / NS_PER_S
        metric = Metric(f"tls_{name}", left_s, f"Time until the {name} certificate expires", "s")
        check.compare(metric, f"{name} certificate expires in {left_s / 86400:.1f}d", warning, critical, low=True)


async def check_meta(manager: Manager, check: Check, limits: Limits) -> None:
    """Check the group of servers that runs JetStream's cluster."""
    answers = await System(manager).ask("JSZ")
    leader = next((one for one in answers if _leads(one)), None)
    if leader is None:
        clustered = [one for one in answers if (one.data.get("meta_cluster") or {}).get("cluster_size")]
        check.critical.append("the cluster has no leader" if clustered else "JetStream is not clustered")
        return
    meta = leader.data["meta_cluster"]
    replicas = meta.get("replicas") or []
    expected, lag, seen = limits["expect"], limits.get("lag-critical") or 0, limits.get("seen-critical") or 0
    peers = len(replicas) + 1
    check.metrics.append(Metric("peers", peers, "Servers of the group", "", expected, expected))
    check.require(peers == expected, f"{peers} peers led by {leader.name}", f"{peers} peers, expected {expected}")
    for name, what, found in (
        ("peer_offline", "offline", [one for one in replicas if one.get("offline")]),
        ("peer_not_current", "not current", [one for one in replicas if not one.get("current")]),
        ("peer_inactive", "not seen", [one for one in replicas if 0 < seen <= int(one.get("active") or 0)]),
        ("peer_lagged", "behind", [one for one in replicas if 0 < lag <= int(one.get("lag") or 0)]),
    ):
        check.measure(name, len(found), f"Servers of the group that are {what}")
        if found:
            check.critical.append(f"{what}: {', '.join(str(one.get('name')) for one in found)}")


def _leads(one: ServerAnswer) -> bool:
    meta = one.data.get("meta_cluster") or {}
    return bool(meta.get("leader")) and meta["leader"] in (one.name, one.id) and bool(meta.get("cluster_size"))


async def check_jetstream(manager: Manager, check: Check, limits: Limits) -> None:
    """Check what an account uses of its limits, and that every replica of its streams is well."""
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
        metric = Metric(f"{name}_pct", percent, f"{name.title()} in use, of the limit", "%")
        warning, critical = limits.get(f"{flag}-warn"), limits.get(f"{flag}-critical")
        shares = False if flag in ("mem", "store") else None  # the others may be watched for running low
        check.compare(metric, f"{name} {percent:.0f}% of the limit", warning, critical, low=shares)
    if limits.get("replicas", True):
        await _check_replicas(manager, check, limits)


def _percent(info: dict[str, Any], key: str, most: str) -> float:
    """How much of the limit is used; of an account with tiers, in the tier that is nearest to its limit."""
    tiers = list((info.get("tiers") or {}).values()) or [info]
    shares = []
    for tier in tiers:
        limit = int((tier.get("limits") or {}).get(most) or 0)
        shares.append(100 * int(tier.get(key) or 0) / limit if limit > 0 else 0.0)
    return max(shares)


async def _check_replicas(manager: Manager, check: Check, limits: Limits) -> None:
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
            "lagged": any(0 < lag <= int(one.get("lag") or 0) for one in replicas),
            "not_seen": any(0 < seen <= int(one.get("active") or 0) for one in replicas),
            "fail": any(one.get("offline") for one in replicas),
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
        check.metrics.append(Metric(f"replicas_{ill}", len(found[ill]), f"Streams {text}", unit, None, limit))
        if found[ill]:
            check.critical.append(f"streams {text}: {', '.join(found[ill])}")


def check_credential(check: Check, jwt: str, limits: Limits) -> None:
    """Check how long a user JWT is still valid."""
    import base64
    import json

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
    metric = Metric("expiry", left_s, "Time until it expires", "s")
    if left_s <= 0:
        check.measure(metric.name, left_s, metric.help, metric.unit)
        check.critical.append(f"expired {-left_s:.0f}s ago")
        return
    text = f"expires in {left_s / 86400:.2f}d"
    check.compare(metric, text, seconds(limits, "validity-warn"), seconds(limits, "validity-critical"), low=True)
    if not check.ok and not check.warning and not check.critical:
        check.ok.append(text)
