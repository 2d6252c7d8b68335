"""`natsctl spark warm`."""

from __future__ import annotations

from typing import Annotated

import typer

from natsctl.cli import output
from natsctl.cli.flags import flagged
from natsctl.cli.options import Json, session_of
from natsctl.cli.spark_flags import JavaPath
from natsctl.client.preview import DryRunError


@flagged()
def warm(
    ctx: typer.Context,
    java: JavaPath = "",
    force: Annotated[bool, typer.Option("--force", help="create it again if it exists", show_default=False)] = False,
    json: Json = False,
) -> None:
    """Create an archive of the classes that Spark loads, which halves its start-up time.

    Starts Spark once, which takes half a minute, and 160 MB in ~/.cache/natsctl (XDG_CACHE_HOME). Commands use it as
    long as it fits the Java and the Spark that are installed. To measure a
    start: natsctl spark doctor --start.
    """
    from natsctl.cli.render.text import safe
    from natsctl.cli.spark.shapes import WarmStart
    from natsctl.spark.session.doctor import archive_of
    from natsctl.spark.session.doctor import warm as make
    from natsctl.spark.session.spark_options import SparkOptions

    options = SparkOptions(master="local[*]", java=java)
    if session_of(ctx).dry_run:
        raise DryRunError(effect={"make": str(archive_of(options)), "again": force})
    say = (lambda text: None) if json else (lambda text: output.log(safe(text)))
    done = make(options, again=force, say=say)
    answer = WarmStart(
        archive=str(done.archive),
        archive_bytes=done.archive.stat().st_size,
        made=done.made,
    )
    if json:
        import msgspec

        output.emit_json(msgspec.to_builtins(answer))
    else:
        from natsctl.cli.render.spark_reports import render_warm
        from natsctl.cli.screen import show_page

        show_page(render_warm(answer))
