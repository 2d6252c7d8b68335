"""The blocks `jetstream` of nats.conf, of the server and of an account, and keys that limit clients."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Literal

from msgspec.structs import replace

from natsctl.api.account import UNLIMITED, AccountLimits
from natsctl.api.subjects import is_valid_subject
from natsctl.jetstream.engine_options import BatchLimits
from natsctl.server.conf.syntax import ConfItem
from natsctl.server.conf.values import (
    OptionSetter,
    Reader,
    duration_of,
    duration_text_of,
    entries,
    fields_of,
    flag_of,
    format_seconds,
    keyed,
    number_of,
    seconds_of,
    set_option,
    shown,
    size_of,
    text_of,
    write_timeout_of,
)
from natsctl.server.options import ServerJetStreamLimits, ServerOptions


def _batches(item: ConfItem) -> BatchLimits:
    """Return the limits of batches; numbers of 0 and less leave the defaults."""
    limits = {}
    for (fields, read), value in entries(item, BATCH_KEYS):
        if (number := read(value)) > 0:
            limits.update(dict.fromkeys(fields.split(), number))
    return BatchLimits(**limits)


def _duration_ns(item: ConfItem) -> int:
    return round(duration_text_of(item, "duration") * 1e9)


BATCH_KEYS: Final[dict[str, tuple[str, Callable[[ConfItem], int]]]] = {
    "max_inflight_per_stream": ("atomic_of_stream fast_of_stream", number_of),
    "max_inflight_total": ("atomic_of_server fast_of_server", number_of),
    "max_msgs": ("atomic_size", number_of),
    "timeout": ("timeout_ns", _duration_ns),
}
LIMIT_KEYS: Final[dict[str, Reader]] = {
    "max_ack_pending": ("max_ack_pending", number_of),
    "max_request_batch": ("max_request_batch", number_of),
    "default_max_consumers": ("default_max_consumers", number_of),
    "duplicate_window": ("max_duplicate_window_ns", _duration_ns),
    "batch": ("batches", _batches),
    "max_ha_assets": ("", lambda item: {}),  # of clusters
}


def jetstream_block(options: ServerOptions, item: ConfItem) -> ServerOptions:
    if isinstance(item.value, bool):
        return replace(options, jetstream=item.value)
    if isinstance(item.value, str):
        return replace(options, jetstream=_word(item))
    options = replace(options, jetstream=True)
    for setter, value in entries(item, JETSTREAM_KEYS | UNHEEDED_KEYS):
        options = setter(options, value)
    return options


def store_dir(options: ServerOptions, item: ConfItem) -> ServerOptions:
    """Return `options` with the folder of the store; raises ConfError where the file names two."""
    if options.store_dir is not None:
        raise item.fault("Duplicate 'store_dir' configuration")
    return replace(options, store_dir=Path(text_of(item)))


def _word(item: ConfItem) -> bool:
    states = {"enabled": True, "enable": True, "disabled": False, "disable": False}
    if isinstance(item.value, bool):
        return item.value
    if str(item.value).lower() not in states:
        raise item.fault(f"expected enabled, disabled or a block, not {shown(item)}")
    return states[str(item.value).lower()]


_SYNC_FAULT: Final = "expected always, never or a duration with its unit, such as 1s"


def _sync(item: ConfItem) -> str | int:
    """Return the value of `sync`. A number is refused: its unit would be lost, and 2m would be 2,000,000 seconds."""
    if not isinstance(item.value, str):
        raise item.fault(_SYNC_FAULT)
    return _sync_interval(item)


def _sync_interval(item: ConfItem) -> str | int:
    """Return the value of nats-server's key; a number means seconds."""
    if isinstance(item.value, str) and item.value.lower() in ("always", "never"):
        return item.value.lower()
    interval_ns = duration_of(item)
    if interval_ns <= 0:
        raise item.fault(_SYNC_FAULT)
    return interval_ns


def _archive_version(item: ConfItem) -> int:
    version = number_of(item)
    if version not in (1, 2):
        raise item.fault(f"expected 1 or 2, not {version}")
    return version


