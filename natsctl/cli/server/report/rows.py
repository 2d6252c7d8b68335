"""The order and number of a report's rows, and the flags for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from natsctl.cli.render.tables import Column, ordered

T = TypeVar("T")

SPELLED: Mapping[str, str] = {
    "recvb": "in-bytes",
    "recvm": "in-msgs",
    "sentb": "out-bytes",
    "sentm": "out-msgs",
    "msgs": "messages",
    "mbytes": "bytes",
    "api": "api-req",
    "mem": "memory",
    "assets": "ha-assets",
    "err": "api-err",
    "name": "server",
}
"""Words of the nats tool for columns that have other titles here."""


def top(
    rows: Sequence[T], table: Sequence[Column[T]], sort: str | None, reverse: bool, most: int, default: str
) -> tuple[list[T], str]:
    """The first `most` rows (0: all) by a column and its name: numbers from the largest, text from its beginning."""
    words = {column.word: column for column in table}
    word = sort or default
    if word not in words and SPELLED.get(word) in words:
        word = SPELLED[word]
    falling = word in words and words[word].right
    found = ordered(rows, table, word, falling != reverse, default=default)
    return found[: most or None], word
