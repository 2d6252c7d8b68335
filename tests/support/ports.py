"""Ports for servers that have to know them before they listen, or to listen there again."""

from __future__ import annotations

import contextlib
import random
import socket
from typing import Final

FIRST_HANDED_OUT: Final = 32_768
"""Where the ports begin that Linux takes for connections and gives to who asks for any."""


def quiet_ports(number: int) -> list[int]:
    """Return ports of 127.0.0.1 that nobody listens on, below those that the system hands out meanwhile."""
    found: list[int] = []
    with contextlib.ExitStack() as held:
        while len(found) < number:
            port = random.randrange(10_000, FIRST_HANDED_OUT)
            with contextlib.suppress(OSError):
                held.enter_context(socket.create_server(("127.0.0.1", port)))
                found.append(port)
    return found
