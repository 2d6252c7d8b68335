"""The page of `natsctl --help`: commands by kin, no line too long, and nothing loaded that is slow."""

from __future__ import annotations

import subprocess
import sys

import pytest

from natsctl.cli.globals import GLOBAL_FLAGS
from natsctl.cli.main import run
from natsctl.cli.nouns import HEADINGS, NOUNS


def test_every_command_is_shown_below_its_kin(capsys: pytest.CaptureFixture[str]) -> None:
    assert sorted(name for _, names in HEADINGS for name in names) == sorted(noun.name for noun in NOUNS)
    assert run(["--help"]) == 0
    page = capsys.readouterr().out
    headings = [line for line in page.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert [heading[:-1] for heading in headings[: len(HEADINGS)]] == [title for title, _ in HEADINGS]
    for noun in NOUNS:
        assert f"\n  {', '.join((noun.name, *noun.aliases))} " in page
    for flag in GLOBAL_FLAGS:
        assert flag.spellings[-1] in page or flag.spellings[0] in page


@pytest.mark.parametrize("width", [60, 80, 200])
def test_no_line_is_longer_than_the_terminal(
    width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    run(["--help"])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width
    assert len(lines) < {60: 190, 80: 150, 200: 110}[width]


def test_nothing_slow_is_loaded_for_it() -> None:
    program = (
        "import sys; from natsctl.cli.main import run; run(['--help']);"
        "print(sorted({'typer', 'nats', 'rich', 'asyncio', 'questionary', 'yaml', 'msgspec', 'inspect'}"
        " & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True)
    assert done.stderr == "[]\n"
