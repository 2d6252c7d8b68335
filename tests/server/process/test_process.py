"""`natsctl server run` as other programs meet it: lines on stderr, files, signals, exit status, notices to systemd."""

import asyncio
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

import pytest

from natsctl.native import absent
from natsctl.server.process.serving import ServiceManager
from natsctl.testing.certificates import Authority
from natsctl.testing.process import Kind, ServerProcess
from tests.support.callouts import until
from tests.support.raw_client import RawClient
from tests.support.tls_clients import more

COMMAND = [sys.executable, "-m", "natsctl.server"]
PATIENCE_S = 60.0
LETTING_CLIENTS_BE_SLOW = """
import sys
from natsctl.server import instance, listener
from natsctl.server.process import process
instance.CLOSE_CLIENTS_S = listener.CLOSE_WAIT_S = 600.0
process.ECHO_S = 0.1
sys.exit(process.main(sys.argv[1:]))
"""


class Running:
    """A server process whose stderr goes to a file, up to the end of its test."""

    started: ClassVar[list["Running"]] = []

    def __init__(self, folder: Path, *flags: str, command: Sequence[str] = COMMAND) -> None:
        self.log_path = folder / "stderr"
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen([*command, "-a", "127.0.0.1", "-p", "-1", *flags], stderr=log)
        self.started.append(self)

    @property
    def log(self) -> str:
        return self.log_path.read_text()

    def wait_for(self, pattern: str) -> re.Match[str]:
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            if match := re.search(pattern, self.log, re.MULTILINE):
                return match
            if self.process.poll() is not None:
                break
            time.sleep(0.01)
        raise AssertionError(f"no {pattern!r} in:\n{self.log}")

    @property
    def port(self) -> int:
        return int(self.wait_for(r"Listening for client connections on 127\.0\.0\.1:(\d+)")[1])

    def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)


@pytest.fixture(autouse=True)
def servers_end() -> Iterator[None]:
    yield
    while Running.started:
        server = Running.started.pop()
        if server.process.poll() is None:
            server.end(signal.SIGKILL)


def run(*flags: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *flags], capture_output=True, text=True, timeout=PATIENCE_S, check=False)


@pytest.mark.parametrize("flags", [["--nonsense"], ["--profile", "8222"]])
def test_a_wrong_command_line_is_a_usage_error(flags: list[str]) -> None:
    done = run(*flags)
    assert done.returncode == 2
    assert done.stdout == ""
    assert flags[0].lstrip("-") in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_ready_lines_and_a_clean_stop(tmp_path: Path, number: signal.Signals) -> None:
    server = Running(tmp_path)
    server.wait_for(r"^\[\d+\] \d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{6} \[INF\] Server is ready$")
    server.wait_for(r"\[INF\]   ID:       N[A-Z2-7]{55}$")
    assert f"[INF]   Native:   {f'not loaded, {absent}' if absent else 'loaded'}\n" in server.log
    assert server.log.startswith(f"[{server.process.pid}] ")
    with socket.create_connection(("127.0.0.1", server.port)) as sock:
        assert sock.recv(5) == b"INFO "
        assert server.end(number) == 0
        assert sock.recv(1 << 16).endswith(b"\r\n")
        assert sock.recv(1) == b""


def test_pid_and_ports_files_live_as_long_as_the_server(tmp_path: Path) -> None:
    server = Running(tmp_path, "-P", str(tmp_path / "pid"), "--ports_file_dir", str(tmp_path))
    server.wait_for("Server is ready")
    ports = tmp_path / f"nats-server_{server.process.pid}.ports"
    assert json.loads(ports.read_text()) == {"nats": [f"nats://127.0.0.1:{server.port}"]}
    assert int((tmp_path / "pid").read_text()) == server.process.pid
    assert server.end(signal.SIGTERM) == 0
    assert not ports.exists()
    assert not (tmp_path / "pid").exists()


