"""Index of one segment: parallel arrays, one place ("position") per message in sequence order.

`sids` holds subject numbers, `sizes` accounted bytes, `offsets` places in the file (files only), `messages` the values
(memory only), `timed` the sequences of messages with a time of their own. Sequences are `base + position` until a gap
makes the segment sparse; then `seqs` lists them. A position is dead below `head` (dropped from the front) or where
`dead` is set. An open segment answers "positions of a subject" from `postings`, filled up to date on demand; a sealed
one keeps its sorted subject numbers (`keys`) with live counts (`counts`, true only while `head` is 0), so that a
segment which cannot match is skipped without a look inside.

A sealed segment after its index file is written, or without need for one, packs its columns (`pack`, columns.py).

`SegmentList` has the segments of one stream in sequence order; the last one takes appends. `SegmentReader` reads their
settled messages: from kept bytes, or from the disk, where every frame is checked again.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from itertools import chain, compress
from typing import NamedTuple

from natsctl.native import lib
from natsctl.store import bulk, frame
from natsctl.store.columns import AdjacentOffsets, Places, narrowed, packed, widened
from natsctl.store.errors import StoreDamagedError
from natsctl.store.message import StoredFrames, StoredMessage
from natsctl.store.segment_file import SegmentCache, SegmentFile
from natsctl.store.subject_table import GONE

_NONE: array[int] = array("I")
_NO_SEQS: array[int] = array("Q")


ASKS_BEFORE_ORDER = 16
"""Searches for a subject in one sealed segment before its positions are sorted by subject, at 4 bytes a message."""
FEW_SUBJECTS = 16
"""Maximum number of subjects with positions looked up separately and merged."""
FEW_POSITIONS = 64
"""Messages that are rather looked at one by one."""


POST_STEP = 4096
"""Messages of an open segment that one query lists by subject; later ones are searched."""


class Segment:
    __slots__ = (
        "asked",
        "base",
        "body",
        "counts",
        "dead",
        "first_ts",
        "head",
        "keys",
        "last_ts",
        "live",
        "messages",
        "offsets",
        "order",
        "posted",
        "postings",
        "seqs",
        "sids",
        "sizes",
        "timed",
    )

    def __init__(self, base: int) -> None:
        self.base = base
        self.seqs: array[int] | None = None
        self.offsets: Places = array("I")
        self.sizes = array("I")
        self.sids = array("I")
        self.timed = _NO_SEQS
        self.messages: list[StoredMessage | None] = []
        self.dead: bytearray | None = None
        self.head = 0
        self.live = 0
        self.first_ts = 0
        self.last_ts = 0
        self.keys: array[int] | None = None
        self.counts = _NONE
        self.postings: dict[int, array[int]] = {}
        self.posted = 0
        self.order: array[int] | None = None
        self.asked = 0
        self.body: SegmentFile | None = None

    def next_seq(self) -> int:
        """Return the lowest sequence this segment can still take."""
        n = len(self.sids)
        return self.base + n if self.seqs is None else (self.seqs[-1] + 1 if n else self.base)

    def become_sparse(self) -> None:
        """List sequences one by one from here on."""
        if self.seqs is None:
            self.seqs = array("Q", range(self.base, self.base + len(self.sids)))

    def seq_at(self, position: int) -> int:
        return self.base + position if self.seqs is None else self.seqs[position]

    def position_from(self, seq: int) -> int:
        """Return the first position with a sequence of at least `seq`, or the length."""
        n = len(self.sids)
        if self.seqs is None:
            return min(max(seq - self.base, 0), n)
        return bisect_left(self.seqs, seq)

    def position_of(self, seq: int) -> int:
        position = self.position_from(seq)
        if position < len(self.sids) and self.seq_at(position) == seq and self.is_live(position):
            return position
        return -1

    def is_live(self, position: int) -> bool:
        return position >= self.head and not (self.dead is not None and self.dead[position])

    def next_live(self, position: int) -> int:
        position = max(position, self.head)
        if position >= len(self.sids):
            return -1
        return position if self.dead is None else self.dead.find(0, position, len(self.sids))

    def prev_live(self, position: int) -> int:
        """Return the last live position up to and including `position`, or -1."""
        if position < self.head:
            return -1
        return position if self.dead is None else self.dead.rfind(0, self.head, position + 1)

    def live_seqs(self) -> Iterator[int]:
        position = self.next_live(0) if self.live else -1
        while position >= 0:
            yield self.seq_at(position)
            position = self.next_live(position + 1)

    def note_timed(self, seq: int) -> None:
        if not self.timed:
            self.timed = array("Q")
        self.timed.append(seq)

    def live_timed(self) -> Iterator[int]:
        """Yield the sequences of the live messages that carry a time of their own."""
        for seq in self.timed if self.live else ():
            if self.position_of(seq) >= 0:
                yield seq

    def live_between(self, start: int, stop: int) -> int:
        """Return how many live positions lie in [start, stop)."""
        start, stop = max(start, self.head), min(stop, len(self.sids))
        if stop <= start:
            return 0
        return stop - start if self.dead is None else self.dead.count(0, start, stop)

    def kill(self, position: int) -> None:
        if self.dead is None:
            self.dead = bytearray(len(self.sids))
        self.dead[position] = 1
        self.live -= 1
        if self.keys is not None:
            self.counts[bisect_left(self.keys, self.sids[position])] -= 1

    def seal(self) -> None:
        """Freeze: nothing is added any more; keep the subject summary, drop data that can be rebuilt."""
        self.order, self.asked = None, 0
        self.postings, self.posted = {}, 0
        if lib is not None:
            keys, counts, _ = lib.tally(widened(self.sids), None, self.base)
            self.keys, self.counts = array("I", keys), array("I", counts)
        else:
            tally = Counter(self.sids)
            tally.pop(GONE, None)
            self.keys = array("I", sorted(tally))
            self.counts = array("I", [tally[sid] for sid in self.keys])
        if self.dead is not None or self.head:
            gone = array("I", range(self.head))
            if self.dead is not None:
                gone.extend(compress(range(self.head, len(self.sids)), self.dead[self.head :]))
            bulk.count_down(self.keys, self.counts, self.sids, gone)

    def pack(self) -> None:
        """Keep the columns of a sealed segment in less memory."""
        self.sids = narrowed(self.sids)
        self.offsets, self.sizes = packed(self.offsets, self.sizes, frame.FRAME_OVER_SIZE)

    def unseal(self) -> None:
        self.keys, self.counts = None, _NONE
        self.order, self.asked = None, 0
        self.sids, self.sizes, self.offsets = widened(self.sids), widened(self.sizes), widened(self.offsets)

    def truncate(self, length: int) -> None:
        """Forget positions from `length` on; the caller has counted them out."""
        for column in (self.sids, self.sizes, self.offsets):
            assert isinstance(column, array)  # one that was sealed has been unsealed
            del column[length:]
        if self.seqs is not None:
            del self.seqs[length:]
        if self.dead is not None:
            del self.dead[length:]
        self.timed = self.timed[: bisect_left(self.timed, self.next_seq())]
        self.head = min(self.head, length)
        self.postings, self.posted = {}, 0

    def _posting(self, sid: int) -> array[int]:
        """Return the positions of `sid` before `posted`, having listed some more by subject."""
        end = min(len(self.sids), self.posted + POST_STEP)
        if self.posted < end:
            postings = self.postings
            for position in range(self.posted, end):
                known = postings.get(self.sids[position])
                if known is None:
                    postings[self.sids[position]] = array("I", (position,))
                else:
                    known.append(position)
            self.posted = end
        return self.postings.get(sid, _NONE)

    def holds(self, sid: int) -> bool:
        """Return whether a sealed segment has, or had, a message of `sid`."""
        keys = self.keys
        if keys is None:
            return True
        position = bisect_left(keys, sid)
        return position < len(keys) and keys[position] == sid

    def next_of(self, sid: int, position: int) -> int:
        """Return the first live position of `sid` from `position` on, or -1."""
        position = max(position, self.head)
        if self.keys is None:
            found = self._posting(sid)
            for at in range(bisect_left(found, position), len(found)):
                if self.is_live(found[at]):
                    return found[at]
            return self._next_searched(sid, max(position, self.posted))
        if position < len(self.sids) and self.sids[position] == sid and self.is_live(position):
            return position
        if not self.holds(sid):
            return -1
        return self._next_sorted(sid, position) if self._is_sorted() else self._next_searched(sid, position)

    def _next_searched(self, sid: int, position: int) -> int:
        try:
            while True:
                position = self.sids.index(sid, position)
                if self.is_live(position):
                    return position
                position += 1
        except ValueError:
            return -1

    def _is_sorted(self) -> bool:
        """Return whether positions are listed by subject, as in a sealed segment with frequent queries."""
        if self.order is None:
            self.asked += 1
            if self.asked <= ASKS_BEFORE_ORDER:
                return False
            self.order = bulk.order_of(self.sids)
        return True

    def _next_sorted(self, sid: int, position: int) -> int:
        order, sids = self.order or _NONE, self.sids
        at = bisect_left(order, (sid, position), key=lambda p: (sids[p], p))
        while at < len(order) and sids[order[at]] == sid:
            if self.is_live(order[at]):
                return order[at]
            at += 1
        return -1

    def _prev_sorted(self, sid: int, position: int) -> int:
        order, sids = self.order or _NONE, self.sids
        at = bisect_right(order, (sid, position), key=lambda p: (sids[p], p)) - 1
        while at >= 0 and sids[order[at]] == sid:
            if self.is_live(order[at]):
                return order[at]
            at -= 1
        return -1

    def prev_of(self, sid: int, position: int) -> int:
        """Return the last live position of `sid` up to and including `position`, or -1."""
        if self.keys is None:
            found = self._posting(sid)
            if position >= self.posted and (at := self._prev_searched(sid, position, self.posted)) >= 0:
                return at
            for at in range(bisect_right(found, position) - 1, -1, -1):
                if self.is_live(found[at]):
                    return found[at]
            return -1
        if not self.holds(sid):
            return -1
        return self._prev_sorted(sid, position) if self._is_sorted() else self._prev_searched(sid, position)

    def _prev_searched(self, sid: int, position: int, low: int = 0) -> int:
        stop, low = position + 1, max(low, self.head)
        while stop > low:
            start = max(low, stop - 1024)
            window = self.sids[start:stop]
            if sid in window:
                for at in range(len(window) - 1, -1, -1):
                    if window[at] == sid and self.is_live(start + at):
                        return start + at
            stop = start
        return -1

    def positions(self, sids: Container[int], start: int = 0) -> array[int]:
        """Return every position from `start` on, live or not, with a subject number in `sids`."""
        return array("I", [p for p, sid in enumerate(self.sids[start:], start) if sid in sids])

    def positions_of_few(self, sids: set[int], start: int = 0) -> array[int] | None:
        """Return the result of `positions` without examining every message, or None if that is not faster."""
        if len(sids) > FEW_SUBJECTS or len(self.sids) - start < FEW_POSITIONS:
            return None
        parts: list[array[int]] = []
        for sid in sids:
            if self.keys is None:
                parts.append(self._posting(sid))
                if self.posted < len(self.sids):
                    return None
            elif self.holds(sid):
                if not self._is_sorted():
                    return None
                order, subject_at = self.order or _NONE, self.sids.__getitem__
                parts.append(order[bisect_left(order, sid, key=subject_at) : bisect_right(order, sid, key=subject_at)])
        found = parts[0] if len(parts) == 1 else array("I", sorted(chain.from_iterable(parts)))
        return found[bisect_left(found, start) :]

    def touches(self, sids: set[int] | range) -> bool:
        if self.keys is None:
            return True
        if isinstance(sids, range):
            return bool(self.keys) and self.keys[0] < len(sids)
        if len(sids) < 64:
            return any(map(self.holds, sids))
        return not sids.isdisjoint(self.keys)

    def count_of(self, sids: set[int] | range) -> int:
        """Return the live messages on `sids` in a sealed segment with `head` 0."""
        keys, counts, total = self.keys or _NONE, self.counts, 0
        if isinstance(sids, range):
            return sum(counts[: bisect_left(keys, len(sids))])
        if len(sids) > len(keys):
            return sum(count for sid, count in zip(keys, counts, strict=True) if sid in sids)
        for sid in sids:
            position = bisect_left(keys, sid)
            if position < len(keys) and keys[position] == sid:
                total += counts[position]
        return total

    def renumber(self, moves: array[int]) -> None:
        """Follow a renumbering of the subject table; forgotten subjects have no live message here."""
        self.sids = bulk.renumbered(self.sids, moves)
        if self.keys is not None:
            self.seal()
            self.pack()
        else:
            self.postings = {}
            self.posted = 0


Place = tuple[Segment, int]
"""A segment and a position in it."""


class EarlierRemovals(NamedTuple):
    """The dead positions of a segment at one moment, and sequences that may be among them."""

    base: int
    length: int
    own: array[int] | None
    head: int
    dead: bytes
    seqs: Sequence[int]

    def find(self) -> Iterator[int]:
        """Yield the sequences of removed messages that still had their bytes."""
        base, length, own, head, dead, seqs = self
        for seq in seqs:
            position = seq - base if own is None else bisect_left(own, seq)
            known = position < length and (own is None or own[position] == seq)
            if known and (position < head or (dead and dead[position])):
                yield seq


class SegmentList:
    __slots__ = ("bases", "segments")

    def __init__(self, first_seq: int) -> None:
        self.segments: list[Segment] = [Segment(first_seq)]
        self.bases: list[int] = [first_seq]

    @property
    def active(self) -> Segment:
        return self.segments[-1]

    def open_segment(self, base: int) -> Segment:
        segment = Segment(base)
        self.segments.append(segment)
        self.bases.append(base)
        return segment

    def locate(self, seq: int) -> Place | None:
        at = bisect_right(self.bases, seq) - 1
        if at < 0:
            return None
        segment = self.segments[at]
        position = segment.position_of(seq)
        return (segment, position) if position >= 0 else None

    def physical(self, seq: int) -> Place | None:
        """Return the place of message `seq`, live or dead, or None if its bytes are removed."""
        at = bisect_right(self.bases, seq) - 1
        if at < 0:
            return None
        segment = self.segments[at]
        position = segment.position_from(seq)
        if position < len(segment.sids) and segment.seq_at(position) == seq:
            return segment, position
        return None

    def removals_among(self, seqs: Sequence[int]) -> list[EarlierRemovals]:
        """Return the state of each segment that may hold some of these ascending sequences, for `find` to look at."""
        found, low = list[EarlierRemovals](), 0
        while low < len(seqs):
            at = bisect_right(self.bases, seqs[low]) - 1
            high = bisect_left(seqs, self.bases[at + 1], low) if at + 1 < len(self.bases) else len(seqs)
            segment = self.segments[max(at, 0)]
            if at >= 0 and (segment.head or segment.dead is not None):
                dead = bytes(segment.dead) if segment.dead is not None else b""
                facts = segment.base, len(segment.sids), segment.seqs, segment.head, dead
                found.append(EarlierRemovals(*facts, seqs[low:high]))
            low = high
        return found

    def place_of(self, segment: Segment) -> int:
        position = bisect_left(self.bases, segment.base)
        return position if position < len(self.segments) and self.segments[position] is segment else -1

    def replace(self, old: Sequence[Segment], new: Segment) -> int:
        at = self.place_of(old[0])
        self.segments[at : at + len(old)] = [new]
        self.bases[at : at + len(old)] = [new.base]
        return at

    def drop_leading(self) -> list[Segment]:
        """Take the segments without live messages off the front, never the active one; return them."""
        gone: list[Segment] = []
        while len(self.segments) - len(gone) > 1 and not self.segments[len(gone)].live:
            gone.append(self.segments[len(gone)])
        if gone:
            del self.segments[: len(gone)]
            del self.bases[: len(gone)]
        return gone


SEQUENTIAL = 4
"""Messages asked from one segment in one go that make loading all of it worthwhile."""
TRUSTED_SHARE = 64
"""Number of frames copied as one piece at the cost of examining one message."""
CLOSE = 32
"""Messages for each asked one of a span so that the offsets of the whole span are quicker."""
CHECKED_SHARE = 4
"""Frames taken one by one, with a checksum, that cost so much."""

_head_at = frame.HEAD.unpack_from
_HEAD_BYTES = frame.HEAD_BYTES


class SegmentReader:
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
        at, blob = self._fetch(segment, position)
        return frame.parse_message(blob, at)

    def messages_at(self, segment: Segment, positions: Sequence[int], keep: bool) -> list[StoredMessage]:
        """Return settled messages of one segment; `positions` ascend. Raises StoreDamagedError.

        Without `keep`, bytes that are read from the disk do not stay in memory.
        """
        file = segment.body
        assert file is not None
        if len(positions) < SEQUENTIAL and keep:
            return [self.message_at(segment, position) for position in positions]
        out: list[StoredMessage] = []
        places, done = [*_offsets_at(segment, positions)], 0
        end = 0 if keep else places[-1] + segment.sizes[positions[-1]] + frame.FRAME_OVER_SIZE
        while done < len(places):
            done, _, _ = self._read(segment, positions, places, done, out, end)
        if keep:
            self._cache.touch(file)
        return out

    def _read(
        self,
        segment: Segment,
        positions: Sequence[int],
        places: list[int],
        first: int,
        out: list[StoredMessage] | None,
        end: int = 0,
    ) -> tuple[int, int, bytes]:
        """Examine the frames from the first on that one piece holds, and append their messages to `out`.

        With `end`, bytes that are not in memory are read up to that offset only, and not kept.

        Return the number of the next frame, and the start and bytes of the piece.
        """
        file = segment.body
        assert file is not None
        begin = places[first]
        if end and file.find(begin) is None:
            start, blob, trusted = begin, self._cache.reader(file).pread(end - begin, begin), False
        else:
            start, blob, trusted = self._piece(segment, positions[first], begin)
        salt = 0 if trusted else file.head.salt
        done = frame.read_frames(blob, start, places, first, salt, StoredMessage, out)
        if done == first:
            raise self._broken(segment, positions[first])
        return done, start, blob

    def _piece(self, segment: Segment, position: int, offset: int) -> tuple[int, bytes, bool]:
        """Return (start, blob, trusted) of the kept piece that holds `offset`, after loading the file if need be."""
        file = segment.body
        assert file is not None
        piece = file.find(offset)
        if piece is None:
            self._cache.load(file)
            piece = file.find(offset)
        if piece is None:
            raise self._broken(segment, position)
        return piece

    def frames_at(self, segment: Segment, positions: Sequence[int]) -> StoredFrames:
        """Return the frames of settled messages of one segment as they lie; `positions` ascend.

        Raises StoreDamagedError.

        Consecutive frames of one range are one piece; its bytes are not examined if this process
        wrote them.
        """
        sizes, offsets, is_one_piece = segment.sizes, segment.offsets, False
        if isinstance(positions, range):
            found = widened(sizes[positions.start : positions.stop])
            begin, last = offsets[positions.start], positions[-1]
            end = offsets[last] + sizes[last] + frame.FRAME_OVER_SIZE
            is_one_piece = end - begin == sum(found) + len(found) * frame.FRAME_OVER_SIZE
            pieces, trusted = self._span(segment, positions.start, begin, end) if is_one_piece else ([], False)
            if trusted:
                return StoredFrames(found, pieces, len(found) // TRUSTED_SHARE)
        else:
            found = array("I", map(sizes.__getitem__, positions))
        return StoredFrames(found, self._checked(segment, positions, found, is_one_piece), len(found) // CHECKED_SHARE)

    def _span(self, segment: Segment, position: int, begin: int, end: int) -> tuple[list[memoryview], bool]:
        """Return the bytes from one offset to another, `position` being the first, and whether all are trusted."""
        file = segment.body
        assert file is not None
        pieces: list[memoryview] = []
        while begin < end:
            start, blob, trusted = self._piece(segment, position, begin)
            if not trusted:
                return [], False
            pieces.append(memoryview(blob)[begin - start : end - start])
            begin = start + len(blob)
        self._cache.touch(file)
        return pieces, True

    def _checked(
        self, segment: Segment, positions: Sequence[int], sizes: array[int], is_one_piece: bool
    ) -> list[memoryview]:
        """Return frames of these accounted sizes as pieces, each frame examined unless this process wrote it."""
        file = segment.body
        assert file is not None
        pieces: list[memoryview] = []
        places, done = [*_offsets_at(segment, positions)], 0
        while done < len(places):
            first = done
            done, start, blob = self._read(segment, positions, places, done, None)
            view = memoryview(blob)
            for each in (done - 1,) if is_one_piece else range(first, done):
                begin = places[first if is_one_piece else each] - start
                pieces.append(view[begin : places[each] - start + sizes[each] + frame.FRAME_OVER_SIZE])
        self._cache.touch(file)
        return pieces

    def remnants_at(self, segment: Segment, positions: Sequence[int]) -> Iterator[StoredMessage]:
        """Yield settled messages, including removed ones with remaining bytes.

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

    def headed_at(self, segment: Segment, positions: Sequence[int]) -> list[int]:
        """Return the ascending positions of settled messages that have a header, by bytes that are not kept."""
        file = segment.body
        assert file is not None
        first, stop = segment.offsets[positions[0]], segment.offsets[positions[-1]] + _HEAD_BYTES
        blob, flags_at = self._cache.reader(file).pread(stop - first, first), frame.FLAGS_AT - first
        if len(blob) < stop - first:
            return list(positions)
        pairs = zip(positions, _offsets_at(segment, positions), strict=True)
        return [position for position, offset in pairs if blob[offset + flags_at] & frame.HAS_HEADER]

    def ts_at(self, segment: Segment, position: int) -> int:
        """Return the time of a settled message, live or not; 0 if erased."""
        file = segment.body
        assert file is not None
        offset = segment.offsets[position]
        start, blob, _ = self._cache.fetch(file, offset, _HEAD_BYTES)
        return int(_head_at(blob, offset - start)[7])


def _offsets_at(segment: Segment, positions: Sequence[int]) -> Iterable[int]:
    offsets, first, stop = segment.offsets, positions[0], positions[-1] + 1
    if isinstance(positions, range) or stop - first < CLOSE * len(positions):
        near = offsets.between(first, stop) if isinstance(offsets, AdjacentOffsets) else offsets[first:stop]
        return near if len(near) == len(positions) else map(near.__getitem__, map((-first).__add__, positions))
    return map(offsets.__getitem__, positions)
