"""Every command with -j: a JSON document on stdout, or one on each line; a failure is one JSON object on stderr."""

from __future__ import annotations

import json
import shlex
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from natsctl.api.errors import ExitCode
from natsctl.cli.main import run as run_main
from natsctl.testing.process import Kind, ServerProcess
from tests.support.request_differential import Reference

Run = Callable[..., Any]

ONE_DOCUMENT = (
    "account info",
    "str add NEW --subjects new",
    "str add NEW --subjects new --validate",
    "str info S",
    "str info S --state",
    "str state S",
    "str ls",
    "str ls -n",
    "str ls --subject nobody",
    "str edit S --max-msgs 100 -f",
    "str edit S --max-msgs 100",
    "str edit S",
    "str cp S COPY --subjects copy",
    "str purge S -f",
    "str purge S --keep 1 -f",
    "str rm S -f",
    "str rmm S 1 -f",
    "str report",
    "str find --empty",
    "str find -n",
    "str subjects S",
    "str gaps S",
    "str seal S -f",
    "str purge S --older-than 1h -f",
    "str rm S -f --missing-ok",
    "str cluster balance",
    "str get S 1",
    "str get S -S s.a",
    "str backup S b.tgz",
    "str backup S folder --no-progress",
    "str restore S saved.tgz",
    "con add S NEW --pull",
    "con add S --ephemeral --target x",
    "con add S NEW --validate",
    "con info S C",
    "con state S C",
    "con ls S",
    "con ls S -n",
    "con edit S C --max-deliver 5 -f",
    "con edit S C --max-deliver 5",
    "con cp S C D",
    "con next S C",
    "con next S C --no-ack",
    "con rm S C -f",
    "pub s.a x",
    "pub s.a x -J",
    "pub s.a x --count 3",
    "pub s.a x --msg-id 1",
    "req s.a x",
    "trace s.a x",
    "sub s.* --all -T --report-subjects",
    "--dry-run pub s.a x",
    "--dry-run req s.a x",
    "req nothing.at.all.but.S x",
    "backup folder",
    "backup folder --data",
    "restore saved --update-streams",
    "restore --file saved/stream_S.json --update-streams",
)
LINES = (
    ("con next S C --count 2", 2),
    ("con sub S C --count 2", 2),
    ("pub s.a x -J --count 3", 3),
    ("req s.a x --count 2", 2),
    ("req s.a x --replies 0", 1),
    ("sub s.* --all -T", 3),
    ("sub s.* --direct --last -T", 1),
    ("sub --stream S --count 2", 2),
    ("sub s.* --durable DUR --count 3", 3),
)
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
DRIFT = ("str edit S --max-msgs 7 --dry-run", "con edit S C --max-deliver 7 --dry-run")
FAILURES = (
    ("str info NOPE", 3),
    ("str add", 2),
    ("str add S --subjects other", 4),
    ("str add BAD --subjects 'a b' --max-age never", 2),
    ("str add X --subjects x --replicas 5", 1),
    ("str add X --config /nonexistent", 2),
    ("str edit NOPE --max-msgs 1", 3),
    ("str edit S --frob", 2),
    ("str cp NOPE Z --subjects z", 3),
    ("str cp S Z", 2),
    ("str purge S", 2),
    ("str purge NOPE -f", 3),
    ("str purge S --seq 1 --keep 1", 2),
    ("str rm S", 2),
    ("str rm NOPE -f", 3),
    ("str rmm S 99 -f", 3),
    ("str rmm S 0 -f", 2),
    ("str get S 99", 3),
    ("str get S 0", 2),
    ("str get S", 2),
    ("str backup NOPE x", 3),
    ("str backup S /proc/none", 2),
    ("str restore /nonexistent", 2),
    ("str restore saved.tgz", 4),
    ("str restore OTHER saved.tgz", 4),
    ("str frob", 2),
    ("con add NOPE C", 3),
    ("con add S C --max-deliver 9", 4),
    ("con add S", 2),
    ("con info S NOPE", 3),
    ("con ls NOPE", 3),
    ("con edit S NOPE --max-deliver 1", 3),
    ("con next S NOPE", 3),
    ("con next S EMPTY --wait 100ms", 7),
    ("con next S PUSH", 2),
    ("con rm S C", 2),
    ("con rm S NOPE -f", 3),
    ("con events S NOPE", 3),
    ("con events S C --wait 100ms", 7),
    ("pub", 2),
    ("pub 'a b' x", 2),
    ("pub s.* x", 2),
    ("pub nobody.listens x -J", 5),
    ("pub s.a x -J -H Nats-Expected-Last-Sequence:99", 4),
    ("pub s.a x -H K:{{nope}}", 2),
    ("req nobody.listens x", 5),
    ("sub a..b", 2),
    ("sub", 2),
    ("sub nobody.stores --all", 2),
    ("sub --stream NOPE", 3),
    ("pub s.a x --expect-last-seq 99", 4),
    ("pub s.a x --schedule-after 5s", 2),
    ("pub s.a x --atomic", 2),
    ("reply q x --echo", 2),
    ("trace s.*", 2),
    ("events --wait 100ms --subjects nobody.listens", 7),
    ("events --stream NOPE", 3),
    ("events --filter (", 2),
    ("backup saved", 2),
    ("restore saved", 4),
    ("restore /nonexistent", 2),
    ("restore", 2),
    ("frob", 2),
    ("--context nope account info", 3),
    ("account info --timeout never", 2),
)


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


@pytest.mark.parametrize(("line", "count"), LINES)
def test_a_series_is_one_document_on_each_line(command: Callable[[str], Any], line: str, count: int) -> None:
    done = command(line)
    assert (done.code, done.err, len(done.lines)) == (0, "", count)


@pytest.mark.parametrize("line", DRIFT)
def test_a_dry_run_that_finds_differences_is_a_document_and_exit_10(command: Callable[[str], Any], line: str) -> None:
    done = command(line)
    assert (done.code, done.err) == (ExitCode.DRIFT, "")
    assert [change["new"] for change in done.json["effect"]["differences"]] == [7]


@pytest.mark.parametrize(("line", "code"), FAILURES)
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


@pytest.fixture
def closed_server(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path / "server", "natsctl", "--user", "app", "--pass", "secret") as process:
        yield process


@pytest.mark.parametrize("login", [[], ["--user", "app", "--password", "wrong"], ["--token", "x"]])
def test_a_refused_login_is_exit_6(
    closed_server: ServerProcess, capsys: pytest.CaptureFixture[str], login: list[str]
) -> None:
    assert run_main(["-s", closed_server.url, *login, "str", "ls", "-j"]) == ExitCode.NOT_AUTHORISED
    said = capsys.readouterr()
    assert said.out == ""
    assert "--user" in json.loads(said.err)["error"]["hint"]
    assert run_main(["-s", closed_server.url, "--user", "app", "--password", "secret", "str", "ls", "-j"]) == 0


def test_nobody_there_is_exit_5(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"127.0.0.1:{probe.getsockname()[1]}"
    for line in ("account info", "str ls", "pub a b", "req a b", "sub a", "con next S C", "backup x", "events"):
        assert run_main(["-s", url, *line.split(), "-j"]) == ExitCode.UNREACHABLE
        said = capsys.readouterr()
        assert said.out == ""
        assert json.loads(said.err)["error"]["hint"]
