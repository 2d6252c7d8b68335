"""Publishing with acknowledgements: a bounded number of messages is in flight, and each is acknowledged in the end.

Theory of operation. Messages are sent in parts of half a window, so that the server processes one part while the next
one is made. Messages that are not acknowledged in time, refused temporarily, or in flight on a lost connection, are
sent again with the same ids. A part is sent under one number; messages that are sent again, or have no id, get a number
each. The order is kept: a server handles a connection's messages in order, so if it stops it has stored the first ones
and no later one; nothing more is sent while a message is refused; and at the start and after each failure only the
first message is sent, until it is acknowledged: a server that is not ready refuses one message, not half a window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from natsctl.spark.source.acknowledged import Acknowledged
from natsctl.spark.source.acks import NO_RESPONDERS, OTHER_STREAM, AckParser, AckPlace, Answers
from natsctl.spark.source.errors import (
    ApiRefusedError,
    JetStreamSourceError,
    NoResponseError,
    PublishError,
    ServerUnreachableError,
    SourceConnectionLostError,
    StreamNotFoundError,
)
from natsctl.spark.source.handshake import ServerSettings
from natsctl.spark.source.jetstream_api import JetStreamApi
from natsctl.spark.source.link import Link
from natsctl.spark.source.message_parts import CountedPart, NumberedPart, RefusedMessage
from natsctl.spark.source.messages import Messages, Stored
from natsctl.spark.source.outages import Outage


def unstored_reason(settings: ServerSettings, subject: str, stream: str) -> JetStreamSourceError | None:
    """Return why no message is stored under a subject; None if a stream takes it, or if JetStream does not say.

    `stream` is the only one that may store it; empty: any. A stream that is offline is listed nevertheless.
    """
    settings = replace(settings, retries=0)
    try:
        with Link.open(settings) as link:
            api = JetStreamApi(link, settings)
            if stream:
                try:
                    config = api.stream_info(stream)["config"]
                except StreamNotFoundError:
                    return StreamNotFoundError(f"{subject} is not stored: stream {stream} does not exist")
            takers = api.stream_names(subject)
    except JetStreamSourceError:
        return None
    if not stream:
        return None if takers else PublishError(f"{subject}: no stream takes this subject; create one, or correct it")
    if stream in takers:
        return None
    elsewhere = f"; {', '.join(takers)} does" if takers else ""
    subjects = ", ".join(config.get("subjects") or ()) or "no subjects"
    return PublishError(f"{subject}: stream {stream} does not take this subject, but {subjects}{elsewhere}")


class PublishWindow:
    """The parts that are under way, oldest first."""

    def __init__(self, acknowledged: Acknowledged | None = None) -> None:
        """Prepare; `acknowledged` is called with every part that is done, or must be sent in another way."""
        self._acknowledged = acknowledged
        self.parts: list[CountedPart | NumberedPart] = []
        self.duplicates = 0

    @property
    def pending(self) -> int:
        return sum(part.pending for part in self.parts)

    @property
    def waiting(self) -> bool:
        return any(part.waiting for part in self.parts)

    @property
    def refused(self) -> bool:
        """Return whether anything that was sent was refused for a passing reason."""
        return any(part.refusal for part in self.parts)

    def hold(self, stored: Stored | None = None) -> None:
        """Keep unacknowledged messages to send again, each under its own number, except stored ones."""
        apart = [self._apart(part) for part in self.parts]
        self.parts = [*apart]
        if stored is not None:
            self._settle(apart, stored)
        self._drop_done()

    def release(self, only_first: bool) -> bytes:
        """Return the bytes to send now: of the first message, or of all."""
        if only_first:
            return self._first()
        return b"".join(part.release() for part in self.parts if part.held)

    def take(self, answers: Answers) -> RefusedMessage | None:
        """Record answers; returns a message that is refused for good, if there is one."""
        faults = [part.take(answers) for part in self.parts]
        self._drop_done()
        self.parts = [
            self._apart(part) if isinstance(part, CountedPart) and part.unclear else part for part in self.parts
        ]
        return next(filter(None, faults), None)

    def excuse(self) -> RefusedMessage:
        """Return the first pending message and the server's error for it."""
        return self.parts[0].excuse()

    def _settle(self, parts: list[NumberedPart], stored: Stored) -> None:
        """Note which of the messages are stored: no two rows of this task by the same sequence.

        Equal rows may have any of the messages with their content, except the ones that acknowledged other rows of this
        task: a server that has forgotten an id stores a second message under it, so ids are not enough to distinguish
        them.
        """
        counted = frozenset[bytes]().union(*(part.counted for part in parts))
        taken = self._acknowledged.sequences(stored.stream) - counted if self._acknowledged else set[bytes]()
        taken.update(place.seq for part in parts for place in part.places.values())
        for part in parts:
            made = part.made_rows()
            places = {row: place for row, place in stored.places(part.messages).items() if row not in made}
            free: dict[bytes, Iterator[bytes]] = {}
            for digest, seqs in stored.alike(set(made.values())).items():
                own = [seq for seq in seqs if seq in part.counted]
                free[digest] = iter([seq for seq in (*own, *(s for s in seqs if s not in counted)) if seq not in taken])
            for row, digest in made.items():
                if seq := next(free.get(digest, iter(())), b""):
                    places[row] = AckPlace(stored.stream, seq)
                    taken.add(seq)
            part.settle(places)

    def _drop_done(self) -> None:
        done = [part for part in self.parts if not part.pending]
        self.duplicates += sum(part.duplicates for part in done)
        if self._acknowledged is not None:
            for part in done:
                self._acknowledged.take(part)
        self.parts = [part for part in self.parts if part.pending]

    def _apart(self, part: CountedPart | NumberedPart) -> NumberedPart:
        if self._acknowledged is not None and isinstance(part, CountedPart):
            self._acknowledged.take(part)
        return part.apart()

    def _first(self) -> bytes:
        at = next(index for index, part in enumerate(self.parts) if part.held)
        part = self.parts[at]
        if isinstance(part, CountedPart):
            part = self.parts[at] = part.apart()
        return part.release(only_first=True)


