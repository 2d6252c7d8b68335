"""The nats.go repository's own tests, unmodified, against natsctl's server.

    python tests/suites/nats_go.py SOURCES                        every test that passes on nats-server must pass
    python tests/suites/nats_go.py SOURCES --server reference     write the baseline anew, from the nats-server on PATH

SOURCES is a checkout of github.com/nats-io/nats.go. Its tests ask a service at TESTER_NATS_URL for servers (the image
synadia/ntf-server); `Tester` answers the same requests and starts the server to test. Clusters are started of
nats-server only. `nats_go.txt` names every test with its outcome on nats-server; a test that passes there and can not
pass here has its reason behind a `#`. A test that fails is run once more, so that a busy machine does not decide.
"""

import asyncio
import json
import os
import re
import shutil
import signal
import socket
import sys
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import baseline
import nats
from baseline import Outcome, Results
from nats.aio.client import Client
from nats.aio.msg import Msg

from natsctl.testing.certificates import Authority

BASELINE: Final = Path(__file__).with_suffix(".txt")
PACKAGES: Final = (".", "./test", "./jetstream/test", "./micro/test", "./encoders/...", "./internal/...")
START_TIMEOUT_S: Final = 10
STOP_TIMEOUT_S: Final = 5
PACKAGE_TIMEOUT: Final = "45m"
SLOTS: Final = ("websocket", "mqtt", "leafnode")
"""Snippets with a listener: a port of that name is reserved for each."""
USER: Final = "USERS{0} {{ jetstream: enabled, users: [ {{ user: user{0}, password: password }} ] }}"
SYSTEM: Final = "$SYS { users: [ { user: system, password: password } ] }"
ACCOUNTS: Final = "\n".join(["accounts {", *(USER.format(number) for number in range(1, 6)), SYSTEM, "}"])
OUTCOMES: Final[dict[str, Outcome]] = {"pass": "passed", "fail": "failed", "skip": "skipped"}


@dataclass(slots=True)
class Server:
    """One server of an instance and the process that runs it, if any."""

    name: str
    folder: Path
    cluster: str
    ports: dict[str, int]
    routes: list[int]
    request: dict[str, Any]
    process: asyncio.subprocess.Process | None = None

    def answer(self) -> dict[str, Any]:
        running = self.process is not None and self.process.returncode is None
        return {
            "name": self.name, "cluster": self.cluster, "port": self.ports["client"], "ports": self.ports,
            "running": running,
        }  # fmt: skip

    @property
    def tls_folder(self) -> Path:
        return self.folder.parent / f"{self.folder.name.partition('-')[0]}-tls"

    def configuration(self) -> str:
        snippets: dict[str, str] = self.request.get("snippets") or {}
        lines = [snippets.get("top", ""), f'server_name: "{self.name}"', f"listen: 127.0.0.1:{self.ports['client']}"]
        lines.append(snippets.get("accounts", ACCOUNTS))
        lines.append(snippets.get("system_account", "" if "accounts" in snippets else 'system_account: "$SYS"'))
        lines.append(snippets.get("authorization", "no_auth_user: user1" if "accounts" not in snippets else ""))
        lines += [snippets[slot] for slot in ("tls", *SLOTS) if slot in snippets]
        if self.request.get("jetstream"):
            lines.append(f'jetstream {{ enabled: true, store_dir: "{self.folder}"\n{snippets.get("jetstream", "")}\n}}')
        if self.routes:
            routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in self.routes)
            own = f"listen: 127.0.0.1:{self.ports['cluster']}"
            lines.append(f"cluster {{ name: {self.cluster}, {own}, routes: [{routes}] }}")
        lines.append(self.tls())
        values = {f"Ports.{name}": str(port) for name, port in self.ports.items()}
        values |= {"TLS.CertFile": f"{self.tls_folder}/server.pem", "TLS.KeyFile": f"{self.tls_folder}/server-key.pem"}
        values |= {
            "TLS.CAFile": f"{self.tls_folder}/{self.tls_folder.name}.pem",
            "StoreDir": str(self.folder),
            "ServerName": self.name,
        }
        return re.sub(r"{{\s*\.([\w.]+)\s*}}", lambda found: values[found[1]], "\n".join(lines))

    def tls(self) -> str:
        asked: dict[str, Any] | None = self.request.get("tls")
        if not asked:
            return ""
        files = f'cert_file: "{self.tls_folder}/server.pem", key_file: "{self.tls_folder}/server-key.pem"'
        verify = (
            f'ca_file: "{self.tls_folder}/{self.tls_folder.name}.pem", verify: true, '
            if asked.get("mode") != "server"
            else ""
        )
        first = "handshake_first: true, " if asked.get("handshake_first") else ""
        timeout = asked.get("timeout") or 2
        return f"tls {{ {files}, {verify}{first}timeout: {timeout:f} }}"

    async def start(self, program: str) -> None:
        (self.folder / "nats.conf").write_text(self.configuration())
        with (self.folder / "log").open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                program, "-c", str(self.folder / "nats.conf"), stdout=log, stderr=log
            )
        for _ in range(START_TIMEOUT_S * 50):
            if self.process.returncode is not None:
                break
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", self.ports["client"])
            except OSError:
                await asyncio.sleep(0.02)
            else:
                writer.close()
                return
        raise RuntimeError(f"{self.name} did not start: {(self.folder / 'log').read_text()[-600:]}")

    async def stop(self) -> None:
        if self.process is None or self.process.returncode is not None:
            return
        self.process.terminate()
        try:
            await asyncio.wait_for(self.process.wait(), STOP_TIMEOUT_S)
        except TimeoutError:
            self.process.kill()
            await self.process.wait()


