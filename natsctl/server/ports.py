"""Files that tell other programs about a running server: the pid file and the ports file."""

import json
import os
from pathlib import Path


def ports_path(folder: Path, pid: int) -> Path:
    """Return where a starter of process `pid` looks for its ports."""
    return folder / f"nats-server_{pid}.ports"


def write_ports_file(folder: Path, nats_urls: list[str], http_port: int = 0, websocket_port: int = 0) -> Path:
    """Write the ports file whole or not at all, and return its path; raises OSError."""
    path = ports_path(folder, os.getpid())
    ports = {"nats": nats_urls}
    if http_port:
        ports["monitoring"] = [f"http://127.0.0.1:{http_port}"]
    if websocket_port:
        ports["websocket"] = [f"ws://127.0.0.1:{websocket_port}"]
    write_atomically(path, json.dumps(ports).encode(), mode=0o644)
    return path


def write_pid_file(path: Path) -> None:
    """Write the process id to `path`; raises OSError."""
    write_atomically(path, str(os.getpid()).encode(), mode=0o644)


def write_atomically(path: Path, content: bytes, *, mode: int) -> None:
    """Put `content` at `path` so that a reader sees the old file or the new one; raises OSError."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        os.write(descriptor, content)
    finally:
        os.close(descriptor)
    temporary.replace(path)
