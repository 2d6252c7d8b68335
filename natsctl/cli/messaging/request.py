"""`natsctl request`: a message out, answers in."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from natsctl.api.errors import Unreachable
from natsctl.cli import output
from natsctl.cli.consumer.messages import wait_seconds
from natsctl.cli.messaging.bodies import check_target, read_body, read_headers, received, show_body
from natsctl.cli.options import Header, Json, Raw, session_of
from natsctl.cli.render.message import message_document, render_rtt
from natsctl.cli.render.values import safe

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from natsctl.client.manager import Manager
    from natsctl.client.message import Message

NO_RESPONDERS = 503
REPLY_GAP_S = 0.3
"""How long to wait for a further answer once one has come."""


def request(
    ctx: typer.Context,
    subject: Annotated[str, typer.Argument(metavar="SUBJECT", help="the subject")],
    body: Annotated[str | None, typer.Argument(metavar="BODY", help="the body; @FILE, or - for stdin")] = None,
    header: Header = None,
    count: Annotated[int, typer.Option("--count", metavar="N", help="how many requests", min=1)] = 1,
    replies: Annotated[
        int, typer.Option("--replies", metavar="N", help="answers to wait for; 0 until none come", min=0)
    ] = 1,
    reply_timeout: Annotated[
        str | None, typer.Option("--reply-timeout", metavar="DURATION", help="wait between answers [300ms]")
    ] = None,
    wait_for_empty: Annotated[bool, typer.Option("--wait-for-empty", help="end at an empty answer")] = False,
    force_stdin: Annotated[bool, typer.Option("--force-stdin", help="read the body from stdin")] = False,
    raw: Raw = False,
    json: Json = False,
    wait: Annotated[bool, typer.Option("--wait", "-w", hidden=True)] = False,
) -> None:
    """Send a request and show its answer; nobody answering is a failure."""
    check_target(subject)
    payload = read_body(body, force_stdin)
    headers = read_headers(header)
    gap_s = wait_seconds(reply_timeout) or REPLY_GAP_S
    limit = 0 if wait_for_empty else replies

    async def work(manager: Manager) -> None:
        for _ in range(count):
            if not raw and not json:
                output.log(f'Sending request on "{safe(subject)}"')
            started = time.monotonic_ns()
            async for message in _answers(manager, subject, payload, headers, limit, gap_s):
                _show(message, time.monotonic_ns() - started, raw, json, single=count == 1 and limit == 1)
                if wait_for_empty and not message.body:
                    break

    session_of(ctx).run(work)


async def _answers(
    manager: Manager, subject: str, body: bytes, headers: dict[str, str], limit: int, gap_s: float
) -> AsyncIterator[Message]:
    """The answers as they come: `limit` of them, with 0 until none comes for `gap_s`. Raises Unreachable for none.

    Each request has an inbox of its own: what a consumer sends in answer bears the subject it was stored with, so that
    only the subscription tells which request it answers.
    """
    connection = manager.connection
    inbox = connection.new_inbox()
    subscription = await connection.subscribe(inbox)
    subscription.watched = subject
    got, wait_s = 0, connection.timeout_s
    try:
        await connection.publish(subject, body, reply=inbox, headers=headers)
        while not limit or got < limit:
            message = await subscription.next(wait_s)
            if message is None:
                break
            yield _checked(message, subject)
            got, wait_s = got + 1, gap_s
    finally:
        await subscription.stop()
    if got == 0:
        raise Unreachable(f"no answer on {subject} within {connection.timeout_s:g}s")


def _checked(message: Message, subject: str) -> Message:
    if message.status == NO_RESPONDERS:
        raise Unreachable(f"no responders on {subject}", hint="nobody subscribes to this subject, no stream stores it")
    return message


def _show(message: Message, rtt_ns: int, raw: bool, json: bool, single: bool) -> None:
    answer = received(message)
    if json:
        document = {**message_document(answer), "rtt": rtt_ns}
        if message.status:
            document |= {"status": message.status, "description": message.description}
        output.emit_json(document) if single else output.emit_json_line(document)
        return
    if raw:
        output.emit_bytes(message.body)
        return
    output.log(render_rtt(rtt_ns))
    if message.status:
        output.note(f"Status: {message.status} {safe(message.description)}")
    show_body(answer.headers, answer.payload)
