"""Help pages and error texts: whole sentences, defaults, examples, and what to do next."""

import io
import shlex
import subprocess
import sys
from typing import Any

import pytest

from natsctl.cli.framework.globals import GLOBAL_FLAGS
from natsctl.cli.framework.nouns import HEADINGS, NOUNS, every_verb
from natsctl.cli.main import run
from tests.support.commands import Run


def _paths() -> list[str]:
    return [path for path, _ in every_verb() if path != "server run"]


@pytest.mark.parametrize("path", _paths())
def test_every_page_fits_and_cuts_nothing_off(
    path: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for width in (60, 80, 200):
        monkeypatch.setenv("COLUMNS", str(width))
        assert run([*path.split(), "--help"]) == 0
        page, told = capsys.readouterr()
        assert told == ""
        assert page.startswith(f"Usage: natsctl {path} ")
        assert "natsctl --help" in page or "COMMAND --help" in page
        for odd in ("...\n", "<str>", "x>=", "list[str]", "install-completion", "None", "{"):
            assert odd not in page.replace("SUBJECT...", "").replace("{{", "").replace("${NAME}", ""), odd
        body = page.partition("\nExamples:")[0] if width < 80 else page
        assert max(map(len, body.splitlines())) <= width


def test_defaults_and_values_are_explained(capsys: pytest.CaptureFixture[str]) -> None:
    run(["str", "add", "--help"])
    page = " ".join(capsys.readouterr().out.split())
    for text in (
        "storage of messages [file]",
        "window for deduplication [2m]",
        "DURATION such as 30s",
        "SIZE bytes",
    ):
        assert text in page
    run(["str", "edit", "--help"])
    assert "[file]" not in (page := capsys.readouterr().out)
    assert "[2m]" not in page
    run(["con", "add", "--help"])
    assert "how long to wait for an ack [30s]" in capsys.readouterr().out


def test_the_defaults_that_help_tells_are_those_that_are_taken(natsctl: Run) -> None:
    config = natsctl("str", "add", "S", "--subjects", "s", "-j").json["config"]
    same = "--storage file --compression none --replicas 1 --ack --retention limits --discard old --max-age=-1"
    same += " --max-bytes=-1 --max-msg-size=-1 --max-consumers=-1 --max-msgs=-1 --max-msgs-per-subject=-1"
    same += " --dupe-window 2m --allow-direct"
    again = natsctl("str", "add", "S", "--subjects", "s", *same.split(), "-j")
    assert (again.code, again.json["config"]) == (0, config)
    made = natsctl("con", "add", "S", "C", "-j").json["config"]
    same = (
        "--ack explicit --deliver all --max-deliver=-1 --max-pending 1000 --max-waiting 512 --replay instant --wait 30s"
    )
    again = natsctl("con", "add", "S", "C", *same.split(), "-j")
    assert (again.code, again.json["config"]) == (0, made)


def _examples() -> list[str]:
    return [line for _, verb in every_verb() for line in verb.examples]


@pytest.mark.parametrize("line", _examples())
def test_every_example_is_understood(
    line: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    # Nobody listens there, and no Spark starts: what serves or waits for ever ends as soon as it is understood.
    monkeypatch.setenv("NATS_URL", "nats://127.0.0.1:1")
    monkeypatch.setenv("NATSCTL_JAVA", str(tmp_path / "java"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("natsctl.testing.process.reference_binary", lambda: None)
    assert len(line) <= 78
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"piped")))
    code = run(shlex.split(line.rpartition("|")[2])[1:])
    told = capsys.readouterr().err
    # Files and terminals that are not there, and what a check finds critical, end with 2 as well.
    assert code != 2 or not any(word in told for word in ("--help", "unknown", "expected", "did you mean")), told


@pytest.mark.ours("the advice is of the command line")
@pytest.mark.parametrize(
    ("line", "advice"),
    [
        ("str info NOPE", "there is no Stream NOPE; natsctl str ls -a shows"),
        ("con info S NOPE", "no Consumers of Stream S are defined"),
        ("str edit S --storage memory", "--storage is set when a stream is created"),
        ("con edit S C --deliver all", "--deliver is set when a consumer is created"),
        ("str frob", "see natsctl stream --help"),
        ("str add S --subjects other", "natsctl stream edit S"),
        ("--context nope str ls", "natsctl context add NAME makes one"),
        ("-s host.invalid:4222 str ls", "no connection to nats://host.invalid:4222"),
    ],
)
def test_an_error_says_what_to_do(natsctl: Run, line: str, advice: str) -> None:
    natsctl("str", "add", "S", "--subjects", "s")
    done = natsctl(*line.split())
    assert done.code != 0
    assert advice in done.err
    assert "Errno" not in done.err
    assert len(done.err.splitlines()) <= 2


def test_every_command_is_shown_below_its_kin(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    page = capsys.readouterr().out
    headings = [line for line in page.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert [heading[:-1] for heading in headings[: len(HEADINGS)]] == list(HEADINGS)
    for noun in NOUNS:
        assert f"\n  {noun.names} " in page
    for flag in GLOBAL_FLAGS:
        assert flag.spellings[-1] in page or flag.spellings[0] in page


@pytest.mark.parametrize("width", [60, 80, 200])
def test_no_line_of_the_root_page_is_longer_than_the_terminal(
    width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    run(["--help"])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width
    assert len(lines) < {60: 198, 80: 150, 200: 110}[width]


def test_nothing_slow_is_loaded_for_the_root_page() -> None:
    program = (
        "import sys; from natsctl.cli.main import run; run(['--help']);"
        "slow = {'collections', 'contextlib', 'enum', 'functools', 're', 'textwrap', 'typing'};"
        "print(sorted(slow & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True)
    assert done.stderr == "[]\n"
