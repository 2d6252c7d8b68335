"""The table of the Spark source's options within docs/spark.md; the rest of that page is written by hand."""

from __future__ import annotations

from pathlib import Path

from natsctl.spark.source.options.options import as_markdown

BEGIN = "<!-- options: python -m natsctl.cli.generate writes them -->\n"
END = "<!-- end of options -->\n"


def page(path: Path) -> str:
    """The page with the table as the code has it; raises ValueError where its place is not marked."""
    text = path.read_text(encoding="utf-8")
    before, begun, rest = text.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not begun or not ended:
        raise ValueError(
            f"{path.name} does not say where the options go: a line {BEGIN.strip()!r}, then {END.strip()!r}"
        )
    return f"{before}{BEGIN}\n{as_markdown()}\n{END}{after}"
