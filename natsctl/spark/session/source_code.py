"""The data source's code as a few characters, by which a server that has it already is known."""

from __future__ import annotations

from pathlib import Path

from natsctl.spark.session.caches import key_of

_NATSCTL = Path(__file__).parents[2]
_FOLDER, _FILE = _NATSCTL / "spark" / "source", _NATSCTL / "api" / "archive" / "s2_rewrite.py"


def source_code() -> str:
    """What differs as soon as any file does that Spark gets as the data source."""
    files = [*sorted(_FOLDER.rglob("*.py")), _FILE]
    return key_of(*(part for file in files for part in (file, file.read_bytes())))
