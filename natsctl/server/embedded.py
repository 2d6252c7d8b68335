"""The embedded server: JetStream for a command that names no server, on the user's own data folder.

It may have a configuration, `nats.conf` in the data folder or the file of NATSCTL_SERVER_CONFIG. That can make it a
leaf node of another server, with a name and a JetStream domain. Its address, its users and its data folder are fixed:
it belongs to the commands of one user.

The first command on a folder owns the server: it holds the store's lock, listens on 127.0.0.1 with a random token, and
publishes its address in `server.json`. Commands that come meanwhile are guests of that server. Each guest keeps one
idle connection to it, so the owner knows its guests, and they notice its end. The file is a hint, the store's
lock is the truth: a file is stale if its server does not answer with the id in it.

An owner that ends waits a moment for short guests, then hands over: it stops with everything synced, and the first
guest that gets the store's lock serves on at the same address with the same token, so that the clients of all others,
which reconnect by themselves, find it again. The same happens when an owner is killed. There are never two servers on
one store, because no process serves without its lock.
"""

from __future__ import annotations

import errno
import os
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final

import msgspec
from msgspec.structs import replace

from natsctl.api.errors import StorageError
from natsctl.server.files import replace_file
from natsctl.server.instance import ServerThread
from natsctl.server.options import ServerOptions
from natsctl.server.resources import SWITCH_INTERVAL_S
from natsctl.server.storage import StoreInUseError
from natsctl.wire.client import ClientCredentials, ClientProtocol
from natsctl.wire.server_url import parse_server_url

FILE_NAME: Final = "server.json"

ANSWER_WITHIN_S: Final = 2.0
"""Time limit of an answer from the server that a file names; after it, the file counts as stale."""

GUEST_NAME: Final = "natsctl-embedded-guest"
"""Client name of a command's connection that keeps another command's server running."""

_CHUNK_BYTES: Final = 64 << 10


class SharedServer(msgspec.Struct, frozen=True):
    url: str
    token: str
    pid: int
    server_id: str = ""

    @property
    def address(self) -> tuple[str, int]:
        url = parse_server_url(self.url)
        return url.host, url.port

    @property
    def client_url(self) -> str:
        return parse_server_url(self.url)._replace(user=self.token).full


def load_shared(data_dir: Path) -> SharedServer | None:
    """Return the content of the file, or None if it is missing or malformed."""
    try:
        return msgspec.json.decode((data_dir / FILE_NAME).read_bytes(), type=SharedServer)
    except (OSError, msgspec.DecodeError):
        return None


def save_shared(data_dir: Path, shared: SharedServer) -> None:
    """Publish `shared`, readable by this user only; raises OSError."""
    replace_file(data_dir / FILE_NAME, msgspec.json.encode(shared), durable=False)


def remove_shared(data_dir: Path, shared: SharedServer) -> None:
    if load_shared(data_dir) == shared:
        (data_dir / FILE_NAME).unlink(missing_ok=True)


