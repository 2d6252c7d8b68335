"""How messages of subscriptions are shown: numbered, one JSON document on each line, bodies only, or as files."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from natsctl.cli import output
from natsctl.cli.messaging.bodies import received, shown_body
from natsctl.cli.render.message import Received, message_document, render_headers, render_received
from natsctl.cli.render.text import body_text, duration, exact_stamp, safe

if TYPE_CHECKING:
    from natsctl.cli.messaging.dump import Dump
    from natsctl.client.backup.capture import Capture
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
    quiet: bool = False


class Shower:
    """Shows messages; with `ack` it acknowledges those that a consumer waits for, with `matcher` it pairs answers."""

    def __init__(
        self,
        look: Look,
        *,
        ack: bool = False,
        dump: Dump | None = None,
        matcher: Matcher | None = None,
        capture: Capture | None = None,
    ) -> None:
        self.look = look
        self._ack = ack
        self._dump = dump
        self._matcher = matcher
        self._capture = capture
        self._bodies: list[bytes] = []
        self._began_ns = time.time_ns()
        self._plain = look.raw and not look.json and not look.subjects_only and not look.translate and dump is None
        self._terminal = sys.stdout.isatty()

    def banner(self, subjects: tuple[str, ...]) -> None:
        """Say on stderr what is listened on, unless only bytes or documents are wanted."""
        if self.look.raw or self.look.json or self._dump is not None:
            return
        acked = " with acknowledgement of JetStream messages" if self._ack else ""
        output.log(f"Subscribing on {', '.join(safe(subject) for subject in subjects)}{acked}")

    async def show(self, manager: Manager, number: int, message: Message) -> bool:
        """Show one message, and acknowledge it if that was asked for.

        False for what does not count: with a matcher a request, which its answer counts for, or a foreign answer.
        """
        counts, request = True, None
        if self._matcher is not None:
            if self._matcher.is_answer(message):
                request = self._matcher.answered(message)
                if request is None:
                    return False
            elif message.reply:
                self._matcher.asked(number, message)
                counts = False
        if self._capture is not None:
            self._capture.add(message)
        if self.look.quiet:
            pass
        elif self._plain:
            self._bodies.append(shown_body(message.body, raw=True))
        else:
            if self.look.translate:
                from natsctl.cli.messaging.template import translated

                message.body = await translated(self.look.translate, message)
            self._show(number, received(message), answer=request is not None)
        if self._ack and message.reply.startswith("$JS.ACK."):
            from natsctl.client.messaging.messages import acknowledge

            await acknowledge(manager, message, wait=False)
        return counts

    def flush(self) -> None:
        """Let what was shown be seen."""
        if self._bodies:
            sys.stdout.buffer.write(b"".join(self._bodies))
            self._bodies.clear()
        sys.stdout.flush()
        sys.stdout.buffer.flush()

    def _show(self, number: int, message: Received, *, answer: bool = False) -> None:
        look = self.look
        if self._dump is not None:
            self._dump.write(number, message)
        elif look.json:
            output.emit_json_line(message_document(message))
        elif look.subjects_only:
            output.emit(self._head(number, message, answer))
        elif look.raw:
            sys.stdout.flush()
            sys.stdout.buffer.write(shown_body(message.payload, raw=True, translated=bool(look.translate)))
        else:
            self._show_text(message, self._head(number, message, answer))

    def _head(self, number: int, message: Received, answer: bool) -> str:
        """Return the line above a message, which for an answer says that its request is there."""
        stamp = self._stamp(message.at_ns)
        if not answer:
            return render_received(number, message, stamp)
        return f'[#{number}]{f" @ {stamp}" if stamp else ""} Matched reply on "{safe(message.subject)}"'

    def _show_text(self, message: Received, head: str) -> None:
        parts = [head, *render_headers(message.headers)]
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
