"""`natsctl events`: advisories and metrics as they happen."""

from __future__ import annotations

from typing import Annotated

import typer

from natsctl.api.subjects import ADVISORY_PREFIX, METRIC_PREFIX
from natsctl.cli.consumer.messages import wait_seconds
from natsctl.cli.messaging.receive import EventShower, Listening, listen
from natsctl.cli.options import Json, session_of


def events(
    ctx: typer.Context,
    advisories: Annotated[bool, typer.Option("--js-advisory/--no-js-advisory", help="JetStream advisories")] = True,
    metrics: Annotated[bool, typer.Option("--js-metric/--no-js-metric", help="JetStream metrics")] = True,
    everything: Annotated[bool, typer.Option("--all", "-a", help="everything there is")] = False,
    subjects: Annotated[
        list[str] | None, typer.Option("--subjects", metavar="SUBJECT", help="listen on this subject instead")
    ] = None,
    count: Annotated[int, typer.Option("--count", metavar="N", help="end after N events", min=0)] = 0,
    wait: Annotated[str | None, typer.Option("--wait", metavar="DURATION", help="end when idle this long")] = None,
    json: Json = False,
) -> None:
    """Show advisories and metrics as they happen, until Ctrl-C, --count or --wait."""
    wanted = tuple(subjects or ())
    if not wanted:
        kinds = ((advisories or everything, ADVISORY_PREFIX), (metrics or everything, METRIC_PREFIX))
        wanted = tuple(f"{prefix}.>" for asked, prefix in kinds if asked)
    listening = Listening(wanted, "", count, wait_seconds(wait))
    session_of(ctx).run(lambda manager: listen(manager, listening, EventShower(json)))
