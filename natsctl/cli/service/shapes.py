"""What `natsctl service` prints with -j that no service says itself."""

from __future__ import annotations

from typing import Any

import msgspec

from natsctl.client.services.documents import Instance


class Handled(msgspec.Struct):
    """A request that the service of `natsctl service serve` has answered."""

    subject: str
    bytes: int
    reply: str


class Answered(msgspec.Struct, omit_defaults=True):
    """An answer to a request, and the nanoseconds until it came; `data` in base64, `text` where it is UTF-8."""

    subject: str
    data: str
    received: str
    rtt: int
    reply: str = ""
    headers: dict[str, list[str]] = {}
    text: str = ""
    status: int = 0
    description: str = ""


class Instances(msgspec.Struct):
    """All instances of a service; `info` and `stats` are those of the first, null where none answers."""

    info: dict[str, Any] | None
    stats: dict[str, Any] | None
    instances: list[Instance]
