"""The client's side of the handshake, without I/O: INFO, and whether TLS begins before anything is sent.

Every client of natsctl decides here: commands and the Python API (`client/nats_client.py`), single requests and
completion (`client/one_shot.py`), Spark's data source, leaf node remotes, and guests of the embedded server. A client
calls `starts_tls` when it has read INFO and before it sends its first byte.

This module imports nothing of natsctl, because Spark carries it to executors that have no natsctl.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

INFO_VERB: Final = b"INFO "
_TYPES: Final[dict[str, type]] = {
    **dict.fromkeys(("server_id", "server_name", "version", "nonce", "cluster", "domain", "client_ip", "xkey"), str),
    **dict.fromkeys(("max_payload", "client_id", "proto"), int),
    **dict.fromkeys(
        ("headers", "auth_required", "tls_required", "tls_available", "tls_verify", "jetstream", "ldm"), bool
    ),
    "connect_urls": list,
}
"""Fields of INFO that clients use."""


class TlsNotOfferedError(ConnectionError):
    """TLS was asked for, and the server does not offer it; nothing has been sent."""


def read_info(line: bytes) -> dict[str, Any]:
    """Return the content of the INFO line that a server begins with; raises ValueError for any other line."""
    if not line.startswith(INFO_VERB):
        raise ValueError(f"not INFO: {line[:100]!r}")
    try:
        info = json.loads(line[len(INFO_VERB) :])
    except RecursionError:
        raise ValueError("INFO is nested too deeply") from None
    if not isinstance(info, dict):
        raise ValueError(f"INFO without an object: {line[:100]!r}")
    return checked_info(info)


def checked_info(info: dict[str, Any]) -> dict[str, Any]:
    """Return the same INFO without fields that are null; raises ValueError for a value of the wrong type."""
    for key in [key for key, value in info.items() if value is None]:
        del info[key]
    for key, value in info.items():
        if type(value) is not _TYPES.get(key, type(value)):
            raise ValueError(f"INFO with {key} {value!r:.40}")
    if not all(isinstance(url, str) for url in info.get("connect_urls", ())):
        raise ValueError("INFO with odd connect_urls")
    return info


def starts_tls(info: Mapping[str, Any], *, wanted: bool, secured: bool = False) -> bool:
    """Return whether to start TLS before anything else; what follows INFO in clear is then to be dropped.

    `wanted` says that the user asked for TLS, `secured` that the connection has it already. Raises TlsNotOfferedError
    if TLS is wanted and not offered: the client closes the connection without sending a byte. Source: nats.go,
    checkForSecure.
    """
    if secured:
        return False
    if info.get("tls_required"):
        return True
    if wanted and not info.get("tls_available"):
        raise TlsNotOfferedError("TLS is wanted, and the server does not offer it")
    return wanted
