"""`natsctl subscribe`: messages as they arrive."""

from __future__ import annotations

from typing import Annotated

import typer

from natsctl.cli.consumer.messages import wait_seconds
from natsctl.cli.messaging.receive import Listening, Shower, listen
from natsctl.cli.options import Json, Raw, session_of


def subscribe(
    ctx: typer.Context,
    subjects: Annotated[list[str], typer.Argument(metavar="SUBJECT...", help="subjects, wildcards allowed")],
    queue: Annotated[str, typer.Option("--queue", metavar="GROUP", help="share messages in this queue group")] = "",
    count: Annotated[int, typer.Option("--count", metavar="N", help="end after N messages", min=0)] = 0,
    wait: Annotated[str | None, typer.Option("--wait", metavar="DURATION", help="end when idle this long")] = None,
    stamped: Annotated[bool, typer.Option("--timestamp", "-t", help="show when each message came")] = False,
    headers_only: Annotated[bool, typer.Option("--headers-only", help="do not show bodies")] = False,
    subjects_only: Annotated[bool, typer.Option("--subjects-only", help="show subjects only")] = False,
    raw: Raw = False,
    json: Json = False,
) -> None:
    """Show messages as they arrive, until Ctrl-C, --count or --wait."""
    listening = Listening(tuple(subjects), queue, count, wait_seconds(wait))
    shower = Shower(raw=raw, json=json, stamped=stamped, headers_only=headers_only, subjects_only=subjects_only)
    session_of(ctx).run(lambda manager: listen(manager, listening, shower))
