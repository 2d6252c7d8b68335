"""Documents as files: one, or a folder with a file for each stream, written whole or not at all."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote

from msgspec import field

from natsctl.api.errors import StorageError, UsageError
from natsctl.api.model import Model
from natsctl.client.atomic_file import atomic_write, is_special

SUFFIXES: Final = (".yaml", ".yml", ".json")
MAX_STEM: Final = 200
"""Letters of a file's name before its suffix; file systems accept 255 bytes."""
_RESERVED: Final = frozenset(
    ("con", "prn", "aux", "nul", *(f"com{digit}" for digit in range(10)), *(f"lpt{digit}" for digit in range(10)))
)
"""Names that Windows reserves for devices."""


class FilesWritten(Model, kw_only=True, omit_defaults=False):
    """The result of writing files: the paths that were written, those that were up to date, and old ones."""

    written: list[str] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    stale: list[str] = field(default_factory=list)
    """Files in the folder for streams that no longer exist; they stay."""


def is_folder(path: str) -> bool:
    """Return whether an output path means a folder: an existing one, or a name without the suffix of a document."""
    if is_special(Path(path)):
        return False
    return Path(path).is_dir() or path.endswith(("/", os.sep)) or not path.endswith(SUFFIXES)


def file_names(streams: Iterable[str], suffix: str) -> dict[str, str]:
    """Return a file name for each stream: safe on every file system, unique even where case does not count."""
    names: dict[str, str] = {}
    taken: set[str] = set()
    for stream in streams:
        stem, escaped = _stem(stream), 0
        while stem.lower() in taken or stem.lower() in _RESERVED:
            escaped += 1
            stem = _stem(stream, escaped)
        taken.add(stem.lower())
        names[stream] = stem + suffix
    return names


def _stem(stream: str, escaped: int = 0) -> str:
    """Return the name without suffix: letters, digits, - and _, the rest as %XX, as are the first `escaped` letters."""
    first = "".join(f"%{byte:02X}" for byte in stream[:escaped].encode())
    stem = first + quote(stream[escaped:], safe="").replace(".", "%2E").replace("~", "%7E")
    if len(stem) > MAX_STEM or escaped > len(stream):
        # Cut escapes whole: the stem need not be decoded, the hash makes it unique.
        stem = f"{stem[: MAX_STEM - 20].rpartition('%')[0] or stem[: MAX_STEM - 20]}~"
        stem += hashlib.sha256(stream.encode()).hexdigest()[:16]
    return stem


def stream_of(file: Path) -> str:
    """Return the stream that a file is named after."""
    return unquote(file.stem)


def write_files(texts: Mapping[Path, str], *, force: bool) -> FilesWritten:
    """Write files, all of which are checked before the first one is written.

    An existing file with other content is replaced with `force` alone. Raises UsageError, StorageError.
    """
    same = {path for path, text in texts.items() if not is_special(path) and _says(path, text)}
    taken = [path for path in texts if path not in same and path.exists() and not is_special(path)]
    if taken and not force:
        names = ", ".join(str(path) for path in taken[:5]) + (f" and {len(taken) - 5} more" if len(taken) > 5 else "")
        raise UsageError(f"{names}: there already, and not the same", hint="give --force to replace what is there")
    for path, text in texts.items():
        if path not in same:
            _write(path, text)
    return FilesWritten(
        written=[str(path) for path in texts if path not in same],
        unchanged=[str(path) for path in texts if path in same],
    )


def other_documents(folder: Path, texts: Iterable[Path]) -> list[Path]:
    """Return the documents in a folder other than these."""
    mine = {path.name for path in texts}
    return sorted(path for path in folder.glob("*") if path.name.endswith(SUFFIXES) and path.name not in mine)


def _says(path: Path, text: str) -> bool:
    try:
        return path.read_bytes() == text.encode()
    except OSError:
        return False


def _write(path: Path, text: str) -> None:
    """Write a file by a rename: it never exists in part."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as file:
            file.write(text.encode())
    except OSError as failure:
        raise StorageError(f"cannot write {path}: {failure.strerror}") from failure
