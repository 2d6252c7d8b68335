"""`natsctl batch`: command lines of a file or of stdin, in one process and on one connection."""

import io
import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from natsctl.api.errors import ExitCode
from natsctl.cli.batch import MAX_LINE_BYTES, BatchLine, read_lines
from natsctl.client import dial, one_shot
from natsctl.client.connection import Connection
from natsctl.testing.process import ServerProcess
from tests.support.commands import Run
from tests.support.conf_server import ConfServer


@pytest.fixture
def batch(natsctl: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)

    def run(text: str, *flags: str, stdin: bool = False) -> Any:
        (tmp_path / "lines.txt").write_text(text)
        return natsctl("batch", *flags, *(() if stdin else ("lines.txt",)), stdin=text.encode() if stdin else None)

    return run


SETUP = "str add S --subjects s.> --defaults\n"


@pytest.mark.ours("reading lines needs no server")
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a b", ["a", "b"]),
        ("natsctl a", ["a"]),
        ("nats a nats", ["a", "nats"]),
        ("a 'b  c' \"d 'e'\" f\\ g ''", ["a", "b  c", "d 'e'", "f g", ""]),
        ("a # comment 'with a quote", ["a"]),
        ("a 'b' # it's a comment", ["a", "b"]),
        ("a b#c '#' \\# d", ["a", "b#c", "#", "#", "d"]),
        ("a 'b'#c \"x # y\"", ["a", "b#c", "x # y"]),
        ("a \\\n  b \\\n c", ["a", "b", "c"]),
        ("a b\\\\", ["a", "b\\"]),
        ("a \r\n", ["a"]),
        ("a é \udcff", ["a", "é", "\udcff"]),
    ],
)
def test_a_line_has_the_arguments_of_a_shell(text: str, words: list[str]) -> None:
    assert list(read_lines(io.BytesIO(text.encode("utf-8", "surrogateescape")))) == [BatchLine(1, words)]


@pytest.mark.ours("reading lines needs no server")
def test_lines_have_the_number_of_their_first_part() -> None:
    text = b"# one \\\n\n  \na \\\n b\n 'c\nd \\\n# e\nf \\\n"
    assert list(read_lines(io.BytesIO(text))) == [
        BatchLine(4, ["a", "b"]),
        BatchLine(6, [], "no closing quotation"),
        BatchLine(7, ["d"]),
        BatchLine(9, [], "it ends with a backslash, and no line follows"),
    ]


