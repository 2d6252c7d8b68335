"""A cluster of nats-servers on this machine, in one folder that keeps their ports, logins and data.

    with LocalCluster(Layout.create(folder, "local", 3), folder, "/usr/bin/nats-server") as cluster:
        cluster.await_ready(60.0)

`cluster.json` in the folder has the layout, `n1/nats.conf` and so on the configurations. The servers are children of
this process in sessions of their own, so that Ctrl-C reaches this process only. One that ends is not started again:
`ended` names it once.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Final, NamedTuple, Self

import msgspec

from natsctl.api.errors import ConflictError, NatsctlError, UnreachableError
from natsctl.client.atomic_file import PRIVATE, atomic_write

HOST: Final = "127.0.0.1"
FIRST_PORT: Final = 10_000
LAST_PORT: Final = 32_767
"""The highest port below Linux's ephemeral ports."""
MOST_TRIES: Final = 1000
STOP_WITHIN_S: Final = 10.0
"""Maximum wait for a server to end before it is killed."""
LOOK_EVERY_S: Final = 0.1
LAYOUT: Final = "cluster.json"
FORMAT: Final = "natsctl.cluster/1"


class NodeAddress(msgspec.Struct):
    """Name and ports of one server."""

    name: str
    client: int
    route: int
    monitor: int

    @property
    def url(self) -> str:
        """Return the URL for clients."""
        return f"nats://{HOST}:{self.client}"

    @property
    def monitor_url(self) -> str:
        """Return the URL of the monitoring pages."""
        return f"http://{HOST}:{self.monitor}"


class Layout(msgspec.Struct):
    """Name, servers and logins of a cluster, as `cluster.json` keeps them."""

    name: str
    nodes: list[NodeAddress]
    password: str
    system_password: str
    user: str = "app"
    system_user: str = "system"
    format: str = FORMAT

    @classmethod
    def create(cls, name: str, count: int, first_port: int = 0) -> Layout:
        """Return a new layout with free ports; with `first_port` clients find the servers there and above."""
        with ExitStack() as held:
            free = [_free_port(held) for _ in range(3 * count)]
        clients = [first_port + at if first_port else free[3 * at] for at in range(count)]
        nodes = [
            NodeAddress(f"n{index + 1}", client, free[3 * index + 1], free[3 * index + 2])
            for index, client in enumerate(clients)
        ]
        return cls(name, nodes, secrets.token_urlsafe(16), secrets.token_urlsafe(16))

    @classmethod
    def load(cls, folder: Path) -> Layout | None:
        """Return the layout of a folder, or None.

        Raises NatsctlError for a damaged one, or one of another format.
        """
        path = folder / LAYOUT
        try:
            layout = msgspec.json.decode(path.read_bytes(), type=cls)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError) as failure:
            raise NatsctlError(f"{path}: {failure}") from failure
        if layout.format != FORMAT:
            hint = "use the natsctl that made it, or a newer one"
            raise NatsctlError(f"{path} is of the unknown format {layout.format!r}", hint=hint)
        return layout

    @property
    def urls(self) -> str:
        """Return the URLs of all servers, as a context has them."""
        return ",".join(node.url for node in self.nodes)

    def config(self, node: NodeAddress, folder: Path) -> str:
        """Return the nats.conf of a server."""
        own, pid_file = _quoted(folder / node.name), _quoted(folder / node.name / "nats-server.pid")
        routes = ", ".join(f'"nats://{HOST}:{one.route}"' for one in self.nodes)
        return f"""# Server {node.name} of the local cluster {self.name}; written by natsctl cluster run at each start.
server_name: {node.name}
listen: "{HOST}:{node.client}"
http: "{HOST}:{node.monitor}"
pid_file: {pid_file}
jetstream {{ store_dir: {own} }}
cluster {{ name: {json.dumps(self.name)}, listen: "{HOST}:{node.route}", routes: [{routes}] }}
accounts {{
  SYS {{ users: [{{ user: {self.system_user}, password: "{self.system_password}" }}] }}
  APP {{ jetstream: enabled, users: [{{ user: {self.user}, password: "{self.password}" }}] }}
}}
system_account: SYS
"""


def _quoted(path: Path) -> str:
    return json.dumps(str(path), ensure_ascii=False)


def _free_port(held: ExitStack) -> int:
    """Return a free port below the ephemeral ones: connections may take those later."""
    for _ in range(MOST_TRIES):
        port = FIRST_PORT + secrets.randbelow(LAST_PORT - FIRST_PORT)
        with suppress(OSError):
            held.enter_context(socket.create_server((HOST, port)))
            return port
    raise NatsctlError(f"no port of {HOST} from {FIRST_PORT} to {LAST_PORT} is free")


class Ended(NamedTuple):
    """A server that has ended by itself, its exit status (negative for a signal), and how many are left."""

    node: NodeAddress
    status: int
    left: int


