"""Servers as users name them, with logins in the URL, and commands that outlive their server."""

import asyncio
import base64
import functools
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from natsctl.cli.main import run as run_main
from natsctl.client.manager import Manager
from natsctl.client.messaging import messages
from natsctl.spark.source.handshake import ServerSettings
from natsctl.spark.source.link import Link
from natsctl.testing.process import Kind, ServerProcess
from tests.cli.conftest import WITHIN_S
from tests.client.conftest import connected
from tests.support.conf_server import ConfServer
from tests.support.servers import quiet_ports

USER, PASSWORD, TOKEN = "dom@in", "p:w/%41+ ?#é,", "to/k@n%"
_quoted = functools.partial(json.dumps, ensure_ascii=False)
LOGINS = {
    f"users: [{{ user: {_quoted(USER)}, password: {_quoted(PASSWORD)} }}]": [
        "dom%40in:p%3Aw%2F%2541+%20%3F%23%C3%A9%2C",  # all that is special escaped
        "dom@in:p:w%2F%2541%2B%20%3F%23é%2c",  # as little as possible
    ],
    f"token: {_quoted(TOKEN)}": ["to%2Fk%40n%25", "to%2Fk@n%"],
}
KINDS = ["natsctl", pytest.param("reference", marks=pytest.mark.reference)]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(params=LOGINS, ids=["user", "token"])
def guarded(request: pytest.FixtureRequest, kind: Kind, tmp_path: Path) -> Iterator[tuple[str, list[str]]]:
    text = f"jetstream {{ store_dir: {json.dumps(str(tmp_path / 'js'))} }}\nauthorization {{ {request.param} }}\n"
    with ConfServer(tmp_path / "server", kind, text) as process:
        yield process.url.removeprefix("nats://"), LOGINS[request.param]


