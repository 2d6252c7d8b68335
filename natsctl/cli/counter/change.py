"""`natsctl counter increment` and `decrement`."""

from __future__ import annotations

from typing import Annotated

import typer

from natsctl.cli import output
from natsctl.cli.counter.show import Subject
from natsctl.cli.options import Json, session_of

Number = Annotated[str, typer.Argument(metavar="VALUE", help="a whole number of any size [1]", show_default=False)]


def increment(ctx: typer.Context, subject: Subject, value: Number = "1", json: Json = False) -> None:
    """Add to a counter, and show its new value."""
    _add(ctx, subject, value, 1, json)


def decrement(ctx: typer.Context, subject: Subject, value: Number = "1", json: Json = False) -> None:
    """Subtract from a counter, and show its new value."""
    _add(ctx, subject, value, -1, json)


def _add(ctx: typer.Context, subject: str, value: str, sign: int, json: bool) -> None:
    from natsctl.cli.messaging.bodies import check_target
    from natsctl.client.counters import add, read_number

    check_target(subject)
    number = sign * read_number(value)
    ack = session_of(ctx).run(lambda manager: add(manager, subject, number))
    if json:
        output.emit_json(ack.raw)
    else:
        output.emit(str(ack.raw.get("val", "")))