def test_a_ports_file_that_cannot_be_written_is_an_error_and_a_pid_file_fatal(tmp_path: Path) -> None:
    server = Running(tmp_path, "--ports_file_dir", str(tmp_path / "none"))
    server.wait_for("Server is ready")
    path = tmp_path / "none" / f"nats-server_{server.process.pid}.ports"
    assert f"[ERR] Error writing ports file ({path}): open {path}: no such file or directory" in server.log
    refused = run("-p", "-1", "-a", "127.0.0.1", "-P", str(tmp_path / "none" / "pid"))
    assert refused.returncode == 1
    assert f"[FTL] Could not write pidfile: open {tmp_path}/none/pid: no such file or directory" in refused.stderr


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ("listen: '127.0.0.1:%d'", "Error listening on port: "),
        ("leafnodes { listen: '127.0.0.1:%d' }", "Error listening on leafnode port: %d - "),
        ("websocket { listen: '127.0.0.1:%d', no_tls: true }", "Unable to listen for websocket connections: "),
        ("http: '127.0.0.1:%d'", "Can't start monitoring: can't listen to the monitor port: "),
    ],
)
def test_a_port_in_use_is_a_fatal_line_that_names_its_listener(tmp_path: Path, config: str, text: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        (tmp_path / "nats.conf").write_text("listen: '127.0.0.1:-1'\n" * ("listen:" not in config[:7]) + config % port)
        done = run("-c", str(tmp_path / "nats.conf"))
    assert done.returncode == 1
    assert re.search(
        rf"\[FTL\] {text.replace('%d', str(port))}.*127\.0\.0\.1:{port}.*address already in use", done.stderr
    )


def test_a_log_file_takes_the_lines_and_is_opened_anew_on_usr1(tmp_path: Path) -> None:
    path = tmp_path / "log"
    server = Running(tmp_path, "-l", str(path))
    until(lambda: path.exists() and "Server is ready" in path.read_text())
    path.rename(tmp_path / "old")
    os.kill(server.process.pid, signal.SIGUSR1)
    until(path.exists)
    assert server.end(signal.SIGTERM) == 0
    assert "Server Exiting" in path.read_text()
    assert server.log == ""


def test_hup_does_not_end_the_server(tmp_path: Path) -> None:
    server = Running(tmp_path)
    server.wait_for("Server is ready")
    os.kill(server.process.pid, signal.SIGHUP)
    server.wait_for("Failed to reload server configuration: can only reload config when a file is provided")
    assert server.end(signal.SIGTERM) == 0


def test_a_reload_takes_a_good_file_and_leaves_everything_at_a_bad_one(tmp_path: Path) -> None:
    config = tmp_path / "x.conf"
    config.write_text("listen: 127.0.0.1:-1\nhttp: 127.0.0.1:-1\nwebsocket { port: -1, no_tls: true }\n")
    server = Running(tmp_path, "-c", str(config), "--ports_file_dir", str(tmp_path))
    process = server.process
    server.wait_for("Server is ready")
    ports = json.loads((tmp_path / f"nats-server_{process.pid}.ports").read_text())
    assert list(ports) == ["nats", "monitoring", "websocket"]
    config.write_text(config.read_text() + "max_payload: 99\nprot: 1\n")
    process.send_signal(signal.SIGHUP)
    server.wait_for(rf'\[ERR\] Failed to reload server configuration: {config}:5: unknown field "prot"$')
    config.write_text(config.read_text().replace("prot: 1\n", ""))
    done = run("--signal", f"reload={process.pid}")
    assert (done.returncode, done.stderr) == (0, "")
    server.wait_for(r"\[INF\] Reloaded: max_payload = 99$")
    server.wait_for(r"\[INF\] Reloaded server configuration \(sha256:[0-9a-f]{64}\)$")
    with socket.create_connection(("127.0.0.1", server.port)) as sock:
        assert b'"max_payload":99,' in sock.recv(4096)


def test_lame_duck_mode_tells_clients_and_accepts_nobody(tmp_path: Path) -> None:
    server = Running(tmp_path)
    port = server.port
    with socket.create_connection(("127.0.0.1", port)) as sock:
        client = sock.makefile("rwb")
        client.write(b'CONNECT {"verbose":false,"protocol":1}\r\nPING\r\n')
        client.flush()
        while client.readline() != b"PONG\r\n":
            pass
        os.kill(server.process.pid, signal.SIGUSR2)
        line = client.readline()
        while not line.startswith(b"INFO ") or b'"ldm":true' not in line:
            assert line, "the connection ended before it was told"
            line = client.readline()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port)).close()
        client.write(b"PING\r\n")
        client.flush()
        assert client.readline() == b"PONG\r\n", "those who stay are served on"
        server.process.send_signal(signal.SIGTERM)  # it stops by itself when everybody has gone
        server.wait_for('Trapped "terminated" signal')
        client.write(b"PING\r\n")
        client.flush()
        assert client.readline() == b"PONG\r\n"
    assert server.end(signal.SIGINT) == 0