def _domain(item: ConfItem) -> str:
    domain = text_of(item)
    if domain and (not is_valid_subject(domain.encode()) or any(char in domain for char in ".*> ")):
        raise item.fault(f"invalid domain name: \"{domain}\" may not contain '.', '*', '>' or blanks")
    return domain


def _not_negative(item: ConfItem) -> int:
    if size_of(item) < 0:
        raise item.fault(f"Expected an absolute size, got {shown(item)}")
    return size_of(item)


def _concurrent_io(item: ConfItem) -> int:
    if not 4 <= number_of(item) <= 8192:
        raise item.fault(f"Expected an absolute size between 4 and 8192, got {shown(item)}")
    return number_of(item)


def _checked(read: Callable[[ConfItem], object]) -> OptionSetter:
    """Return the setter of a key without effect; its value is checked."""

    def check(options: ServerOptions, item: ConfItem) -> ServerOptions:
        read(item)
        return options

    return check


UNHEEDED_KEYS: Final[dict[str, OptionSetter]] = keyed(
    ("max_buffered_size", _checked(size_of)),
    ("max_buffered_msgs", _checked(number_of)),
    ("max_outstanding_catchup", _checked(size_of)),
    ("info_queue_limit request_queue_limit", _checked(number_of)),
    ("meta_compact meta_compact_size", _checked(_not_negative)),
    ("meta_compact_sync", _checked(flag_of)),
    ("max_concurrent_io", _checked(_concurrent_io)),
    ("unique_tag extension_hint", _checked(text_of)),
)
"""Bounds of queues between a client and its stream, of raft and of threads, and how replicas are placed: here is
none of these."""


def _tpm(options: ServerOptions, item: ConfItem) -> ServerOptions:
    why = "natsctl server reads no keys from a TPM; `key` takes one, from a variable of the environment or a file"
    raise item.fault(f"tpm of jetstream: {why}")


CIPHERS: Final[dict[str, Literal["chacha", "aes"]]] = {"chacha": "chacha", "chachapoly": "chacha", "aes": "aes"}


def _cipher(item: ConfItem) -> str:
    word = text_of(item)
    if word.lower() not in CIPHERS:
        raise item.fault(f'Unknown cipher type: "{word}"')
    return CIPHERS[word.lower()]


def _encryption(name: str, read: Callable[[ConfItem], str]) -> OptionSetter:
    def change(options: ServerOptions, item: ConfItem) -> ServerOptions:
        value: dict[str, Any] = {name: read(item)}
        return replace(options, encryption=replace(options.encryption, **value))

    return change


JETSTREAM_KEYS: Final[dict[str, OptionSetter]] = keyed(
    ("enabled enable", set_option("jetstream", flag_of)),
    ("strict", set_option("no_jetstream_strict", lambda item: not flag_of(item))),
    ("store store_dir storedir", store_dir),
    ("domain", set_option("domain", _domain)),
    ("max_memory_store max_mem_store max_mem", set_option("max_memory", size_of)),
    ("max_file_store max_file", set_option("max_storage", size_of)),
    ("limits", set_option("jetstream_limits", lambda item: ServerJetStreamLimits(**fields_of(item, LIMIT_KEYS)))),
    ("sync", set_option("sync", _sync)),
    ("sync_interval", set_option("sync", _sync_interval)),
    ("archive_version", set_option("archive_version", _archive_version)),
    ("key ek encryption_key", _encryption("key", text_of)),
    ("prev_key prev_ek prev_encryption_key", _encryption("prev_key", text_of)),
    ("cipher", _encryption("cipher", _cipher)),
    ("tpm", _tpm),
)
ACCOUNT_LIMIT_KEYS: Final[dict[str, Reader]] = keyed(
    ("max_memory max_mem mem memory", ("max_memory", number_of)),
    ("max_file max_store max_disk max_storage store disk", ("max_storage", number_of)),
    ("max_streams streams", ("max_streams", number_of)),
    ("max_consumers consumers", ("max_consumers", number_of)),
    ("max_ack_pending", ("max_ack_pending", number_of)),
    ("memory_max_stream_bytes mem_max_stream_bytes", ("memory_max_stream_bytes", number_of)),
    ("disk_max_stream_bytes store_max_stream_bytes", ("storage_max_stream_bytes", number_of)),
    ("max_bytes_required max_stream_bytes max_bytes", ("max_bytes_required", flag_of)),
)


