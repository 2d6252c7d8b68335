"""Every command with -j: a JSON document on stdout, or one on each line; a failure is one JSON object on stderr."""

import json
import shlex
import shutil
import socket
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from natsctl.api.errors import ExitCode
from natsctl.cli.main import run as run_main
from natsctl.testing.process import Kind, ServerProcess
from tests.cli.conftest import groups_of
from tests.support.commands import Run
from tests.support.request_differential import Reference

pytestmark = pytest.mark.ours("how messages are shown")


ONE_DOCUMENT, LINES, FAILURES = groups_of("json_everywhere.txt").values()
"""Lines that print one document, several, or fail; the latter with their number or exit code."""
PULLED = {"ack_policy": "explicit"}
FILLED = (
    ("STREAM.CREATE.S", {"name": "S", "subjects": ["s.*", "nothing.at.all.but.S"], "allow_direct": True}),
    ("CONSUMER.CREATE.S.C", {"stream_name": "S", "config": {"durable_name": "C", **PULLED}}),
    ("CONSUMER.CREATE.S.EMPTY.s.none", {
        "stream_name": "S", "config": {"durable_name": "EMPTY", "filter_subject": "s.none", **PULLED},
    }),
    ("CONSUMER.CREATE.S.PUSH", {"stream_name": "S", "config": {"durable_name": "PUSH", "deliver_subject": "push.s"}}),
)  # fmt: skip
"""The stream and the consumers of each test, by requests: five commands take twenty times as long."""


@pytest.fixture(scope="session")
def backups() -> dict[Kind, Path]:
    """Where the backups of an account and a stream are that were made on a kind of server."""
    return {}


@pytest.fixture
def command(
    natsctl: Run,
    shared_server: ServerProcess,
    backups: dict[Kind, Path],
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[str], Any]:
    """Runs a line in a folder with backups, on a server with a stream S of three messages and its consumers."""
    monkeypatch.chdir(tmp_path)
    with closing(Reference(shared_server.url)) as asked:
        for verb, config in FILLED:
            assert b'"error"' not in asked.ask(verb, json.dumps(config).encode())
    assert natsctl("pub", "s.a", "hello", "--count", "3", "-J", "-q").code == 0
    kind = shared_server.kind
    if kind not in backups:
        for line in ("backup saved", "str backup S saved.tgz"):
            assert natsctl(*shlex.split(line)).code == 0
        backups[kind] = Path(shutil.copytree(tmp_path, tmp_path_factory.mktemp("backups"), dirs_exist_ok=True))
    else:
        shutil.copytree(backups[kind], tmp_path, dirs_exist_ok=True)

    def run(line: str) -> Any:
        return natsctl(*shlex.split(line), "-j")

    return run


def counted(row: str) -> tuple[str, int]:
    line, _, number = row.partition("  →  ")
    return line, int(number)


@pytest.mark.both
@pytest.mark.parametrize("line", ONE_DOCUMENT)
def test_a_success_is_one_document_and_nothing_else(command: Callable[[str], Any], natsctl: Run, line: str) -> None:
    if line.startswith("str restore"):
        natsctl("str", "rm", "S", "-f")
    done = command(line)
    assert done.code == 0, done.err
    json.loads(done.out)
    assert done.out.endswith("\n")
    told = done.err.splitlines()
    # What `backup` and `restore` read and write is their log: lines for a person, which never are JSON.
    assert not told or (line.split()[0] in ("backup", "restore") and not done.err.startswith("{")), told


@pytest.mark.parametrize(("line", "count"), [*map(counted, LINES)])
def test_a_series_is_one_document_on_each_line(command: Callable[[str], Any], line: str, count: int) -> None:
    done = command(line)
    assert (done.code, done.err, len(done.lines)) == (0, "", count)


@pytest.mark.parametrize(("line", "code"), [*map(counted, FAILURES)])
def test_a_failure_is_one_object_on_stderr_and_nothing_on_stdout(
    command: Callable[[str], Any], line: str, code: int
) -> None:
    done = command(line)
    assert done.out == ""
    assert done.code == code, done.err
    last = done.err.splitlines()[-1]
    error = json.loads(last)["error"]
    assert set(error) == {"code", "err_code", "description", "subject", "hint"}
    assert error["description"]
    assert "unexpected" not in error["description"]
    if line.split()[0] not in ("backup", "restore"):
        assert done.err == last + "\n"


@pytest.mark.parametrize(
    ("listen", "publish"),
    [
        ("sub s.a --count 2", "pub s.a x --count 2 -q"),
        ("sub 's.*' --count 2 --raw", "pub s.a x --count 2 -q"),
        ("events --count 1", "str info S"),
        ("con events S C --count 1", "con next S C"),
    ],
)
def test_what_listens_prints_one_document_a_line(
    command: Callable[[str], Any], natsctl: Run, begun: Run, listen: str, publish: str
) -> None:
    natsctl("con", "edit", "S", "C", "--sample", "100", "-f")
    listener = begun(*shlex.split(listen), "-j", "--wait", "20s")
    while listener.poll() is None:  # whether it listens already, its output does not tell
        natsctl(*shlex.split(publish))
        natsctl("pub", "s.a", "again", "-q")
    out, err = listener.communicate()
    assert (listener.returncode, err) == (0, "")
    count = shlex.split(listen)[-2 if "--raw" in listen else -1]
    assert len([json.loads(line) for line in out.splitlines()]) == int(count)


def test_nobody_there_is_exit_5(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"127.0.0.1:{probe.getsockname()[1]}"
    for line in ("account info", "str ls", "pub a b", "req a b", "sub a", "con next S C", "backup x", "events"):
        assert run_main(["-s", url, *line.split(), "-j"]) == ExitCode.UNREACHABLE
        said = capsys.readouterr()
        assert said.out == ""
        assert json.loads(said.err)["error"]["hint"]
