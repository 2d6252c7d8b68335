"""`natsctl service serve`: a service to try others with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from natsctl.api.units import plural
from natsctl.cli import output
from natsctl.cli.messaging.bodies import read_headers
from natsctl.cli.options import Header, Json, session_of
from natsctl.cli.render.text import safe

if TYPE_CHECKING:
    from natsctl.client.manager import Manager
    from natsctl.client.message import Message


def serve(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="the name of the service")],
    header: Header = None,
    json: Json = False,
) -> None:
    """Run a service that echoes what it is sent on NAME.echo, until Ctrl-C; -H adds headers to its answers."""
    from natsctl.client.services.demo import EchoService

    session = session_of(ctx)
    service = EchoService(name, read_headers(header))
    if session.dry_run:
        from natsctl.client.preview import Previewed

        raise Previewed(effect={"serves": f"{name}.echo"})

    def listening() -> None:
        if not json:
            output.log(f"serving {safe(service.info.name)} ({service.info.id}) on {safe(name)}.echo")

    def handled(message: Message) -> None:
        if json:
            output.emit_json_line({"subject": message.subject, "bytes": len(message.body), "reply": message.reply})
        else:
            output.log(f'Request of {plural(len(message.body), "byte")} on "{safe(message.subject)}"')

    async def work(manager: Manager) -> None:
        await service.run(manager.connection, listening, handled)

    session.run(work)