@dataclass(slots=True)
class Tester:
    """The service of github.com/synadia-io/orbit.go/ntf-client, with servers of one program."""

    connection: Client
    program: str
    work: Path
    clusters: bool
    instances: dict[str, list[Server]] = field(default_factory=dict)

    async def serve(self) -> None:
        tasks: set[asyncio.Task[None]] = set()

        async def take(message: Msg) -> None:
            task = asyncio.create_task(self.handle(message))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        await self.connection.subscribe("tester.>", cb=take)
        await self.connection.flush()

    async def handle(self, message: Msg) -> None:
        """Answer one request; an error goes into the header that the client looks at."""
        action = message.subject.removeprefix("tester.").replace(".", "_").replace("-", "_")
        try:
            answer = await getattr(self, action)(json.loads(message.data or b"{}"))
        except Exception as error:
            text = " ".join(f"{error!r}".split())[-900:]
            await self.connection.publish(message.reply, headers={"Nats-Service-Error": text})
        else:
            await message.respond(json.dumps(answer).encode())

    async def create_server(self, request: dict[str, Any]) -> dict[str, Any]:
        return await self.create("server", request, 1)

    async def create_cluster(self, request: dict[str, Any]) -> dict[str, Any]:
        if not self.clusters:
            raise RuntimeError("needs a cluster")
        return await self.create("cluster", request, int(request["servers"]))

    async def create(self, kind: str, request: dict[str, Any], count: int) -> dict[str, Any]:
        instance = uuid.uuid4().hex
        names = [
            "client",
            *(("cluster",) if count > 1 else ()),
            *(s for s in SLOTS if s in (request.get("snippets") or {})),
        ]
        ports = [dict(zip(names, free_ports(len(names)), strict=True)) for _ in range(count)]
        routes = [port["cluster"] for port in ports if "cluster" in port]
        short = instance[-8:]
        servers = []
        for number, own in enumerate(ports, 1):
            folder = self.work / f"{short}-n{number}"
            folder.mkdir(parents=True)
            servers.append(Server(folder.name, folder, f"C{short}" if routes else "", own, routes, request))
        tls = certificates(request["tls"], servers[0].tls_folder) if request.get("tls") else None
        self.instances[instance] = servers
        try:
            await asyncio.gather(*(server.start(self.program) for server in servers))
        except Exception:
            await self.destroy({"instance_id": instance})
            raise
        answer = {"id": instance, "kind": kind, "servers": [server.answer() for server in servers]}
        return answer | ({"tls": tls} if tls else {})

    def find(self, request: dict[str, Any]) -> Server:
        every = (server for servers in self.instances.values() for server in servers)
        return next(server for server in every if server.name == request["name"])

    async def start_server(self, request: dict[str, Any]) -> dict[str, Any]:
        await self.find(request).start(self.program)
        return {"started": True}

    async def stop_server(self, request: dict[str, Any]) -> dict[str, Any]:
        await self.find(request).stop()
        return {"shutdown": True}

    async def update_server(self, request: dict[str, Any]) -> dict[str, Any]:
        server = self.find(request)
        server.request = {**server.request, "snippets": request.get("snippets")}
        if request.get("tls_timeout") is not None:
            server.request["tls"] = {**server.request["tls"], "timeout": request["tls_timeout"]}
        (server.folder / "nats.conf").write_text(server.configuration())
        return {"updated": True}

    async def reload_server(self, request: dict[str, Any]) -> dict[str, Any]:
        server = self.find(request)
        assert server.process is not None
        before = (server.folder / "log").stat().st_size
        server.process.send_signal(signal.SIGHUP)
        for _ in range(100):
            await asyncio.sleep(0.02)
            if b"eload" in (server.folder / "log").read_bytes()[before:]:
                break
        await asyncio.sleep(0.1)
        return {"reloaded": True}

    async def status(self, request: dict[str, Any]) -> dict[str, Any]:
        wanted = [request["instance_id"]] if request.get("instance_id") else list(self.instances)
        return {"instances": [{"id": name, "servers": [s.answer() for s in self.instances[name]]} for name in wanted]}

    async def destroy(self, request: dict[str, Any]) -> dict[str, Any]:
        servers = self.instances.pop(request["instance_id"], [])
        await asyncio.gather(*(server.stop() for server in servers))
        for server in servers:
            shutil.rmtree(server.folder, ignore_errors=True)
            shutil.rmtree(server.tls_folder, ignore_errors=True)
        return {"destroyed": True}


