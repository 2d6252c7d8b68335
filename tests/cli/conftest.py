"""Commands run in this process, as a script runs them: no terminal, output in pipes, one server for the whole run."""

import functools
import io
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from natsctl.cli.framework.output import json_text
from natsctl.cli.main import run as run_main
from natsctl.testing.process import Kind, ServerProcess
from tests.support import commands
from tests.support.commands import Done, Run
from tests.support.request_differential import Reference
from tests.support.servers import Cluster

WITHIN_S = 60
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07]*\x07|[()][A-Z0-9]|[=>78])")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run tests of commands on natsctl's server and on the reference, but for those marked `ours` with the reason.

    A module may be marked `ours`, and those of its tests that need the reference too `both`.
    """
    if "shared_server" not in metafunc.fixturenames:
        return
    kinds: list[object] = ["natsctl"]
    marks = metafunc.definition
    if marks.get_closest_marker("ours") is None or marks.get_closest_marker("both") is not None:
        kinds.append("reference")
    metafunc.parametrize("shared_server", kinds, indirect=True, scope="session")


class Published:
    """Holds what commands print with -j to the schemas that they declare; `faults` are those that differ."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        self._documents: list[Any] = []

    def printing(self, show: Callable[[Any], None]) -> Callable[[Any], None]:
        def shown(document: Any) -> None:
            self._documents.append(json.loads(json_text(document)))
            show(document)

        return shown

    def running(self, run: Callable[..., int]) -> Callable[..., int]:
        def judged(noun: Any, words: list[str], given: dict[str, Any], host: Any = None) -> int:
            outer, self._documents = self._documents, []
            try:
                code = run(noun, words, given, host)
                if code == 0:
                    self._judge(noun, list(words), "dry_run" in given or "--dry-run" in words)
            finally:
                self._documents = outer
            return code

        return judged

    def _judge(self, noun: Any, words: list[str], dry: bool) -> None:
        answer = _answer_of(noun, [word for word in words if word == "-" or not word.startswith("-")])
        names = "-n" in words or "--names" in words
        allowed = "schema:DryRun" if dry else "schema:Names" if names else ""
        for document in self._documents:
            if why := _differs(document, f"{answer}|{allowed}"):
                self.faults.append(f"natsctl {noun.name} {' '.join(words)}: {why}")


def _answer_of(noun: Any, words: list[str]) -> str:
    from natsctl.cli.framework.command_line import find

    rows, _ = find(noun, words)
    return rows[-1].answer


def _differs(document: Any, answer: str) -> str:
    """Why a document is none of what the answer names, or ""."""
    from natsctl.cli.schema import kinds_of

    if not answer.strip("|"):
        return "it prints what it does not declare"
    why = []
    for id, suffix in kinds_of(answer):
        fault = next(_validator(f"{id}[]" if suffix.startswith("[]") else id).iter_errors(document), None)
        if fault is None:
            return ""
        why.append(f"{id}{suffix}: {fault.json_path}: {fault.message[:200]}")
    return "; ".join(why)


@functools.cache
def _validator(id: str) -> Any:
    import jsonschema

    from natsctl.cli.schema import schema_of

    return jsonschema.Draft202012Validator(schema_of(id))


@pytest.fixture(autouse=True)
def published(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail a test in which a command prints, with -j, what its schema does not describe."""
    from natsctl.cli.framework import command_line, output

    held = Published()
    for name in ("emit_json", "emit_json_line"):
        monkeypatch.setattr(output, name, held.printing(getattr(output, name)))
    monkeypatch.setattr(command_line, "run_noun", held.running(command_line.run_noun))
    yield
    assert held.faults == []


@pytest.fixture(scope="session")
def shared_server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One server of each kind for all tests of commands; examples reserve more than small disks have."""
    kind: Kind = request.param
    folder = tmp_path_factory.mktemp("server")
    limits = folder / "limits.conf"
    limits.write_text("jetstream { max_file: 100G }\n")
    with ServerProcess(folder, kind, "-c", str(limits)) as process:
        yield process


@pytest.fixture
def natsctl(
    shared_server: ServerProcess, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Run]:
    """Runs a command line on a server without streams; `stdin` is what a pipe would hold, else it is empty."""
    monkeypatch.setenv("NATS_URL", shared_server.url)
    monkeypatch.setenv("NATS_TIMEOUT", "60s")  # the disk of a busy machine may take more than 5 s
    monkeypatch.setenv("NO_COLOR", "1")

    def run(*words: str, stdin: bytes | None = None) -> Done:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin or b"")))
        capsys.readouterr()
        code = run_main(list(words))
        return Done(code, *capsys.readouterr())

    clear(shared_server)  # a process that a test has killed may have left what it was making
    yield run
    clear(shared_server)


