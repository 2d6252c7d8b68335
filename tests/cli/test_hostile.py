"""Commands where nothing is as it should be: streams, pipes, widths and bytes, and servers that lie."""

import base64
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from natsctl.testing.process import ServerProcess
from tests.support.commands import Done, Run
from tests.support.lying_server import ESCAPE, LyingServer, json_only

Natsctl = [sys.executable, "-m", "natsctl"]
WITHIN_S = 60
pytestmark = pytest.mark.ours("nothing here differs between servers, and most lines start a process")


@pytest.fixture
def stored(natsctl: Run) -> Run:
    assert natsctl("str", "add", "S", "--subjects", "s.>").code == 0
    assert natsctl("con", "add", "S", "C", "--pull").code == 0
    assert natsctl("pub", "s.a", "hello", "-q", "-J").code == 0
    return natsctl


@pytest.mark.parametrize("words", ["pub s.b <&-", "str info S -j >&-", "con next S C 2>&-", "str info S", "sub s.b"])
def test_a_closed_standard_stream_is_no_failure(stored: Run, words: str) -> None:
    line = f"exec {sys.executable} -m natsctl {words}" + ("" if "&-" in words else " --timeout 9s <&- >&- 2>&-")
    line = line.replace("sub s.b", "sub s.b --wait 1ms")
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=WITHIN_S)
    assert (done.returncode, "Traceback" in done.stderr, "unexpected" in done.stderr) == (0, False, False), done.stderr


def test_an_answer_that_can_not_be_written_is_a_failure(stored: Run) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    with open("/dev/full", "w") as full:  # noqa: PTH123  # a device, not a file
        command = [*Natsctl, "str", "info", "S", "-j"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=WITHIN_S)
    assert done.returncode == 1
    assert "unexpected" not in json.loads(done.stderr)["error"]["description"]


PIPED = (
    ("str add", 2), ("str add NEW --subjects new", 0), ("str edit S --max-msgs 9", 0), ("str rm S", 2),
    ("con add S NEW", 0), ("con next S", 2), ("con next S C", 0), ("con rm S C", 2), ("pub s.b body", 0),
    ("req s.b body", 0),
)  # fmt: skip


@pytest.mark.parametrize(("words", "code"), PIPED)
def test_a_pipe_that_never_ends_is_neither_read_nor_asked(stored: Run, words: str, code: int) -> None:
    reader, writer = os.pipe()
    try:
        command = [*Natsctl, *words.split()]
        done = subprocess.run(command, stdin=reader, capture_output=True, text=True, timeout=WITHIN_S)
    finally:
        os.close(writer)
        os.close(reader)
    assert done.returncode == code, done.stderr
    assert "? " not in done.stdout


def test_stdin_stays_for_the_next_command(stored: Run) -> None:
    command = f"{sys.executable} -m natsctl"
    lines = f'while read -r body; do {command} pub s.b "$body" -q; {command} account info >/dev/null; done'
    done = subprocess.run(["sh", "-c", lines], input="one\ntwo\n", text=True, timeout=60, capture_output=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert stored("str", "info", "S", "-j").json["state"]["messages"] == 3


@pytest.mark.parametrize("width", [20, 60, 80, 200])
def test_three_hundred_subjects_fit_every_width(stored: Run, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    stored("pub", "s.{{Count}}." + "long" * 10, "x", "--count", "300", "-q")
    subjects = ",".join(f"t{number}.>" for number in range(300))
    assert stored("str", "add", "WIDE", "--subjects", subjects, "--description", "d" * 300).code == 0
    monkeypatch.setenv("COLUMNS", str(width))
    for words in ("str info S", "str info WIDE", "str ls", "con info S C", "con ls S"):
        done = stored(*words.split())
        assert done.code == 0
        if width >= 60:
            assert max(map(len, done.out.splitlines())) <= width, words
    monkeypatch.delenv("COLUMNS")
    assert "t0.>, t1.>" in stored("str", "info", "WIDE").out


BODIES = (
    b"", b"\0", b"\x1b[2J\x07", bytes(range(256)), b"\xff\xfe", "✓ é 漢字 \u202e".encode(), b"{{Count}}",
    b"x" * 900_000,
)  # fmt: skip


@pytest.mark.parametrize("body", BODIES, ids=lambda body: repr(body[:12]))
def test_every_body_comes_back_byte_for_byte(stored: Run, body: bytes) -> None:
    assert stored("pub", "s.b", "-J", "-q", "--no-templates", stdin=body).code == 0
    document = stored("str", "get", "S", "2", "-j").json
    assert base64.b64decode(document.get("data") or "") == body
    stored("con", "next", "S", "C", "--raw")
    for words, end in (("str get S 2 --raw", b""), ("con next S C --raw", b"\n")):
        command = [*Natsctl, *words.split()]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=WITHIN_S)
        assert (done.returncode, done.stdout) == (0, body + end), done.stderr
    command = [*Natsctl, "req", "s.b", "--raw"]
    assert json.loads(subprocess.run(command, input=body, capture_output=True, timeout=WITHIN_S).stdout)["seq"] == 3


def test_words_that_are_no_utf_8_are_sent_as_they_are(stored: Run) -> None:
    command = [*map(os.fsencode, Natsctl), b"pub", b"s.b", b"caf\xe9", b"-J"]
    assert subprocess.run(command, capture_output=True, timeout=WITHIN_S).returncode == 0
    assert base64.b64decode(stored("str", "get", "S", "2", "-j").json["data"]) == b"caf\xe9"


@pytest.mark.parametrize("words", [
    (b"pub", b"s.\xe9", b"x"), (b"sub", b"s.\xe9", b"--wait", b"1ms"), (b"pub", b"s.b", b"x", b"-H", b"K:\xe9"),
    (b"str", b"add", b"\xe9", b"--subjects", b"x"), (b"str", b"add", b"X", b"--subjects", b"\xe9", b"-j"),
    (b"con", b"info", b"S", b"\x1b[2J\xff", b"-j"), (b"str", b"edit", b"S", b"--description", b"\xe9", b"-f"),
    (b"str", b"restore", b"/tmp/\xff", b"-j"),
], ids=repr)  # fmt: skip
def test_names_that_are_no_utf_8_never_end_in_a_crash(stored: Run, words: tuple[bytes, ...]) -> None:
    command = [*map(os.fsencode, Natsctl), *words]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=WITHIN_S)
    assert not [odd for odd in (b"unexpected", b"Traceback", b"\x1b") if odd in done.stderr], done.stderr


