"""The blocks `tls` of nats.conf, one for each kind of listener or remote, and the blocks of OCSP."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

from msgspec.structs import replace

from natsctl.api.units import parse_duration
from natsctl.server.conf.syntax import ConfItem
from natsctl.server.conf.values import MAX_SECONDS, Reader, block_of, fields_of, flag_of, items_of, list_of
from natsctl.server.options import OcspCacheOptions, OcspOptions, OcspPeerOptions, TlsOptions
from natsctl.server.tls.contexts import CURVES, INSECURE_SUITES, SUITES, TlsFileError, server_context

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


def _peer_flag(key: str, item: ConfItem) -> bool:
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
    "verify": ("verify", _peer_flag),
    "ca_timeout": ("timeout_s", _peer_seconds),
    "allowed_clockskew": ("clock_skew_s", _peer_seconds),
    "warn_only": ("warn_only", _peer_flag),
    "unknown_is_good": ("unknown_is_good", _peer_flag),
    "allow_when_ca_unreachable": ("allow_when_unreachable", _peer_flag),
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


FALLBACK_S: Final = 0.05
"""Time that `handshake_first: auto` waits for a handshake before INFO goes out in clear."""

_PINNED: Final = re.compile("[a-f0-9]{64}")

STORE_KEYS: Final = frozenset(
    {"cert_store", "cert_match_by", "cert_match", "ca_certs_match", "cert_match_skip_invalid"}
)
"""Keys of Windows' certificate store."""

Role = Literal["listener", "remote"]


def tls_block(item: ConfItem, role: Role = "listener") -> TlsOptions:
    """Return the options of the block; raises ConfError, also for an unusable file of a listener."""
    fields = fields_of(item, TLS_KEYS, unknown="error parsing tls config, unknown field {}")
    allowed = fields.pop("allow_insecure_cipher_suites", False)
    tls = TlsOptions(**fields)
    if tls.certs and tls.cert_file is not None:
        raise item.fault("error parsing tls config, cannot combine 'cert_file' option with 'certs' option")
    insecure = ", ".join(suite for suite in tls.cipher_suites if suite in INSECURE_SUITES)
    if insecure and not allowed:
        why = "insecure cipher suites configured without 'allow_insecure_cipher_suites' option set"
        raise item.fault(f"{why}: {insecure}")
    if role == "listener":
        try:
            server_context(tls)
        except TlsFileError as error:
            raise item.fault(str(error)) from error
    return tls


def _file(key: str, item: ConfItem) -> Path:
    if not isinstance(item.value, str):
        raise item.fault(f"error parsing tls config, expected '{key}' to be filename")
    return Path(item.value)


def _flag(key: str, item: ConfItem) -> bool:
    if not isinstance(item.value, bool):
        raise item.fault(f"error parsing tls config, expected '{key}' to be a boolean")
    return item.value


def _verify_and_map(item: ConfItem) -> dict[str, bool]:
    mapped = _flag("verify_and_map", item)
    return {"verify_and_map": True, "verify": True} if mapped else {"verify_and_map": False}


def _known_urls(item: ConfItem) -> dict[str, bool]:
    if _flag("verify_cert_and_check_known_urls", item):
        raise item.fault("verify_cert_and_check_known_urls not supported in this context")
    return {}


def _store(key: str, item: ConfItem) -> None:
    raise item.fault(f"{key}: cert_store not compatible with current operating system")


def _timeout(item: ConfItem) -> float:
    if isinstance(item.value, (int, float)) and not isinstance(item.value, bool):
        return float(item.value)
    if not isinstance(item.value, str):
        raise item.fault("error parsing tls config, 'timeout' wrong type")
    try:
        return parse_duration(item.value) / 1e9
    except ValueError:
        raise item.fault(f"error parsing tls config, 'timeout' time: invalid duration \"{item.value}\"") from None


def _rate(item: ConfItem) -> int:
    if isinstance(item.value, bool) or not isinstance(item.value, int):
        raise item.fault("error parsing tls config, 'connection_rate_limit' wrong type")
    return item.value


def _min_version(item: ConfItem) -> str:
    if not isinstance(item.value, str):
        raise item.fault(f"error parsing tls config: 'min_version' wrong type: {item.value}")
    if item.value in ("1.0", "1.1"):
        raise item.fault(f"error parsing tls config: unsupported TLS version: TLS {item.value}")
    if item.value not in ("1.2", "1.3"):
        raise item.fault(f"error parsing tls config: unknown version: {item.value}")
    return item.value


