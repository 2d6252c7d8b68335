"""How messages of subscriptions are shown: numbered, one JSON document on each line, bodies only, or as files."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from natsctl.cli import output
from natsctl.cli.messaging.bodies import received, shown_body
from natsctl.cli.render.message import Received, message_document, render_headers, render_received
from natsctl.cli.render.values import body_text, duration, exact_stamp, safe

if TYPE_CHECKING:
    from natsctl.cli.messaging.dump import Dump
    from natsctl.client.manager import Manager
    from natsctl.client.message import Message
    from natsctl.client.messaging.replies import Matcher


@dataclass(frozen=True, slots=True)
class Look:
    """What of a message is shown, and how."""

    raw: bool = False
    json: bool = False
    stamped: bool = False
    since_start: bool = False
    headers_only: bool = False
    subjects_only: bool = False
    translate: str = ""


class Shower:
    """Shows messages; with `ack` it acknowledges those that a consumer waits for, with `matcher` it pairs answers."""

    def __init__(
        self, look: Look, *, ack: bool = False, dump: Dump | None = None, matcher: Matcher | None = None
    ) -> None:
        self.look = look
        self._ack = ack
        self._dump = dump
        self._matcher = matcher
        self._bodies: list[bytes] = []
        self._began_ns = time.time_ns()
        self._plain = look.raw and not look.json and not look.subjects_only and not look.translate and dump is None
        self._terminal = sys.stdout.isatty()

    def banner(self, subjects: tuple[str, ...]) -> None:
        """Say on stderr what is listened on."""
        if not self.look.raw and not self.look.json:
            output.log(f"Subscribing on {', '.join(safe(subject) for subject in subjects)}")

    async def show(self, manager: Manager, number: int, message: Message) -> bool:
        """Show one message, and acknowledge it if that was asked for; False for an answer that matches no request."""
        if self._matcher is not None and (told := self._matched(number, message)) is not None:
            return told
        if self._plain:
            self._bodies.append(shown_body(message.body, raw=True))
        else:
            if self.look.translate:
                from natsctl.cli.messaging.template import translated

                message.body = await translated(self.look.translate, message)
            self._show(number, received(message))
        if self._ack and message.reply.startswith("$JS.ACK."):
            from natsctl.client.messaging.messages import acknowledge

            await acknowledge(manager, message, wait=False)
        return True

    def flush(self) -> None:
        """Let what was shown be seen."""
        if self._bodies:
            sys.stdout.buffer.write(b"".join(self._bodies))
            self._bodies.clear()
        sys.stdout.flush()
        sys.stdout.buffer.flush()

    def _matched(self, number: int, message: Message) -> bool | None:
        """None for what is no answer; else whether the answer was shown."""
        if self._matcher is None:
            return None
        if not self._matcher.is_answer(message):
            self._matcher.asked(number, message)
            return None
        request = self._matcher.answered(message)
        if request is None:
            return False
        if not self.look.json and not self.look.raw:
            took = duration(time.monotonic_ns() - request.at_ns)
            output.emit(f'[#{number}] Matched reply to #{request.number} on "{safe(request.subject)}" after {took}')
        return None

    def _show(self, number: int, message: Received) -> None:
        look = self.look
        if self._dump is not None:
            self._dump.write(number, message)
        elif look.json:
            output.emit_json_line(message_document(message))
        elif look.subjects_only:
            output.emit(safe(message.subject))
        elif look.raw:
            sys.stdout.flush()
            sys.stdout.buffer.write(shown_body(message.payload, raw=True, translated=bool(look.translate)))
        else:
            self._show_text(number, message)

    def _show_text(self, number: int, message: Received) -> None:
        parts = [render_received(number, message, self._stamp(message.at_ns)), *render_headers(message.headers)]
        if message.headers:
            parts.append("")
        output.emit("\n".join(parts))
        if self.look.headers_only:
            return
        if self._terminal:
            output.emit(f"{body_text(message.payload)}\n")
        else:
            sys.stdout.flush()
            sys.stdout.buffer.write(shown_body(message.payload, translated=bool(self.look.translate)))

    def _stamp(self, at_ns: int) -> str:
        if self.look.since_start:
            return duration(at_ns - self._began_ns)
        return exact_stamp(at_ns) if self.look.stamped else ""
