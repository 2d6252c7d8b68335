"""The blocks `jetstream` of nats.conf: the server's, and an account's limits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from natsctl.api.account import UNLIMITED, AccountLimits
from natsctl.api.subjects import is_valid_subject
from natsctl.server.conf.jetstream_limits import read_limits
from natsctl.server.conf.setter import Setter, set_option
from natsctl.server.conf.syntax import Item
from natsctl.server.conf.values import block_of, duration_of, flag_of, number_of, shown, size_of, text_of
from natsctl.server.options import ServerOptions


def jetstream_block(options: ServerOptions, item: Item) -> ServerOptions:
    """Return `options` with what the server's block sets; raises ConfError."""
    if isinstance(item.value, bool):
        return replace(options, jetstream=item.value)
    if isinstance(item.value, str):
        return replace(options, jetstream=_word(item))
    options = replace(options, jetstream=True)
    block = block_of(item)
    for key, value in block.items():
        name = key.lower()
        if name in UNHEEDED_KEYS:
            UNHEEDED_KEYS[name](value)
        elif name in JETSTREAM_KEYS:
            options = JETSTREAM_KEYS[name](options, value)
        elif name in REFUSED_KEYS:
            raise value.fault(f"{key} of jetstream: {REFUSED_KEYS[name]}")
        elif key not in block.variables:
            raise value.fault(f'unknown field "{key}"')
    return options


def store_dir(options: ServerOptions, item: Item) -> ServerOptions:
    """Return `options` with the folder of the store; raises ConfError where the file names two."""
    if options.store_dir is not None:
        raise item.fault("Duplicate 'store_dir' configuration")
    return replace(options, store_dir=Path(text_of(item)))


def _word(item: Item) -> bool:
    words = {"enabled": True, "enable": True, "disabled": False, "disable": False}
    if isinstance(item.value, bool):
        return item.value
    if str(item.value).lower() not in words:
        raise item.fault(f"expected enabled, disabled or a block, not {shown(item)}")
    return words[str(item.value).lower()]


def _sync(item: Item) -> str | int:
    if isinstance(item.value, str) and item.value.lower() in ("always", "never"):
        return item.value.lower()
    interval_ns = duration_of(item)
    if interval_ns <= 0:
        raise item.fault("expected always, never or a duration such as 1s")
    return interval_ns


def _archive_version(item: Item) -> int:
    version = number_of(item)
    if version not in (1, 2):
        raise item.fault(f"expected 1 or 2, not {version}")
    return version


def _strict(options: ServerOptions, item: Item) -> ServerOptions:
    if not flag_of(item):
        raise item.fault("strict: requests with unknown fields are refused here; that can not be switched off")
    return options


def _domain(item: Item) -> str:
    domain = text_of(item)
    if domain and (not is_valid_subject(domain.encode()) or any(char in domain for char in ".*> ")):
        raise item.fault(f"invalid domain name: \"{domain}\" may not contain '.', '*', '>' or blanks")
    return domain


def _not_negative(item: Item) -> int:
    if size_of(item) < 0:
        raise item.fault(f"Expected an absolute size, got {shown(item)}")
    return size_of(item)


def _concurrent_io(item: Item) -> int:
    if not 4 <= number_of(item) <= 8192:
        raise item.fault(f"Expected an absolute size between 4 and 8192, got {shown(item)}")
    return number_of(item)


UNHEEDED_KEYS: Final[dict[str, Callable[[Item], object]]] = {
    "max_buffered_size": size_of,
    "max_buffered_msgs": number_of,
    "max_outstanding_catchup": size_of,
    "info_queue_limit": number_of,
    "request_queue_limit": number_of,
    "meta_compact": _not_negative,
    "meta_compact_size": _not_negative,
    "meta_compact_sync": flag_of,
    "max_concurrent_io": _concurrent_io,
    "unique_tag": text_of,
    "extension_hint": text_of,
}
"""Bounds of queues between a client and its stream, of raft and of threads, and how replicas are placed: here is
none of these."""

_NO_ENCRYPTION: Final = "encryption at rest is not available in natsctl server; put the store on an encrypted disk"
REFUSED_KEYS: Final = dict.fromkeys(
    ("key", "ek", "encryption_key", "prev_key", "prev_ek", "prev_encryption_key", "cipher", "tpm"), _NO_ENCRYPTION
)

JETSTREAM_KEYS: Final[dict[str, Setter]] = {
    "enabled": set_option("jetstream", flag_of),
    "enable": set_option("jetstream", flag_of),
    "strict": _strict,
    "store": store_dir,
    "store_dir": store_dir,
    "storedir": store_dir,
    "domain": set_option("domain", _domain),
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

ACCOUNT_LIMIT_KEYS: Final[dict[str, tuple[str, Callable[[Item], int | bool]]]] = {
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
        if key.lower() == "cluster_traffic":
            _cluster_traffic(value)
            continue
        known = ACCOUNT_LIMIT_KEYS.get(key.lower())
        if known is None:
            if key in item.value.variables:
                continue
            raise value.fault(f'unknown field "{key}"')
        setattr(limits, known[0], known[1](value))
    return limits


def _cluster_traffic(item: Item) -> None:
    """Check whose traffic that of raft would be; a single node has none."""
    if text_of(item) not in ("system", "owner", ""):
        raise item.fault("Expected 'system' or 'owner' for cluster_traffic")
