"""Names that a server has given completion within the last minute, so that typing on does not ask it again.

There is one file for each connection that completion may make: its name is a digest of the context, the addresses, the
login and the files of the login, so that names of one context or account never appear under another. The folder and its
files are the user's only; a file that others could write to is not read. Everything older than `KEPT_S` is ignored, and
removed with the next write. A command that may change names removes all of it.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress

from natsctl.hints import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from natsctl.client.servers import Target

KEPT_S = 60.0
MAX_FILE_BYTES = 1 << 20
MAX_FILES = 32
_PRIVATE_FOLDER = 0o700
_OTHERS = 0o077

READING = frozenset(
    (
        "cat", "find", "gaps", "get", "graph", "history", "info", "inspect", "ls", "ping", "plan", "report", "rtt",
        "search", "sql", "state", "stats", "subjects", "view",
    )
)  # fmt: skip
"""Verbs of commands that change no names, whatever noun they belong to."""


class NameCache:
    """The names of one connection."""

    def __init__(self, target: Target, environment: Mapping[str, str]) -> None:
        import hashlib
        from pathlib import Path

        settings = target.settings
        files = [_version(path) for path in (settings.creds, settings.nkey, settings.cert, settings.key) if path]
        digest = hashlib.sha256(repr((tuple(target), files)).encode("utf-8", "surrogateescape")).hexdigest()
        self._path = Path(cache_folder(environment), f"{digest}.json")

    def names(self, query: str) -> list[str] | None:
        """Return the names that were kept for a query within the last minute, or None."""
        entry = self._read().get(query)
        return entry[1] if entry else None

    def keep(self, query: str, names: list[str]) -> None:
        """Keep the names for a query, unless they are too many; a failure to write is ignored."""
        from natsctl.client.atomic_file import PRIVATE, atomic_write

        entry = {query: (time.time(), names)}
        text = json.dumps({**self._read(), **entry})
        if len(text) > MAX_FILE_BYTES:
            text = json.dumps(entry)
        folder = self._path.parent
        with suppress(OSError):
            folder.mkdir(mode=_PRIVATE_FOLDER, parents=True, exist_ok=True)
            if folder.stat().st_mode & _OTHERS:
                folder.chmod(_PRIVATE_FOLDER)
            _remove_old(folder)
            if len(text) <= MAX_FILE_BYTES:
                with atomic_write(self._path, PRIVATE) as file:
                    file.write(text.encode())

    def _read(self) -> dict[str, tuple[float, list[str]]]:
        """Return the fresh entries of the file; none if it is missing, damaged, or not this user's only."""
        try:
            with self._path.open("rb") as file:
                found = os.fstat(file.fileno())
                if found.st_mode & _OTHERS or found.st_uid != os.geteuid() or found.st_size > MAX_FILE_BYTES:
                    return {}
                entries: dict[str, Any] = json.loads(file.read())
            now = time.time()
            return {query: (at, names) for query, (at, names) in entries.items() if 0 <= now - at < KEPT_S}
        except (OSError, ValueError, TypeError, AttributeError):
            return {}


def cache_folder(environment: Mapping[str, str]) -> str:
    """Return `natsctl/completion` in XDG_CACHE_HOME (~/.cache)."""
    home = environment.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111  # without pathlib
    return f"{home}/natsctl/completion"


def forget_names(environment: Mapping[str, str]) -> None:
    """Remove all names; a failure is ignored."""
    with suppress(OSError, RuntimeError):
        for entry in os.scandir(cache_folder(environment)):
            os.unlink(entry.path)  # noqa: PTH108  # no Path for each


def _version(path: str) -> tuple[int, int, int]:
    """Return values that change with the content of a file, zeros if it cannot be looked at."""
    try:
        found = os.stat(path)  # noqa: PTH116  # as above
    except (OSError, ValueError):
        return 0, 0, 0
    return found.st_ino, found.st_mtime_ns, found.st_size


def _remove_old(folder: Path) -> None:
    """Remove files that have had no fresh entry for a minute, unfinished ones too, and the oldest of too many."""
    files = sorted((entry.stat().st_mtime, entry.path) for entry in os.scandir(folder))
    for number, (written, path) in enumerate(files, 1):
        if time.time() - written >= KEPT_S or number <= len(files) - MAX_FILES + 1:
            os.unlink(path)  # noqa: PTH108  # as above
