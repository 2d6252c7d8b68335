"""`natsctl publish`: messages out."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from natsctl.api.errors import UsageError
from natsctl.cli import output
from natsctl.cli.consumer.messages import wait_seconds
from natsctl.cli.messaging.bodies import check_target, read_body, read_headers
from natsctl.cli.options import Header, Json, session_of
from natsctl.cli.render.values import safe

if TYPE_CHECKING:
    from collections.abc import Iterator

    from natsctl.client.answer import Answer
    from natsctl.client.manager import Manager


@dataclass(frozen=True, slots=True)
class Outgoing:
    """What to publish, how often and how."""

    subject: str
    body: bytes
    reply: str
    headers: dict[str, str]
    count: int
    sleep_s: float
    templates: bool
    quiet: bool
    json: bool

    def messages(self) -> Iterator[tuple[int, str, bytes, dict[str, str]]]:
        """Each message: its number from 1, subject, body and headers."""
        for number in range(1, self.count + 1):
            if not self.templates:
                yield number, self.subject, self.body, self.headers
                continue
            yield number, self._fill(self.subject, number), self._fill_body(number), self._fill_headers(number)

    def _fill(self, text: str, number: int) -> str:
        from natsctl.cli.messaging.template import fill

        return fill(text, number, lambda: datetime.now().astimezone())

    def _fill_body(self, number: int) -> bytes:
        text = self._fill(self.body.decode("utf-8", "surrogateescape"), number)
        return text.encode("utf-8", "surrogateescape")

    def _fill_headers(self, number: int) -> dict[str, str]:
        return {self._fill(key, number): self._fill(value, number) for key, value in self.headers.items()}


def publish(
    ctx: typer.Context,
    subject: Annotated[str, typer.Argument(metavar="SUBJECT", help="the subject")],
    body: Annotated[str | None, typer.Argument(metavar="BODY", help="the body; @FILE, or - for stdin")] = None,
    reply: Annotated[str, typer.Option("--reply", metavar="SUBJECT", help="where answers go")] = "",
    header: Header = None,
    count: Annotated[int, typer.Option("--count", metavar="N", help="how many messages", min=1)] = 1,
    sleep: Annotated[str | None, typer.Option("--sleep", metavar="DURATION", help="pause between messages")] = None,
    jetstream: Annotated[
        bool, typer.Option("--jetstream", "-J", "--wait", "-w", help="wait for the stream's ack and show it")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="do not tell what was published")] = False,
    templates: Annotated[
        bool, typer.Option("--templates/--no-templates", help="fill in {{Count}}, {{Time}}, {{ID}}, {{Random 1 9}} …")
    ] = False,
    force_stdin: Annotated[bool, typer.Option("--force-stdin", help="read the body from stdin")] = False,
    json: Json = False,
) -> None:
    """Publish a message, or many."""
    check_target(subject)
    if jetstream and reply:
        raise UsageError("--jetstream and --reply exclude each other: the stream's ack is the answer")
    outgoing = Outgoing(
        subject,
        read_body(body, force_stdin),
        reply,
        read_headers(header),
        count,
        wait_seconds(sleep) or 0.0,
        templates,
        quiet,
        json,
    )
    work = _publish_stored if jetstream else _publish_plain
    session_of(ctx).run(lambda manager: work(manager, outgoing))


async def _publish_plain(manager: Manager, outgoing: Outgoing) -> None:
    for number, subject, body, headers in outgoing.messages():
        await manager.connection.publish(subject, body, reply=outgoing.reply, headers=headers)
        if not outgoing.quiet and not outgoing.json and outgoing.count == 1:
            output.log(f'Published {len(body)} bytes to "{safe(subject)}"')
        if outgoing.sleep_s and number < outgoing.count:
            await manager.connection.flush()
            await asyncio.sleep(outgoing.sleep_s)
    await manager.connection.flush()
    if outgoing.json:
        output.emit_json({"subject": outgoing.subject, "published": outgoing.count})
    elif outgoing.count > 1 and not outgoing.quiet:
        output.log(f'Published {outgoing.count:,} messages to "{safe(outgoing.subject)}"')


async def _publish_stored(manager: Manager, outgoing: Outgoing) -> None:
    from natsctl.client.messages import publish as publish_stored

    for number, subject, body, headers in outgoing.messages():
        answer = await publish_stored(manager, subject, body, headers=headers)
        if not outgoing.quiet and not outgoing.json:
            output.log(f'Published {len(body)} bytes to "{safe(subject)}"')
        _show_ack(answer, outgoing)
        if outgoing.sleep_s and number < outgoing.count:
            await asyncio.sleep(outgoing.sleep_s)


def _show_ack(answer: Answer[Any], outgoing: Outgoing) -> None:
    if outgoing.json:
        show = output.emit_json if outgoing.count == 1 else output.emit_json_line
        show(answer.raw)
        return
    if outgoing.quiet:
        return
    ack = answer.value
    parts = [f"Stored in Stream: {safe(ack.stream)}", f"Sequence: {ack.seq}"]
    if ack.domain:
        parts.append(f'Domain: "{safe(ack.domain)}"')
    if ack.duplicate:
        parts.append("Duplicate: true")
    if ack.val:
        parts.append(f"Counter Value: {safe(ack.val)}")
    output.emit(" ".join(parts))
