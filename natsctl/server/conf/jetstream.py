"""The blocks `jetstream` of nats.conf, of the server and of an account, and keys that limit clients."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
from msgspec.structs import replace

from natsctl.api.account import UNLIMITED, AccountLimits
from natsctl.api.subjects import is_valid_subject
from natsctl.jetstream.engine_options import BatchLimits
from natsctl.server.conf.syntax import Item
from natsctl.server.conf.values import (
    OptionSetter,
    block_of,
    duration_of,
    duration_text_of,
    flag_of,
    format_seconds,
    number_of,
    seconds_of,
    set_option,
    shown,
    size_of,
    text_of,
    write_timeout_of,
)
from natsctl.server.options import JetStreamLimits, ServerOptions

COUNT_KEYS: Final = {
    "max_ack_pending": "max_ack_pending",
    "max_request_batch": "max_request_batch",
    "default_max_consumers": "default_max_consumers",
}
BATCH_KEYS: Final = {
    "max_inflight_per_stream": ("atomic_of_stream", "fast_of_stream"),
    "max_inflight_total": ("atomic_of_server", "fast_of_server"),
    "max_msgs": ("atomic_size",),
    "timeout": ("timeout_ns",),
}


def read_limits(item: Item) -> JetStreamLimits:
    limits = JetStreamLimits()
    for key, value in block_of(item).items():
        name = key.lower()
        if name in COUNT_KEYS:
            count: dict[str, Any] = {COUNT_KEYS[name]: number_of(value)}
            limits = replace(limits, **count)
        elif name == "duplicate_window":
            limits = replace(limits, max_duplicate_window_ns=_duration_ns(value))
        elif name == "batch":
            limits = replace(limits, batches=_batches(value))
        elif name != "max_ha_assets":  # of clusters alone
            raise value.fault(f'unknown field "{key}"')
    return limits


def _batches(item: Item) -> BatchLimits:
    limits = BatchLimits()
    for key, value in block_of(item).items():
        fields = BATCH_KEYS.get(key.lower())
        if fields is None:
            raise value.fault(f'unknown field "{key}"')
        number = _duration_ns(value) if fields == ("timeout_ns",) else number_of(value)
        if number > 0:
            limits = replace(limits, **dict.fromkeys(fields, number))
    return limits


def _duration_ns(item: Item) -> int:
    return round(duration_text_of(item, "duration") * 1e9)


def jetstream_block(options: ServerOptions, item: Item) -> ServerOptions:
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
    states = {"enabled": True, "enable": True, "disabled": False, "disable": False}
    if isinstance(item.value, bool):
        return item.value
    if str(item.value).lower() not in states:
        raise item.fault(f"expected enabled, disabled or a block, not {shown(item)}")
    return states[str(item.value).lower()]


_SYNC_FAULT: Final = "expected always, never or a duration with its unit, such as 1s"


def _sync(item: Item) -> str | int:
    """Return the value of `sync`. A number is refused: its unit would be lost, and 2m would be 2,000,000 seconds."""
    if not isinstance(item.value, str):
        raise item.fault(_SYNC_FAULT)
    return _sync_interval(item)


def _sync_interval(item: Item) -> str | int:
    """Return the value of nats-server's key, for which a number counts seconds."""
    if isinstance(item.value, str) and item.value.lower() in ("always", "never"):
        return item.value.lower()
    interval_ns = duration_of(item)
    if interval_ns <= 0:
        raise item.fault(_SYNC_FAULT)
    return interval_ns


def _archive_version(item: Item) -> int:
    version = number_of(item)
    if version not in (1, 2):
        raise item.fault(f"expected 1 or 2, not {version}")
    return version


def _strict(options: ServerOptions, item: Item) -> ServerOptions:
    return replace(options, no_jetstream_strict=not flag_of(item))


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

REFUSED_KEYS: Final = {
    "tpm": "natsctl server reads no keys from a TPM; `key` takes one, from a variable of the environment or a file"
}
CIPHERS: Final[dict[str, Literal["chacha", "aes"]]] = {"chacha": "chacha", "chachapoly": "chacha", "aes": "aes"}


def _cipher(item: Item) -> str:
    word = text_of(item)
    if word.lower() not in CIPHERS:
        raise item.fault(f'Unknown cipher type: "{word}"')
    return CIPHERS[word.lower()]


