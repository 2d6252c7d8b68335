"""`natsctl service request`: a request to an endpoint, wherever its service listens for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from natsctl.cli.messaging.bodies import Body, ForceStdin, SendOn, Templates, Translate, filled, read_headers
from natsctl.cli.messaging.input import Input
from natsctl.cli.messaging.request import Answers
from natsctl.cli.options import Header, Json, Raw, session_of
from natsctl.cli.service.show import Service
from natsctl.client.messaging.exchange import Awaited, ask, failure_in
from natsctl.client.messaging.outgoing import Outgoing

if TYPE_CHECKING:
    from natsctl.client.manager import Manager


def request(
    ctx: typer.Context,
    service: Service,
    endpoint: Annotated[str, typer.Argument(metavar="ENDPOINT", help="the name of the endpoint")],
    body: Body = None,
    header: Header = None,
    count: Annotated[int, typer.Option("--count", metavar="N", help="how many requests", min=1)] = 1,
    translate: Translate = "",
    templates: Templates = True,
    force_stdin: ForceStdin = False,
    send_on: SendOn = "eof",
    raw: Raw = False,
    json: Json = False,
) -> None:
    """Send a request to an endpoint of a service and show the answer; an error of the service is a failure (exit 1)."""
    from natsctl.cli.suggest import did_you_mean
    from natsctl.client.services.ask import EndpointNotFound
    from natsctl.client.services.ask import endpoint as find

    show = Answers(raw, json, count == 1 and send_on == "eof", translate)
    headers = read_headers(header)

    async def work(manager: Manager) -> None:
        connection = manager.connection
        subject = (await find(connection, service, endpoint)).subject
        for payload in Input(body, force_stdin, send_on).all():
            for message in filled(Outgoing(subject, payload, headers), count, templates):
                if connection.dry_run:
                    _preview(message, count)
                show.sending(message.subject)
                async for answer, rtt_ns in ask(connection, message, Awaited()):
                    await show.answer(answer, rtt_ns)
                    if failure := failure_in(answer, subject, ()):
                        raise failure

    try:
        session_of(ctx).run(work)
    except EndpointNotFound as failure:
        failure.hint = did_you_mean(endpoint, failure.known) or failure.hint
        raise


def _preview(message: Outgoing, count: int) -> None:
    from natsctl.client.preview import Planned, Previewed

    planned = Planned(message.subject, message.body, message.headers or None)
    raise Previewed(planned, effect={"requests": count})
