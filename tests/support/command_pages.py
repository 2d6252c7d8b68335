"""Pages of docs/ and scripts of completion that are made from the commands' own declarations."""

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

from natsctl.cli.completion import script
from natsctl.cli.framework.candidates import SHELLS
from natsctl.cli.framework.nouns import NOUNS
from natsctl.cli.framework.verbs import Verb
from natsctl.cli.main import run
from natsctl.spark.source.source_options import as_markdown
from tests.support.natscli_page import natscli_page

WIDTH = 100
"""Columns of the pages."""


def pages() -> Iterator[tuple[str, str]]:
    with _width():
        yield "README.md", _contents()
        for noun in NOUNS:
            yield f"{noun.name}.md", _page(noun)


def _contents() -> str:
    rows = [f"| [{noun.name}]({noun.name}.md) | {', '.join(noun.words[1:])} | {_cell(noun.help)} |" for noun in NOUNS]
    lines = [
        "# Commands",
        "",
        "The output of `natsctl COMMAND --help`, written by `python -m tests.support.generated_docs`.",
        "",
        "| command | aliases | |",
        "|---|---|---|",
        *rows,
        "",
    ]
    return "\n".join(lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _page(noun: Verb) -> str:
    paths = [noun.name]
    paths += [f"{noun.name} {path}" for path, _ in noun.below()]
    parts = [f"# natsctl {noun.name}", "", f"{noun.help}.", ""]
    for path in paths:
        if path != noun.name:
            parts += [f"## {path}", ""]
        parts += ["```text", help_page(path).rstrip("\n"), "```", ""]
    return "\n".join(parts)


def help_page(path: str) -> str:
    """Return the output of `natsctl PATH --help`."""
    printed = io.StringIO()
    with redirect_stdout(printed):
        run([*path.split(), "--help"])
    return printed.getvalue()


@contextmanager
def _width() -> Iterator[None]:
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = str(WIDTH)
    try:
        yield
    finally:
        if before is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = before


BEGIN = "<!-- options: python -m tests.support.generated_docs writes them -->\n"
END = "<!-- end of options -->\n"


def spark_page(path: Path) -> str:
    """Return the page with the table of the code; raises ValueError if its place is not marked."""
    text = path.read_text(encoding="utf-8")
    before, begun, rest = text.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not begun or not ended:
        raise ValueError(f"{path.name} has no place for the options: a line {BEGIN.strip()!r}, then {END.strip()!r}")
    return f"{before}{BEGIN}\n{as_markdown()}\n{END}{after}"


ROOT = Path(__file__).parents[2]


def command_files() -> Iterator[tuple[Path, str]]:
    """Yield each file that is made from the commands, with the text that it should have."""
    for shell in SHELLS:
        yield ROOT / "completions" / f"natsctl.{shell}", script(shell)
    yield ROOT / "docs" / "natscli.md", natscli_page(ROOT)
    if (spark := ROOT / "docs" / "spark.md").exists():
        yield spark, spark_page(spark)
    for name, page in pages():
        yield ROOT / "docs" / "commands" / name, page
