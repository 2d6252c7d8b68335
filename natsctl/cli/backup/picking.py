"""The flags that pick messages of a backup."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from natsctl.api.errors import UsageError
from natsctl.cli.moments import read_moment

if TYPE_CHECKING:
    from natsctl.client.backup.pick import Pick

Subjects = Annotated[
    list[str] | None,
    typer.Option("--subject", metavar="SUBJECT", help="on this subject; may have wildcards", show_default=False),
]
Since = Annotated[
    str | None,
    typer.Option("--since", metavar="TIME", help="stored at this time or later, or so long ago", show_default=False),
]
Until = Annotated[
    str | None,
    typer.Option("--until", metavar="TIME", help="stored at this time or before, or so long ago", show_default=False),
]
Sequences = Annotated[
    str, typer.Option("--seq", metavar="N|FROM-TO", help="with this sequence, or one of these", show_default=False)
]


def read_pick(subjects: list[str] | None, since: str | None, until: str | None, seq: str) -> Pick:
    """What the flags say. Raises UsageError."""
    from natsctl.client.backup.pick import Pick

    first, last = _sequences(seq)
    return Pick(tuple(subjects or ()), _moment("--since", since), _moment("--until", until), first, last)


def _moment(flag: str, text: str | None) -> int:
    if not text:
        return 0
    try:
        return read_moment(text, back=True)
    except ValueError as error:
        raise UsageError(f"{flag}: {error}") from error


def _sequences(text: str) -> tuple[int, int]:
    """The first and last sequence of `N`, `FROM-TO`, `FROM-` or `-TO`; 0 for an open end."""
    first, dash, last = text.replace("..", "-").partition("-")
    parts = [part.strip() for part in (first, last)]
    if any(part and not part.isdecimal() for part in parts) or (text and not any(parts)):
        raise UsageError(f"--seq: expected N, FROM-TO, FROM- or -TO, not {text!r}")
    low, high = (int(part or 0) for part in parts)
    if not dash:
        return low, low
    if high and low > high:
        raise UsageError(f"--seq: {low} is behind {high}")
    return low, high
