"""The blocks `jetstream` of nats.conf: the server's, and an account's limits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec

from natsctl.api.account import UNLIMITED, AccountLimits
from natsctl.api.units import parse_duration
from natsctl.server.conf.jetstream_limits import read_limits
from natsctl.server.conf.setter import Setter, set_option
from natsctl.server.conf.syntax import Item
from natsctl.server.conf.values import block_of, flag_of, number_of, size_of, text_of
from natsctl.server.options import ServerOptions


def jetstream_block(options: ServerOptions, item: Item) -> ServerOptions:
    """Return `options` with what the server's block sets; raises ConfError."""
    if isinstance(item.value, bool):
        return replace(options, jetstream=item.value)
    if isinstance(item.value, str):
        return replace(options, jetstream=_word(item))
    options = replace(options, jetstream=True)
    for key, value in block_of(item).items():
        name = key.lower()
        if name in _UNHEEDED:
            size_of(value)
        elif name in _JETSTREAM:
            options = _JETSTREAM[name](options, value)
        else:
            raise value.fault(f"unknown field {key!r} of jetstream")
    return options


def _word(item: Item) -> bool:
    words = {"enabled": True, "enable": True, "disabled": False, "disable": False}
    if isinstance(item.value, bool):
        return item.value
    if str(item.value).lower() not in words:
        raise item.fault(f"expected enabled, disabled or a block, not {item.value!r}")
    return words[str(item.value).lower()]


def _sync(item: Item) -> str | int:
    text = text_of(item)
    if text in ("always", "never"):
        return text
    try:
        return parse_duration(text)
    except ValueError:
        raise item.fault(f"expected always, never or a duration such as 1s, not {text!r}") from None


def _archive_version(item: Item) -> int:
    if item.value not in (1, 2):
        raise item.fault(f"expected 1 or 2, not {item.value!r}")
    return int(item.value)


_UNHEEDED: Final = frozenset({
    "max_buffered_size", "max_buffered_msgs", "max_outstanding_catchup", "info_queue_limit", "meta_compact",
    "meta_compact_size", "max_concurrent_io",
})  # fmt: skip
"""Bounds of queues between a client and its stream, of raft and of threads: here is none of these to bound."""

_JETSTREAM: Final[dict[str, Setter]] = {
    "enabled": set_option("jetstream", flag_of),
    "enable": set_option("jetstream", flag_of),
    "store": set_option("store_dir", lambda item: Path(text_of(item))),
    "store_dir": set_option("store_dir", lambda item: Path(text_of(item))),
    "storedir": set_option("store_dir", lambda item: Path(text_of(item))),
    "domain": set_option("domain", text_of),
    "max_memory_store": set_option("max_memory", size_of),
    "max_mem_store": set_option("max_memory", size_of),
    "max_mem": set_option("max_memory", size_of),
    "max_file_store": set_option("max_storage", size_of),
    "max_file": set_option("max_storage", size_of),
    "limits": set_option("jetstream_limits", read_limits),
    "sync": set_option("sync", _sync),
    "sync_interval": set_option("sync", _sync),
    "archive_version": set_option("archive_version", _archive_version),
}

_LIMITS: Final[dict[str, tuple[str, Callable[[Item], int | bool]]]] = {
    "max_memory": ("max_memory", number_of),
    "max_mem": ("max_memory", number_of),
    "mem": ("max_memory", number_of),
    "memory": ("max_memory", number_of),
    "max_file": ("max_storage", number_of),
    "max_store": ("max_storage", number_of),
    "max_disk": ("max_storage", number_of),
    "max_storage": ("max_storage", number_of),
    "store": ("max_storage", number_of),
    "disk": ("max_storage", number_of),
    "max_streams": ("max_streams", number_of),
    "streams": ("max_streams", number_of),
    "max_consumers": ("max_consumers", number_of),
    "consumers": ("max_consumers", number_of),
    "max_ack_pending": ("max_ack_pending", number_of),
    "memory_max_stream_bytes": ("memory_max_stream_bytes", number_of),
    "mem_max_stream_bytes": ("memory_max_stream_bytes", number_of),
    "disk_max_stream_bytes": ("storage_max_stream_bytes", number_of),
    "store_max_stream_bytes": ("storage_max_stream_bytes", number_of),
    "max_bytes_required": ("max_bytes_required", flag_of),
    "max_stream_bytes": ("max_bytes_required", flag_of),
    "max_bytes": ("max_bytes_required", flag_of),
}


def account_limits(item: Item) -> AccountLimits | None:
    """Return the limits of an account's `jetstream`, None where it is off."""
    if not isinstance(item.value, dict):
        return msgspec.structs.replace(UNLIMITED) if _word(item) else None
    limits = msgspec.structs.replace(UNLIMITED)
    for key, value in item.value.items():
        known = _LIMITS.get(key.lower())
        if known is None:
            raise value.fault(f"unknown field {key!r} of an account's jetstream")
        setattr(limits, known[0], known[1](value))
    return limits
