"""How folders of replacements are called, and whether there are any: all that an apply without any has to load."""

from __future__ import annotations

from pathlib import Path
from typing import Final

PREFIX: Final = "natsctl-replaced-"
MARKER: Final = "replacement.json"


def folders_in(parent: Path) -> list[Path]:
    """The folders that may be of interrupted replacements: those below `parent`, or `parent` itself."""
    parent = parent.absolute()
    return [parent] if (parent / MARKER).is_file() else sorted(parent.glob(f"{PREFIX}*"))
