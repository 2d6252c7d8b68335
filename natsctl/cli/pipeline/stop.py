"""`natsctl pipeline stop`."""

from __future__ import annotations

from typing import Annotated

import typer

from natsctl.cli import output
from natsctl.cli.options import Json
from natsctl.cli.pipeline.chosen import Pipeline, chosen_project


def stop(
    pipeline: Pipeline = "",
    force: Annotated[
        bool, typer.Option("--force", "-f", help="kill it if it does not stop", show_default=False)
    ] = False,
    json: Json = False,
) -> None:
    """Stop a pipeline's run; the next one continues from there."""
    from msgspec import to_builtins

    from natsctl.cli.pipeline.detached import stop_run
    from natsctl.cli.pipeline.shapes import Stopped

    project = chosen_project(pipeline)
    pid = stop_run(project, force=force)
    if json:
        output.emit_json(to_builtins(Stopped(project.name, pid, bool(pid))))
    elif pid:
        output.emit(f"{project.name} ended in process {pid}")
    else:
        output.emit(f"{project.name} does not run")