def test_an_output_that_is_not_utf_8_gets_what_it_can_take(stored: Run) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    for words in (["str", "ls"], ["str", "edit", "S", "--max-msgs", "7", "--dry-run"], ["--help"]):
        command = [*Natsctl, *words]
        done = subprocess.run(command, env=environment, capture_output=True, timeout=WITHIN_S)
        assert done.returncode == (10 if "--dry-run" in words else 0), done.stderr
        assert done.stdout


def test_odd_names_and_texts_are_shown_and_not_obeyed(stored: Run) -> None:
    long = "N" * 255
    for name in (long, "naïve-漢字", "[bold]", "a'b\"c", "--looks-like-a-flag"):
        made = stored("str", "add", "--subjects", f"sub{abs(hash(name))}", "--description", "[red]\x1b[31m", "--", name)
        assert made.code == 0, made.err
        assert "\x1b" not in made.out + made.err
        assert name in stored("str", "info", "--", name).out
        assert stored("str", "info", "-j", "--", name).json["config"]["name"] == name
        assert stored("str", "rm", "-f", "--", name).code == 0
    assert stored("str", "add", "N" * 256, "--subjects", "x").code == 2


def test_headers_come_back_as_written(stored: Run) -> None:
    words = ("-H", "Key:a:b", "-H", "key: lower ", "-H", "X-Unicode:✓", "-H", "Empty:")
    assert stored("pub", "s.b", "x", *words, "-J", "-q").code == 0
    document = stored("str", "get", "S", "2", "-j").json
    block = base64.b64decode(document["hdrs"]).decode()
    for line in ("Key:a:b", "key:lower", "X-Unicode:✓", "Empty:"):
        assert line in block.replace(": ", ":")
    shown = stored("str", "get", "S", "2")
    assert (shown.code, shown.err) == (0, "")
    assert "  Key: a:b\n" in shown.out
    assert shown.out.endswith("\n\nx\n\n")


def test_a_message_larger_than_the_server_takes_is_a_usage_error(stored: Run) -> None:
    done = stored("pub", "s.b", stdin=b"x" * (1024 * 1024 + 1))
    assert done.code == 2
    assert "1048576" in done.err


def test_a_filter_that_no_stream_matches_does_not_say_there_are_none(stored: Run) -> None:
    assert stored("str", "ls", "--subject", "other").out == "No Streams store other\n"


def _ends(url: str, words: str, place: str, folder: Path) -> int:
    """The exit code of a command whose stderr is a full disk, or a pipe whose reader has gone."""
    command = f"{sys.executable} -m natsctl -s {url} {words} </dev/null"
    gone = f"exec 3>&1; {{ {command} 2>&4 >/dev/null; echo $? >&3; }} 4>&1 | :"
    line = f"{command} 2>/dev/full >/dev/null; echo $?" if place == "full" else gone
    done = subprocess.run(["sh", "-c", line], stdout=subprocess.PIPE, cwd=folder, timeout=WITHIN_S, text=True)
    return int(done.stdout)


