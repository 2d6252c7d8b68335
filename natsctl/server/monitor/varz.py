"""`/varz`: the server's identity, configuration and counters."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from natsctl.api.times import format_time
from natsctl.broker.info import FEATURE_FLAGS
from natsctl.server.monitor.ages import SECOND_NS, uptime
from natsctl.server.monitor.claims import operator_claims
from natsctl.server.monitor.document import go_number
from natsctl.server.monitor.jetstream_facts import jetstream_config, jetstream_limits, jetstream_stats
from natsctl.server.monitor.listeners_facts import certificate_end, leafnodes_block, websocket_block
from natsctl.server.monitor.process_usage import process_usage
from natsctl.server.options import TLS_TIMEOUT_S

if TYPE_CHECKING:
    from natsctl.broker.broker import Broker
    from natsctl.server.view import ServerView

__all__ = ["uptime", "varz"]


def varz(server: ServerView) -> dict[str, Any]:
    """Return everything about the server that is not a list of its connections."""
    return {
        **_identity(server),
        **_limits(server),
        "cluster": {},
        "gateway": {},
        "leaf": leafnodes_block(server),
        "mqtt": {},
        "websocket": websocket_block(server),
        "jetstream": _jetstream(server),
        **_timing(server),
        **_process(),
        **traffic(server.broker),
        **_configuration(server),
        **_details(server),
        **certificate_end(server, server.options.tls),
    }


def _identity(server: ServerView) -> dict[str, Any]:
    options, broker = server.broker.options, server.broker
    flags = {
        "auth_required": options.auth is not None,
        "tls_required": options.tls_required,
        "tls_verify": options.tls_verify,
    }
    urls = {"connect_urls": options.connect_urls, "ws_connect_urls": options.ws_connect_urls}
    return {
        "server_id": broker.server_id,
        "server_name": broker.server_name,
        "version": options.version,
        "proto": 1,
        "go": options.go,
        "host": options.host,
        "port": options.port,
        **{key: True for key, value in flags.items() if value},
        **{key: list(value) for key, value in urls.items() if value},
    }


def _limits(server: ServerView) -> dict[str, Any]:
    options, given = server.broker.options, server.options
    shown: dict[str, Any] = {"max_connections": options.max_connections}
    if options.max_subscriptions:
        shown["max_subscriptions"] = options.max_subscriptions
    return {
        **shown,
        "ping_interval": options.ping_interval_ns,
        "ping_max": options.ping_max,
        "http_host": given.monitoring_host,
        "http_port": given.http_port,
        "http_base_path": given.http_base_path,
        "https_port": given.https_port,
        "auth_timeout": go_number(options.auth_timeout_ns / SECOND_NS),
        "max_control_line": options.limits.max_control_line,
        "max_payload": options.limits.max_payload,
        "max_pending": options.max_pending,
    }


def _jetstream(server: ServerView) -> dict[str, Any]:
    if server.engine is None:
        return {}
    return {
        "config": jetstream_config(server),
        "stats": jetstream_stats(server),
        "limits": jetstream_limits(server),
    }


def _timing(server: ServerView) -> dict[str, Any]:
    broker, given = server.broker, server.options
    now_ns = broker.clock.now_ns()
    return {
        "tls_timeout": go_number(given.tls.timeout_s if given.tls is not None else TLS_TIMEOUT_S),
        "write_deadline": round(given.write_deadline_s * SECOND_NS),
        "start": format_time(broker.start_ns),
        "now": format_time(now_ns),
        "uptime": uptime(now_ns - broker.start_ns),
    }


def _process() -> dict[str, Any]:
    usage, cores = process_usage(), os.cpu_count() or 1
    return {"mem": usage.mem, "cores": cores, "gomaxprocs": cores, "cpu": go_number(usage.cpu)}


def traffic(broker: Broker) -> dict[str, int]:
    """Return the counters of connections, messages and subscriptions; messages are also those of leaf nodes."""
    leafs = broker.leafs.values()
    clients = {name: getattr(broker, name) for name in ("in_msgs", "in_bytes", "out_msgs", "out_bytes")}
    both = {name: count + sum(getattr(peer, name) for peer in leafs) for name, count in clients.items()}
    return {
        "connections": len(broker.sessions),
        "total_connections": broker.total_connections,
        "routes": 0,
        "remotes": 0,
        "leafnodes": len(broker.leafs),
        "in_msgs": both["in_msgs"],
        "in_bytes": both["in_bytes"],
        "in_client_msgs": clients["in_msgs"],
        "in_client_bytes": clients["in_bytes"],
        "out_msgs": both["out_msgs"],
        "out_bytes": both["out_bytes"],
        "out_client_msgs": clients["out_msgs"],
        "out_client_bytes": clients["out_bytes"],
        "slow_consumers": broker.slow_consumers,
        "stale_connections": broker.stale_connections,
        "stalled_clients": 0,
        "subscriptions": broker.subscriptions,
    }


def _configuration(server: ServerView) -> dict[str, Any]:
    broker, given = server.broker, server.options
    shown: dict[str, Any] = {
        "http_req_stats": dict(sorted(server.http_requests.items())),
        "config_load_time": format_time(server.config_load_ns or broker.start_ns),
        "config_digest": given.config_digest,
    }
    if given.server_tags:
        shown["tags"] = list(given.server_tags)
    if given.server_metadata:
        shown["metadata"] = dict(given.server_metadata)
    shown |= {"feature_flags": FEATURE_FLAGS, **operator_claims(server)}
    return {**shown, "system_account": broker.system_account.name}


def _details(server: ServerView) -> dict[str, Any]:
    broker, leafs = server.broker, leaf_faults(server)
    return {
        "slow_consumer_stats": by_kind(broker.slow_consumers, leafs[0]),
        "stale_connection_stats": by_kind(broker.stale_connections, leafs[1]),
        "disk_io_wait_stats": {"waiters": 0, "waits": 0, "wait_time": 0, "max_wait_time": 0},
    }


def leaf_faults(server: ServerView) -> tuple[int, int]:
    """Return how many leaf node connections did not read, and how many were silent."""
    leafs = server.leafs.leafs if server.leafs is not None else None
    return (leafs.slow_consumers, leafs.stale_connections) if leafs is not None else (0, 0)


def by_kind(count: int, leafs: int) -> dict[str, int]:
    """Return a count of connections by what is at their other ends."""
    return {"clients": count - leafs, "routes": 0, "gateways": 0, "leafs": leafs}
