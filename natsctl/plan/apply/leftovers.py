"""By what replacements are known, their folders and their streams: all that an apply without any has to load."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

PREFIX: Final = "natsctl-replaced-"
MARKER: Final = "replacement.json"
QUIET: Final = "natsctl.replacing."
"""Begins the subject of a stream that is about to be replaced."""


def folders_in(parent: Path) -> list[Path]:
    """The folders that may be of interrupted replacements: those below `parent`, or `parent` itself."""
    parent = parent.absolute()
    return [parent] if (parent / MARKER).is_file() else sorted(parent.glob(f"{PREFIX}*"))


def is_being_replaced(config: Mapping[str, Any]) -> bool:
    """Whether a stream takes no messages because somebody replaces it, or was interrupted in doing so."""
    subjects = config.get("subjects") or [""]
    return bool(subjects[0].startswith(QUIET))
