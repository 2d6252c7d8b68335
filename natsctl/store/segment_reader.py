"""Reading settled messages of one stream: from kept bytes, or from the disk, where every frame is checked again."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from zlib import crc32

from natsctl.store import frame
from natsctl.store.errors import StoreDamagedError
from natsctl.store.message import StoredFrames, StoredMessage
from natsctl.store.segment import Segment
from natsctl.store.segment_file import SegmentCache

SEQUENTIAL = 4
"""Messages asked from one segment in one go that make loading all of it worthwhile."""
TRUSTED_SHARE = 64
"""Frames copied as one piece that cost what one message looked at costs."""
CHECKED_SHARE = 4
"""Frames taken one by one, with a checksum, that cost so much."""

_head_at = frame.HEAD.unpack_from
_prefix_at = frame.PREFIX.unpack_from
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

    def _broken(self, segment: Segment, position: int) -> StoreDamagedError:
        file = segment.body
        path = file.path if file is not None else ""
        text = f"stream {self._key}: {path}: damaged message {segment.seq_at(position)} at {segment.offsets[position]}"
        self._report(text)
        return StoreDamagedError(text)

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
        """Return one settled message. Raises StoreDamagedError."""
        at, blob = self._fetch(segment, position)
        return frame.parse_message(blob, at)

    def messages_at(self, segment: Segment, positions: Sequence[int]) -> list[StoredMessage]:
        """Return settled messages of one segment; `positions` ascend. Raises StoreDamagedError."""
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

    def frames_at(self, segment: Segment, positions: Sequence[int]) -> StoredFrames:
        """Return the frames of settled messages of one segment as they lie; `positions` ascend.

        Raises StoreDamagedError.

        Frames of one range that follow each other are one piece, whose bytes are not looked at where this process
        wrote them.
        """
        sizes, offsets = segment.sizes, segment.offsets
        if isinstance(positions, range):
            found = sizes[positions.start : positions.stop]
            begin, last = offsets[positions.start], positions[-1]
            end = offsets[last] + sizes[last] + frame.FRAME_OVER_SIZE
            pieces, trusted = self._span(segment, positions.start, begin, end)
            if trusted and end - begin == sum(found) + len(found) * frame.FRAME_OVER_SIZE:
                return StoredFrames(found, pieces, len(found) // TRUSTED_SHARE)
        found = array("I", map(sizes.__getitem__, positions))
        return StoredFrames(found, self._checked(segment, positions), len(found) // CHECKED_SHARE)

    def _span(self, segment: Segment, position: int, begin: int, end: int) -> tuple[list[memoryview], bool]:
        """Return the bytes from one offset to another, `position` being the first, and whether all are trusted."""
        file = segment.body
        assert file is not None
        pieces: list[memoryview] = []
        while begin < end:
            found = file.find(begin)
            if found is None:
                self._cache.load(file)
                found = file.find(begin)
            if found is None:
                raise self._broken(segment, position)
            start, blob, trusted = found
            if not trusted:
                return [], False
            pieces.append(memoryview(blob)[begin - start : end - start])
            begin = start + len(blob)
        self._cache.touch(file)
        return pieces, True

    def _checked(self, segment: Segment, positions: Sequence[int]) -> list[memoryview]:
        """Return the frames one by one, each of them checked unless this process wrote it."""
        file = segment.body
        assert file is not None
        pieces: list[memoryview] = []
        offsets, sizes, salt = segment.offsets, segment.sizes, file.head.salt
        start, view, trusted, end = 0, memoryview(b""), False, -1
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
                view, end = memoryview(blob), start + len(blob)
            at = offset - start
            length = sizes[position] + frame.FRAME_OVER_SIZE
            piece = view[at : at + length]
            if not trusted and not _is_whole(piece, length, salt):
                raise self._broken(segment, position)
            pieces.append(piece)
        self._cache.touch(file)
        return pieces

    def remnants_at(self, segment: Segment, positions: Sequence[int]) -> Iterator[StoredMessage]:
        """Yield settled messages, also removed ones whose bytes are still there.

        Raises StoreDamagedError for a live one.
        """
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


def _is_whole(piece: memoryview, length: int, salt: int) -> bool:
    """Return whether a piece is a frame of that length with the checksum that it says."""
    if len(piece) < length:
        return False
    _, said, crc = _prefix_at(piece)
    return bool(said == length and crc32(piece[frame.PREFIX.size :], (salt + length) & _MASK) == crc)
