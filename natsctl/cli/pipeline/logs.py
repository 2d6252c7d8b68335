"""`natsctl pipeline logs`."""

from __future__ import annotations

import json as json_format
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from natsctl.cli import output
from natsctl.cli.options import Json
from natsctl.cli.pipeline.chosen import Pipeline, chosen_project

if TYPE_CHECKING:
    from natsctl.spark.pipeline.events import Event


def logs(
    pipeline: Pipeline = "",
    lines: Annotated[int, typer.Option("--lines", "-n", metavar="N", help="the last N; 0 for all", min=0)] = 100,
    json: Json = False,
) -> None:
    """Show the events of the last detached run."""
    from natsctl.cli.pipeline.run import event_document
    from natsctl.cli.render.spark_reports import event_line
    from natsctl.spark.pipeline.run_record import log_path

    for event in list(_events(log_path(chosen_project(pipeline))))[-lines:]:
        if json:
            output.emit_json_line(event_document(event))
        else:
            output.emit(event_line(event))


def _events(path: Path) -> Iterator[Event]:
    """The events of a log; what is none, such as a failure of the command itself, becomes the message of one."""
    from natsctl.spark.pipeline.events import Event

    try:
        text = path.read_text(encoding="utf-8", errors="replace")
        changed = datetime.fromtimestamp(path.stat().st_mtime).astimezone()
    except FileNotFoundError:
        return
    for line in text.splitlines():
        try:
            said = json_format.loads(line)
            time = datetime.fromisoformat(said["time"])
            read = said.get("read", {})
            yield Event(time, said["flow"], said["state"], said["message"], said["error"], read=read)
        except (ValueError, KeyError, TypeError):
            yield Event(changed, "", "", line)
