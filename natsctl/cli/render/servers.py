"""Servers, their accounts and health checks as pages."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from natsctl.api.times import parse_time
from natsctl.api.units import format_size
from natsctl.cli.render.page import Page, Section
from natsctl.cli.render.tables import render_table
from natsctl.cli.render.text import ago, count, duration, safe, when, yes
from natsctl.client.system.system_account import ServerAnswer

if TYPE_CHECKING:
    from rich.console import RenderableType

    from natsctl.client.checks import CheckMetric, MonitoringCheck


Varz = Mapping[str, Any]


def render_server(answer: ServerAnswer) -> Page:
    varz = answer.data
    page = Page(f"Server information for {safe(answer.name)} ({safe(answer.id)})")
    _process(page.section("Process Details"), varz)
    _connection(page.section("Connection Details"), varz)
    _jetstream(page.section("JetStream"), varz.get("jetstream") or {})
    section = page.section("Limits")
    section.row("Maximum Connections", count(int(varz.get("max_connections") or 0)))
    subscriptions = int(varz.get("max_subscriptions") or 0)
    section.row("Maximum Subscriptions", count(subscriptions) if subscriptions > 0 else "0 (unlimited)")
    section.row("Maximum Payload", format_size(int(varz.get("max_payload") or 0)))
    section.row("Maximum Pending", format_size(int(varz.get("max_pending") or 0)))
    section.row("TLS Timeout", duration(int(float(varz.get("tls_timeout") or 0) * 1e9)))
    section.row("Write Deadline", duration(int(varz.get("write_deadline") or 0)))
    _statistics(page.section("Statistics"), varz)
    _cluster(page.section("Cluster"), varz)
    _gateway(page.section("Super Cluster"), varz.get("gateway") or {})
    _leaf(page.section("Leafnodes"), varz)
    certificates = page.section("Certificates")
    for name, part in (
        ("Clients", varz),
        *((key.title(), varz.get(key) or {}) for key in ("cluster", "gateway", "leaf")),
    ):
        if part.get("tls_cert_not_after"):
            certificates.row(f"{name} Certificate Expires", when(str(part["tls_cert_not_after"])))
    return page


def _text(varz: Varz, key: str) -> str:
    return safe(str(varz.get(key) or ""))


def _process(section: Section, varz: Varz) -> None:
    section.row("Version", _text(varz, "version"))
    section.row("Git Commit", _text(varz, "git_commit"))
    section.row("Go Version", _text(varz, "go"))
    section.row("Start Time", when(varz.get("start")))
    section.maybe("Configuration Load Time", when(varz["config_load_time"]) if varz.get("config_load_time") else "")
    section.maybe("Configuration Digest", _text(varz, "config_digest"))
    if start := varz.get("start"):
        section.row("Uptime", duration(max(0, time.time_ns() - parse_time(str(start))) // 10**9 * 10**9))
    section.maybe("System Account", _text(varz, "system_account"))
    section.maybe("Tags", ", ".join(safe(str(tag)) for tag in varz.get("tags") or ()))
    section.maybe("Metadata", ", ".join(safe(f"{key}={value}") for key, value in (varz.get("metadata") or {}).items()))


def _connection(section: Section, varz: Varz) -> None:
    section.row("Auth Required", yes(bool(varz.get("auth_required"))))
    section.row("TLS Required", yes(bool(varz.get("tls_required"))))
    section.row("Host", safe(f"{varz.get('host', '')}:{varz.get('port', '')}"))
    if varz.get("http_port") or varz.get("https_port"):
        port = varz.get("https_port") or varz.get("http_port")
        section.row("Monitoring", safe(f"{varz.get('http_host', '')}:{port}{varz.get('http_base_path') or ''}"))
    websocket = varz.get("websocket") or {}
    if websocket.get("port"):
        section.row("WebSocket", safe(f"{websocket.get('host', '')}:{websocket['port']}"))
    mqtt = varz.get("mqtt") or {}
    if mqtt.get("port"):
        section.row("MQTT", safe(f"{mqtt.get('host', '')}:{mqtt['port']}"))
    section.many("Client URLs", [safe(str(url)) for url in varz.get("connect_urls") or ()])


def _jetstream(section: Section, jetstream: Varz) -> None:
    config, stats = jetstream.get("config") or {}, jetstream.get("stats") or {}
    if not config:
        section.row("Enabled", yes(False))
        return
    api, limits = stats.get("api") or {}, jetstream.get("limits") or {}
    section.row("Domain", _text(config, "domain"))
    section.row("API Support Level", count(int(api.get("level") or 0)))
    section.row("Storage Directory", _text(config, "store_dir"))
    section.row("Active Accounts", count(int(stats.get("accounts") or 0)))
    section.row("HA Assets", count(int(stats.get("ha_assets") or 0)))
    section.row("Memory In Use", _use(stats, "memory"))
    section.row("File In Use", _use(stats, "storage"))
    section.row("Maximum Memory Storage", format_size(int(config.get("max_memory") or 0)))
    section.row("Maximum File Storage", format_size(int(config.get("max_storage") or 0)))
    section.row("Cluster Message Compression", yes(bool(config.get("compress_ok"))))
    section.row("API Requests", count(int(api.get("total") or 0)))
    section.row("API Errors", count(int(api.get("errors") or 0)))
    section.row("Always sync writes to disk", yes(bool(config.get("sync_always"))))
    interval_ns = int(config.get("sync_interval") or 0)
    section.maybe("Write sync Frequency", duration(interval_ns) if interval_ns else "")
    section.row("Strict API Parsing", yes(bool(config.get("strict"))))
    for label, key, show in (
        ("Maximum HA Assets", "max_ha_assets", count),
        ("Maximum Ack Pending", "max_ack_pending", count),
        ("Maximum Request Batch", "max_request_batch", count),
        ("Maximum Duplicate Window", "duplicate_window", duration),
    ):
        value = int(limits.get(key) or 0)
        section.row(label, show(value) if value > 0 else "unlimited")
    for label, key, show in (
        ("Maximum Messages Per Batch", "max_batch_size", count),
        ("Maximum Batch Timeout", "max_batch_timeout", duration),
        ("Maximum Open Batches Per Stream", "max_batch_inflight_per_stream", count),
        ("Maximum Open Batches Per Server", "max_batch_inflight_total", count),
    ):
        if (value := int(limits.get(key) or 0)) > 0:
            section.row(label, show(value))


def _use(stats: Varz, key: str) -> str:
    text = format_size(int(stats.get(key) or 0))
    reserved = int(stats.get(f"reserved_{key}") or 0)
    return f"{text} ({format_size(reserved)} reserved)" if 0 < reserved < 2**63 else text


def _statistics(section: Section, varz: Varz) -> None:
    def moved(what: str) -> tuple[int, int]:
        return int(varz.get(f"in_{what}") or 0), int(varz.get(f"out_{what}") or 0)

    section.row("CPU Cores", f"{count(int(varz.get('cores') or 0))} {float(varz.get('cpu') or 0):.2f}%")
    section.maybe("GOMAXPROCS", count(int(varz["gomaxprocs"])) if varz.get("gomaxprocs") else "")
    section.row("Memory", format_size(int(varz.get("mem") or 0)))
    section.maybe("GOMEMLIMIT", count(int(varz["gomemlimit"])) if varz.get("gomemlimit") else "")
    total = int(varz.get("total_connections") or 0)
    section.row("Connections", f"{count(int(varz.get('connections') or 0))} now, {count(total)} since the start")
    section.row("Subscriptions", count(int(varz.get("subscriptions") or 0)))
    received, sent = moved("msgs")
    section.row("Messages", f"{count(received)} in {count(sent)} out")
    received, sent = moved("bytes")
    section.row("Bytes", f"{format_size(received)} in {format_size(sent)} out")
    section.row("Slow Consumers", count(int(varz.get("slow_consumers") or 0)))


def _cluster(section: Section, varz: Varz) -> None:
    cluster = varz.get("cluster") or {}
    if not cluster.get("name") and not cluster.get("urls"):
        return
    section.row("Name", _text(cluster, "name"))
    section.row("Host", safe(f"{cluster.get('addr', '')}:{cluster.get('cluster_port', '')}"))
    section.row("Routes", count(int(varz.get("routes") or 0)))
    section.many("URLs", [safe(str(url)) for url in cluster.get("urls") or ()])
    meta = (varz.get("jetstream") or {}).get("meta") or {}
    section.maybe("JetStream Leader", _text(meta, "leader"))


def _gateway(section: Section, gateway: Varz) -> None:
    if not gateway.get("name"):
        return
    section.row("Name", _text(gateway, "name"))
    section.row("Host", safe(f"{gateway.get('host', '')}:{gateway.get('port', '')}"))
    section.many("Clusters", [safe(str(one.get("name"))) for one in gateway.get("gateways") or ()])


def _leaf(section: Section, varz: Varz) -> None:
    leaf = varz.get("leaf") or {}
    if leaf.get("port"):
        section.row("Host", safe(f"{leaf.get('host', '')}:{leaf['port']}"))
    if varz.get("leafnodes"):
        section.row("Connected", count(int(varz["leafnodes"])))
    urls = [str(url) for remote in leaf.get("remotes") or () for url in remote.get("urls") or ()]
    section.many("Remotes", [safe(url) for url in urls])


Detail = Mapping[str, Any]


def render_account_detail(detail: Detail, server: str) -> Page:
    name, tag = str(detail.get("account_name") or ""), str(detail.get("name_tag") or "")
    page = Page(f"Account information for account {safe(name)} on {safe(server)}")
    section = page.section("Details")
    for label, key in (
        ("Complete", "complete"),
        ("Expired", "expired"),
        ("System Account", "is_system"),
        ("JetStream", "jetstream_enabled"),
    ):
        section.row(label, yes(bool(detail.get(key))))
    if updated := detail.get("update_time"):
        section.row("Updated", f"{when(str(updated))} ({ago(str(updated), time.time_ns())} ago)")
    section.maybe("Issuer", safe(str(detail.get("issuer_key") or "")))
    section.maybe("Tag", safe(tag))
    section.row("Client Connections", count(int(detail.get("client_connections") or 0)))
    section.row("Leafnode Connections", count(int(detail.get("leafnode_connections") or 0)))
    section.row("Subscriptions", count(int(detail.get("subscriptions") or 0)))
    _account_limits(page.section("Limits"), detail)
    _shared(page, "Imports", detail.get("imports") or (), _import)
    _shared(page, "Exports", detail.get("exports") or (), _export)
    _mappings(page.section("Mappings"), detail.get("mappings") or {})
    return page


def _account_limits(section: Section, detail: Detail) -> None:
    limits = (detail.get("decoded_jwt") or {}).get("nats", {}).get("limits") or {}
    for key, value in limits.items():
        if isinstance(value, bool):
            section.row(safe(str(key)), yes(value))
        elif isinstance(value, int):
            size = key in ("data", "payload", "mem_storage", "disk_storage")
            section.row(safe(str(key)), "unlimited" if value < 0 else format_size(value) if size else count(value))


def _shared(page: Page, title: str, entries: Any, rows: Callable[[Section, Detail], None]) -> None:
    for number, entry in enumerate(entries):
        # One block for each: those after the first follow without a title of their own.
        rows(page.section("" if number else title), entry)


def _import(section: Section, entry: Detail) -> None:
    local = str(entry.get("local_subject") or entry.get("to") or entry.get("subject"))
    subject, account = str(entry.get("subject")), safe(str(entry.get("account")))
    origin = f" from subject {safe(subject)} in account {account}" if subject != local else f" from account {account}"
    section.maybe("Invalid", yes(True) if entry.get("invalid") else "")
    section.row("Subject", f"{safe(local)}{origin}")
    section.row("Type", safe(str(entry.get("type") or "")))
    section.maybe("Name", safe(str(entry.get("name") or "")))
    section.row("Sharing", yes(bool(entry.get("share"))))
    section.row("Tracking", yes(bool(entry.get("tracking"))))


def _export(section: Section, entry: Detail) -> None:
    section.row("Subject", safe(str(entry.get("subject"))))
    section.row("Type", safe(str(entry.get("type") or "")))
    section.row("Tokens Required", yes(bool(entry.get("token_req"))))
    section.maybe("Response Type", safe(str(entry.get("response_type") or "")))
    section.maybe("Description", safe(str(entry.get("description") or "")))
    section.maybe("Name", safe(str(entry.get("name") or "")))
    section.many("Accounts", [safe(str(approved_account)) for approved_account in entry.get("approved_accounts") or ()])


def _mappings(section: Section, mappings: Detail) -> None:
    for source, targets in mappings.items():
        section.row(safe(str(source)), safe(json.dumps(targets, ensure_ascii=False)))


_SAID = (("Crit", "critical"), ("Unknown", "unknown"), ("Warn", "warning"), ("OK", "ok"))


def nagios(check: MonitoringCheck) -> str:
    """Return the result as one line for Nagios.

    It has the status, the name, the findings, and after a bar the measured values with their thresholds.
    """
    said = [f"{mark}:{text}" for mark, field in _SAID for text in getattr(check, field)]
    line = " ".join([check.status.name, check.name, *said]).replace("|", "/")
    measured = " ".join(_measured(metric) for metric in check.metrics)
    return safe(f"{line} | {measured}" if measured else line)


def _measured(metric: CheckMetric) -> str:
    unit = metric.unit
    limits = ";".join(
        "" if limit is None else _number(limit, unit) for limit in (metric.warning, metric.critical)
    ).rstrip(";")
    return f"{metric.name}={_number(metric.value, unit)}{unit}" + (f";{limits}" if limits else "")


def _number(value: float, unit: str) -> str:
    return f"{value:.4f}" if unit == "s" else f"{value:.0f}"


def document(check: MonitoringCheck) -> dict[str, Any]:
    found: dict[str, Any] = {"status": check.status.name, "check_suite": check.suite, "check_name": check.name}
    for _, field in _SAID:
        if texts := getattr(check, field):
            found[field] = texts
    return {**found, "perf_data": [_metric(metric) for metric in check.metrics]}


def _metric(metric: CheckMetric) -> dict[str, Any]:
    """Return a value with its thresholds, 0 for one that is not set: readers find the same keys everywhere."""
    said = {"name": metric.name, "value": metric.value}
    said |= {"warning": metric.warning or 0, "critical": metric.critical or 0}
    return said | ({"unit": metric.unit} if metric.unit else {})


def prometheus(check: MonitoringCheck, namespace: str) -> str:
    item = f'item="{_label(check.name)}"'
    lines = []
    for metric in check.metrics:
        name = f"{namespace}_{check.suite}_{metric.name}"
        value = int(metric.value) if float(metric.value).is_integer() else metric.value
        lines += [f"# HELP {name} {metric.help}", f"# TYPE {name} gauge", f"{name}{{{item}}} {value}"]
    name = f"{namespace}_{check.suite}_status_code"
    lines += [f"# HELP {name} Status code as Nagios counts: 0 OK, 1 warning, 2 critical, 3 unknown"]
    lines += [f"# TYPE {name} gauge", f'{name}{{{item},status="{check.status.name}"}} {int(check.status)}']
    return "\n".join(lines)


def _label(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def tables(check: MonitoringCheck) -> list[RenderableType]:
    from rich.text import Text

    parts: list[RenderableType] = [Text(safe(f"{check.name}: {check.status.name}"), style="bold")]
    said = [(mark.upper(), text) for mark, field in _SAID for text in getattr(check, field)]
    if said:
        parts.append(render_table("Status Detail", ("Status", "Message"), said))
    rows = [
        (
            metric.name,
            f"{_shown(metric.value)}{f' {metric.unit}' if metric.unit else ''}",
            _shown(metric.warning),
            _shown(metric.critical),
            metric.help,
        )
        for metric in check.metrics
    ]
    if rows:
        columns = ("Metric", "Value", "Warning", "Critical", "Description")
        parts.append(render_table("Check Metrics", columns, rows, columns[1:4]))
    return parts


def _shown(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.4f}"
