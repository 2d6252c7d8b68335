"""What the server of an account can keep: fields came with versions and API levels."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from natsctl.client.manager import CONSUMER_LEVELS, STREAM_LEVELS, required_level_of

SINCE: Final[dict[str, tuple[int, int]]] = {
    "metadata": (2, 10),
    "compression": (2, 10),
    "first_seq": (2, 10),
    "subject_transform": (2, 10),
    "consumer_limits": (2, 10),
    "filter_subjects": (2, 10),
}
"""The version that a field came with, for those older than API levels. Earlier servers drop it silently."""
_EMPTY: Final[tuple[Any, ...]] = (None, False, 0, "", "none", [], {})


class Abilities(NamedTuple):
    """The features of a server; an unknown one is assumed to have all."""

    version: tuple[int, int] = (99, 0)
    level: int | None = None
    shown: str = ""

    @classmethod
    def of(cls, server: Mapping[str, Any]) -> Abilities:
        """Return the features of the server of a `World`."""
        shown = str(server.get("version") or "")
        found = re.match(r"(\d+)\.(\d+)\.", shown)
        version = (int(found[1]), int(found[2])) if found else (99, 0)
        level = server.get("api_level")
        return cls(version, int(level) if level is not None else 0 if version < (2, 11) else None, shown)

    @property
    def keeps_metadata(self) -> bool:
        """Whether the server stores labels."""
        return self.version >= SINCE["metadata"]

    @property
    def windows_for_sources(self) -> bool:
        """Whether streams with sources are given a duplicate window."""
        return self.version < (2, 14)

    def lacking(self, config: Mapping[str, Any], consumer: bool) -> str:
        """Return why a configuration would not be kept whole, "" if it would."""
        for name, since in SINCE.items():
            if self.version < since and config.get(name) not in _EMPTY:
                return f"{name} needs nats-server {since[0]}.{since[1]}, this is {self.shown}"
        needed = required_level_of(config, CONSUMER_LEVELS if consumer else STREAM_LEVELS)
        if self.level is not None and needed.level > self.level:
            return f"{needed.field} needs JetStream API level {needed.level}, the server {self.shown} has {self.level}"
        return ""
