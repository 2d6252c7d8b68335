"""Files that are made from the code are current: `python -m tests.support.generated_docs` writes them."""

import functools
import json
import re
from collections import Counter
from pathlib import Path

import pytest

from natsctl.cli.framework.nouns import NOUNS
from tests.support.command_pages import ROOT, command_files
from tests.support.natscli_page import compared, facts_of, our_tree


@pytest.fixture(scope="module")
def files() -> dict[Path, str]:
    return dict(command_files())


FACTS = facts_of(json.loads((ROOT / "tests" / "cli" / "natscli-0.5.1.json").read_text()))
ROW = re.compile(r"^\| `([^`]+)` \| [^|]+ \| (\w[\w ]*) \|", re.MULTILINE)
"""A row of the page: what the tool has, and whether natsctl has it."""
LINK = re.compile(r"\[(\w+)\]\(\.\./(tests/[\w/.]+)\)")
"""A link to a test, by name and file."""


def test_every_made_file_is_current(files: dict[Path, str]) -> None:
    stale = [
        str(path.relative_to(ROOT)) for path, text in files.items() if not path.exists() or path.read_text() != text
    ]
    assert stale == [], "python -m tests.support.generated_docs writes them"


def test_every_test_that_pages_name_exists() -> None:
    links = set(LINK.findall((ROOT / "docs/complaints.md").read_text()))
    assert len(links) > 20
    for name, file in links:
        assert (ROOT / file).is_file(), file
        assert f"def {name}(" in (ROOT / file).read_text() or name == Path(file).stem, f"{file}::{name}"


def test_no_made_file_is_left_over(files: dict[Path, str]) -> None:
    folders = {path.parent for path in files if path.parent.name in ("commands", "completions")}
    assert [path for folder in folders for path in folder.iterdir() if path.is_file() and path not in files] == []


def test_every_noun_has_its_page(files: dict[Path, str]) -> None:
    assert {f"{noun.name}.md" for noun in NOUNS} <= {path.name for path in files}


def test_every_command_and_flag_of_the_nats_tool_has_a_counterpart_or_a_reason() -> None:
    comparison = compared(ROOT)
    rows = [row for _, rows in comparison.rows() for row in rows]
    missing = [row.theirs for row in rows if not row.kind]
    assert missing == [], "give them a counterpart, or a reason in tests/cli/natscli_differences.json"


def test_every_command_and_flag_of_the_tool_is_a_row_of_the_page() -> None:
    document = json.loads((ROOT / "tests" / "cli" / "natscli-0.5.1.json").read_text())
    commands = document["commands"]
    assert (len(commands), sum(len(one.get("flags", {})) for one in commands.values())) == (292, 1241)
    page = (ROOT / "docs" / "natscli.md").read_text()
    shown = Counter(ROW.findall(page))
    assert set(shown.values()) == {1}
    kinds = {"same", "differs on purpose", "not here"}
    assert {kind for _, kind in shown} == kinds
    expected = set(commands)
    for path, fact in (("", {"flags": document["global_flags"]}), *commands.items()):
        expected |= {f"{path} {name}".strip() for name in fact.get("flags", {})}
    assert {_bare(theirs) for theirs, _ in shown} == expected


def _bare(theirs: str) -> str:
    """A row's command, with the name of its flag as the facts have it."""
    words = theirs.split()
    command = [word for word in words if not word.startswith("-")]
    return " ".join([*command, *(word.lstrip("-").replace("[no-]", "", 1) for word in words[-1:] if word[0] == "-")])


def test_no_difference_is_written_down_that_is_none() -> None:
    comparison = compared(ROOT)
    for _ in comparison.rows():
        pass
    written = json.loads((ROOT / "tests/cli/natscli_differences.json").read_text())
    keys = {key for part in written.values() for key in part}
    assert keys - comparison.used == set()


def test_every_command_answers_to_the_words_of_the_tool() -> None:
    differences = json.loads((ROOT / "tests/cli/natscli_differences.json").read_text())["commands"]
    left_out = tuple(path for path, said in differences.items() if "reason" in said)
    for path, fact in FACTS.items():
        if path and not f"{path} ".startswith(tuple(f"{key} " for key in left_out)):
            node = functools.reduce(lambda node, word: node.below[word], path.split(), our_tree())
            assert {path.split()[-1], *fact.get("aliases", ())} <= set(node.names), path