@pytest.mark.ours("reading lines needs no server")
def test_a_line_is_limited(batch: Run) -> None:
    done = batch("errors ls -j\n" + "x" * (MAX_LINE_BYTES + 1))
    assert (done.code, "line 2 has more than 4 MiB" in done.err) == (ExitCode.USAGE, True)
    done = batch("x \\\n" * (MAX_LINE_BYTES // 4 + 1))
    assert (done.code, "more than 4 MiB" in done.err) == (ExitCode.USAGE, True)


@pytest.mark.parametrize("stdin", [False, True], ids=["file", "stdin"])
def test_lines_run_in_order_on_one_connection(batch: Run, stdin: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    for module, name in ((one_shot, "open_plain"), (dial, "connect")):
        monkeypatch.setattr(module, name, _counted(opened, name, getattr(module, name)))
    done = batch(
        f"{SETUP}pub s.a one -J -q\npub s.b 'two words' -J -q\npub s.b last -J -q\nstr subjects S -n\n"
        "str get S 2 --raw\nstr get S 3 -r",
        stdin=stdin,
    )
    assert (done.code, done.out[-13:]) == (0, "two wordslast"), done.err
    assert opened == ["open_plain", "connect"]  # the first ends when requests need the second
    opened.clear()
    assert batch("str info S -j\nstr ls -n\n" * 20, stdin=stdin).code == 0
    assert opened == ["open_plain"]


def _counted(opened: list[str], name: str, function: Run) -> Run:
    def counted(*args: Any, **named: Any) -> Any:
        opened.append(name)
        return function(*args, **named)

    return counted


def test_the_first_failure_ends_the_batch_with_its_status(batch: Run) -> None:
    done = batch(f"{SETUP}\nstr info NOPE\nstr rm S -f")
    assert done.code == ExitCode.NOT_FOUND
    assert done.err.splitlines()[-3:][::2] == ["natsctl: error: stream not found (10059)", "  line 3 of lines.txt"]
    assert batch("str ls -n").out == "S\n"
    done = batch("str info NOPE\nstr frob\n'\nstr ls -n\nserver check stream --stream NOPE", "--keep-going")
    assert (done.code, done.out.splitlines()[0]) == (ExitCode.NOT_FOUND, "S")
    assert [line for line in done.err.splitlines() if "lines.txt" in line] == [
        "  line 1 of lines.txt", "  line 2 of lines.txt", "  line 3 of lines.txt",
        "line 5 of lines.txt: exit status 2",
    ]  # fmt: skip
    assert done.err.splitlines()[-1] == "4 of 5 commands failed"


def test_j_is_one_line_per_command(batch: Run) -> None:
    lines = [
        "str add S --subjects s.> --defaults", "", "pub s.a x --count 2 -J", "kv add B", "kv put B k v",
        "kv get B k", "str rm S", "str info NOPE", "schema ls --help", "str ls -n",
    ]  # fmt: skip
    done = batch("\n".join(lines), "-j", "-k")
    results = {result.pop("line"): result for result in done.lines}
    assert (done.code, done.err) == (ExitCode.USAGE, "")
    failed = {number: result["exit_status"] for number, result in results.items() if result["exit_status"]}
    assert failed == {7: 2, 8: 3}
    assert results[1]["command"] == "stream add"
    assert results[1]["output"]["config"]["name"] == "S"
    assert [ack["seq"] for ack in results[3]["output"]] == [1, 2]
    assert results[5]["output"]["revision"] == 1
    assert results[6]["output"]["value"] == "v"
    assert "--force" in results[7]["error"]["hint"]
    assert (results[8]["output"], results[8]["error"]["err_code"]) == (None, 10059)
    assert results[9] | {"output": results[9]["output"][:13]} == {
        "command": "schema ls", "exit_status": 0, "output": "Usage: natsct", "error": None,
    }  # fmt: skip
    assert results[10]["output"] == ["KV_B", "S"]
    assert batch("str info NOPE\nstr ls", "-j").lines[0]["line"] == 1
    secret = batch("pub a b --password S3CRET --user x\n", "-j")
    assert "S3CRET" not in secret.out + secret.err


def test_nothing_is_asked_or_read_from_a_stdin_with_command_lines(batch: Run) -> None:
    lines = [f"{SETUP}pub s.a x -J -q", "str rm S", "str purge S", "pub s.a", "kv put B k", "str add --config -"]
    done = batch("\n".join(lines), "-k", stdin=True)
    assert done.code == ExitCode.USAGE
    assert done.err.count("stdin has the command lines of the batch") == 2
    assert done.err.count("nothing can be read from stdin") == 3
    assert isinstance(sys.stdin, io.TextIOWrapper)
    assert batch("str get S 1 --raw\nstr ls -n").out == "xS\n"
    assert batch("str rm S -f", stdin=True).code == 0


def test_a_file_leaves_stdin_to_its_commands(natsctl: Run, batch: Run) -> None:
    assert batch(SETUP).code == 0
    Path("lines.txt").write_text("pub s.a -J -q\nstr get S 1 --raw")
    assert natsctl("batch", "lines.txt", stdin=b"from a pipe").out == "from a pipe"


@pytest.mark.parametrize(
    "line", ["batch lines.txt", "batch -", "server run", "-s x:1 server run", "hello", "__complete zsh s"]
)
@pytest.mark.ours("no server is asked")
def test_what_needs_a_process_of_its_own_is_refused(
    batch: Run, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "natsctl-hello"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert batch(f"{line}\n").code == ExitCode.USAGE


@pytest.mark.ours("contexts and logins are the client's")
def test_each_line_has_the_server_it_names_and_no_login_for_another(
    batch: Run, natsctl: Run, shared_server: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logins: list[tuple[str, str]] = []
    opened = one_shot.open_plain

    def watched(target: Any, name: str) -> Any:
        logins.append((target.urls[0], target.settings.user))
        return opened(target, name)

    monkeypatch.setattr(one_shot, "open_plain", watched)
    with ConfServer(
        tmp_path / "other", "natsctl", f"jetstream {{ store_dir: {json.dumps(str(tmp_path / 'js'))} }}\n"
    ) as other:
        here, there = shared_server.url, other.url
        lines = ["str add HERE --subjects h --defaults", f"-s {there} str add THERE --subjects t --defaults"]
        lines += ["str ls -n", f"str ls -n -s {there}"] * 3
        done = batch("\n".join(lines), "--user", "ann", "--password", "x", "-j")
        assert [result["output"] for result in done.lines[2:]] == [["HERE"], ["THERE"]] * 3, done.err
        assert logins == [(here, "ann"), (there, "")]
        monkeypatch.delenv("NATS_URL")
        for name, url in (("here", here), ("there", there)):
            assert natsctl("context", "add", name, "-s", url).code == 0
        lines = [
            "ctx select here",
            "str ls -n",
            "ctx select there",
            "str ls -n",
            "ctx unselect",
            "--context here str ls -n",
        ]
        done = batch("\n".join(lines), "-j")
        assert [result["output"] for result in done.lines[1::2]] == [["HERE"], ["THERE"], ["HERE"]], done.err


def test_options_of_the_batch_are_those_of_its_lines(batch: Run) -> None:
    done = batch(f"{SETUP}pub s.a x -J", "--dry-run", "-j")
    assert [result["output"]["dry_run"] for result in done.lines] == [True, True]
    done = batch(f"{SETUP}str info S --dry-run -j\nstr rm S -f --dry-run\nstr ls -n --trace\nstr ls -n")
    assert (done.out.splitlines()[-2:], done.err.count(">>> $JS.API.STREAM.NAMES")) == (["S", "S"], 1)


def test_a_command_leaves_nothing_on_the_connection(batch: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[int] = []
    released = Connection.release

    async def watched(self: Connection) -> None:
        await released(self)
        left.append(len(self._subscriptions))

    monkeypatch.setattr(Connection, "release", watched)
    done = batch(
        f"{SETUP}con add S C --pull --defaults\npub s.a x -J -q\nsub --stream S --count 1 --raw\n"
        "con next S C --raw\nreq nobody x"
    )
    assert (done.code, done.out.split()[-2:]) == (ExitCode.UNREACHABLE, ["x", "x"]), done.err
    assert set(left) <= {0}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
@pytest.mark.ours("signals are the client's")
def test_a_signal_ends_the_command_and_the_batch(
    natsctl: Run, begun: Run, tmp_path: Path, number: signal.Signals
) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("str add S --subjects s.> --defaults\nsub s.a\nstr rm S -f\n")
    process = begun("batch", str(lines), "--keep-going")
    assert "Subscribing" in process.stderr.readline() + process.stderr.readline()
    process.send_signal(number)
    assert process.wait(60) == (ExitCode.INTERRUPTED if number is signal.SIGINT else 128 + number)
    assert natsctl("str", "ls", "-n").out == "S\n"


@pytest.mark.ours("pipes are the client's")
def test_each_answer_is_written_before_the_next_line_is_read(natsctl: Run, begun: Run) -> None:
    process = begun("batch", "-j", "-k", stdin=-1)
    for number in range(1, 4):
        process.stdin.write(f"str add S{number} --subjects s{number}\n" if number != 2 else "str info NOPE\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["exit_status"] == (3 if number == 2 else 0)
    process.stdout.close()
    process.stdin.write("str ls\nstr add S4 --subjects s4\n")
    process.stdin.close()
    process.stdin = None
    assert process.wait(60) == 0  # as for any command after its reader has closed the pipe
    assert natsctl("str", "ls", "-n").out == "S1\nS3\n"


@pytest.mark.ours("the file is the client's")
def test_an_unreadable_file_is_a_usage_error(batch: Run, natsctl: Run) -> None:
    assert natsctl("batch", "missing.txt").err.startswith("natsctl: error: missing.txt: No such file")
    assert natsctl("batch", ".").code == ExitCode.USAGE
    assert natsctl("batch", stdin=b"").code == 0
