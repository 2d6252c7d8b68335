"""docs/server.md says what the server's own tables say."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from natsctl.server.process.flags import parse_command_line
from tests.support.server_page import REFUSING, refusal, renewed

pytestmark = pytest.mark.docs
ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "server.md"


def test_the_page_is_what_would_be_made_now() -> None:
    assert PAGE.read_text() == renewed(PAGE.read_text()), "python -m tests.support.generated_docs"


@pytest.mark.parametrize("key", REFUSING)
def test_what_is_refused_says_who_refuses_it(key: str) -> None:
    assert re.search("natsctl server|this server|refused here|closed here", refusal(key))


def test_command_lines_of_the_server_are_understood(tmp_path: Path) -> None:
    (tmp_path / "nats.conf").write_text("port: -1")
    lines = [line for page in (ROOT / "README.md", PAGE) for line in command_lines(page) if " server run " in line]
    assert len(lines) >= 8
    for line in lines:
        words = line.split(" server run ", 1)[1].replace("nats.conf", str(tmp_path / "nats.conf")).split()
        assert parse_command_line(words).action in ("run", "check", "signal", "help"), line


def test_command_lines_of_the_tool_are_understood() -> None:
    for line in command_lines(PAGE):
        words = line.split()[1:]
        if words[0] == "-s":
            command = [word for word in words[2:4] if not word.startswith("-")]
            flags = [word for word in words[2:] if word.startswith("--")]
            done = subprocess.run(
                [sys.executable, "-m", "natsctl", *command, "--help"], capture_output=True, text=True, check=True
            )
            assert all(flag in done.stdout for flag in flags), line


def command_lines(page: Path) -> list[str]:
    blocks = re.findall(r"```console\n(.*?)```", page.read_text(), re.DOTALL)
    lines = (line.split("  #")[0].strip() for block in blocks for line in block.splitlines())
    return [line for line in lines if line.startswith("natsctl ")]
