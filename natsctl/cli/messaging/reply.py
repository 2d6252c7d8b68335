"""`natsctl reply`: answers to requests, for tests of whoever asks."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from natsctl.api.errors import UsageError
from natsctl.cli import output
from natsctl.cli.globals import Dash
from natsctl.cli.messaging.bodies import Templates, emit_body, read_body, read_headers, received
from natsctl.cli.options import Header, Json, session_of
from natsctl.cli.render.message import message_document, render_headers
from natsctl.cli.render.text import safe
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
    subject: Annotated[str, typer.Argument(metavar="SUBJECT", help="the subject to listen on, wildcards allowed")],
    body: Annotated[str | None, typer.Argument(metavar="BODY", help="the answer; without it, an echo")] = None,
    echo: Annotated[bool, typer.Option("--echo", help="answer with the request's body and headers")] = False,
    command: Annotated[
        str,
        typer.Option(
            "--command",
            metavar="COMMAND",
            help="answer with the output of this; {{1}} is a token of the subject from 0, {{.Request}} the body; "
            "also in NATS_REQUEST_SUBJECT and NATS_REQUEST_BODY",
        ),
    ] = "",
    queue: Annotated[str, typer.Option("--queue", "-q", metavar="GROUP", help=f"queue group [{QUEUE}]")] = QUEUE,
    sleep: Annotated[
        str | None, typer.Option("--sleep", metavar="DURATION", help="wait a random time up to this before each answer")
    ] = None,
    header: Header = None,
    count: Annotated[int, typer.Option("--count", metavar="N", help="end after N requests", min=0)] = 0,
    templates: Templates = True,
    json: Json = False,
) -> None:
    """Answer requests, until Ctrl-C or --count.

    A program that fails leaves its request without an answer.
    """
    body = "" if isinstance(body, Dash) else body
    if (body is not None) + echo + bool(command) > 1:
        raise UsageError("BODY, --echo and --command exclude each other")
    if not (body or echo or command):
        output.log("No body or command is given: requests are echoed")
        echo = True
    payload, headers = read_body(body or ""), read_headers(header)
    make = _maker(Outgoing(subject, payload, headers), echo, command, templates)
    sleep_s = wait_seconds(sleep, "--sleep") or 0.0
    session = session_of(ctx)
    if session.dry_run:
        from natsctl.client.preview import DryRunError, Planned

        what = "the request" if echo else command or None
        planned = () if what else (Planned("_INBOX.<of each request>", payload, headers or None),)
        raise DryRunError(*planned, effect={"answers_requests_on": subject, **({"with": what} if what else {})})
    session.run(lambda manager: _serve(manager, subject, queue, count, make, sleep_s, json))


def _maker(fixed: Outgoing, echo: bool, command: str, templates: bool) -> Make:
    """Return what makes the answers, which count requests from 0 in their templates. Raises UsageError."""
    from natsctl.cli.messaging.template import check_supported, command_of, fill_message
    from natsctl.client.messaging.commands import words_of
    from natsctl.client.messaging.responder import run_command

    async def make(request: Message, number: int) -> Outgoing:
        text = templates and not echo and not command
        answer = fill_message(fixed, number, request.body, headers_only=not text)
        if echo:
            counted = ("NATS-Reply-Counter", str(number))
            return answer._replace(body=request.body, headers=(*answer.headers, *request.headers.pairs, counted))
        if command:
            words = command_of(command, request.subject, request.body, number)
            return answer._replace(body=await run_command(words, request))
        return answer

    fill_message(fixed, 0, b"x", headers_only=True)  # what cannot be answered with is refused before anyone asks
    if command:
        words_of("--command", command)
    if templates or command:
        check_supported(command or fixed.body.decode("utf-8", "surrogateescape"))
    return make


async def _serve(
    manager: Manager, subject: str, queue: str, count: int, make: Make, sleep_s: float, json: bool
) -> None:
    """Answer one request after the other, so that answers are numbered in the order of what was asked."""
    from natsctl.client.messaging.responder import respond

    connection = manager.connection
    subscription = await connection.subscribe(subject, queue=queue, lasting=True)
    try:
        await connection.flush()
        if not json:
            output.log(f'Listening on "{safe(subject)}" in group "{safe(queue)}"')
        number = 0
        while not count or number < count:
            request = await subscription.next()
            if request is None:
                continue
            _show(await respond(connection, request, number, make, sleep_s), json)
            number += 1
        await connection.flush()
    finally:
        await subscription.stop()


def _show(done: Answered, json: bool) -> None:
    """Show the request, its body on stdout, and what became of it."""
    request = received(done.request)
    if json:
        document = message_document(request)
        document["answered"] = done.answer is not None
        if done.failure is not None:
            document["failure"] = str(done.failure)
        output.emit_json_line(document)
        return
    output.log(f'[#{done.number}] Received on subject "{safe(request.subject)}":')
    for line in render_headers(request.headers):
        output.note(line)
    output.emit("")
    emit_body(request.payload)
    sys.stdout.flush()
    if done.failure is not None:
        output.note(f"no answer: {safe(str(done.failure))}")
    elif done.answer is None:
        output.note("no answer: nobody waits for one")
