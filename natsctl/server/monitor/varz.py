"""`/varz`: the server's identity, configuration, listeners, JetStream and counters; and the endpoints of the process.

Those are `/debug/vars`, `/stacksz` and `/ipqueuesz`.
"""

from __future__ import annotations

import gc
import os
import resource
import sys
import threading
import time
import traceback
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from natsctl.api.stream import StorageType
from natsctl.api.times import format_time
from natsctl.api.units import SECOND
from natsctl.api.versions import API_LEVEL
from natsctl.broker.info import FEATURE_FLAGS
from natsctl.jetstream.engine_options import BatchLimits
from natsctl.server.monitor.connz import operator_claims
from natsctl.server.monitor.document import go_number, present, uptime
from natsctl.server.monitor.query import EndpointOptions
from natsctl.server.options import TLS_TIMEOUT_S, WS_HANDSHAKE_TIMEOUT_S, LeafRemoteOptions, TlsOptions

if TYPE_CHECKING:
    from natsctl.broker.broker import Broker
    from natsctl.server.instance import ServerInstance


class IpqueueszOptions(EndpointOptions, kw_only=True):
    QUERY: ClassVar = {"filter": "queues"}

    all: bool = False
    filter: str = ""


def ipqueuesz(server: ServerInstance, options: IpqueueszOptions) -> dict[str, Any]:
    engine = server.engine
    if engine is None:
        return {}
    waiting = {
        f"[ACC:{js.name}] stream '{stream.name}' messages": stream.store.last_seq - stream.store.durable_seq
        for js in engine.accounts.values()
        for stream in js.streams.values()
    }
    return {
        name: {"pending": count}
        for name, count in sorted(waiting.items())
        if (count or options.all) and options.filter in name
    }


def stacksz() -> bytes:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    stacks = []
    for ident, frame in sys._current_frames().items():
        stacks.append(f"thread {ident} [{names.get(ident, 'unknown')}]:\n" + "".join(traceback.format_stack(frame)))
    return "\n".join(stacks).encode()


WINDOW_S: Final = 1.0
"""Least time over which the use of the CPU is measured."""

_STATM: Final = Path("/proc/self/statm")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


class ProcessUsage(NamedTuple):
    mem: int
    cpu: float