def _choices(key: str, known: Mapping[str, str], what: str, item: ConfItem) -> tuple[str, ...]:
    if not isinstance(item.value, list):
        raise item.fault(f"error parsing tls config, '{key}' is not a list")
    if not item.value:
        raise item.fault(f"error parsing tls config, '{key}' cannot be empty")
    for entry in item.value:
        if not isinstance(entry.value, str) or entry.value not in known:
            raise entry.fault(f"unrecognized {what} {entry.value}")
    return tuple(str(entry.value) for entry in item.value)


def _pinned(item: ConfItem) -> frozenset[str]:
    what = "hex-encoded sha256 of DER encoded SubjectPublicKeyInfo"
    digests = []
    for entry in list_of(item, f"error parsing tls config, expected 'pinned_certs' to be a list of {what}"):
        digest = str(entry.value).lower()
        if not _PINNED.fullmatch(digest):
            raise entry.fault(f"error parsing tls config, 'pinned_certs' key {digest} does not look like {what}")
        digests.append(digest)
    return frozenset(digests)


def _ocsp_peer(item: ConfItem) -> OcspPeerOptions:
    from natsctl.server.conf.tls import ocsp_peer

    return ocsp_peer(item)


_FIRST: Final = {
    "true": (True, 0.0),
    "on": (True, 0.0),
    "false": (False, 0.0),
    "off": (False, 0.0),
    "auto": (True, FALLBACK_S),
    "auto_fallback": (True, FALLBACK_S),
}


def _first(key: str, item: ConfItem) -> dict[str, object]:
    if isinstance(item.value, bool):
        first, fallback = item.value, 0.0
    elif not isinstance(item.value, str):
        raise item.fault(f'field "{key}" should be a boolean or a string, got {type(item.value).__name__}')
    elif item.value.lower() in _FIRST:
        first, fallback = _FIRST[item.value.lower()]
    else:
        try:
            first, fallback = True, parse_duration(item.value) / 1e9
        except ValueError:
            raise item.fault(f'field "{key}"\'s value "{item.value}" is invalid') from None
    return {"handshake_first": first, "fallback_s": fallback}


def _certs(item: ConfItem) -> tuple[tuple[Path, Path], ...]:
    return tuple(_pair(entry) for entry in list_of(item, "error parsing certificates config: unsupported type"))


def _pair(item: ConfItem) -> tuple[Path, Path]:
    files: dict[str, Path] = {}
    for key, value in block_of(item).items():
        if not isinstance(value.value, str):
            raise value.fault("error parsing certificates config: unsupported type")
        if key not in ("cert_file", "key_file"):
            raise value.fault(f'error parsing tls certs config, unknown field "{key}"')
        files[key] = Path(value.value)
    if len(files) < 2:
        raise item.fault("error parsing certificates config: both 'cert_file' and 'cert_key' options are required")
    return files["cert_file"], files["key_file"]


TLS_KEYS: Final[dict[str, Reader]] = {
    **{key: (key, partial(_file, key)) for key in ("cert_file", "key_file", "ca_file")},
    **{key: (key, partial(_flag, key)) for key in ("verify", "insecure")},
    "verify_and_map": ("", _verify_and_map),
    "verify_cert_and_check_known_urls": ("", _known_urls),
    "timeout": ("timeout_s", _timeout),
    "connection_rate_limit": ("connection_rate_limit", _rate),
    "min_version": ("min_version", _min_version),
    "curve_preferences": ("curve_preferences", partial(_choices, "curve_preferences", CURVES, "curve preference")),
    "pinned_certs": ("pinned_certs", _pinned),
    **{key: ("", partial(_first, key)) for key in ("handshake_first", "first", "immediate")},
    "certs": ("certs", _certs),
    "certificates": ("certs", _certs),
    "cipher_suites": ("cipher_suites", partial(_choices, "cipher_suites", SUITES | INSECURE_SUITES, "cipher")),
    "allow_insecure_cipher_suites": ("allow_insecure_cipher_suites", flag_of),
    "ocsp_peer": ("ocsp_peer", _ocsp_peer),
    **{key: ("", partial(_store, key)) for key in STORE_KEYS},
}
