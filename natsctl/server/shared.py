"""`server.json`: the address of the embedded server, written by the command that owns it and checked by others.

The file is a hint, the store's lock is the truth: a file whose server does not answer under the id in it is stale.
"""

import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from natsctl.server.process.announcement import write_atomically

FILE_NAME: Final = "server.json"

ANSWER_WITHIN_S: Final = 2.0
"""Time limit of an answer from the server that a file names; after it, the file counts as stale."""

GUEST_NAME: Final = "natsctl-embedded-guest"
"""Client name of the connection by which a command holds on to another command's server."""

_LINE_BYTES: Final = 64 << 10


class SharedServer(msgspec.Struct, frozen=True):
    """The content of `server.json`."""

    url: str
    token: str
    pid: int
    server_id: str = ""

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of `url`; raises ValueError."""
        host, _, port = self.url.removeprefix("nats://").rpartition(":")
        return host, int(port)

    @property
    def client_url(self) -> str:
        """The URL with the token in it, as a client takes it."""
        return self.url.replace("nats://", f"nats://{self.token}@", 1)


def load_shared(data_dir: Path) -> SharedServer | None:
    """Return the content of the file, None when there is none or it is malformed."""
    try:
        return msgspec.json.decode((data_dir / FILE_NAME).read_bytes(), type=SharedServer)
    except (OSError, msgspec.DecodeError):
        return None


def save_shared(data_dir: Path, shared: SharedServer) -> None:
    """Publish `shared`, readable by this user only; raises OSError."""
    write_atomically(data_dir / FILE_NAME, msgspec.json.encode(shared), mode=0o600)


def remove_shared(data_dir: Path, shared: SharedServer) -> None:
    """Remove the file if it still names this server."""
    if load_shared(data_dir) == shared:
        (data_dir / FILE_NAME).unlink(missing_ok=True)


class GuestConnection:
    """An idle connection to a shared server: by it the owner sees its guest, and the guest the owner's end."""

    __slots__ = ("_socket",)

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock

    def wait_until_gone(self) -> None:
        """Answer pings until the server has closed the connection or `close` was called."""
        tail = b""
        with suppress(OSError):
            while chunk := self._socket.recv(4096):
                lines = (tail + chunk).split(b"\r\n")
                tail = lines.pop()[-_LINE_BYTES:]
                if any(line.upper() == b"PING" for line in lines):
                    self._socket.sendall(b"PONG\r\n")

    def close(self) -> None:
        """Hang up; a thread in `wait_until_gone` returns."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


def join(shared: SharedServer) -> GuestConnection | None:
    """Return a connection to the server that `shared` names, None when it is not there or is not that server."""
    try:
        sock = socket.create_connection(shared.address, timeout=ANSWER_WITHIN_S)
    except (OSError, ValueError):
        return None
    try:
        if _greet(sock, shared):
            sock.settimeout(None)
            return GuestConnection(sock)
    except (OSError, msgspec.DecodeError):
        pass
    sock.close()
    return None


def _greet(sock: socket.socket, shared: SharedServer) -> bool:
    """Return whether the server is the one named and accepts the token."""
    verb, _, body = _read_line(sock).partition(b" ")
    if verb != b"INFO" or msgspec.json.decode(body, type=dict[str, object]).get("server_id") != shared.server_id:
        return False
    connect = {
        "verbose": False,
        "pedantic": False,
        "name": GUEST_NAME,
        "lang": "natsctl",
        "version": str(os.getpid()),
        "protocol": 1,
        "auth_token": shared.token,
    }
    sock.sendall(b"CONNECT " + msgspec.json.encode(connect) + b"\r\nPING\r\n")
    return _read_line(sock) == b"PONG"


def _read_line(sock: socket.socket) -> bytes:
    line = b""
    while not line.endswith(b"\r\n") and len(line) < _LINE_BYTES:
        byte = sock.recv(1)
        if not byte:
            break
        line += byte
    return line.rstrip()