class _Meter:
    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Measure from now on, as a process that was just forked does."""
        self._at, self._used = time.monotonic(), time.process_time()
        self._percent = 0.0

    def percent(self) -> float:
        now = time.monotonic()
        if now - self._at >= WINDOW_S:
            used = time.process_time()
            self._percent = round(100 * (used - self._used) / (now - self._at), 1)
            self._at, self._used = now, used
        return self._percent


_METER: Final = _Meter()


def process_usage() -> ProcessUsage:
    return ProcessUsage(resident_bytes(), _METER.percent())


def resident_bytes() -> int:
    """Return the memory of the process; its peak where the system does not report the current use."""
    try:
        return int(_STATM.read_bytes().split()[1]) * _PAGE_BYTES
    except OSError:
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024


def expvarz(server: ServerInstance) -> dict[str, Any]:
    """Return the process variables of Go programs that this one has.

    Of the command line only the program is shown: its flags may hold passwords.
    """
    resident = resident_bytes()
    collections = [generation["collections"] for generation in gc.get_stats()]
    return {
        "cmdline": sys.argv[:1],
        "memstats": {
            "Alloc": resident,
            "Sys": resident,
            "HeapAlloc": resident,
            "HeapSys": resident,
            "NumGC": sum(collections),
            "NumForcedGC": 0,
            "EnableGC": gc.isenabled(),
        },
    }


SYNC_INTERVAL_NS: Final = 120_000_000_000
"""The interval that nats-server shows where every message is synced. Source: nats-server, defaultSyncInterval."""


def jetstream_stats(server: ServerInstance) -> dict[str, Any]:
    engine = server.engine
    if engine is None:
        return {}
    accounts = engine.accounts.values()
    return {
        "memory": engine.usage[StorageType.MEMORY].used,
        "storage": engine.usage[StorageType.FILE].used,
        "reserved_memory": engine.reserved(StorageType.MEMORY),
        "reserved_storage": engine.reserved(StorageType.FILE),
        "accounts": len(engine.accounts),
        "ha_assets": 0,
        "api": {
            "level": API_LEVEL,
            "total": sum(js.dispatcher.total for js in accounts),
            "errors": sum(js.dispatcher.errors for js in accounts),
        },
    }


def jetstream_config(server: ServerInstance) -> dict[str, Any]:
    engine, options = server.engine, server.options
    if engine is None:
        return {}
    config: dict[str, Any] = {
        "max_memory": engine.options.max_memory,
        "max_storage": engine.options.max_storage,
        "store_dir": str(options.store_path),
        "sync_interval": options.sync if isinstance(options.sync, int) else SYNC_INTERVAL_NS,
    }
    if options.sync == "always":
        config["sync_always"] = True
    if engine.options.domain:
        config["domain"] = engine.options.domain
    if options.max_memory > 0 or (options.max_storage > 0 and not options.storage_derived):
        config["compress_ok"] = True  # in nats-server only for configured sizes
    return {**config, "strict": True} if engine.options.strict else config


def jetstream_limits(server: ServerInstance) -> dict[str, Any]:
    """Return the limits of JetStream that are configured, and the one that always is; empty without JetStream."""
    if server.engine is None:
        return {}
    limits, usual = server.options.jetstream_limits, BatchLimits()
    given = limits.batches or usual
    batches = {
        "max_batch_inflight_per_stream": (given.atomic_of_stream, usual.atomic_of_stream),
        "max_batch_inflight_total": (given.atomic_of_server, usual.atomic_of_server),
        "max_batch_size": (given.atomic_size, usual.atomic_size),
        "max_batch_timeout": (given.timeout_ns, usual.timeout_ns),
    }
    shown = {
        "max_request_batch": limits.max_request_batch,
        "max_ack_pending": limits.max_ack_pending,
        "max_duplicate_window": limits.max_duplicate_window_ns,
        **{key: value for key, (value, default) in batches.items() if value != default},
        "default_max_consumers": server.engine.options.default_max_consumers,
    }
    return present(shown)


MAX_CERTIFICATES: Final = 16
"""Maximum number of cached certificate expiries."""


def websocket_block(server: ServerInstance) -> dict[str, Any]:
    options = server.options.websocket
    if options is None:
        return {}
    tls, usual = options.tls, options.handshake_timeout_s == WS_HANDSHAKE_TIMEOUT_S
    shown = {
        "host": options.host,
        "port": server.port_of("websocket"),
        "advertise": options.advertise,
        "no_auth_user": options.no_auth_user,
        "jwt_cookie": options.jwt_cookie,
        "handshake_timeout": 0 if usual else round(options.handshake_timeout_s * SECOND),
        "auth_timeout": go_number(options.auth_timeout_s),
        "no_tls": options.no_tls,
        "tls_map": tls is not None and tls.verify_and_map,
        "tls_pinned_certs": sorted(tls.pinned_certs) if tls is not None else [],
        "same_origin": options.same_origin,
        "allowed_origins": list(options.allowed_origins),
        "compression": options.compression,
        "tls_ocsp_peer_verify": tls is not None and tls.checks_peers,
    }
    return present(shown) | certificate_end(server, tls)


def certificate_end(server: ServerInstance, tls: TlsOptions | None) -> dict[str, str]:
    if tls is None or tls.cert_file is None:
        return {}
    return _end_of(tls.cert_file, server.config_load_ns)


@lru_cache(MAX_CERTIFICATES)
def _end_of(path: Path, load_ns: int) -> dict[str, str]:
    """Return the key for a file that was read at `load_ns`; empty for a removed file."""
    from natsctl.server.tls.certificates import not_after

    try:
        return {"tls_cert_not_after": format_time(int(not_after(path).timestamp()) * SECOND)}
    except (OSError, ValueError):
        return {}


def leafnodes_block(server: ServerInstance) -> dict[str, Any]:
    options = server.options.leafnodes
    if options is None:
        return {}
    tls = options.tls
    listener = {
        "host": options.host,
        "port": server.port_of("leafnodes"),
        "auth_timeout": go_number(options.auth_timeout_s),
        "tls_timeout": go_number(tls.timeout_s if tls is not None else TLS_TIMEOUT_S),
        "tls_required": tls is not None,
        "tls_verify": tls is not None and tls.verify,
    }
    shown: dict[str, Any] = present(listener) if options.port else {}
    if options.remotes:
        shown["remotes"] = [_remote(remote) for remote in options.remotes]
    if options.port and tls is not None and tls.checks_peers:
        shown["tls_ocsp_peer_verify"] = True
    return shown | certificate_end(server, tls)


def _remote(remote: LeafRemoteOptions) -> dict[str, Any]:
    shown: dict[str, Any] = {"local_account": remote.account}
    if remote.tls is not None:
        shown["tls_timeout"] = go_number(remote.tls.timeout_s)
    shown["urls"] = [url.address for url in remote.urls]
    rules = {"exports": remote.deny_exports, "imports": remote.deny_imports}
    deny = {key: list(subjects) for key, subjects in rules.items() if subjects}
    if deny:
        shown["deny"] = deny
    return {**shown, "tls_ocsp_peer_verify": True} if remote.tls is not None and remote.tls.checks_peers else shown


def varz(server: ServerInstance) -> dict[str, Any]:
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


def _identity(server: ServerInstance) -> dict[str, Any]:
    options, broker = server.broker.options, server.broker
    flags = {
        "auth_required": options.auth is not None,
        "tls_required": options.tls_required,
        "tls_verify": options.tls_verify,
        "tls_ocsp_peer_verify": server.options.tls is not None and server.options.tls.checks_peers,
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


def _limits(server: ServerInstance) -> dict[str, Any]:
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
        "auth_timeout": go_number(options.auth_timeout_ns / SECOND),
        "max_control_line": options.limits.max_control_line,
        "max_payload": options.limits.max_payload,
        "max_pending": options.max_pending,
    }


def _jetstream(server: ServerInstance) -> dict[str, Any]:
    if server.engine is None:
        return {}
    return {
        "config": jetstream_config(server),
        "stats": jetstream_stats(server),
        "limits": jetstream_limits(server),
    }


def _timing(server: ServerInstance) -> dict[str, Any]:
    broker, given = server.broker, server.options
    now_ns = broker.clock.now_ns()
    return {
        "tls_timeout": go_number(given.tls.timeout_s if given.tls is not None else TLS_TIMEOUT_S),
        "write_deadline": round(given.write_deadline_s * SECOND),
        **({"write_timeout": given.write_timeout} if given.write_timeout else {}),
        "start": format_time(broker.start_ns),
        "now": format_time(now_ns),
        "uptime": uptime(now_ns - broker.start_ns),
    }


def _process() -> dict[str, Any]:
    usage, cores = process_usage(), os.cpu_count() or 1
    return {"mem": usage.mem, "cores": cores, "gomaxprocs": cores, "cpu": go_number(usage.cpu)}


def traffic(broker: Broker) -> dict[str, int]:
    """Return the counters of connections, messages and subscriptions; messages include leaf nodes'."""
    leafs = broker.leafs.values()
    clients = broker.gone.plus(broker.sessions.values())
    both = clients.plus(leafs)
    return {
        "connections": len(broker.sessions),
        "total_connections": broker.total_connections,
        "routes": 0,
        "remotes": 0,
        "leafnodes": len(broker.leafs),
        "in_msgs": both.in_msgs,
        "in_bytes": both.in_bytes,
        "in_client_msgs": clients.in_msgs,
        "in_client_bytes": clients.in_bytes,
        "out_msgs": both.out_msgs,
        "out_bytes": both.out_bytes,
        "out_client_msgs": clients.out_msgs,
        "out_client_bytes": clients.out_bytes,
        "slow_consumers": broker.slow_consumers,
        "stale_connections": broker.stale_connections,
        "stalled_clients": 0,
        "subscriptions": broker.subscriptions,
    }


