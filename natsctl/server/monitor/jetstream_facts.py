"""JetStream of this server in three blocks that several endpoints show: what it uses, its configuration, its limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from natsctl.api.stream import StorageType
from natsctl.api.versions import API_LEVEL
from natsctl.jetstream.publish.batch_limits import BatchLimits

if TYPE_CHECKING:
    from natsctl.server.view import ServerView

SYNC_INTERVAL_NS: Final = 120_000_000_000
"""What nats-server shows where every message is synced. Source: nats-server, defaultSyncInterval."""


def jetstream_stats(server: ServerView) -> dict[str, Any]:
    """Return what JetStream uses on this server; empty without JetStream."""
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


def jetstream_config(server: ServerView) -> dict[str, Any]:
    """Return JetStream's configuration; empty without JetStream."""
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
        config["compress_ok"] = True  # nats-server says so of configured sizes alone
    return {**config, "strict": True}


def jetstream_limits(server: ServerView) -> dict[str, Any]:
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
    return {key: value for key, value in shown.items() if value}
