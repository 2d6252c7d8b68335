"""The block `limits` of `jetstream` in nats.conf: what streams, consumers and batches of every account may ask for."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from natsctl.jetstream.publish.batch_limits import BatchLimits
from natsctl.server.conf.syntax import Item
from natsctl.server.conf.values import block_of, duration_text_of, number_of
from natsctl.server.options import JetStreamLimits

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
    """Return what the block sets; raises ConfError."""
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
