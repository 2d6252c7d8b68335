"""The catalogue of errors with what causes each: `causes.json` has for each number the cause and its use."""

from __future__ import annotations

import json
import re
from pathlib import Path

from natsctl.api.catalogue import entries
from natsctl.api.errors import UsageError
from natsctl.cli.errors.shapes import KnownError, Use

ORDERS = {
    "code": lambda one: one.err_code,
    "http": lambda one: (one.code, one.err_code),
    "description": lambda one: (one.description.lower(), one.err_code),
}
"""What a list may be sorted by, and by what key."""


def known_errors() -> list[KnownError]:
    """Every error, by number."""
    causes = json.loads(Path(__file__).with_name("causes.json").read_text(encoding="utf-8"))
    found = []
    for number, entry in sorted(entries().items()):
        cause, use = causes[str(number)]
        found.append(
            KnownError(
                err_code=number,
                code=entry.code,
                constant=entry.constant,
                description=entry.description,
                cause=cause,
                use=Use(use),
            )
        )
    return found


def matching(match: str) -> list[KnownError]:
    """The errors whose number, name, text or cause the regular expression finds; raises UsageError."""
    try:
        pattern = re.compile(match, re.IGNORECASE)
    except re.error as failure:
        raise UsageError(f"{match!r} is not a regular expression: {failure}") from failure
    return [
        one
        for one in known_errors()
        if pattern.search(f"{one.err_code} {one.constant}\n{one.description}\n{one.cause}")
    ]


def ordered(found: list[KnownError], order: str, *, reverse: bool) -> list[KnownError]:
    """The errors sorted by one of ORDERS, of which a beginning is enough; raises UsageError."""
    named = next((name for name in ORDERS if order and name.startswith(order.lower())), None)
    if named is None:
        raise UsageError(f"cannot sort by {order!r}: there are {', '.join(ORDERS)}")
    return sorted(found, key=ORDERS[named], reverse=reverse)
