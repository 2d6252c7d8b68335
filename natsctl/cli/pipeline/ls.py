"""`natsctl pipeline ls`."""

from __future__ import annotations

from natsctl.cli import output
from natsctl.cli.options import Json, Names
from natsctl.cli.pipeline.chosen import known_pipelines


def ls(names: Names = False, json: Json = False) -> None:
    """List the pipelines that were made or run here."""
    from msgspec import to_builtins

    from natsctl.cli.pipeline.shapes import Known
    from natsctl.cli.pipeline.status import moment
    from natsctl.cli.render.spark_reports import render_known
    from natsctl.cli.screen import show_table
    from natsctl.spark.pipeline.project import PipelineError, PipelineNotFoundError, find_project
    from natsctl.spark.pipeline.run_record import run_state

    known = known_pipelines()
    if names:
        if json:
            output.emit_json([*known])
        else:
            output.emit_names(known)
        return
    found = []
    for name, folder in known.items():
        try:
            state, pid, record = run_state(find_project(folder))
        except (PipelineNotFoundError, PipelineError):
            state, pid, record = "faulty", 0, None
        found.append(Known(name, str(folder), state, pid, moment(record.updated_ns if record else 0)))
    if json:
        output.emit_json([to_builtins(each) for each in found])
    else:
        show_table(render_known(found))