PART_BYTES = 4 << 20
"""Larger parts are cut: unacknowledged data is kept, and sent again in the worst case."""


@dataclass(frozen=True)
class PublishLimits:
    """Limits: messages under way at once, and time to an acknowledgement."""

    window: int = 4000
    ack_timeout_s: float = 10.0


class Publisher:
    """A publisher over one connection, in order; all messages are stored when `finish` returns."""

    def __init__(
        self,
        link: Link,
        limits: PublishLimits,
        stream: str = "",
        acknowledged: Acknowledged | None = None,
        look: Callable[[], Stored] | None = None,
    ) -> None:
        """`stream` is the only one that may acknowledge; empty: any. `acknowledged` gets the sequences.

        `look` returns the stored messages before anything is sent again: a server may have forgotten an id by then.
        """
        self._look = look
        self.messages = 0
        self.bytes = 0
        """Bytes of subjects, headers, ids and payloads, each message counted once."""
        self.retries = 0
        self.stream = ""
        """The last one that acknowledged."""
        self.first_seq = 0
        self.last_seq = 0
        self._link = link
        self._limits = limits
        self._inbox = link.new_inbox()
        self._acks = AckParser(self._inbox, stream, placed=acknowledged is not None)
        self._wanted = stream
        self._unstored = False
        """Whether JetStream said after the last attempt that no stream takes the subject. It is asked twice, since a
        stream may be created, or a server start, in between."""
        self._window = PublishWindow(acknowledged)
        self._outage = Outage(link.settings)
        self._proven = False
        self._lost: SourceConnectionLostError | None = None
        self._subscribe()

    @property
    def duplicates(self) -> int:
        """Return the number of messages that the server said it had already."""
        return self._window.duplicates

    def publish(self, messages: Messages) -> None:
        """Send messages, waiting while the window is full.

        Raises PublishError, ServerUnreachableError, SourceNotAuthorisedError.
        """
        start = 0
        while start < len(messages):
            part = self._part(messages, start)
            start += part.pending
            self._until(self._limits.window - part.pending)
            self._window.parts.append(part)
            if self._proven or not self._window.waiting:
                self._send_held()
        self.messages += len(messages)
        self.bytes += messages.size

    def finish(self) -> None:
        """Return when every message is acknowledged; raises as `publish` does."""
        self._until(0)

    def _part(self, messages: Messages, start: int) -> CountedPart | NumberedPart:
        """Return the next bytes to send; first a single message, so that the others need no numbers."""
        rows = min(max(self._limits.window // 2, 1), len(messages) - start)
        if not self._proven and not self._window.parts:
            rows = 1
        while rows > 1 and messages.part(start, rows).size > PART_BYTES:
            rows //= 2
        part = messages.part(start, rows)
        kind = CountedPart if part.countable and self._acks.countable else NumberedPart
        return kind(self.messages + start, part, self._inbox)

    def _until(self, pending: int) -> None:
        """Go on until no more than that many messages are not acknowledged, and none of them was refused."""
        while self._window.pending > max(pending, 0) or self._window.refused:
            if self._lost:
                self._reconnect(self._lost)
            elif self._window.waiting:
                self._listen()
            elif self._window.refused:
                self._pause()
            else:
                self._send_held()

    def _listen(self) -> None:
        try:
            answers = self._acks.feed(self._link.read(self._limits.ack_timeout_s))
            self._take(answers)
        except NoResponseError:
            self._pause()
        except SourceConnectionLostError as lost:
            self._lost = lost

    def _take(self, answers: Answers) -> None:
        if refused := self._window.take(answers):
            raise self._reason(refused) or PublishError(str(refused))
        if answers.stored or answers.duplicates:
            self._outage.end()
            self._proven = True
        if answers.stream:
            self.stream = answers.stream
            self.first_seq = self.first_seq or answers.last_seq
            self.last_seq = max(self.last_seq, answers.last_seq)
        for line in answers.lines:
            self._link.handle_line(line)

    def _send_held(self) -> None:
        try:
            self._link.send(self._window.release(only_first=not self._proven))
        except SourceConnectionLostError as lost:
            self._lost = lost

    def _reason(self, message: RefusedMessage) -> JetStreamSourceError | None:
        """Return why no stream stores a message, if JetStream is asked and says so."""
        if message.refusal.err_code != OTHER_STREAM and (message.refusal.code != NO_RESPONDERS or self.stream):
            return None
        return unstored_reason(self._link.settings, message.subject, self._wanted)

    def _pause(self) -> None:
        """Schedule all unacknowledged messages to be sent again after a pause."""
        self._pause_after("")
        self._hold()

    def _hold(self) -> None:
        stored = None
        while self._look and stored is None:
            try:
                stored = self._look()
            except (ApiRefusedError, ServerUnreachableError) as failure:
                self._pause_after(failure.text)
        self._window.hold(stored)

    def _reconnect(self, lost: SourceConnectionLostError) -> None:
        self._pause_after(lost.text)
        self._link.reopen()
        self._acks.forget()
        self._lost = None
        self._subscribe()
        self._hold()

    def _subscribe(self) -> None:
        try:
            self._link.send(f"SUB {self._inbox}.* {self._link.new_sid()}\r\n".encode())
        except SourceConnectionLostError as lost:
            self._lost = lost

    def _pause_after(self, reason: str) -> None:
        """Wait before unacknowledged messages are sent again; raises PublishError when an outage is too long."""
        self._proven = False
        self.retries += 1
        excuse = self._window.excuse()
        unstored = self._reason(excuse)
        if unstored is not None and self._unstored:
            raise unstored
        self._unstored = unstored is not None
        self._outage.pause(PublishError(f"{excuse}; {reason}" if reason else str(excuse)))
