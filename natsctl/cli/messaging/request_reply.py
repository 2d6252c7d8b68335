"""Requests, replies and traces: `natsctl request`, `reply` and `trace`."""

from __future__ import annotations

import sys

from natsctl.api.errors import UsageError
from natsctl.cli.framework import output
from natsctl.cli.framework.command_line import Dash
from natsctl.cli.framework.flags import Header, Json, Raw, length_option
from natsctl.cli.framework.parameters import Argument, Option
from natsctl.cli.framework.session import Session
from natsctl.cli.messaging.bodies import (
    Body,
    ForceStdin,
    SendOn,
    Subject,
    Templates,
    Translate,
    check_target,
    emit_body,
    filled,
    read_body,
    read_headers,
    received,
    shown_body,
)
from natsctl.cli.messaging.publish import BodySource, UnsentMessages
from natsctl.cli.render.message import answer_document, message_document, render_headers, render_rtt, render_trace
from natsctl.cli.render.text import safe
from natsctl.client.message import DryRunError, Planned
from natsctl.client.message import Message as ClientMessage
from natsctl.client.messaging.messages import Outgoing
from natsctl.client.messaging.request_reply import (
    REPLY_GAP_S,
    AnswerMaker,
    AnswerOutcome,
    ReplyLimits,
    ask,
    failure_in,
    respond,
    run_command,
    words_of,
)
from natsctl.hints import TYPE_CHECKING, Annotated, NamedTuple

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from natsctl.client.manager import Manager
    from natsctl.client.messaging.message_trace import TraceReport


Requests = Annotated[int, Option("--count", metavar="N", help="how many requests", min=1)]
Replies = Annotated[int, Option("--replies", metavar="N", help="replies to wait for; 0: until none arrive", min=0)]
ReplyTimeout = Annotated[float, length_option("--reply-timeout", help="max wait between replies [300ms]")]
UntilEmpty = Annotated[bool, Option("--wait-for-empty", help="end at an empty reply")]
FailingHeaders = Annotated[
    list[str] | None,
    Option("--fail-on-header", metavar="KEY[:VALUE]", help="a reply with this header is a failure (exit 1)"),
]
Unused = Annotated[bool, Option("--wait", "-w", hidden=True)]


def request(
    session: Session,
    subject: Subject,
    body: Body = None,
    header: Header = None,
    count: Requests = 1,
    replies: Replies = 1,
    reply_timeout: ReplyTimeout = REPLY_GAP_S,
    wait_for_empty: UntilEmpty = False,
    fail_on_header: FailingHeaders = None,
    translate: Translate = "",
    templates: Templates = True,
    force_stdin: ForceStdin = False,
    send_on: SendOn = "eof",
    raw: Raw = False,
    json: Json = False,
    wait: Unused = False,
) -> None:
    """Send a request and show the reply; no responder is a failure (exit 5), as is a service's error (exit 1)."""
    check_target(subject)
    awaited = ReplyLimits(replies, reply_timeout, wait_for_empty)
    failing = [(key.strip(), value.strip()) for key, _, value in (one.partition(":") for one in fail_on_header or ())]
    single = count == 1 and awaited.limit == 1 and not wait_for_empty and send_on == "eof"
    show = AnswerPrinter(raw, json, single, translate)
    message = Outgoing(subject, b"", read_headers(header))
    read = BodySource(body, force_stdin, send_on)
    unsent = UnsentMessages(
        each for part in read.all() for each in filled(message._replace(body=part), count, templates)
    )
    if session.dry_run:
        raise DryRunError(*(Planned(each.subject, each.body, each.headers) for each in unsent))
    announced = -1

    async def work(manager: Manager) -> None:
        nonlocal announced
        for each in unsent:
            if announced != unsent.sent:  # else another connection sends it again
                show.sending(each.subject)
            announced = unsent.sent
            await show.answers(ask(manager.connection, each, awaited), each.subject, failing)

    async def work_as_lines_arrive(manager: Manager) -> None:
        async for part in read.arriving():
            for each in filled(message._replace(body=part), count, templates):
                show.sending(each.subject)
                await show.answers(ask(manager.connection, each, awaited), each.subject, failing)

    if read.lines:
        session.run(work_as_lines_arrive)
    elif translate:
        session.run(work)
    else:
        session.ask(work, changes=True)


