"""How the output looks, where the whole command has to know it: the zone of times, the box and colour of tables.

Both reach whoever shows something through the environment of the process, as TZ and NATS_COLOR do when a person sets
them; a command that was run inside another program leaves them as they were.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from natsctl.cli.globals import COLOURS

if TYPE_CHECKING:
    from rich.box import Box

COLOUR = "NATS_COLOR"
_ZONE = "TZ"
_BOXES = ("rounded", "double")


@contextmanager
def looking(given: Mapping[str, Any]) -> Iterator[None]:
    """Let --utc and --colors hold while a command runs."""
    zone, colour = os.environ.get(_ZONE), os.environ.get(COLOUR)
    if given.get("colors"):
        os.environ[COLOUR] = given["colors"]
    if given.get("utc"):
        _set_zone("UTC")
    try:
        yield
    finally:
        _put(COLOUR, colour)
        if given.get("utc"):
            _set_zone(zone)


def _put(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


def _set_zone(zone: str | None) -> None:
    _put(_ZONE, zone)
    if hasattr(time, "tzset"):
        time.tzset()


def table_look() -> tuple[Box, str]:
    """The box of tables and the colour of its lines, "" for the terminal's own."""
    from rich.box import DOUBLE, ROUNDED

    scheme = os.environ.get(COLOUR, "")
    return DOUBLE if scheme == "double" else ROUNDED, scheme if scheme in COLOURS and scheme not in _BOXES else ""
