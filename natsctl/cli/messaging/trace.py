"""`natsctl trace`: the way of a message through the servers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from natsctl.cli import output
from natsctl.cli.messaging.bodies import check_target, read_body, read_headers
from natsctl.cli.options import Header, Json, session_of
from natsctl.cli.render.text import safe

if TYPE_CHECKING:
    from natsctl.client.manager import Manager
    from natsctl.client.messaging.message_trace import Report


def trace(
    ctx: typer.Context,
    subject: Annotated[str, typer.Argument(metavar="SUBJECT", help="the subject to publish to")],
    payload: Annotated[str | None, typer.Argument(metavar="PAYLOAD", help="the body")] = None,
    deliver: Annotated[bool, typer.Option("--deliver", help="also deliver the message")] = False,
    stamped: Annotated[bool, typer.Option("--timestamp", "-T", help="show times, since the message arrived")] = False,
    header: Header = None,
    json: Json = False,
) -> None:
    """Show which servers, clients and streams a message reaches; it is not delivered unless asked for."""
    from natsctl.client.messaging.message_trace import headers_of, trace
    from natsctl.client.messaging.outgoing import Outgoing

    check_target(subject)
    message = Outgoing(subject, read_body(payload or ""), read_headers(header))
    session = session_of(ctx)
    if session.dry_run:
        from natsctl.client.preview import DryRunError, Planned

        raise DryRunError(Planned(subject, message.body, headers_of(message, "_INBOX.<made when sent>", deliver)))

    async def work(manager: Manager) -> Report:
        return await trace(manager.connection, message, deliver=deliver)

    report = session.run(work)
    if json:
        output.emit_json({"subject": subject, "delivered": deliver, "traces": [one.raw for one in report.walk()]})
        return
    from natsctl.cli.render.message import render_trace

    output.note(f"Tracing a message on {safe(subject)}{', which is delivered' if deliver else ''}\n")
    output.emit(render_trace(report, stamped=stamped))