def clear(server: ServerProcess) -> None:
    """Remove every stream, by requests alone: this is done twice for each test."""
    server.await_removals()
    with closing(Reference(server.url, WITHIN_S)) as asked:
        while names := json.loads(asked.ask("STREAM.NAMES"))["streams"]:
            for name in names:
                asked.ask(f"STREAM.DELETE.{name}")
    server.await_removals()


def groups_of(name: str) -> dict[str, list[str]]:
    """The lines of a file of this folder below each of its headings."""
    found: dict[str, list[str]] = {}
    for line in (Path(__file__).parent / name).read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            found[line[3:]] = []
        elif line and not line.startswith("#"):
            found[next(reversed(found))].append(line)
    return found


def eventually(ask: Callable[[], Any], good: Callable[[Any], Any] = bool) -> Any:
    until_s = time.monotonic() + WITHIN_S
    while not good(answer := ask()):
        assert time.monotonic() < until_s, answer
        time.sleep(0.01)
    return answer


@pytest.fixture
def begun() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts commands in processes of their own, on the server of NATS_URL, with pipes; they end with the test."""
    running: list[subprocess.Popen[str]] = []

    def begin(*words: str, **options: Any) -> subprocess.Popen[str]:
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        running.append(subprocess.Popen([sys.executable, "-m", "natsctl", *words], **streams | options))
        return running[-1]

    yield begin
    for process in running:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Makes what runs command lines on the server at a URL."""
    monkeypatch.setenv("NO_COLOR", "1")

    def on(url: str) -> Run:
        def run(*words: str, stdin: bytes | None = None) -> Done:
            monkeypatch.setenv("NATS_URL", url)
            if stdin is not None:
                monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
            capsys.readouterr()
            code = run_main(list(words))
            return Done(code, *capsys.readouterr())

        return run

    return on


@pytest.fixture
def offline(command: Run) -> Run:
    return command("nats://127.0.0.1:9")


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster of three for all tests of a module; idle ones of whole runs would take a fortieth of a core each."""
    with Cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture
def spawn() -> Run:
    """Starts natsctl at a pseudo-terminal, with what pexpect's `spawn` takes besides."""
    return spawned


def spawned(words: list[str], environment: dict[str, str], **options: Any) -> Any:
    return commands.spawn([sys.executable, "-m", "natsctl", *words], env=environment, **options)


class Person:
    def __init__(self, url: str, command: str, words: list[str], columns: int) -> None:
        environment = {**os.environ, "NATS_URL": url, "TERM": "xterm-256color", "NO_COLOR": "1"}
        environment.pop("COLUMNS", None)
        line = [command, *words] if command else [sys.executable, "-m", "natsctl", *words]
        self.child = commands.spawn(line, env=environment, timeout=WITHIN_S, dimensions=(40, columns))
        self._end = commands.ended()
        self.seen = ""

    def sees(self, text: str) -> None:
        self.child.expect_exact(text)
        self.seen += self.child.before + self.child.after

    def answers(self, question: str, keys: str = "\r") -> None:
        self.sees(question)
        self.child.send(keys)

    def dialogue(self, text: str) -> None:
        """Answer in turn what the text has as `question: answer`, with ` | ` or a new line between two of them."""
        for part in re.split(r" \| |\n", text.strip()):
            question, _, answer = part.strip().partition(": ")
            self.answers(question, f"{answer}\r")

    def end(self) -> tuple[int, str]:
        """The exit status, and everything that was on the screen, without what moves the cursor."""
        self.child.expect(self._end)
        self.seen += self.child.before
        self.child.close()
        status = self.child.exitstatus
        assert status is not None, self.child.signalstatus
        return status, _ESCAPES.sub("", self.seen).replace("\r\n", "\n")


@pytest.fixture
def person(shared_server: ServerProcess, natsctl: Run) -> Iterator[Run]:
    people: list[Person] = []

    def start(*words: str, command: str = "", columns: int = 100) -> Person:
        people.append(Person(shared_server.url, command, list(words), columns))
        return people[-1]

    yield start
    for one in people:
        one.child.close(force=True)
