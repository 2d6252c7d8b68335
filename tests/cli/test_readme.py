"""The commands of the README do what they say, and those that documents mention exist."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from natsctl.cli.framework.command_line import leading
from natsctl.testing.process import ServerProcess
from tests.support.natscli_page import Node, our_tree

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
MADE = ("natscli.md", "error-codes.md")
"""Pages that are made from the code or whose lines have a test of their own."""
DOCUMENTS = [
    README,
    *(page for page in sorted((ROOT / "docs").glob("*.md")) if page.name not in MADE),
    *sorted((ROOT / "docs" / "how-to").glob("*.md")),
]
ODD = re.compile("…|__complete|natsctl (NAME|hello)$")
"""Lines that are cut, hidden, or about programs on PATH."""
BLOCK = re.compile(r"```console\n(natsctl (?!server run).*?)```", re.DOTALL)


def _run(line: str, server: ServerProcess, folder: Path) -> str:
    command = shlex.split(line, comments=True)
    assert command.pop(0) == "natsctl"
    environment = {**os.environ, "HOME": str(folder), "XDG_CONFIG_HOME": str(folder), "XDG_DATA_HOME": str(folder)}
    done = subprocess.run(
        [sys.executable, "-m", "natsctl", "-s", server.url, *command], cwd=folder, env=environment,
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.docs
def test_the_commands_of_the_first_five_minutes_work(server: ServerProcess, tmp_path: Path) -> None:
    first, second, third, fourth, *_ = BLOCK.findall(README.read_text())  # those behind are Spark's, in tests/spark
    said = [_run(line, server, tmp_path) for line in first.splitlines()]
    assert len(said) == 6
    assert "order 1" in said[3]
    assert '"subjects"' in said[4]
    assert (tmp_path / "orders.tgz").stat().st_size > 0
    said = [_run(line, server, tmp_path) for line in second.splitlines()]
    assert "natsctl stream add ORDERS" in said[0]
    assert said[3] == "messages: 0\n"
    assert "stream not found" in said[4]
    said = [_run(line, server, tmp_path) for line in third.splitlines()]
    assert "ORDERS" in (tmp_path / "account.yaml").read_text()
    assert "nothing to do" in said[3]
    *lines, last = fourth.splitlines()
    assert last.startswith("natsctl browse ")  # needs a terminal
    said = [_run(line, server, tmp_path) for line in lines]
    assert "Consumer ORDERS > NEW" in said[0]


def _mentioned() -> list[tuple[str, str]]:
    """Every command line that a document shows, in a block or in a sentence, by document."""
    found = []
    for document in DOCUMENTS:
        text = document.read_text()
        blocks = "\n".join(re.findall(r"^```.*?^```", text, re.MULTILINE | re.DOTALL))
        lines = re.findall(r"^natsctl .*$", blocks, re.MULTILINE) + re.findall(r"(?<!`)`(natsctl [^`\n]*)`(?!`)", text)
        found += [(document.name, line) for line in lines if not ODD.search(line)]
    return found


@pytest.mark.parametrize(("document", "line"), _mentioned())
def test_every_command_that_a_document_mentions_exists(document: str, line: str) -> None:
    words = shlex.split(line, comments=True)[1:]
    if words[:1] != ["--help"]:
        _, words = leading(words)
    node: Node = our_tree()
    while words and not words[0].startswith("-") and words[0] in node.below:
        node = node.below[words.pop(0)]
    assert node.names or all(word.startswith("-") for word in words), line
    if node.path == "server run" or not node.names:
        return
    known = {*node.flags, *our_tree().flags}
    assert {word.partition("=")[0] for word in words if word.startswith("-") and len(word) > 1} <= known, line


def test_documents_mention_commands() -> None:
    assert len(_mentioned()) > 10
