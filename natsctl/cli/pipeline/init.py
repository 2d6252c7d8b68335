"""`natsctl pipeline init`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from natsctl.api.errors import UsageError
from natsctl.cli import output
from natsctl.cli.options import Json, session_of
from natsctl.cli.pipeline.chosen import note_pipeline


def init(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="folder to create; its last part is the pipeline's name")],
    stream: Annotated[
        str, typer.Option("--stream", metavar="STREAM", help="the stream that the example reads")
    ] = "ORDERS",
    json: Json = False,
) -> None:
    """Create the folder of a pipeline, with an example from a stream into a table and another stream."""
    from shlex import quote

    from msgspec import to_builtins

    from natsctl.api.subjects import is_asset_name
    from natsctl.cli.pipeline.shapes import Initialised
    from natsctl.spark.pipeline.scaffold import write_project

    if not is_asset_name(stream):
        raise UsageError(f"--stream {stream}: no stream can have that name")
    folder, dry = Path(name), session_of(ctx).dry_run
    try:
        files = write_project(folder, stream, dry=dry)
    except FileExistsError as failure:
        raise UsageError(str(failure), hint="name a folder that does not exist yet") from failure
    if not dry:
        note_pipeline(folder.absolute().name, folder)
    if json:
        shown = [str(path.relative_to(folder)) for path in files]
        output.emit_json(to_builtins(Initialised(folder.absolute().name, str(folder.absolute()), shown)))
        return
    for path in files:
        output.emit(str(path))
    sink, word = quote(f"BIG_{stream}"), quote(name)
    output.note(f"next: natsctl stream add {sink} --subjects {quote(f'BIG_{stream}.>')} --defaults")
    output.note(f"      natsctl pipeline validate {word}")
    output.note(f"      natsctl pipeline run {word} --once")