class AnswerPrinter(NamedTuple):
    """Options about the output of answers."""

    raw: bool
    json: bool
    single: bool
    translate: str

    def sending(self, subject: str) -> None:
        if not self.raw and not self.json:
            output.log(f'Sending request on "{safe(subject)}"')

    async def answers(
        self, messages: AsyncIterator[tuple[ClientMessage, int]], subject: str, failing: Sequence[tuple[str, str]] = ()
    ) -> None:
        failed = None
        async for message, rtt_ns in messages:
            await self.answer(message, rtt_ns)
            failed = failed or failure_in(message, subject, failing)
        if failed is not None:
            raise failed

    async def answer(self, message: ClientMessage, rtt_ns: int) -> None:
        if self.translate:
            from natsctl.cli.messaging.message_templates import translated

            message.body = await translated(self.translate, message)
        answer = received(message)
        if self.json:
            show = output.emit_json if self.single else output.emit_json_line
            show(answer_document(answer, rtt_ns, message.status, message.description))
            return
        if not self.raw:
            output.log(render_rtt(rtt_ns))
            if message.status:
                output.note(f"Status: {message.status} {safe(message.description)}")
            for line in render_headers(answer.headers):
                output.note(line)
        if sys.stdout.isatty() and not self.raw:
            emit_body(answer.payload)
        else:
            output.emit_bytes(shown_body(answer.payload, translated=bool(self.translate)))


QUEUE = "NATS-RPLY-22"
"""The queue group of the nats tool: both share the requests."""


def reply(
    session: Session,
    subject: Annotated[str, Argument(metavar="SUBJECT", help="the subject to listen on, wildcards allowed")],
    body: Annotated[str | None, Argument(metavar="BODY", help="the answer; without it, an echo")] = None,
    echo: Annotated[bool, Option("--echo", help="answer with the request's body and headers")] = False,
    command: Annotated[
        str,
        Option(
            "--command",
            metavar="COMMAND",
            help="answer with the output of this; {{1}} is a token of the subject from 0, {{.Request}} the body; "
            "also in NATS_REQUEST_SUBJECT and NATS_REQUEST_BODY",
        ),
    ] = "",
    queue: Annotated[str, Option("--queue", "-q", metavar="GROUP", help=f"queue group [{QUEUE}]")] = QUEUE,
    sleep: Annotated[float, length_option("--sleep", help="wait a random time up to this before each answer")] = 0.0,
    header: Header = None,
    count: Annotated[int, Option("--count", metavar="N", help="end after N requests", min=0)] = 0,
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
    if session.dry_run:
        what = "the request" if echo else command or None
        planned = () if what else (Planned("_INBOX.<of each request>", payload, headers or None),)
        raise DryRunError(*planned, effect={"answers_requests_on": subject, **({"with": what} if what else {})})
    session.run(lambda manager: _serve(manager, subject, queue, count, make, sleep, json), lasting=True)


def _maker(fixed: Outgoing, echo: bool, command: str, templates: bool) -> AnswerMaker:
    """Return the function that makes answers; templates count requests from 0. Raises UsageError."""
    from natsctl.cli.messaging.message_templates import check_supported, command_of, fill_message

    async def make(request: ClientMessage, number: int) -> Outgoing:
        text = templates and not echo and not command
        answer = fill_message(fixed, number, request.body, headers_only=not text)
        if echo:
            counted = ("NATS-Reply-Counter", str(number))
            return answer._replace(body=request.body, headers=(*answer.headers, *request.headers.pairs, counted))
        if command:
            words = command_of(command, request.subject, request.body, number)
            return answer._replace(body=await run_command(words, request))
        return answer

    fill_message(fixed, 0, b"x", headers_only=True)  # an invalid answer is refused before the first request
    if command:
        words_of("--command", command)
    if templates or command:
        check_supported(command or fixed.body.decode("utf-8", "surrogateescape"))
    return make


async def _serve(
    manager: Manager, subject: str, queue: str, count: int, make: AnswerMaker, sleep: float, json: bool
) -> None:
    """Answer one request after the other, so that answers are numbered in the order of requests."""
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
            _show(await respond(connection, request, number, make, sleep), json)
            number += 1
        await connection.flush()
    finally:
        await subscription.stop()


def _show(done: AnswerOutcome, json: bool) -> None:
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
        output.note("no answer: the request has no reply subject")


def trace(
    session: Session,
    subject: Annotated[str, Argument(metavar="SUBJECT", help="the subject to publish to")],
    payload: Annotated[str | None, Argument(metavar="PAYLOAD", help="the body")] = None,
    deliver: Annotated[bool, Option("--deliver", help="also deliver the message")] = False,
    stamped: Annotated[bool, Option("--timestamp", "-T", help="show times, since the message arrived")] = False,
    header: Header = None,
    json: Json = False,
) -> None:
    """Show which servers, clients and streams a message reaches; it is not delivered unless asked for."""
    from natsctl.client.messaging.message_trace import headers_of, trace

    check_target(subject)
    message = Outgoing(subject, read_body(payload or ""), read_headers(header))
    if session.dry_run:
        raise DryRunError(Planned(subject, message.body, headers_of(message, "_INBOX.<made when sent>", deliver)))

    async def work(manager: Manager) -> TraceReport:
        return await trace(manager.connection, message, deliver=deliver)

    report = session.run(work)
    if json:
        output.emit_json({"subject": subject, "delivered": deliver, "traces": [one.raw for one in report.walk()]})
        return
    output.note(f"Tracing a message on {safe(subject)}{' and delivering it' if deliver else ''}\n")
    output.emit(render_trace(report, stamped=stamped))
