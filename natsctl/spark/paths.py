"""Paths of this machine in Spark's spelling: URLs in which nothing is escaped.

What looks like an escape is one character after the other for Spark, so that `Path.as_uri` names another folder as soon
as there is a space or a letter beyond ASCII.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

_SCHEME: Final = "file:"
_OF_PATTERNS: Final = re.compile(r"([\\{}\[\]*?])")
_OTHER_PLACES: Final = ("dbfs", "hdfs", "s3a")


def spark_path(path: Path) -> str:
    """Return the spelling for Spark of a path that it writes to."""
    whole = path.absolute().as_posix()
    return f"{_SCHEME}//{whole if whole.startswith('/') else f'/{whole}'}"


def spark_input(path: Path) -> str:
    """Return the spelling for Spark of a path that it reads, and would take for a pattern otherwise."""
    return _OF_PATTERNS.sub(r"\\\1", spark_path(path))


def is_pattern(path: Path) -> bool:
    """Return whether Spark takes a path for a pattern by default, which not all of its readers let one change."""
    return _OF_PATTERNS.search(path.as_posix()) is not None


def local_path(place: str) -> Path | None:
    """Return the path that Spark's spelling names, None for other file systems."""
    if place.startswith(_SCHEME):
        rest = place.removeprefix(_SCHEME)
        return Path(rest.removeprefix("//"))
    return None if "://" in place or place.partition(":")[0] in _OTHER_PLACES else Path(place)
