"""The mistakes of documents, collected; and the limits that hold hostile ones."""

from __future__ import annotations

from typing import Final

MAX_FILE_BYTES: Final = 32 * 1024 * 1024
"""Bytes of a file; a set of ten thousand streams has a third of it."""
MAX_DEPTH: Final = 64
"""Levels of mappings and lists in each other; a configuration has seven."""
MAX_VALUES: Final = 2_000_000
"""Values of one file, aliases counted as what they stand for."""
MAX_INCLUDE_DEPTH: Final = 16
"""Files that include each other, one below the other."""
MAX_FILES: Final = 10_000
"""Files of one set."""


class TextError(Exception):
    """A text cannot be read further: the line, and the reason."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line
        self.reason = reason