class LocalCluster:
    """The running servers of a layout; as a context manager it stops them at the end."""

    def __init__(self, layout: Layout, folder: Path, binary: str) -> None:
        self.layout = layout
        self.folder = folder
        self._binary = binary
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._lock = ExitStack()

    def start(self) -> None:
        """Write the configurations and start every server.

        Raises ConflictError where the folder or a port is in use.
        """
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock.enter_context(_locked(self.folder))
        try:
            self._check_ports()
            _write(self.folder / LAYOUT, msgspec.json.format(msgspec.json.encode(self.layout)) + b"\n")
            for node in self.layout.nodes:
                self._start(node)
        except BaseException:
            self.stop()
            raise

    def _check_ports(self) -> None:
        for node in self.layout.nodes:
            for port in (node.client, node.route, node.monitor):
                try:
                    socket.create_server((HOST, port)).close()
                except OSError as failure:
                    raise ConflictError(
                        f"port {port} of {node.name} is in use",
                        hint=self._left_over(node) or "end what listens there, or choose another --dir or --port",
                    ) from failure

    def _left_over(self, node: NodeAddress) -> str:
        """Return a hint about a server left over from a killed run, or ""."""
        try:
            pid = int((self.folder / node.name / "nats-server.pid").read_text())
            os.kill(pid, 0)
        except (OSError, ValueError):
            return ""
        return f"an earlier run was killed and left servers: end them with kill {pid}"

    def _start(self, node: NodeAddress) -> None:
        folder = self.folder / node.name
        folder.mkdir(exist_ok=True, mode=0o700)
        _write(self.config_path(node), self.layout.config(node, self.folder).encode())
        with self.log_path(node).open("ab") as log:
            self._running[node.name] = subprocess.Popen(
                [self._binary, "-c", str(self.config_path(node))],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def config_path(self, node: NodeAddress) -> Path:
        """Return the path of a server's configuration."""
        return self.folder / node.name / "nats.conf"

    def log_path(self, node: NodeAddress) -> Path:
        """Return the path of a server's log."""
        return self.folder / node.name / "server.log"

    def pid(self, node: NodeAddress) -> int:
        """Return the process id of a running server."""
        return self._running[node.name].pid

    def is_ready(self) -> bool:
        """Return whether every server is healthy and their JetStream has a leader that knows all of them."""
        return all(_answer(f"{node.monitor_url}/healthz").get("status") == "ok" for node in self.layout.nodes) and all(
            (meta := _answer(f"{node.monitor_url}/jsz").get("meta_cluster") or {}).get("leader")
            and meta.get("cluster_size") == len(self.layout.nodes)
            for node in self.layout.nodes
        )

    def await_ready(self, within_s: float, stopped: Callable[[], bool] = lambda: False) -> bool:
        """Return True once the cluster is ready, False where `stopped` says so before.

        Raises UnreachableError for a server that ends, or if it takes too long.
        """
        until_s = time.monotonic() + within_s
        while not stopped():
            for ended in self.ended():
                last = _last_line(self.log_path(ended.node))
                raise UnreachableError(
                    f"{ended.node.name} has ended: {last}", hint=f"its log is {self.log_path(ended.node)}"
                )
            if self.is_ready():
                return True
            if time.monotonic() > until_s:
                raise UnreachableError(
                    f"the cluster is not ready after {within_s:g}s", hint=f"the logs are {self.folder}/n*/server.log"
                )
            time.sleep(LOOK_EVERY_S)
        return False

    def ended(self) -> Iterator[Ended]:
        """Yield each server that has ended since the last call."""
        for node in self.layout.nodes:
            process = self._running.get(node.name)
            if process is not None and (status := process.poll()) is not None:
                del self._running[node.name]
                yield Ended(node, status, len(self._running))

    def stop(self) -> list[str]:
        """Stop every server and return the names of servers that had to be killed."""
        for process in self._running.values():
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
        killed = []
        until_s = time.monotonic() + STOP_WITHIN_S
        for name, process in self._running.items():
            try:
                process.wait(max(0.0, until_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                killed.append(name)
        self._running.clear()
        self._lock.close()
        return killed

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()


@contextmanager
def _locked(folder: Path) -> Iterator[IO[bytes]]:
    """Hold the lock of a folder; raises ConflictError where another process has it."""
    with (folder / "lock").open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as failure:
            raise ConflictError(
                f"the cluster in {folder} runs already", hint="choose another --dir for a second one"
            ) from failure
        yield lock


def _write(path: Path, content: bytes) -> None:
    with atomic_write(path, PRIVATE) as file:
        file.write(content)


def _answer(url: str) -> dict[str, Any]:
    """Return the document of a monitoring page, or an empty one before it is available."""
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=2.0) as page:
            found: dict[str, Any] = json.loads(page.read())
            return found
    except (OSError, ValueError):
        return {}


def _last_line(path: Path) -> str:
    lines = path.read_text(errors="replace").splitlines()
    return lines[-1] if lines else "it has logged nothing"
