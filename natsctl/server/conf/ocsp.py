"""OCSP in nats.conf: `ocsp` and `ocsp_cache` at the top, `ocsp_peer` in a block `tls`."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from natsctl.api.units import parse_duration
from natsctl.server.conf.syntax import ConfItem
from natsctl.server.conf.values import MAX_SECONDS, Reader, fields_of, items_of
from natsctl.server.options import OcspCacheOptions, OcspOptions, OcspPeerOptions

MODES: Final = ("auto", "always", "never", "must")
MIN_SAVE_INTERVAL_S: Final = 1.0
"""Shortest interval between two saves of the cache. Source: nats-server, ocsp_responsecache.go."""

_GO_TYPES: Final = {bool: "bool", int: "int64", float: "float64", str: "string", list: "[]interface {}"}


def _go_type(value: object) -> str:
    """Return the name that nats-server's errors have for the type of a value."""
    if isinstance(value, datetime):
        return "time.Time"
    return _GO_TYPES.get(type(value), "map[string]interface {}")


def ocsp_block(item: ConfItem) -> OcspOptions:
    if isinstance(item.value, bool):
        return OcspOptions("auto" if item.value else "never")
    if not isinstance(item.value, dict):
        raise item.fault(f"error parsing ocsp config: unsupported type {_go_type(item.value)}")
    fields: dict[str, Any] = {}
    for key, value in item.value.items():
        if key == "mode":
            mode = value.value.lower() if isinstance(value.value, str) else ""
            if mode not in MODES:
                raise value.fault(f"error parsing ocsp config: unsupported ocsp mode {_go_type(value.value)}")
            fields["mode"] = mode
        elif key in ("url", "urls"):
            fields["urls"] = _urls(value)
        else:
            raise value.fault("error parsing ocsp config: unsupported field string")
    return OcspOptions(**fields)


def _urls(item: ConfItem) -> tuple[str, ...]:
    for url in items_of(item):
        if not isinstance(url.value, str):
            raise url.fault(f"error parsing ocsp config: unsupported type {_go_type(url.value)}")
    return tuple(str(url.value) for url in items_of(item))


def ocsp_peer(item: ConfItem) -> OcspPeerOptions:
    if isinstance(item.value, bool):
        return OcspPeerOptions(verify=item.value)
    if not isinstance(item.value, dict):
        raise item.fault("error parsing ocsp peer config: unsupported type map[string]interface {}")
    unknown = "error parsing tls peer config, unknown field [{}]"
    fields = fields_of(item, PEER_KEYS, unknown=unknown)
    return OcspPeerOptions(**{name: value for name, value in fields.items() if value is not None})


def _flag(key: str, item: ConfItem) -> bool:
    if not isinstance(item.value, bool):
        raise item.fault(f'error parsing tls peer config, unknown field ["{key}"]')
    return item.value


def _seconds(item: ConfItem, what: str, key: str = "") -> float | None:
    """Return seconds of a number or a duration; None (the default) if negative."""
    fault = f"error parsing {what} config, conversion error: "
    seconds = 0.0
    if isinstance(item.value, str):
        try:
            seconds = parse_duration(item.value) / 1e9
        except ValueError:
            bad = "unexpected type" if key == "allowed_clockskew" else f'time: invalid duration "{item.value}"'
            raise item.fault(f"error parsing tls peer config, conversion error: {bad}") from None  # also of the cache
    elif isinstance(item.value, bool) or not isinstance(item.value, (int, float)):
        raise item.fault(f"{fault}unexpected type")
    else:
        seconds = float(item.value)
    if not math.isfinite(seconds) or seconds > MAX_SECONDS:
        raise item.fault(f"{fault}longer than a duration can be")
    return seconds if seconds >= 0 else None


def _peer_seconds(key: str, item: ConfItem) -> float | None:
    return _seconds(item, "tls peer", key)


PEER_FIELDS: Final[dict[str, tuple[str, Callable[[str, ConfItem], Any]]]] = {
    "verify": ("verify", _flag),
    "ca_timeout": ("timeout_s", _peer_seconds),
    "allowed_clockskew": ("clock_skew_s", _peer_seconds),
    "warn_only": ("warn_only", _flag),
    "unknown_is_good": ("unknown_is_good", _flag),
    "allow_when_ca_unreachable": ("allow_when_unreachable", _flag),
    "cache_ttl_when_next_update_unset": ("ttl_s", _peer_seconds),
}
PEER_KEYS: Final[dict[str, Reader]] = {key: (field, partial(read, key)) for key, (field, read) in PEER_FIELDS.items()}


def ocsp_cache(item: ConfItem) -> OcspCacheOptions:
    if isinstance(item.value, bool):
        return OcspCacheOptions("local" if item.value else "none")
    if not isinstance(item.value, dict):
        raise item.fault(f"error parsing tags: unsupported type {_go_type(item.value)}")
    cache = OcspCacheOptions()
    for key, value in item.value.items():
        field, kind = CACHE_KEYS.get(key.lower(), ("", object))
        if field == "save_interval_s":
            seconds = _seconds(value, "OCSP peer cache") or 0.0
            cache = replace(cache, save_interval_s=max(float(int(seconds)), MIN_SAVE_INTERVAL_S))
            continue
        if not field or not isinstance(value.value, kind):
            raise value.fault(f'error parsing OCSP peer cache config, unknown field ["{key}"]')
        found = value.value
        if field == "kind":
            found = str(found).lower()
            if found not in ("none", "local"):
                raise value.fault(f"error parsing OCSP peer cache config, unknown type [{value.value}]")
        cache = replace(cache, **{field: found})
    return cache


CACHE_KEYS: Final[dict[str, tuple[str, type]]] = {
    "type": ("kind", str),
    "local_store": ("folder", str),
    "preserve_revoked": ("preserve_revoked", bool),
    "save_interval": ("save_interval_s", float),
}
