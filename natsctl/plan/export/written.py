"""Documents as text: YAML for people and for git, one field a line, or JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cache
from typing import Any, Final

Config = Mapping[str, Any]

_WIDTH: Final = 2**31 - 1
"""Lines are never folded: a changed word is a changed line."""
_MISREAD: Final = re.compile(
    r"[-+]?\.?[0-9][0-9_.:]*(e[-+]?[0-9_]*)?"  # numbers, in YAML 1.1 also sexagesimal ones
    r"|[-+]?0[xob][0-9a-f_]*|[-+]?\.(inf|nan)"
    r"|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}.*"
    r"|y|n|yes|no|on|off|true|false|null|~|=|<<",
    re.IGNORECASE | re.DOTALL,
)
"""Unquoted texts that some reader takes for a number, a time, a truth value or null."""


class Format(StrEnum):
    """The format of written documents."""

    YAML = "yaml"
    JSON = "json"


def yaml_text(documents: Sequence[Config], header: Sequence[str] = (), *, ascii_only: bool = False) -> str:
    """Return the documents as YAML, `---` between them, below comments; `ascii_only` escapes all other letters."""
    comments = "".join(f"# {' '.join(line.split())}\n" for line in header)
    texts = ["".join(_sections(document, ascii_only)) for document in documents]
    return comments + "---\n".join(text or "{}\n" for text in texts)


def json_text(documents: Config | Sequence[Config]) -> str:
    """Return a document, or an array of them, as JSON, two spaces a level."""
    return json.dumps(documents, indent=2, ensure_ascii=False) + "\n"


def _sections(document: Config, ascii_only: bool) -> Iterator[str]:
    """Return the text of a document, with an empty line between its assets."""
    for key, value in document.items():
        if isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value):
            yield f"{key}:\n"
            yield "\n".join(_dumped([item], ascii_only) for item in value)
        else:
            yield _dumped({key: value}, ascii_only)


def _dumped(value: Any, ascii_only: bool) -> str:
    import yaml

    text: str = yaml.dump(
        value, Dumper=_dumper(), sort_keys=False, allow_unicode=not ascii_only, width=_WIDTH, default_flow_style=False
    )
    return text


@cache
def _dumper() -> Any:
    import yaml

    base: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)

    class Dumper(base):  # type: ignore[misc]  # one of two classes, chosen at run time
        """Writes ambiguous texts in quotes, and texts of several lines as blocks."""

        def ignore_aliases(self, data: Any) -> bool:
            return True

    Dumper.add_representer(str, _represent_text)
    return Dumper


def _represent_text(dumper: Any, text: str) -> Any:
    # Empty lines at the end of a block would end the document as well (libyaml writes `...` behind them).
    lines = "\n" in text.rstrip("\n") and not text.endswith("\n\n")
    style = "|" if lines else "'" if _MISREAD.fullmatch(text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)