def test_a_login_in_a_url_is_decoded_by_every_client(
    guarded: tuple[str, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    address, logins = guarded
    monkeypatch.setenv("HOME", str(tmp_path))
    for login in logins:
        url = f"nats://{login}@{address}"
        for words in ("str ls", "rtt", "pub a.b c", "bench pub a.b --msgs 10 --no-progress", "str ls --trace"):
            assert run_main(["-s", url, *words.split()]) == 0, words
        assert run_main(["-s", f"nats://127.0.0.1:1,{url}", "str", "ls"]) == 0
        assert run_main(["context", "add", "C", "-s", url]) == 0
        assert run_main(["--context", "C", "kv", "ls"]) == 0
        assert run_main(["context", "show", "C"]) == 0
        monkeypatch.setenv("NATS_URL", url)
        assert run_main(["kv", "ls"]) == 0
        monkeypatch.delenv("NATS_URL")
        Link.open(ServerSettings(urls=(url,))).close()
        text = "".join(capsys.readouterr())
        assert not [secret for secret in (login, PASSWORD, TOKEN, "%40n", "%2F") if secret in text]


@pytest.mark.parametrize("url", ["nats://u:SECRET/part@h", "nats://u:SECRET", "SECRET://SECRET@h", "a,u:SECRET@h:x"])
@pytest.mark.parametrize("words", ["str ls", "pub a b", "context add C", "sub a -j", "server check connection"])
def test_an_error_about_a_url_repeats_no_secret(
    url: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    code = run_main([*words.split(), "-s", url])
    out, err = capsys.readouterr()
    assert "SECRET" not in out + err
    if words != "context add C" or code:
        assert "not a server URL" in out + err


COMMANDS = {
    "sub": ["sub", "core.>"],
    "stream": ["sub", "--stream", "S"],
    "new": ["sub", "--stream", "S", "--new"],
    "direct": ["sub", "--stream", "W", "--direct"],
    "durable": ["sub", "--stream", "S", "--durable", "DUR", "--ack"],
    "reply": ["reply", "ask", "--echo"],
    "kv": ["kv", "watch", "K", "--history"],
    "object": ["object", "watch", "O"],
    "pull": ["con", "sub", "S", "PULL", "--count", "0"],
    "push": ["con", "sub", "S", "PUSH"],
    "ordered": ["con", "sub", "S", "--ordered"],
    "events": ["events", "--js-advisory", "--type", "stream_action"],
    "service": ["service", "serve", "svc"],
}
"""Commands that run until they are stopped, by a short name."""
PAUSE_S = 3.0
SETUP = """str add S --subjects s.> --defaults
str add W --subjects w.> --retention work --defaults
con add S PULL --pull --ack explicit --defaults
con add S DUR --pull --ack explicit --defaults
con add S PUSH --target push.here --ack explicit --defaults
kv add K --history 64
object add O"""


PROBE = "probe"
ADVISORY = f'{{"type": "io.nats.jetstream.advisory.v1.stream_action", "stream": "{PROBE}"}}'


class Running:
    """The commands, and what they have printed with -j; probes show that a command listens, and do not count."""

    def __init__(self, folder: Path, server: ServerProcess) -> None:
        self.folder, self.server = folder, server
        self.expected: dict[str, list[str]] = {name: [] for name in COMMANDS}
        self.processes = {}
        for name, words in COMMANDS.items():
            command = [sys.executable, "-m", "natsctl", "-s", server.url, *words, "-j"]
            with (folder / f"{name}.out").open("wb") as out, (folder / f"{name}.err").open("wb") as err:
                self.processes[name] = subprocess.Popen(command, stdout=out, stderr=err, stdin=subprocess.DEVNULL)

    def shown(self, name: str) -> list[str]:
        """What a command has shown, as the texts that were sent, or for the service their lengths."""
        documents = [json.loads(line) for line in (self.folder / f"{name}.out").read_text().splitlines()]
        keys = ("text", "value", "name", "stream", "bytes")
        return [str(next(document[key] for key in keys if document.get(key))) for document in documents]

    def check(self) -> None:
        """Wait until all have shown what is expected, and see that they have shown nothing else."""
        for name, wanted in self.expected.items():
            process, probe = self.processes[name], str(len(PROBE)) if name == "service" else PROBE
            until_s, seen = time.monotonic() + WITHIN_S, [PROBE]
            while len(seen) < len(wanted) or PROBE in seen:
                seen = [text for text in self.shown(name) if text != probe]
                if process.poll() is not None or time.monotonic() > until_s:
                    break
                time.sleep(0.01)
            assert (name, seen) == (name, wanted), (self.folder / f"{name}.err").read_text()

    async def probe(self) -> None:
        """Publish until each command that hears only what comes from now on has shown a probe."""
        hears = {"sub": "core.x", "new": "s.x", "reply": "ask", "service": "svc.echo", "events": "$JS.EVENT.ADVISORY.X"}
        before = {name: len(self.shown(name)) for name in hears}
        async with asyncio.timeout(WITHIN_S), await connected(self.server.url) as connection:
            while left := [name for name in hears if len(self.shown(name)) == before[name]]:
                for name in left:
                    body = ADVISORY if name == "events" else PROBE
                    await connection.publish(hears[name], body.encode(), reply="nobody")
                await connection.flush()
                await asyncio.sleep(0.1)

    async def send(self, first: int, last: int, *, live: bool) -> None:
        """Publish numbers to all, or without `live` to those that read what is stored."""
        async with await connected(self.server.url) as connection:
            manager = Manager(connection)
            for number in map(str, range(first, last)):
                for subject in ("s.x", "w.x", f"$KV.K.key{int(number) % 2}"):
                    await messages.publish(manager, subject, number.encode())
                for name in ("stream", "new", "direct", "durable", "kv", "pull", "push", "ordered"):
                    self.expected[name].append(number)
                if live:
                    await connection.publish("core.x", number.encode())
                    assert (await connection.request("ask", number.encode())).body == number.encode()
                    await connection.request("svc.echo", number.encode())
                    for name, text in (("sub", number), ("reply", number), ("service", str(len(number)))):
                        self.expected[name].append(text)
            meta = {"name": f"o{first}", "bucket": "O", "nuid": "N", "size": 0, "chunks": 0, "digest": ""}
            subject = f"$O.O.M.{base64.urlsafe_b64encode(f'o{first}'.encode()).decode()}"
            await messages.publish(manager, subject, json.dumps(meta).encode())
            self.expected["object"].append(f"o{first}")
            if live:
                await manager.stream_create({"name": f"E{first}", "subjects": [f"e{first}"]})
                self.expected["events"].append(f"E{first}")

    def end(self) -> dict[str, int]:
        """End all by Ctrl-C, and return the exit statuses."""
        for process in self.processes.values():
            process.send_signal(signal.SIGINT)
        return {name: process.wait(WITHIN_S) for name, process in self.processes.items()}


@pytest.mark.live
@pytest.mark.parametrize("end", ["stop", "kill"])
def test_long_commands_outlive_the_only_server(kind: Kind, tmp_path: Path, end: str) -> None:
    with ServerProcess(tmp_path / "server", kind, "-p", str(quiet_ports(1)[0])) as server:
        for line in SETUP.splitlines():
            assert run_main(["-s", server.url, *line.split()]) == 0
        running = Running(tmp_path, server)
        try:
            asyncio.run(running.probe())
            asyncio.run(running.send(1, 5, live=True))
            running.check()
            getattr(server, end)()
            time.sleep(PAUSE_S)
            server.start()
            asyncio.run(running.send(5, 8, live=False))
            asyncio.run(running.probe())
            asyncio.run(running.send(8, 12, live=True))
            running.check()
        finally:
            statuses = running.end()
    assert statuses == dict.fromkeys(COMMANDS, 130)


@pytest.mark.live
def test_watched_reports_outlive_the_only_server(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "server", "natsctl", "-p", str(quiet_ports(1)[0])) as server:
        command = [sys.executable, "-m", "natsctl", "-s", server.url, "account", "report", "connections"]
        with subprocess.Popen([*command, "--watch", "100ms", "-j"], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            try:
                assert json.loads(process.stdout.readline())
                server.kill()
                time.sleep(PAUSE_S)
                server.start()
                assert all(json.loads(process.stdout.readline()) for _ in range(20))
            finally:
                process.send_signal(signal.SIGINT)
        assert process.returncode == 130
