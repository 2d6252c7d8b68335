"""What the monitoring port answers: the server's state as the reference's JSON."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import msgspec

from natsctl.api.stream import StorageType
from natsctl.api.times import format_time
from natsctl.server.http import Page, Query

if TYPE_CHECKING:
    from collections.abc import Callable

    from natsctl.server.instance import ServerInstance

ROOT: Final = b"""<!doctype html><title>natsctl server</title><h1>natsctl server</h1>
<p><a href="varz">varz</a> <a href="jsz">jsz</a> <a href="healthz">healthz</a></p>
"""


class Monitoring:
    """The pages of one server."""

    def __init__(self, server: ServerInstance) -> None:
        """Answer for `server`, which is running."""
        self._server = server
        self._requests: dict[str, int] = {}
        self._pages: dict[str, Callable[[Query], Page]] = {
            "/": lambda query: Page(200, ROOT, "text/html; charset=utf-8"),
            "/varz": lambda query: _json(self.varz()),
            "/jsz": lambda query: _json(self.jsz(query)),
            "/healthz": self.healthz,
        }

    def answer(self, path: str, query: Query) -> Page:
        """Return the page at a path."""
        page = self._pages.get(path)
        if page is None:
            return Page(404, b"404 page not found\n", "text/plain; charset=utf-8")
        self._requests[path] = self._requests.get(path, 0) + 1
        return page(query)

    def varz(self) -> dict[str, object]:
        """Return the server's identity, limits and counters."""
        server, broker = self._server, self._server.broker
        options, now_ns = broker.options, broker.clock.now_ns()
        return {
            "server_id": broker.server_id,
            "server_name": broker.server_name,
            "version": options.version,
            "proto": 1,
            "go": options.go,
            "host": server.options.host,
            "port": server.port,
            "auth_required": options.auth is not None and options.auth.required,
            "tls_required": options.tls_required,
            "tls_verify": options.tls_verify,
            "connect_urls": options.connect_urls,
            "max_connections": options.max_connections,
            "max_subscriptions": options.max_subscriptions,
            "ping_interval": options.ping_interval_ns,
            "ping_max": options.ping_max,
            "http_host": server.options.http_host,
            "http_port": server.port_of("monitoring"),
            "https_port": 0,
            "auth_timeout": options.auth_timeout_ns / 1e9,
            "max_control_line": options.limits.max_control_line,
            "max_payload": options.limits.max_payload,
            "max_pending": options.max_pending,
            "cluster": {},
            "gateway": {},
            "leaf": {},
            "mqtt": {},
            "websocket": {},
            "jetstream": self._jetstream(),
            "start": format_time(broker.start_ns),
            "now": format_time(now_ns),
            "uptime": uptime(now_ns - broker.start_ns),
            "cores": os.cpu_count() or 1,
            "connections": len(broker.sessions),
            "total_connections": broker.total_connections,
            "routes": 0,
            "remotes": 0,
            "leafnodes": 0,
            "in_msgs": broker.in_msgs,
            "out_msgs": broker.out_msgs,
            "in_bytes": broker.in_bytes,
            "out_bytes": broker.out_bytes,
            "slow_consumers": broker.slow_consumers,
            "subscriptions": sum(account.subscriptions for account in broker.accounts.values()),
            "http_req_stats": dict(self._requests),
            "tags": list(server.options.server_tags),
            "system_account": broker.system_account.name,
        }

    def _jetstream(self) -> dict[str, object]:
        if self._server.engine is None:
            return {}
        return {"config": self._config(), "stats": self._stats()}

    def _config(self) -> dict[str, object]:
        engine, options = self._server.engine, self._server.options
        assert engine is not None
        return {
            "max_memory": engine.options.max_memory,
            "max_storage": engine.options.max_storage,
            "store_dir": str(options.store_path),
            "sync_interval": options.sync if isinstance(options.sync, int) else 0,
            "sync_always": options.sync == "always",
            "domain": engine.options.domain,
        }

    def _stats(self) -> dict[str, object]:
        engine = self._server.engine
        assert engine is not None
        accounts = engine.accounts.values()
        return {
            "memory": sum(js.used(StorageType.MEMORY) for js in accounts),
            "storage": sum(js.used(StorageType.FILE) for js in accounts),
            "reserved_memory": engine.reserved(StorageType.MEMORY),
            "reserved_storage": engine.reserved(StorageType.FILE),
            "accounts": len(engine.accounts),
            "ha_assets": 0,
            "api": {
                "total": sum(js.dispatcher.total for js in accounts),
                "errors": sum(js.dispatcher.errors for js in accounts),
            },
        }

    def jsz(self, query: Query) -> dict[str, object]:
        """Return what JetStream holds."""
        broker, engine = self._server.broker, self._server.engine
        head: dict[str, object] = {"server_id": broker.server_id, "now": format_time(broker.clock.now_ns())}
        if engine is None:
            return {**head, "disabled": True, "config": {}}
        streams = [stream for js in engine.accounts.values() for stream in js.streams.values()]
        return {
            **head,
            "config": self._config(),
            **self._stats(),
            "streams": len(streams),
            "consumers": sum(stream.consumer_count for stream in streams),
            "messages": sum(stream.store.messages for stream in streams),
            "bytes": sum(stream.store.bytes for stream in streams),
        }

    def healthz(self, query: Query) -> Page:
        """Return whether the server does what it promises."""
        store = self._server.store
        if query.get("js-enabled-only") in ("1", "true") and store is None:
            return _json({"status": "unavailable", "status_code": 503, "error": "JetStream not enabled"}, 503)
        if store is not None and not store.healthy:
            return _json({"status": "unavailable", "status_code": 503, "error": "; ".join(store.faults)}, 503)
        return _json({"status": "ok"})


def uptime(age_ns: int) -> str:
    """Return an age as the reference spells it, such as `1d2h3m4s`."""
    seconds = age_ns // 1_000_000_000
    parts = ((seconds // 86400, "d"), (seconds // 3600 % 24, "h"), (seconds // 60 % 60, "m"), (seconds % 60, "s"))
    first = next((at for at, (value, _) in enumerate(parts) if value), len(parts) - 1)
    return "".join(f"{value}{unit}" for value, unit in parts[first:])


def _json(value: object, status: int = 200) -> Page:
    return Page(status, msgspec.json.format(msgspec.json.encode(value), indent=2))
