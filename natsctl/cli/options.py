"""Flags and arguments that many commands share, declared once."""

from __future__ import annotations

from typing import Annotated, cast

import typer

from natsctl.cli.session import Session

Json = Annotated[bool, typer.Option("--json", "-j", help="show the answer as JSON", show_default=False)]
Force = Annotated[bool, typer.Option("--force", "-f", "--yes", help="do not ask", show_default=False)]
Config = Annotated[
    str | None, typer.Option("--config", metavar="FILE", help="configuration file, JSON or YAML; - for stdin")
]
Validate = Annotated[bool, typer.Option("--validate", help="validate and print the configuration, create nothing")]
Output = Annotated[
    str | None, typer.Option("--output", metavar="FILE", help="write the configuration to a file, create nothing")
]
Defaults = Annotated[bool, typer.Option("--defaults", help="use defaults instead of asking", show_default=False)]
Names = Annotated[bool, typer.Option("--names", "-n", help="names only, one on a line", show_default=False)]
Details = Annotated[
    bool, typer.Option("--details", help="with -j, whole objects in place of names", show_default=False)
]
Raw = Annotated[bool, typer.Option("--raw", "-r", help="bodies only, unchanged", show_default=False)]
IfNotExists = Annotated[
    bool, typer.Option("--if-not-exists", help="accept an existing one, whatever its configuration", show_default=False)
]
MissingOk = Annotated[bool, typer.Option("--missing-ok", help="succeed if it does not exist", show_default=False)]
NoSelect = Annotated[bool, typer.Option("--no-select", help="do not ask which one", show_default=False)]
Watch = Annotated[
    str | None,
    typer.Option("--watch", metavar="DURATION", help="refresh at this interval", show_default=False),
]
Rounds = Annotated[int, typer.Option("--count", metavar="N", help="end after N refreshes", min=0, show_default=False)]
Progress = Annotated[bool, typer.Option("--progress/--no-progress", help="show a progress bar on a terminal")]
All = Annotated[
    bool, typer.Option("--all", "-a", help="also those that KV, object store and MQTT use", show_default=False)
]
StreamName = Annotated[str | None, typer.Argument(metavar="STREAM", help="the stream", show_default=False)]
ConsumerName = Annotated[str | None, typer.Argument(metavar="CONSUMER", help="the consumer", show_default=False)]
Header = Annotated[
    list[str] | None, typer.Option("--header", "-H", metavar="KEY:VALUE", help="a header", show_default=False)
]


def check_details(details: bool, json: bool) -> None:
    """Raise UsageError for `--details` without `-j`: tables choose their columns otherwise."""
    if details and not json:
        from natsctl.api.errors import UsageError

        raise UsageError("--details is for -j")


def session_of(context: typer.Context) -> Session:
    """The session that the command line was started with."""
    return cast(Session, context.obj)
