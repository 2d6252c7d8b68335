"""max_msgs, max_bytes and max_msgs_per_subject: what they push out, and what discard new refuses for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from natsctl.api import headers
from natsctl.api.catalogue import ApiError, error
from natsctl.api.stream import DiscardPolicy
from natsctl.jetstream.consumers.retry import GONE
from natsctl.store.message import file_size, memory_size

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from natsctl.jetstream.stream import Stream


MAX_LOOK: Final = 65_536
"""Subjects, or last messages where there are more subjects, that are looked at after a restart."""


class Limits:
    """The limits of one stream's contents."""

    __slots__ = ("_size", "_stream", "any")

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._size = file_size if stream.store.storage == "file" else memory_size
        self.any = False
        """Whether there is a limit at all."""

    def configure(self) -> None:
        """Take the limits from the configuration."""
        config = self._stream.config
        self.any = max(config.max_msgs, config.max_bytes, config.max_msgs_per_subject) > 0

    def refuse(self, subject: bytes, header: bytes, payload: bytes) -> ApiError | None:
        """Return why discard new refuses a message, or None."""
        config, store = self._stream.config, self._stream.store
        if config.discard is not DiscardPolicy.NEW or not self.any:
            return None
        replaces = 0 < config.max_msgs_per_subject <= store.count_of(subject)
        rolls_up = headers.get(header, headers.ROLLUP)
        if replaces and config.discard_new_per_subject and not rolls_up:
            return error(10077, err="maximum messages per subject exceeded")
        if 0 < config.max_msgs <= store.messages and not replaces:
            return error(10077, err="maximum messages exceeded")
        if config.max_bytes > 0:
            size = self._size(len(subject), len(header), len(payload))
            fits = replaces and store.size_of(store.first_seq_of(subject)) >= size
            if store.bytes + size > config.max_bytes and not fits:
                return error(10077, err="maximum bytes exceeded")
        return None

    def has_room(self, subject: bytes, payloads: Sequence[bytes]) -> bool:
        """Tell whether messages without headers fit surely, so that discard new refuses none of them."""
        config, store = self._stream.config, self._stream.store
        if config.max_msgs_per_subject > 0 and config.discard_new_per_subject:
            return False
        if 0 < config.max_msgs < store.messages + len(payloads):
            return False
        if config.max_bytes <= 0:
            return True
        largest = self._size(len(subject), 0, max(map(len, payloads)))
        return store.bytes + largest * len(payloads) <= config.max_bytes

    def trim(self, subject: bytes) -> None:
        """Drop what the limits push out after a message on `subject` was stored."""
        self._trim_subject(subject)
        self._trim_stream()

    @property
    def trims_together(self) -> bool:
        """Whether messages may be stored first and trimmed then: what goes is the same.

        It is not where a smaller message takes the place of a larger one, so that an older one would have fitted.
        """
        config = self._stream.config
        return config.max_msgs_per_subject <= 0 or config.max_bytes <= 0 or config.discard is DiscardPolicy.NEW

    def trim_all(self, subjects: Iterable[bytes]) -> None:
        """Drop what the limits push out after messages on these subjects were stored."""
        if self._stream.config.max_msgs_per_subject > 0:
            for subject in subjects:
                self._trim_subject(subject)
        self._trim_stream()

    def _trim_subject(self, subject: bytes) -> None:
        stream, store = self._stream, self._stream.store
        per_subject = stream.config.max_msgs_per_subject
        if per_subject > 0:
            while store.count_of(subject) > per_subject:
                gone = store.remove(store.first_seq_of(subject))
                assert gone is not None
                stream.removed(gone, GONE)

    def _trim_stream(self) -> None:
        """Drop the oldest messages that are too many; with discard new those that are there may stay."""
        stream, store, config = self._stream, self._stream.store, self._stream.config
        if config.discard is DiscardPolicy.NEW:
            return
        max_msgs, max_bytes = config.max_msgs, config.max_bytes
        while (0 < max_msgs < store.messages) or (0 < max_bytes < store.bytes and store.messages):
            stream.removed(store.drop_first(), GONE)

    def recovered(self) -> None:
        """Drop what a commit that a crash interrupted left: what it takes out is written after what it brings."""
        store, per_subject = self._stream.store, self._stream.config.max_msgs_per_subject
        if not self.any or not store.healthy:
            return
        self._trim_stream()
        if per_subject <= 0 or store.messages < store.num_subjects + per_subject:
            return
        if store.num_subjects <= MAX_LOOK:  # a new limit may concern any of them
            subjects = set(store.subjects())
        else:
            latest = range(max(store.last_seq - MAX_LOOK, store.first_seq), store.last_seq + 1)
            subjects = {subject for seq in latest if (subject := store.subject_of(seq)) is not None}
        for subject in subjects:
            self._trim_subject(subject)

    def enforce(self) -> None:
        """Drop everything that limits, perhaps tightened just now, push out: those of the stream first."""
        if not self.any:
            return
        self._trim_stream()
        if self._stream.config.max_msgs_per_subject > 0:
            for subject in self._stream.store.subjects():
                self._trim_subject(subject)