def test_lame_duck_mode_without_clients_ends_at_once(tmp_path: Path) -> None:
    server = Running(tmp_path)
    server.wait_for("Server is ready")
    assert server.end(signal.SIGUSR2) == 0
    assert "Entering lame duck mode, stop accepting new clients" in server.log


def test_a_second_signal_does_not_wait(tmp_path: Path) -> None:
    config = tmp_path / "nats.conf"
    config.write_text('write_deadline: "10m"\n')
    server = Running(tmp_path, "-c", str(config), command=[sys.executable, "-c", LETTING_CLIENTS_BE_SLOW])
    with (
        socket.create_connection(("127.0.0.1", server.port)) as deaf,
        socket.create_connection(("127.0.0.1", server.port)) as sock,
    ):
        deaf.sendall(b'CONNECT {"verbose":false}\r\nSUB flood 1\r\nPING\r\n')
        while b"PONG" not in more(deaf):  # the last that it reads: what it subscribed to is known
            pass
        sock.sendall(b'CONNECT {"verbose":false}\r\n' + (b"PUB flood 500000\r\n" + b"x" * 500_000 + b"\r\n") * 40)
        sock.sendall(b"PING\r\n")
        while b"PONG" not in more(sock):
            pass
        server.process.send_signal(signal.SIGTERM)
        server.wait_for('Trapped "terminated" signal')
        assert server.process.poll() is None, "nothing to wait for: the client that does not read should delay the stop"
        status = None
        while status is None:  # a signal that comes soon after the first counts as the same
            server.process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                status = server.process.wait(0.05)
        assert status == -signal.SIGTERM, "it has waited to the end"


def test_a_store_that_cannot_be_opened_is_named_in_the_fatal_line(tmp_path: Path) -> None:
    (tmp_path / "jetstream" / "LOCK").mkdir(parents=True)
    done = run("-a", "127.0.0.1", "-p", "-1", "-js", "-sd", str(tmp_path))
    assert done.returncode == 1
    assert f"[FTL] cannot open the store in {tmp_path}/jetstream: " in done.stderr


def test_what_recovery_found_is_said_once(tmp_path: Path) -> None:
    (tmp_path / "jetstream" / "streams" / "s000001.new").mkdir(parents=True)
    (tmp_path / "jetstream" / "FORMAT").write_text('{"format":1,"min_reader":1}\n')
    server = Running(tmp_path, "-js", "-sd", str(tmp_path))
    server.wait_for("Server is ready")
    assert server.log.count("a creation that never ended was removed") == 1


@pytest.mark.reference
@pytest.mark.own_start
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o027, 0o077])
def test_files_are_made_with_the_modes_of_nats_server(tmp_path: Path, umask: int) -> None:
    kinds: tuple[Kind, ...] = ("natsctl", "reference")
    found: dict[str, dict[str, str]] = {}
    for kind in kinds:
        folder = tmp_path / kind
        pid, log = folder / "pid", folder / "log"
        before = os.umask(umask)
        try:
            with ServerProcess(folder, kind, "-P", str(pid), "-l", str(log)) as server:
                asyncio.run(store_one(server.url))
                ports = folder / f"nats-server_{server.pid}.ports"
                store = {mode_of(path) for path in (folder / "jetstream").rglob("*") if path.is_file()}
                folders = {mode_of(path) for path in (folder / "jetstream").rglob("*") if path.is_dir()}
                found[kind] = {"pid": mode_of(pid), "log": mode_of(log), "ports": mode_of(ports)}
                found[kind] |= {"files": " ".join(store), "folders": " ".join(folders)}
        finally:
            os.umask(before)
    assert found["natsctl"] == found["reference"]


async def store_one(url: str) -> None:
    client = await RawClient.connect(url)
    await client.request(b"$JS.API.STREAM.CREATE.S", b'{"name":"S","subjects":["s"]}')
    await client.request(b"s", b"x")
    await client.close()


def mode_of(path: Path) -> str:
    return oct(stat.S_IMODE(path.stat().st_mode))