def _configuration(server: ServerInstance) -> dict[str, Any]:
    broker, given = server.broker, server.options
    shown: dict[str, Any] = {
        "http_req_stats": dict(sorted(server.http_requests.items())),
        "config_load_time": format_time(server.config_load_ns or broker.start_ns),
        "config_digest": given.config_digest,
    }
    if given.trusted_proxies:
        shown["proxies"] = {"trusted": [{"key": key} for key in given.trusted_proxies]}
    if given.server_tags:
        shown["tags"] = list(given.server_tags)
    if given.server_metadata:
        shown["metadata"] = dict(given.server_metadata)
    shown |= {"feature_flags": FEATURE_FLAGS, **operator_claims(server)}
    return {**shown, **({"system_account": broker.system_account.name} if broker.system_account.name else {})}


def _details(server: ServerInstance) -> dict[str, Any]:
    broker, leafs = server.broker, leaf_faults(server)
    return {
        **_ocsp_cache(server),
        "slow_consumer_stats": by_kind(broker.slow_consumers, leafs[0]),
        "stale_connection_stats": by_kind(broker.stale_connections, leafs[1]),
        "disk_io_wait_stats": {"waiters": 0, "waits": 0, "wait_time": 0, "max_wait_time": 0},
    }


def _ocsp_cache(server: ServerInstance) -> dict[str, Any]:
    ocsp = server.ocsp
    if ocsp is None or not ocsp.checks_peers or not ocsp.cache.is_local:
        return {}
    counts, stats = ocsp.cache.counts(), ocsp.cache.stats
    shown = {
        "cache_hits": stats.hits,
        "cache_misses": stats.misses,
        "cached_responses": sum(counts.values()),
        "cached_revoked_responses": counts["revoked"],
        "cached_good_responses": counts["good"],
        "cached_unknown_responses": counts["unknown"],
    }
    return {"ocsp_peer_cache": {"cache_type": "local", **present(shown)}}


def leaf_faults(server: ServerInstance) -> tuple[int, int]:
    leafs = server.leafs.leafs if server.leafs is not None else None
    return (leafs.slow_consumers, leafs.stale_connections) if leafs is not None else (0, 0)


def by_kind(count: int, leafs: int) -> dict[str, int]:
    return {"clients": count - leafs, "routes": 0, "gateways": 0, "leafs": leafs}
