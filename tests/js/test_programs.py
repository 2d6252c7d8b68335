"""Programs in JavaScript on both servers: nats.js and nats.ws, by TCP, TLS and WebSocket, with each kind of login.

`npm install` in this folder brings the clients.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from natsctl.testing.certificates import Authority
from natsctl.testing.process import Kind, ServerProcess
from tests.support.operators import Key, Operator

HERE = Path(__file__).parent

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(shutil.which("node") is None, reason="node is not on PATH"),
    pytest.mark.skipif(not (HERE / "node_modules").is_dir(), reason="npm install was not run in tests/js"),
]

ATTEMPTS = 5

EXPECTED = {
    "publishAndSubscribe": True,
    "queueGroups": {"all": 200, "shared": True},
    "requests": {"hello": "hello", "big": True, "nobody": True},
    "jetStream": {"sequences": True, "duplicate": True, "ordered": True, "acked": 20, "messages": 20},
    "keyValue": {"value": "2", "revision": 2, "conflict": True, "keys": ["a.b"], "gone": "DEL"},
    "objectStore": {"size": 400000, "chunks": 4, "same": True},
}


class Logins(NamedTuple):
    """The configuration of one kind of login, what its client is told, and what a stranger is."""

    conf: str
    right: dict[str, str]
    wrong: dict[str, str]


def logins(kind: str) -> Logins:
    match kind:
        case "token":
            return Logins("authorization { token: s3cret, timeout: 30 }", {"token": "s3cret"}, {"token": "other"})
        case "user":
            conf = "authorization { timeout: 30, users: [ { user: ann, password: pw } ] }"
            return Logins(conf, {"user": "ann", "pass": "pw"}, {"user": "ann", "pass": "wp"})
        case "nkey":
            key, other = Key("user"), Key("user")
            conf = f"authorization {{ timeout: 30, users: [ {{ nkey: {key.public} }} ] }}"
            return Logins(conf, {"seed": key.seed.decode()}, {"seed": other.seed.decode()})
    operator, foreign = Operator(), Operator()
    limits = {"mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1}
    user = operator.user(operator.account("A", limits=limits))
    stranger = foreign.user(foreign.account("A", limits=limits))
    return Logins(operator.conf("authorization { timeout: 30 }"), {"creds": user.creds}, {"creds": stranger.creds})


class Programs:
    """Programs in one process of Node, which takes half a second to start and to load the clients."""

    def __init__(self, authority: Authority, errors: Path) -> None:
        self.authority = authority
        self._errors = errors
        with errors.open("wb") as stderr:
            self._process = subprocess.Popen(
                ["node", "program.mjs"], cwd=HERE, text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr,
                env={**os.environ, "NODE_EXTRA_CA_CERTS": str(authority.cert)},
            )  # fmt: skip

    def run(self, **program: Any) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(program) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, self._errors.read_text()
        result: dict[str, Any] = json.loads(line)
        return result

    def why_not(self, **program: Any) -> str:
        """Return the error of one that is not let in.

        A client that still writes when the server has closed may find its connection reset before it reads why, with
        both servers where the machine is busy: it asks again.
        """
        for _ in range(ATTEMPTS):
            error: str = self.run(**program)["error"]
            if "uthorization" in error:
                break
        return error

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Programs]:
    folder = tmp_path_factory.mktemp("programs")
    process = Programs(Authority(folder / "tls"), folder / "stderr")
    yield process
    process.end()


def urls(server: ServerProcess) -> tuple[str, str]:
    ports = json.loads((server.store_dir / f"nats-server_{server.pid}.ports").read_text())
    client, websocket = (ports[kind][0].rpartition(":")[2] for kind in ("nats", "websocket"))
    return f"localhost:{client}", f"localhost:{websocket}"


@pytest.mark.parametrize("kind", ["natsctl", "reference"])
@pytest.mark.parametrize("login", ["token", "user", "nkey", "creds"])
@pytest.mark.parametrize("secure", [True, False], ids=["tls", "clear"])
def test_programs_find_all_they_need(kind: Kind, login: str, secure: bool, programs: Programs, tmp_path: Path) -> None:
    files = programs.authority.issue("server", dns=["localhost"], addresses=["127.0.0.1"])
    tls = f'tls {{ cert_file: "{files.cert}", key_file: "{files.key}", timeout: 10 }}'
    who = logins(login)
    conf = tmp_path / "nats.conf"
    conf.write_text(
        f"{who.conf}\n{tls if secure else ''}\n"
        f'websocket {{ listen: "127.0.0.1:-1", compression: true, {tls if secure else "no_tls: true"} }}\n'
    )
    with ServerProcess(tmp_path / "server", kind, "-c", str(conf)) as server:
        client, websocket = urls(server)
        ca = {"ca": str(programs.authority.cert)} if secure else {}
        tcp = {"url": f"{'tls' if secure else 'nats'}://{client}", **ca}
        ws = {"url": f"{'wss' if secure else 'ws'}://{websocket}"}
        libraries = {"transport-node": tcp, "nats-core": ws} if secure else {"nats": tcp, "nats.ws": ws}
        for library, where in libraries.items():
            assert "uthorization" in programs.why_not(library=library, **where, **who.wrong), library
            assert programs.run(library=library, **where, **who.right) == EXPECTED, library


def test_a_handshake_before_info(programs: Programs, tmp_path: Path) -> None:
    files = programs.authority.issue("server", addresses=["127.0.0.1"])
    conf = tmp_path / "nats.conf"
    conf.write_text(f'tls {{ cert_file: "{files.cert}", key_file: "{files.key}", handshake_first: true }}')
    with ServerProcess(tmp_path / "server", "natsctl", "-c", str(conf)) as server:
        where = {"url": server.url, "ca": str(programs.authority.cert), "handshakeFirst": True}
        steps = ["publishAndSubscribe", "requests"]
        answer = programs.run(library="transport-node", **where, steps=steps)
        assert answer == {step: EXPECTED[step] for step in steps}