NOT_AT_A_PLAIN_START = (
    "bcrypt", "click", "cramjam", "cryptography", "dataclasses", "h11", "hashlib", "json", "nacl", "nats", "nkeys",
    "numpy", "orjson", "pathlib", "pydantic", "rich", "tempfile", "typer", "wsproto", "yaml",
    "natsctl.api.advisories", "natsctl.api.consumer_config",
    "natsctl.api.stream_config", "natsctl.api.stream", "natsctl.broker.auth.static_auth",
    "natsctl.broker.imports.service_imports", "natsctl.broker.jwt", "natsctl.broker.leaf.link",
    "natsctl.cli.framework.globals", "natsctl.client",
    "natsctl.jetstream", "natsctl.desired", "natsctl.server.operator_mode",
    "natsctl.server.committer", "natsctl.server.conf.syntax", "natsctl.server.monitor.http",
    "natsctl.server.leaf.nodes", "natsctl.server.leaf.connection",
    "natsctl.server.monitor.pages", "natsctl.server.log.trace", "natsctl.server.process.reload",
    "natsctl.server.system.answers", "natsctl.server.tls.contexts", "natsctl.server.tls.listener",
    "natsctl.server.websocket.connection",
    "natsctl.server.websocket.protocol", "natsctl.store", "natsctl.wire.client",
)  # fmt: skip
"""Modules, with what is in them."""
TLS = ("ssl", "_ssl", "natsctl.server.tls.contexts")
MODULES_OF_A_PLAIN_START = 265
"""Most modules of all kinds that are loaded when the listener opens (243 when this was written)."""
SERVER_RUN = [sys.executable, "-X", "importtime", "-m", "natsctl", "server", "run"]


def loaded_at_start(folder: Path, *flags: str) -> set[str]:
    server = Running(folder, *flags, command=SERVER_RUN)
    server.wait_for("Server is ready")
    before, _, _ = server.log.partition("Server is ready")
    return {line.rpartition("|")[2].strip() for line in before.splitlines() if line.startswith("import time:")}


def found_in(loaded: set[str], packages: Sequence[str]) -> list[str]:
    return [name for name in packages if any(one == name or one.startswith(name + ".") for one in loaded)]


def test_a_plain_start_loads_nothing_that_is_not_configured(tmp_path: Path) -> None:
    loaded = loaded_at_start(tmp_path)
    assert {"uvloop", "natsctl.broker.session"} <= loaded, "modules are found in the log"
    assert found_in(loaded, NOT_AT_A_PLAIN_START) == []
    assert len(loaded) <= MODULES_OF_A_PLAIN_START


def test_a_server_that_cannot_come_to_need_tls_does_not_load_it(tmp_path: Path) -> None:
    loaded = loaded_at_start(tmp_path, "-js", "-sd", str(tmp_path / "store"))
    assert {"uvloop", "natsctl.store.store"} <= loaded
    assert found_in(loaded, TLS) == []


def test_a_server_with_a_configuration_loads_what_a_reload_may_ask_of_its_loop(tmp_path: Path) -> None:
    (tmp_path / "nats.conf").write_text("max_connections: 10\n")
    assert found_in(loaded_at_start(tmp_path, "-c", str(tmp_path / "nats.conf")), TLS[:2]) == [*TLS[:2]]


LOOP_WITHOUT_TLS = """
import sys
from natsctl.server.process import import_loop_without_tls
import_loop_without_tls()
assert not {"ssl", "_ssl"} & sys.modules.keys()
import asyncio, ssl, uvloop
assert ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname="a")
async def talk():
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    reader, writer = await asyncio.open_connection(host, port)
    assert await reader.read() == b""
    writer.close()
for new_loop in (uvloop.new_event_loop, asyncio.new_event_loop):
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(talk())
print("talked")
"""


