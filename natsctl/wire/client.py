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