def account_limits(item: ConfItem) -> AccountLimits | None:
    if not isinstance(item.value, dict):
        return replace(UNLIMITED) if _word(item) else None
    return replace(UNLIMITED, **fields_of(item, ACCOUNT_LIMIT_KEYS | {"cluster_traffic": ("", _cluster_traffic)}))


def _cluster_traffic(item: ConfItem) -> dict[str, Any]:
    """Check the account of Raft's traffic; a single node has no such traffic."""
    if text_of(item) not in ("system", "owner", ""):
        raise item.fault("Expected 'system' or 'owner' for cluster_traffic")
    return {}


_INT32_MAX: Final = (1 << 31) - 1
_TOKENS_MAX: Final = 255
_LAME_DUCK_MIN_S: Final = 30.0


def _small(name: str) -> OptionSetter:
    def read(item: ConfItem) -> int:
        number = number_of(item)
        if number > _INT32_MAX:
            raise item.fault(f"{name} value is too big")
        return number

    return set_option(name, read)


def _subscription_tokens(item: ConfItem) -> int:
    number = number_of(item)
    if number > _TOKENS_MAX:
        raise item.fault("max_subscription_tokens value is too big")
    if number <= 0:
        raise item.fault("max_subscription_tokens value can not be negative")
    return number


def _lame_duck_duration(item: ConfItem) -> float:
    seconds = duration_text_of(item, "lame_duck_duration")
    if seconds < _LAME_DUCK_MIN_S:
        raise item.fault(f"invalid lame_duck_duration of {format_seconds(seconds)}, minimum is 30 seconds")
    return seconds


def _lame_duck_grace(item: ConfItem) -> float:
    seconds = duration_text_of(item, "lame_duck_grace_period")
    if seconds < 0:
        raise item.fault("invalid lame_duck_grace_period, needs to be positive")
    return seconds


def _unlimited(name: str) -> OptionSetter:
    """Return the setter of a number; 0 and less mean no limit, as in nats-server."""
    return set_option(name, lambda item: max(number_of(item), 0))


def _max_closed(options: ServerOptions, item: ConfItem) -> ServerOptions:
    number = number_of(item)
    return replace(options, max_closed_clients=number) if number > 0 else options


LIMITS: Final[dict[str, OptionSetter]] = keyed(
    ("max_payload", _small("max_payload")),
    ("max_control_line", _small("max_control_line")),
    ("max_pending", set_option("max_pending", number_of)),
    ("max_connections max_conn", set_option("max_connections", lambda item: number_of(item) or -1)),
    ("max_subscriptions max_subs", _unlimited("max_subscriptions")),
    ("max_sub_tokens max_subscription_tokens", set_option("max_subscription_tokens", _subscription_tokens)),
    ("max_closed_clients", _max_closed),
    ("max_traced_msg_len", _unlimited("max_traced_bytes")),
    ("ping_interval", set_option("ping_interval_s", seconds_of)),
    ("ping_max", set_option("ping_max", number_of)),
    ("write_deadline", set_option("write_deadline_s", seconds_of)),
    ("write_timeout", set_option("write_timeout", write_timeout_of)),
    ("lame_duck_duration", set_option("lame_duck_duration_s", _lame_duck_duration)),
    ("lame_duck_grace_period", set_option("lame_duck_grace_s", _lame_duck_grace)),
    ("no_header_support", set_option("no_header_support", flag_of)),
    ("connect_error_reports", set_option("connect_error_reports", number_of)),
    ("reconnect_error_reports", set_option("reconnect_error_reports", number_of)),
    ("disable_sublist_cache no_sublist_cache no_fast_producer_stall", _checked(flag_of)),
)
