"""`natsctl reply`: answers to requests, for tests of whoever asks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from natsctl.api.errors import UsageError
from natsctl.cli import output
from natsctl.cli.messaging.bodies import Templates, read_body, read_headers, received
from natsctl.cli.options import Header, Json, session_of
from natsctl.cli.render.message import message_document
from natsctl.cli.render.values import body_text, safe
from natsctl.cli.waiting import wait_seconds
from natsctl.client.messaging.outgoing import Outgoing

if TYPE_CHECKING:
    from natsctl.client.manager import Manager
    from natsctl.client.message import Message
    from natsctl.client.messaging.responder import Answered, Make

QUEUE = "NATS-RPLY-22"
"""The group of the nats tool: both share the requests."""


def reply(
    ctx: typer.Context,
    subject: Annotated[str, typer.Argument(metavar="SUBJECT", help="the subject to answer on, wildcards allowed")],
    body: Annotated[str | None, typer.Argument(metavar="BODY", help="the answer; @FILE, or - for stdin")] = None,
    echo: Annotated[bool, typer.Option("--echo", help="answer with the request's body and headers")] = False,
    command: Annotated[
        str,
        typer.Option(
            "--command",
            metavar="COMMAND",
            help="answer with what this prints; {{1}} is a token of the subject from 0, {{Request}} the body, "
            "also in NATS_REQUEST_SUBJECT and NATS_REQUEST_BODY",
        ),
    ] = "",
    queue: Annotated[str, typer.Option("--queue", "-q", metavar="GROUP", help=f"queue group [{QUEUE}]")] = QUEUE,
    sleep: Annotated[
        str | None, typer.Option("--sleep", metavar="DURATION", help="wait up to so long before each answer")
    ] = None,
    header: Header = None,
    count: Annotated[int, typer.Option("--count", metavar="N", help="end after N requests", min=0)] = 0,
    templates: Templates = False,
    json: Json = False,
) -> None:
    """Answer requests, until Ctrl-C or --count.

    A program that fails leaves its request without an answer.
    """
    if (body is not None) + echo + bool(command) > 1:
        raise UsageError("BODY, --echo and --command exclude each other: there is one answer")
    if body is None and not echo and not command:
        raise UsageError("BODY is missing", hint="give the answer (- reads it from stdin), --echo or --command")
    payload, headers = read_body(body or ""), read_headers(header)
    make = _maker(Outgoing(subject, payload, headers), echo, command, templates)
    sleep_s = wait_seconds(sleep, "--sleep") or 0.0
    session = session_of(ctx)
    if session.dry_run:
        from natsctl.client.preview import Planned, Previewed

        what = "the request" if echo else command or None
        planned = () if what else (Planned("_INBOX.<of each request>", payload, headers or None),)
        raise Previewed(*planned, effect={"answers_requests_on": subject, **({"with": what} if what else {})})
    session.run(lambda manager: _serve(manager, subject, queue, count, make, sleep_s, json))


def _maker(fixed: Outgoing, echo: bool, command: str, templates: bool) -> Make:
    """What makes the answers."""

    async def make(request: Message, number: int) -> Outgoing:
        from natsctl.client.messaging.responder import run_command

        answer = fixed
        if echo:
            answer = fixed._replace(body=request.body, headers=(*request.headers.pairs, *fixed.headers))
        elif command:
            answer = fixed._replace(body=await run_command(command, request))
        if templates and not echo and not command:
            from natsctl.cli.messaging.template import fill_message

            answer = fill_message(answer, number, request.body)
        return answer

    return make


async def _serve(
    manager: Manager, subject: str, queue: str, count: int, make: Make, sleep_s: float, json: bool
) -> None:
    """Answer one request after the other, so that answers are numbered in the order of what was asked."""
    from natsctl.client.messaging.responder import respond

    connection = manager.connection
    subscription = await connection.subscribe(subject, queue=queue)
    try:
        await connection.flush()
        if not json:
            output.log(f'Listening on "{safe(subject)}" in group "{safe(queue)}"')
        number = 0
        while not count or number < count:
            request = await subscription.next()
            if request is None:
                continue
            number += 1
            _show(await respond(connection, request, number, make, sleep_s), json)
        await connection.flush()
    finally:
        await subscription.stop()


def _show(done: Answered, json: bool) -> None:
    """Show the request on stdout, and what became of it."""
    request = received(done.request)
    if json:
        document = message_document(request)
        document["answered"] = done.answer is not None
        if done.failure is not None:
            document["failure"] = str(done.failure)
        output.emit_json_line(document)
        return
    output.emit(f'[#{done.number}] Received on "{safe(request.subject)}"\n{body_text(request.payload)}\n')
    if done.failure is not None:
        output.note(f"no answer: {safe(str(done.failure))}")
    elif done.answer is None:
        output.note("no answer: nobody waits for one")
