"""Where a query comes from: the command line, a file or stdin."""

from __future__ import annotations

import sys
from pathlib import Path

from natsctl.api.errors import UsageError
from natsctl.spark.sql.relations import tokens

STDIN = "-"
FILE = "@"


def read_query(words: str) -> str:
    """The query that was given: itself, `@FILE`, or `-` for stdin. Raises UsageError for none."""
    text = words
    if words == STDIN:
        text = sys.stdin.read()
    elif words.startswith(FILE):
        try:
            text = Path(words[1:]).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as failure:
            raise UsageError(f"{words[1:]}: {getattr(failure, 'strerror', None) or failure}") from failure
    if all(token.is_symbol(";") for token in tokens(text)):
        raise UsageError(
            "the query is empty", hint='such as natsctl sql "select subject, count(*) from ORDERS group by 1"'
        )
    return text
