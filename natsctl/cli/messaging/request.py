"""`natsctl request`: a message out, answers in."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from natsctl.cli import output
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
    read_headers,
    received,
    shown_body,
)
from natsctl.cli.messaging.input import Input
from natsctl.cli.options import Header, Json, Raw, session_of
from natsctl.cli.render.message import answer_document, render_headers, render_rtt
from natsctl.cli.render.text import safe
from natsctl.cli.waiting import wait_seconds
from natsctl.client.messaging.exchange import REPLY_GAP_S, Awaited, ask, failure_in
from natsctl.client.messaging.outgoing import Outgoing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from natsctl.client.manager import Manager
    from natsctl.client.message import Message


def request(
    ctx: typer.Context,
    subject: Subject,
    body: Body = None,
    header: Header = None,
    count: Annotated[int, typer.Option("--count", metavar="N", help="how many requests", min=1)] = 1,
    replies: Annotated[
        int, typer.Option("--replies", metavar="N", help="replies to wait for; 0: until none arrive", min=0)
    ] = 1,
    reply_timeout: Annotated[
        str | None, typer.Option("--reply-timeout", metavar="DURATION", help="longest wait between replies [300ms]")
    ] = None,
    wait_for_empty: Annotated[bool, typer.Option("--wait-for-empty", help="end at an empty reply")] = False,
    fail_on_header: Annotated[
        list[str] | None,
        typer.Option("--fail-on-header", metavar="KEY[:VALUE]", help="a reply with this header is a failure (exit 1)"),
    ] = None,
    translate: Translate = "",
    templates: Templates = True,
    force_stdin: ForceStdin = False,
    send_on: SendOn = "eof",
    raw: Raw = False,
    json: Json = False,
    wait: Annotated[bool, typer.Option("--wait", "-w", hidden=True)] = False,
) -> None:
    """Send a request and show the reply; no responder is a failure (exit 5), as is a service's error (exit 1)."""
    check_target(subject)
    awaited = Awaited(replies, wait_seconds(reply_timeout, "--reply-timeout") or REPLY_GAP_S, wait_for_empty)
    failing = [(key.strip(), value.strip()) for key, _, value in (one.partition(":") for one in fail_on_header or ())]
    single = count == 1 and awaited.limit == 1 and not wait_for_empty and send_on == "eof"
    show = Answers(raw, json, single, translate)
    message = Outgoing(subject, b"", read_headers(header))
    read = Input(body, force_stdin, send_on)
    session = session_of(ctx)
    if session.dry_run:
        _preview(one for part in read.all() for one in filled(message._replace(body=part), count, templates))

    async def work(manager: Manager) -> None:
        async for part in read.arriving():
            for one in filled(message._replace(body=part), count, templates):
                show.sending(one.subject)
                failed = None
                async for answer, rtt_ns in ask(manager.connection, one, awaited):
                    await show.answer(answer, rtt_ns)
                    failed = failed or failure_in(answer, one.subject, failing)
                if failed is not None:
                    raise failed

    session.run(work)


def _preview(every: Iterator[Outgoing]) -> None:
    from natsctl.client.preview import DryRunError, Planned

    raise DryRunError(*(Planned(one.subject, one.body, one.headers) for one in every))


@dataclass(frozen=True, slots=True)
class Answers:
    """How answers are shown."""

    raw: bool
    json: bool
    single: bool
    translate: str

    def sending(self, subject: str) -> None:
        """Tell that a request goes out."""
        if not self.raw and not self.json:
            output.log(f'Sending request on "{safe(subject)}"')

    async def answer(self, message: Message, rtt_ns: int) -> None:
        """Show one answer."""
        if self.translate:
            from natsctl.cli.messaging.template import translated

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
