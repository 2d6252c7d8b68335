"""`natsctl spark doctor`."""

from __future__ import annotations

from typing import Annotated

import typer

from natsctl.api.exit_codes import ExitCode
from natsctl.cli import output
from natsctl.cli.flags import flagged
from natsctl.cli.options import Json
from natsctl.cli.spark_flags import JavaPath


@flagged()
def doctor(
    java: JavaPath = "",
    start: Annotated[
        bool, typer.Option("--start", help="also start Spark and measure the time to its first answer")
    ] = False,
    json: Json = False,
) -> int:
    """Check what Spark needs on this machine: packages, Java, caches, memory; and say what to do.

    Ends with 1 if Spark cannot start.
    """
    from natsctl.spark.session.doctor import check_up
    from natsctl.spark.session.spark_options import SparkOptions

    found = check_up(SparkOptions(master="local[*]", java=java), start=start)
    if json:
        import msgspec

        output.emit_json(msgspec.to_builtins(found))
    else:
        from natsctl.cli.render.spark_reports import render_checkup
        from natsctl.cli.screen import show_page

        show_page(render_checkup(found))
    return ExitCode.DONE if found.ready else ExitCode.FAILED
