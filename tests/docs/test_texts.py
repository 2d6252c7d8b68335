"""Pages that repeat what the code has: messages, packages, terms, error numbers, the picture of a terminal, objects."""

import importlib
import re
from collections import Counter
from pathlib import Path

import pytest

from tests.support.generated_docs import ERROR_PAGE, PICTURE, drawn, error_page, plain, session

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
DEFINITION = re.compile(r"^ *(?:class|def|async def) (\w+)", re.MULTILINE)
TERM = re.compile(r"^\| ([^|]+?) \|", re.MULTILINE)
_RETIRED = """
account_book ailment asker citizen consumer_desk crew door doorkeeper estate exists_otherwise fallen gate glance
intake inward keeping killjudge kin leftovers lifeline live_wire notices nursery onlooker personality plants
platter practice put_off reborn ruler safekeeping sayer shower spot stillborn stranger supply takers teller tenancy
twins undecided whole_file wish wishes world
"""
RETIRED = _RETIRED.split()
"""Names of earlier code that say less than others do; no module, class or function has one of them again."""


def words(name: str) -> str:
    return "_" + "_".join(re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+", name)).lower() + "_"


def names() -> dict[str, str]:
    found = {}
    for path in (ROOT / "natsctl").rglob("*.py"):
        where = path.relative_to(ROOT).as_posix()
        defined = DEFINITION.findall(path.read_text(encoding="utf-8"))
        found |= dict.fromkeys((path.stem, path.parent.name, *defined), where)
    return found


def test_each_term_of_the_glossary_stands_there_once_and_in_order() -> None:
    terms = [term.lower() for term in TERM.findall((DOCS / "glossary.md").read_text(encoding="utf-8"))[2:]]
    assert len(terms) > 60
    assert [term for term, number in Counter(terms).items() if number > 1] == []
    assert terms == sorted(terms)


def test_no_name_of_the_package_is_a_retired_term() -> None:
    assert [words(name) for name in ("WishList", "_live_wire2")] == ["_wish_list_", "_live_wire_2_"]
    retired = [words(term) for term in RETIRED]
    assert {name: where for name, where in names().items() if any(term in words(name) for term in retired)} == {}


def test_the_page_of_error_numbers_is_what_would_be_made_now() -> None:
    assert ERROR_PAGE.read_text(encoding="utf-8") == error_page(), "python -m tests.support.generated_docs"


@pytest.mark.docs
def test_the_picture_of_a_terminal_shows_what_commands_print() -> None:
    picture = PICTURE.read_text(encoding="utf-8")
    assert drawn(picture) == plain(session()), "python -m tests.support.generated_docs"


def test_every_message_of_the_troubleshooting_page_is_one_that_the_code_has() -> None:
    page = (DOCS / "troubleshooting.md").read_text(encoding="utf-8")
    messages = [
        text for line in re.findall(r"^### (.+)$", page, re.MULTILINE) for text in re.findall("`([^`]+)`", line)
    ]
    assert len(messages) >= 30
    suffixes = (".py", ".json")
    paths = (path for path in (ROOT / "natsctl").rglob("*") if path.suffix in suffixes and "generate" not in path.parts)
    code = "\n".join(path.read_text(encoding="utf-8") for path in paths)
    parts = {part.strip(' ":') for message in messages for part in message.split("…")} - {""}
    assert [part for part in parts if part not in code] == []


def test_the_architecture_page_and_its_picture_have_every_package() -> None:
    packages = {path.parent.name for path in (ROOT / "natsctl").glob("*/__init__.py")}
    page = (DOCS / "architecture.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `natsctl\.(\w+)` \|", page, re.MULTILINE)) == packages
    picture = (DOCS / "images" / "rooms.svg").read_text(encoding="utf-8")
    assert packages <= set(re.findall(r'class="name"[^>]*>([^<]+)<', picture))


def test_every_object_of_the_python_api_exists_and_has_a_docstring() -> None:
    named = re.findall(r"^::: ([\w.]+)$", (DOCS / "python-api.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(named) >= 12
    for path in named:
        module, _, name = path.rpartition(".")
        assert getattr(importlib.import_module(module), name).__doc__, path


def test_the_readme_can_be_read_in_five_minutes() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= 900


def test_the_site_has_every_page_in_its_navigation() -> None:
    config = (ROOT / ".mkdocs.yml").read_text(encoding="utf-8")
    listed = set(re.findall(r": ([\w/-]+\.md)$", config, re.MULTILINE))
    folders = set(re.findall(r": (\w+)/\*$", config, re.MULTILINE))
    pages = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")} | {"changelog.md"}
    assert {page for page in pages if page.partition("/")[0] not in folders} == listed


def test_each_line_that_bandit_passes_over_names_the_rule_and_a_reason() -> None:
    sources = (path.read_text(encoding="utf-8") for path in (ROOT / "natsctl").rglob("*.py"))
    lines = [line.strip() for text in sources for line in text.splitlines() if "# nosec" in line]
    assert lines
    assert [line for line in lines if not re.search(r"  # nosec( B\d{3})+ # \S.{9,}", line)] == []
