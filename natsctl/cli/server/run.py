"""`natsctl server run`: the included server as a process of its own."""

from __future__ import annotations

import typer


def run(ctx: typer.Context) -> None:
    """Run a JetStream server until it is stopped; takes the flags of nats-server, see `natsctl server run -h`."""
    from natsctl.cli.server.provisioned import serve

    raise typer.Exit(serve(ctx.args))
