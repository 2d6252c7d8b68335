"""What happens in a bucket, as `kv watch` and `object watch` show it."""

from __future__ import annotations

from natsctl.cli.render.fold import hanging

_GREEN, _RED, _OFF = "\x1b[32m", "\x1b[31m", "\x1b[0m"


def event_text(text: str, operation: str, width: int | None, *, deleted: bool, coloured: bool) -> str:
    """`[TIME] OPERATION …` in as many lines as it takes in that many columns, the operation in its colour."""
    shown = hanging(text, width)
    if not coloured:
        return shown
    time, bracket, rest = shown.partition("] ")
    return f"{time}{bracket}{rest.replace(operation, f'{_RED if deleted else _GREEN}{operation}{_OFF}', 1)}"