LINES = [
    ("pub s.a x", 0), ("kv put B k v", 0), ("backup saved --data", 0), ("str info NOPE", 3), ("str info NOPE -j", 3),
    ("str frob", 2), ("str purge S -f", 0),
]  # fmt: skip


@pytest.mark.ours("nothing here differs between servers, and each line starts a process")
@pytest.mark.parametrize(("words", "code"), LINES)
@pytest.mark.parametrize("place", ["full", "gone"])
def test_a_stderr_that_takes_nothing_changes_nothing(
    natsctl: Run, shared_server: ServerProcess, tmp_path: Path, words: str, code: int, place: str
) -> None:
    if place == "full" and not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    natsctl("str", "add", "S", "--subjects", "s.*")
    natsctl("kv", "add", "B")
    assert _ends(shared_server.url, words, place, tmp_path) == code
    if words.startswith("backup"):
        assert json.loads((tmp_path / "saved" / "stream_S.json").read_bytes())
        assert natsctl("backup", "verify", str(tmp_path / "saved")).code == 0
    if words.startswith("pub"):
        assert natsctl("str", "info", "S", "-j").json["state"]["messages"] == 1


def naming(name: str) -> Callable[[Any], Any]:
    """Give the stream S and the consumer C that name."""

    def renamed(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: renamed(below) for key, below in value.items()}
        if isinstance(value, list):
            return [renamed(below) for below in value]
        return name if value in ("S", "C") else value

    return renamed


@pytest.fixture
def lied(
    stored: Run, shared_server: ServerProcess, command: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Run:
    """Runs a command in a folder of its own, on a server that says what `change` makes of its answers."""
    here = tmp_path / "a" / "b"
    here.mkdir(parents=True)
    monkeypatch.chdir(here)

    def run(change: Callable[[Any], Any], *words: str) -> Done:
        with LyingServer(shared_server.url, json_only(change)) as liar:
            return command(liar.url)("--timeout", "5s", *words)

    return run


def entries(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if "OUT" not in path.relative_to(folder).parts[:3]}


NAMES: Final = ("../../evil", "/abs", "a/b", "..", ".", "", "\0", "a\nb", ESCAPE, "\u202e", "\ud800", "x" * 300)


@pytest.mark.parametrize("name", NAMES, ids=ascii)
@pytest.mark.parametrize(
    "words", ["account backup OUT", "backup OUT", "str ls", "str info S", "con ls S", "con report S"]
)
def test_a_name_leads_nowhere_and_drives_no_terminal(lied: Run, tmp_path: Path, name: str, words: str) -> None:
    name = str(tmp_path / "abs" / "evil") if name == "/abs" else name
    before = entries(tmp_path)
    done = lied(naming(name), *words.split())
    assert entries(tmp_path) == before
    assert "unexpected" not in done.err
    assert not [char for char in done.out + done.err if not (char.isprintable() or char == "\n")]


@pytest.mark.parametrize("options", [(), ("--replay",)])
def test_an_answer_without_a_configuration_makes_no_backup(lied: Run, options: tuple[str, ...]) -> None:
    done = lied(lambda value: {}, "str", "backup", "S", "target", *options)
    assert done.code == 1 and "the answer about S has no configuration" in done.err
    assert not Path("target").exists()


@pytest.mark.parametrize("words", ["backup OUT", "str backup S target --replay"])
def test_a_consumer_without_a_configuration_makes_no_backup(lied: Run, words: str) -> None:
    def bare(value: Any) -> Any:
        entries = value.get("consumers") if isinstance(value, dict) else None
        return (
            {**value, "consumers": [{k: v for k, v in one.items() if k != "config"} for one in entries]}
            if entries
            else value
        )

    done = lied(bare, *words.split())
    assert done.code == 1 and "has no configuration" in done.err
    assert not Path(words.split()[-1 if words.startswith("backup") else 3]).exists()


@pytest.mark.both
def test_consumers_and_streams_whose_files_would_have_one_name_are_both_saved(natsctl: Run, tmp_path: Path) -> None:
    for stream in ("A", "A_consumer_B"):
        assert natsctl("str", "add", stream, "--subjects", stream, "--defaults").code == 0
    assert natsctl("con", "add", "A", "B", "--pull", "--defaults").code == 0
    assert natsctl("backup", str(tmp_path / "saved")).code == 0
    for stream in ("A", "A_consumer_B"):
        assert natsctl("str", "rm", stream, "-f").code == 0
    assert natsctl("restore", str(tmp_path / "saved")).code == 0
    assert natsctl("str", "ls", "-n").out == "A\nA_consumer_B\n"
    assert natsctl("con", "ls", "A", "-n").out == "B\n"
