"""Values of documents with the lines that they were read from, and limits against hostile documents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

Step = str | int


class Location(NamedTuple):
    """A location in a document; `path` is `$.streams[0].max_age`, `line` counts from 1, 0 is unknown."""

    file: str
    line: int = 0
    path: str = "$"

    def __str__(self) -> str:
        line = f":{self.line}" if self.line else ""
        return f"{self.file}{line}: {self.path}"


class LocatedDict(dict[str, Any]):
    """A mapping with the line of each key, and with the original spelling of keys that were translated."""

    __slots__ = ("line", "lines", "words")

    def __init__(self, line: int = 0) -> None:
        super().__init__()
        self.line = line
        self.lines: dict[str, int] = {}
        self.words: dict[str, tuple[Step, ...]] | None = None

    def put(self, key: str, value: Any, line: int, words: tuple[Step, ...] | None = None) -> None:
        """Set a key; `words` is its path in the text if that differs from the key."""
        self[key] = value
        self.lines[key] = line
        if words is not None:
            self.words = {**(self.words or {}), key: words}

    def without(self, *keys: str) -> LocatedDict:
        """Return a copy without these keys."""
        copy = LocatedDict(self.line)
        copy.update(self)
        for key in keys:
            copy.pop(key, None)
        copy.lines, copy.words = self.lines, self.words
        return copy


class LocatedList(list[Any]):
    """A list with the line of each item."""

    __slots__ = ("line", "lines")

    def __init__(self, line: int = 0) -> None:
        super().__init__()
        self.line = line
        self.lines: list[int] = []


@dataclass(frozen=True, slots=True)
class DocumentNode:
    """A value in a document with its location for error messages."""

    file: str
    value: Any
    line: int = 0
    path: str = "$"

    def at(self, *steps: Step) -> DocumentNode:
        """Return the node below at the steps; its value is None if there is no such node."""
        value, line, path = self.value, self.line, self.path
        for step in steps:
            words: tuple[Step, ...] = (step,)
            if isinstance(value, LocatedDict) and isinstance(step, str):
                words = (value.words or {}).get(step, words)
                line, value = value.lines.get(step, value.line), value.get(step)
            elif isinstance(value, LocatedList) and isinstance(step, int) and step < len(value):
                line, value = value.lines[step], value[step]
            else:
                value = None
            path += "".join(spelled(word) for word in words)
        return DocumentNode(self.file, value, line, path)

    def holding(self, value: Any) -> DocumentNode:
        """Return the same location with another value, such as one derived from the value there."""
        return DocumentNode(self.file, value, self.line, self.path)

    @property
    def place(self) -> Location:
        """The location of the value."""
        return Location(self.file, self.line, self.path)


def spelled(step: Step) -> str:
    """Return a step as paths spell it: `.name`, `["other name"]` or `[0]`."""
    if isinstance(step, int):
        return f"[{step}]"
    return f".{step}" if step.replace("_", "").replace("-", "").isalnum() else f'["{step}"]'


MAX_FILE_BYTES: Final = 32 * 1024 * 1024
"""Bytes of a file; a set of ten thousand streams has a third of it."""
MAX_DEPTH: Final = 64
"""Levels of nested mappings and lists; a configuration has seven."""
MAX_VALUES: Final = 2_000_000
"""Values of one file; values of a YAML alias count at each use."""
MAX_INCLUDE_DEPTH: Final = 16
"""Levels of files that include further files."""
MAX_FILES: Final = 10_000
"""Files of one set."""


class TextError(Exception):
    """A text is malformed, or exceeds a limit, from this line on."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line
        self.reason = reason
