"""The blocks `tls` of nats.conf: one for each kind of listener or remote."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Literal

from msgspec.structs import replace

from natsctl.api.units import parse_duration
from natsctl.server.conf.syntax import Item
from natsctl.server.conf.values import block_of, flag_of
from natsctl.server.options import TlsOptions
from natsctl.server.tls.contexts import CURVES, INSECURE_SUITES, SUITES, TlsFileError, server_context

FALLBACK_S: Final = 0.05
"""Time that `handshake_first: auto` waits for a handshake before INFO goes out in clear."""

_PINNED: Final = re.compile("[a-f0-9]{64}")

_STORE: Final = frozenset({"cert_store", "cert_match_by", "cert_match", "ca_certs_match", "cert_match_skip_invalid"})
"""Keys of Windows' certificate store."""

Role = Literal["listener", "remote"]
Reader = Callable[[Item, str], Any]


def tls_block(item: Item, role: Role = "listener") -> TlsOptions:
    """Return the options of the block; raises ConfError, also where a file of a listener cannot be used."""
    tls = TlsOptions()
    insecure: list[str] = []
    allowed = False
    for key, value in block_of(item).items():
        name = key.lower()
        if name in _STORE:
            raise value.fault(f"{key}: cert_store not compatible with current operating system")
        if name == "cipher_suites":
            tls = replace(tls, cipher_suites=_choices(value, name, SUITES | INSECURE_SUITES, "cipher"))
            insecure = [suite for suite in tls.cipher_suites if suite in INSECURE_SUITES]
        elif name == "allow_insecure_cipher_suites":
            allowed = flag_of(value)
        elif name in TLS_KEYS:
            tls = replace(tls, **TLS_KEYS[name](value, key))
        elif name == "ocsp_peer":
            from natsctl.server.conf.ocsp import ocsp_peer

            tls = replace(tls, ocsp_peer=ocsp_peer(value))
        else:
            raise value.fault(f'error parsing tls config, unknown field "{key}"')
    if tls.certs and tls.cert_file is not None:
        raise item.fault("error parsing tls config, cannot combine 'cert_file' option with 'certs' option")
    if insecure and not allowed:
        names = ", ".join(insecure)
        raise item.fault(
            f"insecure cipher suites configured without 'allow_insecure_cipher_suites' option set: {names}"
        )
    if role == "listener":
        try:
            server_context(tls)
        except TlsFileError as error:
            raise item.fault(str(error)) from error
    return tls


def _file(name: str) -> Reader:
    def read(item: Item, key: str) -> dict[str, Path]:
        if not isinstance(item.value, str):
            raise item.fault(f"error parsing tls config, expected '{key}' to be filename")
        return {name: Path(item.value)}

    return read


def _flag(*names: str) -> Reader:
    def read(item: Item, key: str) -> dict[str, bool]:
        if not isinstance(item.value, bool):
            raise item.fault(f"error parsing tls config, expected '{key}' to be a boolean")
        return dict.fromkeys(names, item.value)

    return read


def _verify_and_map(item: Item, key: str) -> dict[str, bool]:
    wanted: bool = _flag("verify_and_map")(item, key)["verify_and_map"]
    return {"verify_and_map": True, "verify": True} if wanted else {"verify_and_map": False}


def _known_urls(item: Item, key: str) -> dict[str, bool]:
    """Refuse an option of routes and gateways."""
    if _flag("known")(item, key)["known"]:
        raise item.fault("verify_cert_and_check_known_urls not supported in this context")
    return {}


def _timeout(item: Item, key: str) -> dict[str, float]:
    if isinstance(item.value, (int, float)) and not isinstance(item.value, bool):
        return {"timeout_s": float(item.value)}
    if not isinstance(item.value, str):
        raise item.fault("error parsing tls config, 'timeout' wrong type")
    try:
        return {"timeout_s": parse_duration(item.value) / 1e9}
    except ValueError:
        raise item.fault(f"error parsing tls config, 'timeout' time: invalid duration \"{item.value}\"") from None


def _rate(item: Item, key: str) -> dict[str, int]:
    if isinstance(item.value, bool) or not isinstance(item.value, int):
        raise item.fault("error parsing tls config, 'connection_rate_limit' wrong type")
    return {"connection_rate_limit": item.value}


def _min_version(item: Item, key: str) -> dict[str, str]:
    if not isinstance(item.value, str):
        raise item.fault(f"error parsing tls config: 'min_version' wrong type: {item.value}")
    if item.value in ("1.0", "1.1"):
        raise item.fault(f"error parsing tls config: unsupported TLS version: TLS {item.value}")
    if item.value not in ("1.2", "1.3"):
        raise item.fault(f"error parsing tls config: unknown version: {item.value}")
    return {"min_version": item.value}


def _choices(item: Item, key: str, known: dict[str, str], what: str) -> tuple[str, ...]:
    if not isinstance(item.value, list):
        raise item.fault(f"error parsing tls config, '{key}' is not a list")
    if not item.value:
        raise item.fault(f"error parsing tls config, '{key}' cannot be empty")
    for entry in item.value:
        if not isinstance(entry.value, str) or entry.value not in known:
            raise entry.fault(f"unrecognized {what} {entry.value}")
    return tuple(str(entry.value) for entry in item.value)


def _curves(item: Item, key: str) -> dict[str, tuple[str, ...]]:
    return {"curve_preferences": _choices(item, key.lower(), CURVES, "curve preference")}


def _pinned(item: Item, key: str) -> dict[str, frozenset[str]]:
    what = "hex-encoded sha256 of DER encoded SubjectPublicKeyInfo"
    if not isinstance(item.value, list):
        raise item.fault(f"error parsing tls config, expected 'pinned_certs' to be a list of {what}")
    digests = []
    for entry in item.value:
        digest = str(entry.value).lower()
        if not _PINNED.fullmatch(digest):
            raise entry.fault(f"error parsing tls config, 'pinned_certs' key {digest} does not look like {what}")
        digests.append(digest)
    return {"pinned_certs": frozenset(digests)}


_FIRST: Final = {
    "true": (True, 0.0),
    "on": (True, 0.0),
    "false": (False, 0.0),
    "off": (False, 0.0),
    "auto": (True, FALLBACK_S),
    "auto_fallback": (True, FALLBACK_S),
}


def _first(item: Item, key: str) -> dict[str, object]:
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


def _certs(item: Item, key: str) -> dict[str, tuple[tuple[Path, Path], ...]]:
    if not isinstance(item.value, list):
        raise item.fault("error parsing certificates config: unsupported type")
    return {"certs": tuple(_pair(entry) for entry in item.value)}


def _pair(item: Item) -> tuple[Path, Path]:
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
    "cert_file": _file("cert_file"),
    "key_file": _file("key_file"),
    "ca_file": _file("ca_file"),
    "verify": _flag("verify"),
    "verify_and_map": _verify_and_map,
    "verify_cert_and_check_known_urls": _known_urls,
    "insecure": _flag("insecure"),
    "timeout": _timeout,
    "connection_rate_limit": _rate,
    "min_version": _min_version,
    "curve_preferences": _curves,
    "pinned_certs": _pinned,
    "handshake_first": _first,
    "first": _first,
    "immediate": _first,
    "certs": _certs,
    "certificates": _certs,
}
