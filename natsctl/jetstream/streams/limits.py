"""max_msgs, max_bytes and max_msgs_per_subject: removal of old messages, or refusal of new ones (discard new)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from natsctl.api import headers
from natsctl.api.catalogue import ApiError, error
from natsctl.api.errors import ErrCode
from natsctl.api.stream import DiscardPolicy
from natsctl.jetstream.consumers.redelivery import GONE
from natsctl.store.index import BULK
from natsctl.store.message import file_size, memory_size
from natsctl.store.steps import STEP, Steps, finish

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from natsctl.jetstream.streams.stream import Stream


class ContentLimits:
    __slots__ = ("_size", "_stream", "any")

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._size = file_size if stream.store.storage == "file" else memory_size
        self.any = False
        """True if there is any limit."""

    def configure(self) -> None:
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
            return error(ErrCode.STREAM_STORE_FAILED, err="maximum messages per subject exceeded")
        if 0 < config.max_msgs <= store.messages and not replaces:
            return error(ErrCode.STREAM_STORE_FAILED, err="maximum messages exceeded")
        if config.max_bytes > 0:
            size = self._size(len(subject), len(header), len(payload))
            fits = replaces and store.size_of(store.first_seq_of(subject)) >= size
            if store.bytes + size > config.max_bytes and not fits:
                return error(ErrCode.STREAM_STORE_FAILED, err="maximum bytes exceeded")
        return None

    def has_room(self, subject: bytes, payloads: Sequence[bytes]) -> bool:
        """Return whether messages without headers fit surely, so that discard new refuses none of them."""
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
        self._trim_subject(subject)
        self._trim_stream()

    @property
    def trims_together(self) -> bool:
        """Return whether messages may be stored first and trimmed then, with the same removals.

        It is not if a smaller message replaces a larger one, so that an older one would have fitted.
        """
        config = self._stream.config
        return config.max_msgs_per_subject <= 0 or config.max_bytes <= 0 or config.discard is DiscardPolicy.NEW

    def trim_all(self, subjects: Iterable[bytes]) -> None:
        if self._stream.config.max_msgs_per_subject > 0:
            for subject in subjects:
                self._trim_subject(subject)
        self._trim_stream()

    def _trim_subject(self, subject: bytes, most: int = 0) -> int:
        """Remove messages of a subject beyond its limit, at most `most` (0: all), and return their number."""
        stream, store = self._stream, self._stream.store
        per_subject, dropped = stream.config.max_msgs_per_subject, 0
        if per_subject > 0:
            while store.count_of(subject) > per_subject:
                gone = store.remove(store.first_seq_of(subject))
                assert gone is not None
                stream.removed(gone, GONE)
                dropped += 1
                if dropped == most:
                    break
        return dropped

    def _trim_stream(self, most: int = 0) -> int:
        """Drop the oldest messages above a limit; with discard new the existing ones may stay.

        With `most`, so many at most. Returns how many went.
        """
        stream, store, config = self._stream, self._stream.store, self._stream.config
        dropped = 0
        if config.discard is DiscardPolicy.NEW:
            return dropped
        max_msgs, max_bytes = config.max_msgs, config.max_bytes
        while (0 < max_msgs < store.messages) or (0 < max_bytes < store.bytes and store.messages):
            stream.removed(store.drop_first(), GONE)
            dropped += 1
            if dropped == most:
                break
        return dropped

    def recovered(self) -> None:
        """Complete removals that a crash interrupted: of a commit (which writes them last) or of a job."""
        if self._stream.store.healthy:
            finish(self.enforcing())

    def enforcing(self) -> Steps[None]:
        """Drop everything that limits, perhaps tightened just now, push out: those of the stream first.

        Ends without it where the configuration is replaced meanwhile.
        """
        if self.any:
            self._stream.work.shut()
            if self._stream.store.messages < BULK:
                yield from self._enforcing_one_by_one()
            else:
                yield from self._enforcing_together()

    def _enforcing_one_by_one(self) -> Steps[None]:
        config, store = self._stream.config, self._stream.store
        while config is self._stream.config and (dropped := self._trim_stream(STEP)):
            yield dropped
        per_subject = config.max_msgs_per_subject
        if per_subject <= 0 or store.messages < store.num_subjects + per_subject:
            return
        for subject in store.crowded_subjects(per_subject):
            while config is self._stream.config and (dropped := self._trim_subject(subject, STEP)):
                yield dropped

    def _enforcing_together(self) -> Steps[None]:
        """Drop by whole columns; consumers are informed of their pending messages and recount the others."""
        stream, config, store = self._stream, self._stream.config, self._stream.store
        before = store.messages
        if config.discard is not DiscardPolicy.NEW:
            while config is stream.config and (gone := store.drop_oldest(config.max_msgs, config.max_bytes)):
                yield from stream.trimmed(gone)
                yield STEP
        per_subject, seq = config.max_msgs_per_subject, store.first_seq
        if per_subject > 0 and store.messages >= store.num_subjects + per_subject:
            while seq and config is stream.config:
                gone, seq = store.thin_out(per_subject, seq)
                if gone:
                    yield from stream.trimmed(gone)
                yield STEP
        if store.messages < before:
            yield from stream.recounting()
