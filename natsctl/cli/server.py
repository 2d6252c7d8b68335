"""`natsctl server`: the included server as a process of its own."""

from typing import Any

import typer
from typer.core import TyperCommand

app = typer.Typer(no_args_is_help=True, help="Run the included server.")


class _ReferenceFlags(TyperCommand):
    """A command whose arguments are not this command line's: they follow the reference server's rules."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Hand every argument on as it stands, `--help` and `--version` included."""
        ctx.args = list(args)
        return list(args)


@app.command("run", cls=_ReferenceFlags)
def run(context: typer.Context) -> None:
    """Run a JetStream server until it is stopped; takes the flags of nats-server, see `natsctl server run -h`."""
    from natsctl.server.process.process import main

    raise typer.Exit(main(context.args))