def certificates(asked: dict[str, Any], folder: Path) -> dict[str, str]:
    authority = Authority(folder, folder.name)  # of its own name: another instance's is a stranger
    sans = asked.get("sans") or ["localhost", "127.0.0.1", "::1"]
    addresses = [name for name in sans if ":" in name or name.replace(".", "").isdigit()]
    authority.issue("server", dns=[name for name in sans if name not in addresses], addresses=addresses)
    material = {"ca_pem": authority.cert.read_text()}
    if asked.get("mode") != "server":
        client = authority.issue("client")
        material |= {"client_cert_pem": client.cert.read_text(), "client_key_pem": client.key.read_text()}
    return material


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def main() -> int:
    parser = baseline.parser_of(__doc__)
    parser.add_argument("--server", choices=("natsctl", "reference"), default="natsctl")
    parser.add_argument("--run", help="only the tests that match, as go test takes it")
    arguments = parser.parse_args()
    work = baseline.folder_of(arguments, "nats-go")
    results = asyncio.run(run_suite(arguments.sources.resolve(), work, arguments.server, arguments.run))
    if arguments.run:
        print("\n".join(f"{outcome:7} {name}" for name, outcome in sorted(results.items())))
        return 0
    return baseline.finish(results, BASELINE, "nats.go", write=arguments.server == "reference")


async def run_suite(sources: Path, work: Path, server: str, pattern: str | None) -> Results:
    """Return the outcomes of the tests, each that failed run twice."""
    bus = shutil.which("nats-server")
    if bus is None:
        raise SystemExit("nats-server is not on PATH: the tests ask for servers over it")
    port = free_ports(1)[0]
    process = await asyncio.create_subprocess_exec(bus, "-a", "127.0.0.1", "-p", str(port), "-l", str(work / "bus.log"))
    program = baseline.prepare_server(work, server) / "nats-server"
    await asyncio.sleep(1)
    connection = await nats.connect(f"nats://127.0.0.1:{port}")
    tester = Tester(connection, str(program), work / "servers", clusters=server == "reference")
    try:
        await tester.serve()
        results = await run_tests(sources, work / "first.json", port, pattern)
        failed = sorted({name.split(" ")[1].split("/")[0] for name, outcome in results.items() if outcome == "failed"})
        if failed and pattern is None:
            results |= await run_tests(sources, work / "again.json", port, f"^({'|'.join(failed)})$")
        await connection.close()
        return results
    finally:
        for instance in list(tester.instances):
            await tester.destroy({"instance_id": instance})
        process.terminate()
        await process.wait()


async def run_tests(sources: Path, log: Path, port: int, pattern: str | None) -> Results:
    flags = f"-modfile=go_test.mod -json -vet=off -count=1 -p=1 -timeout={PACKAGE_TIMEOUT} -tags=internal_testing"
    command = ["go", "test", *flags.split(), *(("-run", pattern) if pattern else ()), *PACKAGES]
    environ = {**os.environ, "TESTER_NATS_URL": f"nats://localhost:{port}"}
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(*command, cwd=sources, env=environ, stdout=out, stderr=out)
        await process.wait()
    results: Results = {}
    for line in log.read_text(errors="replace").splitlines():
        event = json.loads(line) if line.startswith("{") else {}
        if "Test" in event and event["Action"] in OUTCOMES:
            package = event["Package"].removeprefix("github.com/nats-io/") + " "
            results[package + event["Test"].replace(" ", "_")] = OUTCOMES[event["Action"]]
    return results


if __name__ == "__main__":
    sys.exit(main())
