"""Checks of accounts, clusters, leaf nodes, JetStream's meta group and servers.

Each says in its code's family what `nats audit analyze` says. Source: jsm.go, audit/*_checks.go.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any, Final

from natsctl.api.times import is_zero, parse_time
from natsctl.api.units import format_duration, format_size, plural
from natsctl.client.audit.analysis import (
    AuditInspection,
    CheckOutcome,
    CheckSkippedError,
    Threshold,
    percent,
    registered,
)

NS_PER_DAY: Final = 86_400_000_000_000
BLANKS: Final = " \t\r\n"


@registered(
    "ACCOUNTS_001",
    "accounts",
    "Account Limits",
    "Account usage is below the configured limits",
    percent("connections", "Alerting threshold as a fraction of configured connections limit"),
    percent("subscriptions", "Alerting threshold as a fraction of configured subscriptions limit"),
)
def account_limits(inspection: AuditInspection) -> CheckOutcome:
    exceeded = False
    for artifact, document in inspection.bundle.documents(artifact_type="account_info"):
        info = document.get("data", document)
        limits = ((info.get("decoded_jwt") or {}).get("nats") or {}).get("limits") or {}
        name = info.get("account_name") or artifact.tags.get("account", "")
        if (tag := info.get("name_tag")) and tag != name:
            name = f"{tag} ({name})"
        for what, field, limit, key in (
            ("client connections", "client_connections", "conn", "connections"),
            ("leaf connections", "leafnode_connections", "leaf", "connections"),
            ("subscriptions", "subscriptions", "subs", "subscriptions"),
        ):
            value, most = int(info.get(field) or 0), int(limits.get(limit) or 0)
            if most <= 0:
                continue
            share = f"{value * 100 / most:.1f}%"
            if value > most:
                exceeded = True
                inspection.fault(
                    f"account {name} (on {artifact.server}) exceeded {what} limit ({share}, {value}/{most})"
                )
            elif value > int(most * inspection.value(key) / 100):
                inspection.fault(
                    f"account {name} (on {artifact.server}) using {share} of {what} limit ({value}/{most})"
                )
    return inspection.outcome(CheckOutcome.FAIL if exceeded else CheckOutcome.WARN)


@registered(
    "CLUSTER_001",
    "cluster",
    "Cluster Memory Usage Outliers",
    "Memory usage is uniform across nodes in a cluster",
    Threshold(key="memory", description="Threshold of memory usage above average", default=1.5),
)
def memory_outliers(inspection: AuditInspection) -> CheckOutcome:
    used: dict[str, dict[str, int]] = defaultdict(dict)
    for cluster, server, data in inspection.data("variables", required=True):
        used[cluster][server] = int(data.get("mem") or 0)
    for cluster, servers in used.items():
        mean = sum(servers.values()) / len(servers)
        for server, size in servers.items():
            if size > mean * inspection.value("memory"):
                inspection.fault(
                    f"Cluster {cluster} avg: {format_size(int(mean))}, server {server}: {format_size(size)}"
                )
    return inspection.outcome(CheckOutcome.WARN)


@registered(
    "CLUSTER_002",
    "cluster",
    "Cluster Uniform Gateways",
    "All nodes in a cluster share the same gateways configuration",
)
def uniform_gateways(inspection: AuditInspection) -> CheckOutcome:
    sides: dict[tuple[str, str], dict[str, list[str]]] = defaultdict(dict)
    for cluster, server, data in inspection.data("gateways", required=True):
        for side in ("inbound", "outbound"):
            held = data.get(f"{side}_gateways") or {}
            sides[cluster, side][server] = sorted(name for name, links in held.items() if _configured(links))
    for (cluster, side), servers in sides.items():
        named = list(servers.items())
        for (before, expected), (server, gateways) in pairwise(named):
            if gateways != expected:
                inspection.fault(
                    f"Cluster {cluster}, {side} gateways server {server}: {_words(gateways)} "
                    f"!= server {before}: {_words(expected)}"
                )
    return inspection.outcome(CheckOutcome.FAIL)


def _configured(links: Any) -> bool:
    return any(bool(link.get("configured")) for link in (links if isinstance(links, list) else [links]))


def _words(names: Iterable[str]) -> str:
    return f"[{' '.join(names)}]"


@registered(
    "CLUSTER_003",
    "cluster",
    "Cluster High HA Assets",
    "Number of HA assets is below a given threshold",
    Threshold(key="assets", description="Number of HA assets per server", default=1000, unit="uint"),
)
def ha_assets(inspection: AuditInspection) -> CheckOutcome:
    for _, server, data in inspection.data("jetstream_info", required=True):
        held = int(data.get("ha_assets") or 0)
        if held > inspection.value("assets"):
            inspection.fault(f"{server}: {held} HA assets")
    return inspection.outcome(CheckOutcome.WARN)


@registered("CLUSTER_004", "cluster", "Whitespace in cluster name", "No cluster name contains whitespace")
def cluster_names(inspection: AuditInspection) -> CheckOutcome:
    for cluster in inspection.bundle.values("cluster"):
        if _has_blank(cluster):
            inspection.fault(f"Cluster: {cluster}")
    return inspection.outcome(CheckOutcome.FAIL)


def _has_blank(name: str) -> bool:
    return any(char in BLANKS for char in name)


@registered("LEAF_001", "leaf", "Whitespace in leafnode server names", "No Leafnode contains whitespace in its name")
def leafnode_names(inspection: AuditInspection) -> CheckOutcome:
    named: dict[str, set[str]] = defaultdict(set)
    for cluster, _, data in inspection.data("leafs", required=True):
        for leaf in data.get("leafs") or ():
            if _has_blank(name := str(leaf.get("name") or "")):
                named[cluster].add(name)
    for cluster, names in named.items():
        inspection.fault(f"Cluster {cluster}: {_words(sorted(names))}")
    return inspection.outcome(CheckOutcome.FAIL)


@registered("META_001", "meta", "Meta cluster offline replicas", "All nodes part of the meta group are online")
def meta_offline(inspection: AuditInspection) -> CheckOutcome:
    for cluster, server, meta in _meta(inspection):
        for peer in meta.get("replicas") or ():
            if peer.get("offline"):
                inspection.fault(f"{cluster} - {server} reports peer {peer.get('name')} as offline")
    return inspection.outcome(CheckOutcome.FAIL)


@registered(
    "META_002",
    "meta",
    "Meta cluster leader",
    "All nodes part of the meta group agree on the meta cluster leader",
)
def meta_leader(inspection: AuditInspection) -> CheckOutcome:
    led: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for cluster, server, meta in _meta(inspection):
        led[cluster][str(meta.get("leader") or "")].append(server)
    for cluster, leaders in led.items():
        if "" in leaders:
            inspection.fault(f"Members of {cluster} have no meta leader")
        elif len(leaders) > 1:
            said = "; ".join(f"{leader}: {_words(servers)}" for leader, servers in sorted(leaders.items()))
            inspection.fault(f"Members of {cluster} disagree on meta leader ({said})")
    return inspection.outcome(CheckOutcome.FAIL)


def _meta(inspection: AuditInspection) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    for cluster, server, data in inspection.data("jetstream_info", required=True):
        if data.get("disabled"):
            continue
        if meta := data.get("meta_cluster"):
            yield cluster, server, meta
        else:
            inspection.log(f"{cluster} / {server} has no meta group")


@registered("SERVER_001", "server", "Server Health", "All known nodes are healthy")
def health(inspection: AuditInspection) -> CheckOutcome:
    for _, server, data in inspection.data("health"):
        status = str(data.get("status") or "")
        if status not in ("ok", ""):
            inspection.fault(f"{server}: {data.get('status_code', 0)} - {status}")
    return inspection.outcome(CheckOutcome.WARN)


@registered("SERVER_002", "server", "Server Version", "All known nodes are running the same software version")
def versions(inspection: AuditInspection) -> CheckOutcome:
    seen: dict[str, str] = {}
    for _, server, data in inspection.data("variables"):
        seen.setdefault(str(data.get("version") or ""), server)
    if not seen:
        return CheckOutcome.SKIP
    for version, server in seen.items() if len(seen) > 1 else ():
        inspection.fault(f"{server} - {version}")
    return inspection.outcome(CheckOutcome.FAIL)


@registered(
    "SERVER_003",
    "server",
    "Server CPU Usage",
    "CPU usage for all known nodes is below a given threshold",
    percent("cpu", "CPU Limit Threshold"),
)
def cpu(inspection: AuditInspection) -> CheckOutcome:
    for cluster, server, data in inspection.data("variables"):
        cores = int(data.get("cores") or 0)
        if not cores:
            inspection.log(f"server {server} reports no cores")
            continue
        share = float(data.get("cpu") or 0) / cores
        if share > inspection.value("cpu"):
            inspection.fault(f"{cluster} - {server}: {share:.1f}%")
    return inspection.outcome(CheckOutcome.FAIL)


@registered("SERVER_004", "server", "Server Slow Consumers", "No node is reporting slow consumers")
def slow_consumers(inspection: AuditInspection) -> CheckOutcome:
    for cluster, server, data in inspection.data("variables"):
        if slow := int(data.get("slow_consumers") or 0):
            inspection.fault(f"{cluster}/{server}: {slow} slow consumers")
    return inspection.outcome(CheckOutcome.WARN)


@registered(
    "SERVER_005",
    "server",
    "Server Resources Limits",
    "Resources are below a given threshold compared to the configured limit",
    percent("memory", "Threshold for memory usage"),
    percent("store", "Threshold for store usage"),
)
def resource_limits(inspection: AuditInspection) -> CheckOutcome:
    for _, server, data in inspection.data("jetstream_info"):
        config = data.get("config") or {}
        for what, held, most in (("memory", "memory", "max_memory"), ("store", "storage", "max_storage")):
            value, limit = int(data.get(held) or 0), int(config.get(most) or 0)
            if limit > 0 and value > int(limit * inspection.value(what) / 100):
                inspection.fault(f"{server} {what} usage: {format_size(value)} of {format_size(limit)}")
    return inspection.outcome(CheckOutcome.WARN)


@registered(
    "SERVER_006",
    "server",
    "Whitespace in JetStream domains",
    "No JetStream server is configured with whitespace in its domain",
)
def domains(inspection: AuditInspection) -> CheckOutcome:
    for cluster, server, data in inspection.data("jetstream_info"):
        if _has_blank(domain := str((data.get("config") or {}).get("domain") or "")):
            inspection.fault(f"Cluster {cluster} Server {server} Domain {domain}")
    return inspection.outcome(CheckOutcome.WARN)


@registered("SERVER_007", "server", "Authentication required", "Each server requires authentication")
def authentication(inspection: AuditInspection) -> CheckOutcome:
    for _, server, data in inspection.data("variables"):
        if not data.get("auth_required"):
            inspection.fault(f"{server}: authentication not required")
    return inspection.outcome(CheckOutcome.WARN)


_LISTENERS: Final = ("server", "cluster", "gateway", "leaf", "mqtt", "websocket")
"""Listeners that may have a certificate; the first is the one for clients."""


@registered(
    "SERVER_008",
    "server",
    "TLS Certificate Expiry",
    "TLS certificates are valid and not expiring soon",
    Threshold(
        key="tls_expire_warning",
        description="Certificate expiry warning threshold in days",
        default=30,
        unit="uint",
    ),
    Threshold(
        key="tls_expire_critical",
        description="Certificate expiry critical threshold in days",
        default=7,
        unit="uint",
    ),
)
def certificates(inspection: AuditInspection) -> CheckOutcome:
    warn_ns, critical_ns = (
        int(inspection.value(key) * NS_PER_DAY) for key in ("tls_expire_warning", "tls_expire_critical")
    )
    checked = 0
    worst = CheckOutcome.PASS
    for cluster, server, data in inspection.data("variables"):
        for listener in _LISTENERS:
            end = (data if listener == "server" else data.get(listener) or {}).get("tls_cert_not_after")
            if is_zero(end):
                continue
            checked += 1
            try:
                left_ns = parse_time(str(end)) - parse_time(str(data.get("now")))
            except ValueError as failure:
                raise CheckSkippedError(f"the variables of server {server}: {failure}") from None
            name = "leafnode" if listener == "leaf" else listener
            if left_ns <= 0:
                worst = CheckOutcome.FAIL
                inspection.fault(f"{cluster}/{server} {name} TLS certificate expired (expired_at={end})")
            elif left_ns <= max(warn_ns, critical_ns):
                worst = max(worst, CheckOutcome.FAIL if left_ns <= critical_ns else CheckOutcome.WARN)
                left = format_duration(left_ns - left_ns % 1_000_000_000)
                inspection.fault(f"{cluster}/{server} {name} TLS certificate expires in {left} (expires_at={end})")
    if not checked:
        return CheckOutcome.SKIP
    inspection.log(f"{plural(checked, 'certificate')} checked")
    return worst