def _encryption(name: str, read: Callable[[Item], str]) -> OptionSetter:
    def change(options: ServerOptions, item: Item) -> ServerOptions:
        value: dict[str, Any] = {name: read(item)}
        return replace(options, encryption=replace(options.encryption, **value))

    return change


JETSTREAM_KEYS: Final[dict[str, OptionSetter]] = {
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
    "sync_interval": set_option("sync", _sync_interval),
    "archive_version": set_option("archive_version", _archive_version),
    "key": _encryption("key", text_of),
    "ek": _encryption("key", text_of),
    "encryption_key": _encryption("key", text_of),
    "prev_key": _encryption("prev_key", text_of),
    "prev_ek": _encryption("prev_key", text_of),
    "prev_encryption_key": _encryption("prev_key", text_of),
    "cipher": _encryption("cipher", _cipher),
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
    """Check the account of Raft's traffic, which a single node does not have."""
    if text_of(item) not in ("system", "owner", ""):
        raise item.fault("Expected 'system' or 'owner' for cluster_traffic")


_INT32_MAX: Final = (1 << 31) - 1
_TOKENS_MAX: Final = 255
_LAME_DUCK_MIN_S: Final = 30.0


def _small(name: str) -> OptionSetter:
    def read(item: Item) -> int:
        number = number_of(item)
        if number > _INT32_MAX:
            raise item.fault(f"{name} value is too big")
        return number

    return set_option(name, read)


def _max_connections(item: Item) -> int:
    return number_of(item) or -1


def _subscription_tokens(item: Item) -> int:
    number = number_of(item)
    if number > _TOKENS_MAX:
        raise item.fault("max_subscription_tokens value is too big")
    if number <= 0:
        raise item.fault("max_subscription_tokens value can not be negative")
    return number


def _lame_duck_duration(item: Item) -> float:
    seconds = duration_text_of(item, "lame_duck_duration")
    if seconds < _LAME_DUCK_MIN_S:
        raise item.fault(f"invalid lame_duck_duration of {format_seconds(seconds)}, minimum is 30 seconds")
    return seconds


def _lame_duck_grace(item: Item) -> float:
    seconds = duration_text_of(item, "lame_duck_grace_period")
    if seconds < 0:
        raise item.fault("invalid lame_duck_grace_period, needs to be positive")
    return seconds


def _unlimited(name: str) -> OptionSetter:
    """Return the setter of a number for which nats-server takes 0 and less as no limit."""
    return set_option(name, lambda item: max(number_of(item), 0))


def _accepted_flag(options: ServerOptions, item: Item) -> ServerOptions:
    """Check the value of a switch that has nothing to switch here."""
    flag_of(item)
    return options


def _max_closed(options: ServerOptions, item: Item) -> ServerOptions:
    number = number_of(item)
    return replace(options, max_closed_clients=number) if number > 0 else options


LIMITS: Final[dict[str, OptionSetter]] = {
    "max_payload": _small("max_payload"),
    "max_control_line": _small("max_control_line"),
    "max_pending": set_option("max_pending", number_of),
    "max_connections": set_option("max_connections", _max_connections),
    "max_conn": set_option("max_connections", _max_connections),
    "max_subscriptions": _unlimited("max_subscriptions"),
    "max_subs": _unlimited("max_subscriptions"),
    "max_sub_tokens": set_option("max_subscription_tokens", _subscription_tokens),
    "max_subscription_tokens": set_option("max_subscription_tokens", _subscription_tokens),
    "max_closed_clients": _max_closed,
    "max_traced_msg_len": _unlimited("max_traced_bytes"),
    "ping_interval": set_option("ping_interval_s", seconds_of),
    "ping_max": set_option("ping_max", number_of),
    "write_deadline": set_option("write_deadline_s", seconds_of),
    "write_timeout": set_option("write_timeout", write_timeout_of),
    "lame_duck_duration": set_option("lame_duck_duration_s", _lame_duck_duration),
    "lame_duck_grace_period": set_option("lame_duck_grace_s", _lame_duck_grace),
    "no_header_support": set_option("no_header_support", flag_of),
    "connect_error_reports": set_option("connect_error_reports", number_of),
    "reconnect_error_reports": set_option("reconnect_error_reports", number_of),
    "disable_sublist_cache": _accepted_flag,
    "no_sublist_cache": _accepted_flag,
    "no_fast_producer_stall": _accepted_flag,
}
