"""Reading settled messages of one stream: from kept bytes, or from the disk, where every frame is checked again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from zlib import crc32

from natsctl.store import frame
from natsctl.store.errors import StoreDamaged
from natsctl.store.message import StoredMessage
from natsctl.store.segment import Segment
from natsctl.store.segment_file import SegmentCache

SEQUENTIAL = 4
"""Messages asked from one segment in one go that make loading all of it worthwhile."""

_head_at = frame.HEAD.unpack_from
_length_at = frame.HEADER_LENGTH.unpack_from
_new = tuple.__new__
_MASK, _HEAD_BYTES, _HAS_HEADER = frame.MASK, frame.HEAD_BYTES, frame.HAS_HEADER


class SegmentReader:
    """Turns places in the index into messages."""

    __slots__ = ("_cache", "_key", "_report")

    def __init__(self, cache: SegmentCache, key: str, report: Callable[[str], None]) -> None:
        self._cache = cache
        self._key = key
        self._report = report

    def _broken(self, segment: Segment, position: int) -> StoreDamaged:
        file = segment.body
        path = file.path if file is not None else ""
        text = f"stream {self._key}: {path}: damaged message {segment.seq_at(position)} at {segment.offsets[position]}"
        self._report(text)
        return StoreDamaged(text)

    def _fetch(self, segment: Segment, position: int) -> tuple[int, bytes]:
        """Return (place, blob) of a checked frame."""
        file = segment.body
        assert file is not None
        offset = segment.offsets[position]
        start, blob, trusted = self._cache.fetch(file, offset, segment.sizes[position] + frame.FRAME_OVER_SIZE)
        at = offset - start
        if not trusted and not frame.is_intact(blob, at, file.head.salt, segment.seq_at(position)):
            raise self._broken(segment, position)
        return at, blob

    def message_at(self, segment: Segment, position: int) -> StoredMessage:
        """Return one settled message. Raises StoreDamaged."""
        at, blob = self._fetch(segment, position)
        return frame.parse_message(blob, at)

    def messages_at(self, segment: Segment, positions: Sequence[int]) -> list[StoredMessage]:
        """Return settled messages of one segment; `positions` ascend. Raises StoreDamaged."""
        file = segment.body
        assert file is not None
        if len(positions) < SEQUENTIAL:
            return [self.message_at(segment, position) for position in positions]
        out: list[StoredMessage] = []
        offsets, salt = segment.offsets, file.head.salt
        start, blob, trusted, end = 0, b"", False, -1
        for position in positions:
            offset = offsets[position]
            if not start <= offset < end:
                found = file.find(offset)
                if found is None:
                    self._cache.load(file)
                    found = file.find(offset)
                if found is None:
                    raise self._broken(segment, position)
                start, blob, trusted = found
                end = start + len(blob)
            at = offset - start
            _, length, crc, _, flags, slen, seq, ts_ns, _ = _head_at(blob, at)
            if not trusted and crc32(blob[at + 12 : at + length], (salt + length) & _MASK) != crc:
                raise self._broken(segment, position)
            body, stop = at + _HEAD_BYTES + slen, at + length
            if flags & _HAS_HEADER:
                cut = body + 4 + _length_at(blob, body)[0]
                out.append(
                    _new(
                        StoredMessage, (seq, ts_ns, blob[at + _HEAD_BYTES : body], blob[body + 4 : cut], blob[cut:stop])
                    )
                )
            else:
                out.append(_new(StoredMessage, (seq, ts_ns, blob[at + _HEAD_BYTES : body], b"", blob[body:stop])))
        self._cache.touch(file)
        return out

    def remnants_at(self, segment: Segment, positions: Sequence[int]) -> Iterator[StoredMessage]:
        """Yield settled messages, also removed ones whose bytes are still there. Raises StoreDamaged for a live one."""
        file = segment.body
        assert file is not None
        offsets, sizes, salt = segment.offsets, segment.sizes, file.head.salt
        if file.find(offsets[positions[0]]) is None or file.find(offsets[positions[-1]]) is None:
            self._cache.load(file)
        for position in positions:
            start, blob, _ = self._cache.fetch(file, offsets[position], sizes[position] + frame.FRAME_OVER_SIZE)
            at = offsets[position] - start
            if frame.is_intact(blob, at, salt, segment.seq_at(position)):
                yield frame.parse_message(blob, at)
            elif segment.is_live(position):
                raise self._broken(segment, position)

    def ts_at(self, segment: Segment, position: int) -> int:
        """Return the time of a settled message, live or not; 0 where it was erased."""
        file = segment.body
        assert file is not None
        offset = segment.offsets[position]
        start, blob, _ = self._cache.fetch(file, offset, _HEAD_BYTES)
        return int(_head_at(blob, offset - start)[7])
