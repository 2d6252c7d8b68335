"""The folder of what is made once to make starts quick; all of it may be removed at any time."""

from __future__ import annotations

import errno
import getpass
import hashlib
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path


def cache_folder(environment: Mapping[str, str] | None = None) -> Path:
    """`natsctl/spark` in XDG_CACHE_HOME (~/.cache)."""
    environment = os.environ if environment is None else environment
    home = environment.get("XDG_CACHE_HOME", "")
    return (Path(home) if home else Path.home() / ".cache") / "natsctl" / "spark"


def temporary_folder() -> Path:
    """A folder below that of temporary files which this user alone can write to. Raises OSError."""
    folder = Path(tempfile.gettempdir()) / f"natsctl-{os.getuid() if hasattr(os, 'getuid') else getpass.getuser()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if hasattr(os, "getuid") and (
        found.st_uid != os.getuid() or found.st_mode & 0o022 or not stat.S_ISDIR(found.st_mode)
    ):
        raise PermissionError(errno.EPERM, "others can write to it", str(folder))
    return folder


def key_of(*parts: object) -> str:
    """Twelve characters that differ where any part differs."""
    return hashlib.sha256("\0".join(str(part) for part in parts).encode()).hexdigest()[:12]


def made_once(folder: Path, make: Callable[[Path], None]) -> Path:
    """The folder, made by `make` where it is not there.

    It gets its name when it is whole; of two who make it at once, one wins and both have it. Raises OSError.
    """
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    building = folder.with_name(f".{folder.name}-{secrets.token_hex(4)}")
    building.mkdir(mode=0o700)
    try:
        make(building)
        try:
            building.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return folder