class GuestConnection:
    """An idle connection to a shared server: by it the owner sees its guest, and the guest the owner's end."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock

    def wait_until_gone(self) -> None:
        """Answer pings until the server has closed the connection or `close` was called."""
        tail = b""
        with suppress(OSError):
            while chunk := self._socket.recv(4096):
                lines = (tail + chunk).split(b"\r\n")
                tail = lines.pop()[-_CHUNK_BYTES:]
                if any(line.upper() == b"PING" for line in lines):
                    self._socket.sendall(b"PONG\r\n")

    def close(self) -> None:
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
        if _logs_in(sock, shared):
            sock.settimeout(None)
            return GuestConnection(sock)
    except (OSError, ValueError):
        pass
    sock.close()
    return None


def _logs_in(sock: socket.socket, shared: SharedServer) -> bool:
    """Return whether the server is the one named and accepts the token; raises OSError, ValueError."""
    protocol = ClientProtocol(ClientCredentials(token=shared.token), name=GUEST_NAME, version=str(os.getpid()))
    while not protocol.ready:
        data = sock.recv(_CHUNK_BYTES)
        answer = protocol.receive(data)
        if not data or protocol.starts_tls or (answer and protocol.info.get("server_id") != shared.server_id):
            return False
        sock.sendall(answer)
    return True


CONFIG_VARIABLE: Final = "NATSCTL_SERVER_CONFIG"
CONFIG_FILE: Final = "nats.conf"
CONFIG_KEYS: Final = ("server_name", "jetstream", "leafnodes", "leaf")
SERVER_NAME: Final = "natsctl-embedded"


def embedded_options(data_dir: Path, environment: Mapping[str, str]) -> ServerOptions:
    """Return the options of the embedded server of a data folder, but for its address and token.

    Raises ConfError, OSError where the named file cannot be read.
    """
    options = ServerOptions(host="127.0.0.1", port=-1, server_name=SERVER_NAME)
    named = environment.get(CONFIG_VARIABLE, "")
    path = Path(named).expanduser() if named else data_dir / CONFIG_FILE
    if named or path.is_file():
        from natsctl.server.conf.config import apply
        from natsctl.server.conf.syntax import load_file

        block = load_file(path, environment)
        for key, item in block.items():
            if key.lower() not in CONFIG_KEYS and key not in block.variables:
                raise item.fault(f"{key}: not for the embedded server; it reads server_name, jetstream and leafnodes")
        options = apply(block, options)
    return replace(options, host="127.0.0.1", port=-1, jetstream=True, store_dir=data_dir)


START_WAIT_S: Final = 10.0
"""Time that a command waits for a locked store to be shared or released."""

GUEST_WAIT_S: Final = 2.0
"""Time that an owner that ends waits for its guests before it hands over."""

RETRY_S: Final = 0.02

PORT_WAIT_S: Final = 2.0
"""Time that a successor waits for the address of its predecessor before it takes another one."""


def default_data_dir() -> Path:
    """Return the folder of the embedded server: NATSCTL_DATA, else `natsctl` in XDG_DATA_HOME (~/.local/share)."""
    if given := os.environ.get("NATSCTL_DATA"):
        return Path(given).expanduser()
    home = os.environ.get("XDG_DATA_HOME", "")
    return (Path(home) if home else Path.home() / ".local" / "share") / "natsctl"


class EmbeddedServer:
    """The server of a data folder, owned by this command or shared by the one that owns it; thread-safe."""

    def __init__(self, data_dir: Path | None = None, notify: Callable[[str], None] | None = None) -> None:
        """Prepare; `notify` receives a sentence for the user when the end is delayed or the server handed over."""
        self.data_dir = data_dir or default_data_dir()
        self._notify = notify or (lambda text: None)
        self._lock = threading.Lock()
        self._stopped = False
        self._shared: SharedServer | None = None
        self._server: ServerThread | None = None
        self._guest: GuestConnection | None = None
        self._watcher: threading.Thread | None = None

    @property
    def url(self) -> str:
        """The URL for clients, with the token in it; the same for owner and guests."""
        if self._shared is None:
            raise RuntimeError("the embedded server is not started")
        return self._shared.client_url

    @property
    def owner(self) -> bool:
        return self._server is not None

    @property
    def joined(self) -> bool:
        return self._guest is not None

    def start(self) -> str:
        """Start the folder's server or join the running one; return `url`.

        Raises StorageError when the store cannot be opened, or is held for `START_WAIT_S` by a process that does not
        share it.
        """
        self.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self._lock:
            self._stopped = False
            self._attach(None)
        return self.url

    def stop(self) -> None:
        """Leave the server, or stop it as its owner: after a bounded wait for guests, with everything synced."""
        self._stopped = True  # outside the lock: a takeover in progress holds it until it sees this
        with self._lock:
            server, guest, shared = self._server, self._guest, self._shared
            self._server, self._guest = None, None
        if guest is not None:
            guest.close()
        if server is not None and shared is not None:
            self._wait_for_guests(server)
            remove_shared(self.data_dir, shared)
            server.stop()
        if self._watcher is not None and self._watcher is not threading.current_thread():
            self._watcher.join(RETRY_S)

    def _attach(self, before: SharedServer | None) -> None:
        """Become the guest of a running server or the owner; `before` is the server that went away, if any."""
        deadline = time.monotonic() + START_WAIT_S
        keep_port_until = time.monotonic() + PORT_WAIT_S
        while not self._stopped:
            if self._join() or self._own(before if time.monotonic() < keep_port_until else None):
                return
            if time.monotonic() > deadline:
                raise StorageError(
                    f"the store in {self.data_dir} is in use by another process, which does not share it",
                    hint="a `natsctl server run` on this folder? Name it with --server",
                )
            time.sleep(RETRY_S)

    def _join(self) -> bool:
        shared = load_shared(self.data_dir)
        guest = join(shared) if shared is not None else None
        if guest is None:
            return False
        self._shared, self._guest = shared, guest
        self._watcher = threading.Thread(target=self._watch, args=(guest,), name="natsctl-guest", daemon=True)
        self._watcher.start()
        return True

    def _own(self, before: SharedServer | None) -> bool:
        """Try to serve, at the address and with the token of `before` if given; False while store or port are taken."""
        token = before.token if before else secrets.token_urlsafe(24)
        base = embedded_options(self.data_dir, os.environ)
        options = replace(base, port=before.address[1] if before else -1, token=token)
        server = ServerThread(options)
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        try:
            server.start()
        except StoreInUseError:
            return False
        except OSError as error:
            if before is not None and error.errno == errno.EADDRINUSE:
                return False
            raise StorageError(f"the embedded server on {self.data_dir} does not start: {error}") from error
        self._shared = SharedServer(server.url, token, os.getpid(), server.instance.server_id)
        save_shared(self.data_dir, self._shared)
        self._server, self._guest = server, None
        return True

    def _watch(self, guest: GuestConnection) -> None:
        """Take over after the end of the owner, or join the guest that did."""
        guest.wait_until_gone()
        with self._lock:
            if self._stopped or self._guest is not guest:
                return
            guest.close()
            self._guest = None
            try:
                self._attach(self._shared)
            except (StorageError, OSError) as error:
                self._notify(f"the embedded server has ended: {error}")

    def _wait_for_guests(self, server: ServerThread) -> None:
        deadline = time.monotonic() + GUEST_WAIT_S
        said = False
        while server.clients_named(GUEST_NAME):
            if time.monotonic() > deadline:
                self._notify("handing the embedded server over to another natsctl command that uses it")
                return
            if not said:
                self._notify("another natsctl command uses the embedded server; waiting for it to end or to take over")
                said = True
            time.sleep(RETRY_S)

    def __enter__(self) -> EmbeddedServer:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()
