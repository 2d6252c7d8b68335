"""What was given to send and is not acknowledged yet. No I/O."""

from __future__ import annotations

from collections.abc import Iterator

from natsctl.spark.source.publish.acknowledged import Acknowledged
from natsctl.spark.source.publish.acks import Answers, Place
from natsctl.spark.source.publish.messages import Stored
from natsctl.spark.source.publish.parts import CountedPart, NumberedPart


class Window:
    """The parts that are under way, oldest first."""

    def __init__(self, acknowledged: Acknowledged | None = None) -> None:
        """`acknowledged` is given every part that is done, or is to be sent otherwise."""
        self._acknowledged = acknowledged
        self.parts: list[CountedPart | NumberedPart] = []
        self.duplicates = 0
        """Of all messages that are acknowledged."""

    @property
    def pending(self) -> int:
        """How many messages are not acknowledged."""
        return sum(part.pending for part in self.parts)

    @property
    def waiting(self) -> bool:
        """Whether any answer is to come to what was sent."""
        return any(part.waiting for part in self.parts)

    @property
    def refused(self) -> bool:
        """Whether anything that was sent was refused for a passing reason."""
        return any(part.refusal for part in self.parts)

    def hold(self, stored: Stored | None = None) -> None:
        """Keep all that is not acknowledged to be sent again, each message under its own number, but what is stored."""
        apart = [self._apart(part) for part in self.parts]
        self.parts = [*apart]
        if stored is not None:
            self._settle(apart, stored)
        self._drop_done()

    def release(self, only_first: bool) -> bytes:
        """Return the bytes to send now of what is held: of the first message, or of all."""
        if only_first:
            return self._first()
        return b"".join(part.release() for part in self.parts if part.held)

    def take(self, answers: Answers) -> str:
        """Note answers; returns what is wrong with a message that is refused for good, or nothing."""
        faults = [part.take(answers) for part in self.parts]
        self._drop_done()
        self.parts = [
            self._apart(part) if isinstance(part, CountedPart) and part.unclear else part for part in self.parts
        ]
        return next(filter(None, faults), "")

    def excuse(self) -> str:
        """Return the subject of the first message that is pending, and what the server said of it, if anything."""
        return self.parts[0].excuse()

    def _settle(self, parts: list[NumberedPart], stored: Stored) -> None:
        """Note which of the messages are stored: no two rows of this task by the same sequence.

        Rows that are alike may have any of the messages with their content, but those by which other rows of this task
        were acknowledged: a server that has forgotten an id stores a second message under it, so that ids alone do not
        tell them apart.
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
                    places[row] = Place(stored.stream, seq)
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
        at = next(at for at, part in enumerate(self.parts) if part.held)
        part = self.parts[at]
        if isinstance(part, CountedPart):
            part = self.parts[at] = part.apart()
        return part.release(only_first=True)
