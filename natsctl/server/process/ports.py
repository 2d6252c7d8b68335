"""Files that tell other programs about a running server: the pid file and the ports file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def ports_path(folder: Path, pid: int) -> Path:
    """Return where a starter of process `pid` looks for its ports."""
    return folder / f"nats-server_{pid}.ports"


def write_ports_file(folder: Path, ports: Mapping[str, Sequence[str]]) -> Path:
    """Write the URLs by kind, whole or not at all, and return the file's path; raises OSError.

    Everybody may read it, as far as the umask lets them; the process id is for the owner. Source: server.go.
    """
    import json

    path = ports_path(folder, os.getpid())
    content = json.dumps({kind: list(urls) for kind, urls in ports.items() if urls})
    write_atomically(path, content.encode(), mode=0o666)
    return path


def write_pid_file(path: Path) -> None:
    """Write the process id to `path`; raises OSError."""
    write_atomically(path, str(os.getpid()).encode(), mode=0o600)


def write_atomically(path: Path, content: bytes, *, mode: int) -> None:
    """Put `content` at `path` so that a reader sees the old file or the new one; raises OSError."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        os.write(descriptor, content)
    finally:
        os.close(descriptor)
    temporary.replace(path)
