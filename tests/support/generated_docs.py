"""Documents that are made from the code: `python -m tests.support.generated_docs` writes them, tests compare them.

`docs/commands`, `docs/natscli.md`, the options in `docs/spark.md`, the shells' scripts and the tables of completion
come from the commands' declarations (command_pages.py, natscli_page.py), `docs/error-codes.md` from JetStream's error
numbers, the tables of `docs/server.md` from the server's (server_page.py). `docs/images/terminal.svg` is the picture of
a terminal in the README: commands are run against a server of their own and print what they print at a terminal, and
rich draws it. They are chosen so that nothing they print depends on the time.
"""

import contextlib
import io
import json
import re
import shlex
import tempfile
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any, Final

import pytest

from natsctl.api.catalogue import ApiError
from natsctl.api.errors import exit_code_of
from natsctl.cli.main import run
from natsctl.testing.jetstream import JetStreamServer
from tests.support.command_pages import ROOT, command_files
from tests.support.server_page import renewed

DOCS: Final = ROOT / "docs"
ERROR_PAGE: Final = DOCS / "error-codes.md"
SERVER_PAGE: Final = DOCS / "server.md"
PICTURE: Final = DOCS / "images" / "terminal.svg"

ERRORS_HEAD: Final = """# Error codes

JetStream answers a failed request with an error: a number (`err_code`), an HTTP-like code and a text. The numbers are
nats-server's. natsctl prints the number in brackets behind the text, where `…` stands for a name, a number or a reason,
and `natsctl errors lookup 10059` explains one. The last column is the [exit status](scripting.md#exit-status) of a
command that fails with the error.

| err_code | code | text | cause | exit |
| --- | --- | --- | --- | --- |
"""


def error_page() -> str:
    """Return the page of JetStream's error numbers, from the catalogue that `natsctl errors ls -j` prints."""
    return ERRORS_HEAD + "".join(_row(entry) for entry in _catalogue())


def _catalogue() -> list[dict[str, Any]]:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        run(["errors", "ls", "-j"])
    entries: list[dict[str, Any]] = json.loads(printed.getvalue())
    return entries


def _row(entry: dict[str, Any]) -> str:
    error = ApiError(code=entry["code"], err_code=entry["err_code"], description=entry["description"])
    text = re.sub(r"\{\w+\}", "…", error.description)
    cells = (error.err_code, error.code, text, entry.get("cause") or "", int(exit_code_of(error)))
    return f"| {' | '.join(_cell(str(cell)) for cell in cells)} |\n"


def _cell(text: str) -> str:
    escaped = text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_")
    return escaped.replace("\n", " ")


WIDTH: Final = 96
"""Columns of the terminal."""

STREAMS: Final = """streams:
  - {name: ORDERS, subjects: [ORDERS.*], max_age: 30d}
  - {name: PAYMENTS, subjects: [PAYMENTS.*]}
"""

BEFORE: Final = (
    "natsctl apply -f before.yaml",
    "natsctl consumer add ORDERS NEW --pull --filter ORDERS.received --defaults",
    "natsctl publish ORDERS.received 'order {{Count}}' --templates --count 3",
)
"""Run first and not shown."""

SHOWN: Final = (
    "natsctl consumer next ORDERS NEW",
    "natsctl stream report",
    "natsctl stream info ORDRES",
    "natsctl plan -f streams.yaml",
)

FORMAT: Final = Path(__file__).with_name("terminal_format.svg").read_text(encoding="utf-8")
"""Rich's own format without fonts from another site, which a picture of a page does not load."""


class Screen(io.TextIOWrapper):
    """Standard output and error of a command that believes it runs at a terminal."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", write_through=True)

    def isatty(self) -> bool:
        return True

    def shown(self) -> str:
        self.flush()
        assert isinstance(self.buffer, io.BytesIO)
        return self.buffer.getvalue().decode()


@contextlib.contextmanager
def _surroundings(server: JetStreamServer) -> Iterator[None]:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        for name, value in (("NATS_URL", server.url), ("COLUMNS", str(WIDTH)), ("TERM", "xterm-256color")):
            patch.setenv(name, value)
        patch.chdir(folder)
        Path("before.yaml").write_text("streams: [{name: ORDERS, subjects: [ORDERS.*], max_age: 1y}]")
        Path("streams.yaml").write_text(STREAMS)
        yield


def session() -> list[tuple[str, str]]:
    """Return each command that is shown and what it prints, with the terminal's control sequences."""
    with JetStreamServer() as server, _surroundings(server):
        for line in BEFORE:
            _printed(line)
        return [(line, _printed(line)) for line in SHOWN]


def _printed(line: str) -> str:
    screen = Screen()
    with contextlib.redirect_stdout(screen), contextlib.redirect_stderr(screen):
        run(shlex.split(line)[1:])
    return re.sub(r"\b\d\d:\d\d:\d\d\b", "12:00:00", screen.shown())


def plain(shown: list[tuple[str, str]]) -> list[str]:
    """Return the lines of a session as they can be read, without blank ones."""
    text = "\n".join(f"$ {line}\n{printed}" for line, printed in shown)
    lines = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text).replace("\r", "").splitlines()
    return [" ".join(line.split()) for line in lines if line.strip()]


def drawn(picture: str) -> list[str]:
    """Return the lines that a picture shows, without blank ones."""
    matrix = picture.partition('-matrix">')[2]
    rows: dict[float, list[tuple[float, str]]] = {}
    for x, y, text in re.findall(r'<text [^>]*x="([\d.]+)" y="([\d.]+)"[^>]*>([^<]*)</text>', matrix):
        rows.setdefault(float(y), []).append((float(x), unescape(text)))
    joined = ("".join(text for _, text in sorted(rows[y])) for y in sorted(rows))
    return [" ".join(line.replace("\xa0", " ").split()) for line in joined if line.strip("\xa0 \n")]


def picture(shown: list[tuple[str, str]]) -> str:
    from rich.console import Console
    from rich.text import Text

    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    for number, (line, printed) in enumerate(shown):
        if number:
            console.print()
        console.print(Text.assemble(("$ ", "bold green"), (line, "bold")), soft_wrap=True)
        console.print(Text.from_ansi(printed.rstrip()), soft_wrap=True)
    return console.export_svg(title="natsctl", code_format=FORMAT, unique_id="natsctl")


def main() -> None:
    """Write every file that differs from what the code makes, and print its path."""
    shown = session()
    made = dict(command_files()) | {ERROR_PAGE: error_page(), SERVER_PAGE: renewed(SERVER_PAGE.read_text())}
    if drawn(PICTURE.read_text(encoding="utf-8")) != plain(shown):
        made[PICTURE] = picture(shown)
    for path, text in made.items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
