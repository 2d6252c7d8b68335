"""Messages received from the server, shown or written to files."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from natsctl.api.errors import NothingReceivedError, file_errors
from natsctl.api.subjects import matches
from natsctl.api.units import plural
from natsctl.cli.framework import output
from natsctl.cli.messaging.bodies import received, shown_body
from natsctl.cli.render.message import ReceivedMessage, message_document, render_headers, render_received
from natsctl.cli.render.text import body_text, duration, exact_stamp, safe
from natsctl.client.messaging.feed import CoreFeed, MessageFeed

if TYPE_CHECKING:
    from natsctl.client.backup.writer import Capture
    from natsctl.client.manager import Manager
    from natsctl.client.message import Message
    from natsctl.client.messaging.request_reply import RequestLog


BREATH = 1000
"""Messages shown without a break before the connection and Ctrl-C get their turn."""


@dataclass(frozen=True, slots=True)
class ListenOptions:
    """The subjects to listen on, and the end: after `count` messages (0 never), or after `wait_s` without one.

    Messages on `ignored` subjects do not count.
    """

    subjects: tuple[str, ...]
    queue: str = ""
    count: int = 0
    wait_s: float | None = None
    ignored: tuple[str, ...] = ()


class IdleTimer:
    """The time without a message: the wait restarts with each one that was shown."""

    def __init__(self, wait_s: float | None) -> None:
        self._wait_s = wait_s
        self._until_s = 0.0
        self._waiting = False
        self.over = False

    @property
    def left_s(self) -> float | None:
        """Seconds to wait for the next message, None for no end; the wait starts now unless it has started."""
        if self._wait_s is None:
            return None
        if not self._waiting:
            self._waiting = True
            self._until_s = time.monotonic() + self._wait_s
        return max(0.0, self._until_s - time.monotonic())

    def ends(self) -> None:
        self._waiting = False

    def passed(self) -> None:
        self.over = self.left_s == 0.0


class MessageSink(Protocol):
    """Receiver of the messages that `listen` gets."""

    def banner(self, subjects: tuple[str, ...]) -> None:
        """Report that all messages from now on are shown."""

    async def show(self, manager: Manager, number: int, message: Message) -> bool | None:
        """Show one message; return False if it is not shown and does not count."""

    def flush(self) -> None:
        """Flush the output: no further message is waiting."""


async def listen(manager: Manager, listening: ListenOptions, show: MessageSink) -> int:
    """Show messages as they are published, and return their number. Raises NothingReceivedError for none."""
    async with CoreFeed(manager, listening.subjects, listening.queue) as feed:
        number = await follow(manager, feed, listening, show)
        if feed.dropped:
            output.note(
                f"{plural(feed.dropped, 'message')} arrived faster than they could be shown, and were not shown"
            )
    return number


async def follow(
    manager: Manager, feed: MessageFeed, listening: ListenOptions, show: MessageSink, *, may_be_none: bool = False
) -> int:
    """Show the messages of a feed, and return their number."""
    show.banner(listening.subjects)
    number = stretch = 0
    most = listening.count or sys.maxsize
    idle = IdleTimer(listening.wait_s)
    try:
        while number < most and not idle.over:
            message = feed.now()
            if message is None or stretch == BREATH:
                show.flush()
                stretch = 0
                await asyncio.sleep(0)
                message = message or await feed.next(idle.left_s)
                if message is None:
                    break
            stretch += 1
            ignored = listening.ignored and any(matches(pattern, message.subject) for pattern in listening.ignored)
            if ignored or await show.show(manager, number + 1, message) is False:
                idle.passed()
            else:
                idle.ends()
                number += 1
    finally:
        show.flush()
    if number == 0 and not may_be_none:
        raise NothingReceivedError(f"no message received on {safe(', '.join(listening.subjects))}")
    return number


@dataclass(frozen=True, slots=True)
class DisplayOptions:
    """Options about the parts of a message that are shown."""

    raw: bool = False
    json: bool = False
    stamped: bool = False
    since_start: bool = False
    headers_only: bool = False
    subjects_only: bool = False
    translate: str = ""
    quiet: bool = False


class MessagePrinter:
    """The output of messages; `ack` acknowledges a consumer's messages, `requests` pairs requests with answers.

    `opening` is the line on stderr before the first message of a stream.
    """

    def __init__(
        self,
        look: DisplayOptions,
        *,
        ack: bool = False,
        dump: Dump | None = None,
        requests: RequestLog | None = None,
        capture: Capture | None = None,
        opening: str = "",
    ) -> None:
        self.look = look
        self._ack = ack
        self._dump = dump
        self._requests = requests
        self._capture = capture
        self._opening = opening
        self._bodies: list[bytes] = []
        self._began_ns = time.time_ns()
        self._plain = look.raw and not look.json and not look.subjects_only and not look.translate and dump is None
        self._terminal = sys.stdout.isatty()

    def banner(self, subjects: tuple[str, ...]) -> None:
        """Print on stderr the subjects, unless only bodies or documents are printed; `opening` instead, if given."""
        if self._opening and not self.look.json:
            output.log(self._opening)
        if self._opening or self.look.raw or self.look.json or self._dump is not None:
            return
        acked = " with acknowledgement of JetStream messages" if self._ack else ""
        output.log(f"Subscribing on {', '.join(safe(subject) for subject in subjects)}{acked}")

    async def show(self, manager: Manager, number: int, message: Message) -> bool:
        """Show one message, and acknowledge it if requested.

        Return False for messages that do not count: with `requests` a request, or an answer to none of them.
        """
        counts, request = True, None
        if self._requests is not None:
            if self._requests.is_answer(message):
                request = self._requests.request_of(message)
                if request is None:
                    return False
            elif message.reply:
                self._requests.add(number, message)
                counts = False
        if self._capture is not None:
            self._capture.add(message)
        if self.look.quiet:
            pass
        elif self._plain:
            self._bodies.append(shown_body(message.body, raw=True))
        else:
            if self.look.translate:
                from natsctl.cli.messaging.message_templates import translated

                message.body = await translated(self.look.translate, message)
            self._show(number, received(message), answer=request is not None)
        if self._ack and message.reply.startswith("$JS.ACK."):
            from natsctl.client.messaging.messages import acknowledge

            await acknowledge(manager, message, wait=False)
        return counts

    def flush(self) -> None:
        if self._bodies:
            sys.stdout.buffer.write(b"".join(self._bodies))
            self._bodies.clear()
        sys.stdout.flush()
        sys.stdout.buffer.flush()

    def _show(self, number: int, message: ReceivedMessage, *, answer: bool = False) -> None:
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

    def _head(self, number: int, message: ReceivedMessage, answer: bool) -> str:
        """Return the line above a message; for an answer it names its request."""
        stamp = self._stamp(message)
        if not answer:
            return render_received(number, message, stamp)
        return f'[#{number}]{f" @ {stamp}" if stamp else ""} Matched reply on "{safe(message.subject)}"'

    def _show_text(self, message: ReceivedMessage, head: str) -> None:
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

    def _stamp(self, message: ReceivedMessage) -> str:
        """Return the time or age of a message that a consumer delivers, the time of arrival of any other."""
        stored = message.delivery if message.reply else None
        if self.look.since_start:
            return duration(message.at_ns - (stored.ts_ns if stored else self._began_ns))
        return exact_stamp(stored.ts_ns if stored else message.at_ns) if self.look.stamped else ""


STDOUT = "-"


class Dump:
    """A folder of messages as `N.json`, as the nats tool writes and reads them.

    N is the sequence in the stream for stored messages, and the place in the order of arrival for others.
    """

    def __init__(self, where: str) -> None:
        self._folder = None if where == STDOUT else Path(where)
        if self._folder is not None:
            with file_errors(f"--dump {where}"):
                self._folder.mkdir(parents=True, exist_ok=True)

    def write(self, number: int, message: ReceivedMessage) -> None:
        text = json.dumps(document(message), ensure_ascii=False)
        if self._folder is None:
            sys.stdout.write(f"{text}\0")
            return
        delivery = message.delivery
        path = self._folder / f"{number if delivery is None else delivery.stream_seq}.json"
        with file_errors(path):
            path.write_text(text)


def document(message: ReceivedMessage) -> dict[str, Any]:
    """Return the message in the format of the nats tool's dump."""
    named: dict[str, list[str]] = {}
    for name, value in message.headers:
        named.setdefault(name, []).append(value)
    return {
        "Subject": message.subject,
        "Reply": message.reply,
        "Header": named or None,
        "Data": base64.b64encode(message.payload).decode(),
        "Sub": None,
    }