def test_a_loop_without_tls_talks_and_ssl_can_be_imported_later() -> None:
    done = subprocess.run([sys.executable, "-c", LOOP_WITHOUT_TLS], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("talked\n", "")


CONFIGURED = {
    "jetstream": ("jetstream: {store_dir: FOLDER}", ("natsctl.jetstream.engine", "natsctl.store.store")),
    "tls": ("tls: {cert_file: CERT, key_file: KEY}", ("natsctl.server.tls.listener",)),
    "checks of certificates": (
        "tls: {cert_file: CERT, key_file: KEY, verify: true, ocsp_peer: true}",
        ("natsctl.server.tls.listener", "natsctl.server.tls.certificates", "cryptography.x509.ocsp"),
    ),
    "leaf nodes": ("leafnodes: {listen: '127.0.0.1:-1'}", ("natsctl.server.leaf.nodes",)),
    "monitoring": ("http: '127.0.0.1:-1'", ("natsctl.server.monitor.pages",)),
    "websocket": ("websocket: {listen: '127.0.0.1:-1', no_tls: true}", ("natsctl.server.websocket.protocol",)),
}


ARCHIVES = (
    "natsctl.jetstream.endpoints.snapshot", "natsctl.jetstream.endpoints.restore", "natsctl.api.archive.archive_v1",
    "cramjam", "tarfile", "zoneinfo",
)  # fmt: skip


@pytest.mark.parametrize("what", CONFIGURED)
def test_what_is_configured_is_loaded_before_the_first_client(what: str, tmp_path: Path) -> None:
    """Later it would hold up everybody, or fail where descriptors have run out."""
    text, needed = CONFIGURED[what]
    issued = Authority(tmp_path / "ca").issue("server", addresses=["127.0.0.1"])
    for name, path in {"FOLDER": tmp_path, "CERT": issued.cert, "KEY": issued.key}.items():
        text = text.replace(name, f"'{path}'")
    (tmp_path / "nats.conf").write_text(text + "\n")
    loaded = loaded_at_start(tmp_path, "-c", str(tmp_path / "nats.conf"))
    assert set(needed) <= loaded
    others = {one for _, modules in CONFIGURED.values() for one in modules}
    if what == "leaf nodes":
        others -= {"natsctl.server.tls.listener", "natsctl.server.websocket.protocol"}  # the listener is made of it
    assert found_in(loaded, sorted(others - set(needed))) == []
    assert found_in(loaded, ARCHIVES) == [], "the first request for one imports them"


class Receiver:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self._socket.settimeout(PATIENCE_S)

    def next(self) -> dict[str, str]:
        return dict(line.split("=", 1) for line in self._socket.recv(4096).decode().split("\n"))

    def next_of(self, key: str) -> dict[str, str]:
        while key not in (notice := self.next()):
            pass
        return notice

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def receiver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    found = Receiver(tmp_path / "notify")
    monkeypatch.setenv("NOTIFY_SOCKET", str(found.path))
    yield found
    found.close()


def test_a_server_reports_ready_reloads_and_its_stop(receiver: Receiver, tmp_path: Path) -> None:
    config = tmp_path / "nats.conf"
    config.write_text("debug: false\n")
    server = Running(tmp_path, "-c", str(config))
    try:
        assert receiver.next() == {"READY": "1", "STATUS": "Server is ready"}
        server.wait_for("Server is ready")
        config.write_text("debug: true\n")
        server.process.send_signal(signal.SIGHUP)
        assert receiver.next()["RELOADING"] == "1"
        assert receiver.next() == {"READY": "1", "STATUS": "Server is ready"}
        config.write_text("nonsense: 1\n")
        server.process.send_signal(signal.SIGHUP)
        assert int(receiver.next()["MONOTONIC_USEC"]) > 0
        assert receiver.next()["STATUS"] == "The last reload failed: see the log"
    finally:
        assert server.end(signal.SIGTERM) == 0
    assert receiver.next()["STOPPING"] == "1"


def test_the_watchdog_hears_from_a_loop_that_turns(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "20000")
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))

    async def serve() -> None:
        manager = ServiceManager()
        manager.ready("up")
        manager.ready("up again")
        for _ in range(3):
            await asyncio.to_thread(receiver.next_of, "WATCHDOG")
        manager.close()

    asyncio.run(serve())


@pytest.mark.parametrize("variables", [{}, {"WATCHDOG_USEC": "20000", "WATCHDOG_PID": "1"}, {"WATCHDOG_USEC": "soon"}])
def test_the_watchdog_of_another_process_hears_nothing(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]
) -> None:
    for key, value in variables.items():
        monkeypatch.setenv(key, value)

    async def serve() -> None:
        manager = ServiceManager()
        manager.ready("up")
        manager.stopping("down")
        manager.close()

    asyncio.run(serve())
    assert [receiver.next().keys() for _ in range(2)] == [{"READY", "STATUS"}, {"STOPPING", "STATUS"}]


@pytest.mark.skipif(sys.platform != "linux", reason="abstract sockets are Linux's")
def test_a_name_in_the_abstract_namespace_and_a_socket_that_is_gone() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(f"\0natsctl-test-{os.getpid()}")
        receiver.settimeout(PATIENCE_S)
        manager = ServiceManager({"NOTIFY_SOCKET": f"@natsctl-test-{os.getpid()}"})
        manager.stopping("bye")
        assert receiver.recv(100) == b"STOPPING=1\nSTATUS=bye"
    manager.stopping("nobody there")
    ServiceManager({"NOTIFY_SOCKET": "relative"}).stopping("nowhere")
