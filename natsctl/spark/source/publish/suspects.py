"""Rows whose messages were in the stream already, with their contents, as long as there is room for them.

A server that acknowledges a duplicate says which sequence stands for it, but the acknowledgements of a part are counted
and do not say of which row they are. So the ids of such a part are looked up: each is sent again, without payload and
expecting a last message id that no stream has. A server looks for duplicates first, and answers with the sequence; an
id that it has forgotten meanwhile is refused, and nothing is stored.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import pyarrow as pa

from natsctl.spark.source.connection.link import Link
from natsctl.spark.source.connection.settings import ServerSettings
from natsctl.spark.source.errors import JetStreamSourceError
from natsctl.spark.source.publish.acks import AckParser, Place
from natsctl.spark.source.publish.header_blocks import constant
from natsctl.spark.source.publish.ids import digest_of
from natsctl.spark.source.publish.messages import Messages, content

ROOM_BYTES: Final = 1 << 20
"""Of the report of one task, which Spark takes to the driver; beyond, the driver reads the stream."""
_ROW_BYTES: Final = 64
_SEQ_BYTES: Final = 16


@dataclass(frozen=True)
class Suspect:
    """A content, and the sequences that stand for rows with it."""

    subject: bytes
    headers: bytes
    payload: bytes
    seqs: list[tuple[str, int]] = field(default_factory=list)
    """With the stream, as acknowledgements name it."""


class Suspects:
    """The suspects of one task."""

    def __init__(self, settings: ServerSettings, stream: str) -> None:
        """`stream` is the only one that may acknowledge; empty: any."""
        self.found: dict[bytes, Suspect] = {}
        """By the digest of their content."""
        self.room = ROOM_BYTES
        self._settings = settings
        self._stream = stream
        self._link: Link | None = None
        self._asked = 0

    def close(self) -> None:
        """End the connection of look-ups, if there is one."""
        if self._link is not None:
            self._link.close()

    def add(self, messages: Messages, places: Mapping[int, Place]) -> None:
        """Keep rows by their numbers in `messages`."""
        for row, place in places.items():
            if self.room <= 0:
                return
            digest = digest_of(messages.ids[row].as_py())
            if digest not in self.found:
                columns = (messages.subjects, messages.headers, messages.payloads)
                suspect = self.found[digest] = Suspect(*(column[row].as_py() for column in columns))
                self.room -= _ROW_BYTES + sum(map(len, (suspect.subject, suspect.headers, suspect.payload)))
            self.found[digest].seqs.append((place.stream, int(place.seq)))
            self.room -= _SEQ_BYTES

    def look_up(self, messages: Messages, seqs: Collection[bytes]) -> None:
        """Keep the rows for which these sequences stand; those that cannot be found are left to the driver."""
        if self.room <= 0:
            return
        try:
            places = self._places(messages)
        except JetStreamSourceError:
            return
        self.add(messages, {row: place for row, place in places.items() if place.seq in seqs})

    def _places(self, messages: Messages) -> dict[int, Place]:
        """Return the places of the messages, by their rows."""
        link = self._link = self._link or Link.open(self._settings)
        inbox = link.new_inbox()
        subscription = link.subscribe(f"{inbox}.*")
        rows = len(messages)
        line = f"Nats-Expected-Last-Msg-Id: {secrets.token_hex(11)}\r\n".encode()
        probes = replace(
            messages, headers=pa.repeat(constant(line), rows), payloads=pa.repeat(constant(b""), rows), made=None
        )
        link.send(content(probes.frames(inbox, 0, range(rows))))
        parser = AckParser(inbox, self._stream)
        places: dict[int, Place] = {}
        refused = set[bytes]()
        while len(places) + len(refused) < rows:
            answers = parser.feed(link.read(self._settings.timeout_s))
            places |= {int(number): place for number, place in answers.places.items()}
            refused |= {number for number in answers.refused if int(number) not in places}
            for heard in answers.lines:
                link.heed(heard)
        link.unsubscribe(subscription)
        return places
