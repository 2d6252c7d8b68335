"""Every command line on a page names commands and flags that exist."""

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from natsctl.cli.framework.command_line import command_of
from natsctl.cli.framework.globals import GLOBAL_FLAGS, OF_NOUNS
from natsctl.cli.framework.nouns import BY_WORD

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
MADE = {"natscli.md", "complaints.md"}
"""Pages that quote other programs, and natsctl's answers to them."""
SPAN = re.compile(r"`(natsctl [^`\n]+)`")
LINE = re.compile(r"^ *(?:\$ |sudo |[A-Z_]+=\S+ )*(natsctl .+)$", re.MULTILINE)
FENCE = re.compile(r"^```(?:console|bash|sh)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
GLOBAL = {spelling: bool(flag.metavar) for flag in (*GLOBAL_FLAGS, *OF_NOUNS.values()) for spelling in flag.spellings}
SAID = re.compile(r"(?<!the )\bnatsctl(?! in\b)(?: [a-z]+(?:-[a-z]+)*)+")
WORD = re.compile(r"[a-z][a-z-]*\Z")
HINT = re.compile(r"hint=[^=]{0,300}natsctl")
FLAG = re.compile(r"(--[a-z][a-z0-9-]*|-[a-zA-Z])(=.*)?\Z")


def lines() -> Iterator[tuple[str, str]]:
    """Yield every command line of a page that is not made from the commands, with the page's name."""
    for page in PAGES:
        if page.parent.name in ("commands", "adr") or page.name in MADE:
            continue
        text = page.read_text(encoding="utf-8").replace("\\\n", " ")
        found = [line for block in FENCE.findall(text) for line in LINE.findall(block)]
        yield from ((page.name, line) for line in [*found, *SPAN.findall(FENCE.sub("", text))])


def words_of(line: str) -> list[str]:
    try:
        words = shlex.split(line, comments=True)[1:]
    except ValueError:
        words = line.split()[1:]
    ends = [at for at, word in enumerate(words) if word in ("|", "&&", ";", ">", "&", "\\")]
    return words[: min(ends, default=len(words))]


def fault_of(line: str) -> str:
    """Return the word of a command line that does not exist, "" where all do."""
    words = words_of(line)
    while words and words[0].startswith("-"):
        spelled, _, value = words.pop(0).partition("=")
        if spelled not in GLOBAL:
            return "" if spelled in ("--help", "--version", "-h") else spelled
        if GLOBAL[spelled] and not value and words:
            words.pop(0)
    if not words or not WORD.match(words[0]):
        return ""
    if words[0] not in BY_WORD:
        return "" if words[0] == "help" else words[0]
    node = BY_WORD[words.pop(0)]
    path = [node.name]
    while node.verbs and words and WORD.match(words[0]):
        below = [one for one in node.verbs if words[0] in one.words]
        if not below:
            return "" if node.function else words[0]
        node = below[0]
        path.append(node.name)
        words.pop(0)
    if path == ["server", "run"] or node.verbs or node.function is None:
        return ""  # nats-server's flags, which other tests hold; a group, named alone
    flags = {*command_of(node.function).flags, *GLOBAL, "--help", "-h"}
    given = [found[1] for word in words if (found := FLAG.match(word))]
    return next((flag for flag in given if flag not in flags), "")


def test_every_command_and_flag_on_a_page_exists() -> None:
    found = list(lines())
    assert len(found) > 250
    assert [f"{page}: {line}: {fault}" for page, line in found if (fault := fault_of(line))] == []


def test_every_command_that_a_hint_names_exists() -> None:
    texts = (path.read_text(encoding="utf-8") for path in (ROOT / "natsctl").rglob("*.py"))
    found = [line for text in texts if HINT.search(text) for line in hinted(text)]
    assert len(found) > 40
    assert sorted({f"{line}: {fault}" for line in found if (fault := fault_of(line))}) == []


def hinted(source: str) -> Iterator[str]:
    """Yield the command lines in the hints of a module's errors, as far as the words of the command go."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.keyword) and node.arg == "hint":
            for text in ast.walk(node.value):
                if isinstance(text, ast.Constant) and isinstance(text.value, str):
                    yield from SAID.findall(text.value)
