"""The nats-server release that this server follows: its version and its JetStream API level."""

from __future__ import annotations

from collections.abc import Mapping

from natsctl.hints import Final, NamedTuple

SERVER_VERSION: Final = "2.15.2"
"""nats-server version that clients may assume; they gate features on it."""

API_LEVEL: Final = 5
"""The JetStream API level of that version: the maximum that requests and stored configurations may need."""

SERVER_METADATA: Final = "_nats."
"""Prefix of metadata keys that the server writes; they are not part of a requested configuration."""
REQUIRED_LEVEL_KEY: Final = "_nats.req.level"
"""Metadata of streams and consumers: the level that their features need, stored with them."""
VERSION_KEY: Final = "_nats.ver"
LEVEL_KEY: Final = "_nats.level"
"""Metadata that only answers show: the server's version and level."""


def is_level_met(level: str | bytes) -> bool:
    """Return whether a required level is a whole number and not above this version's."""
    digits = level.decode("latin-1") if isinstance(level, bytes) else level
    sign = digits[:1] in ("+", "-")
    return digits[sign:].isascii() and digits[sign:].isdigit() and int(digits) <= API_LEVEL


def metadata_level(metadata: Mapping[str, str] | None, key: str = REQUIRED_LEVEL_KEY) -> int:
    """Return the API level in the metadata of a stream or consumer, 0 without one: its server's with `LEVEL_KEY`."""
    text = str((metadata or {}).get(key, ""))
    return int(text) if text.isdecimal() else 0


class RequiredLevel(NamedTuple):
    """A level, and the field that needs it."""

    level: int
    field: str
