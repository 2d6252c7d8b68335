"""Rows of the native module's fuzzing: for each function plain arguments, and its specification in Python.

`CASES` has one row for each function, and for each method and attribute of `PublishRun`, whose first argument then is
the messages that the run is made of. Arguments are drawn from small pools: making them takes longer than most calls.
"""

from __future__ import annotations

import random
import re
from array import array
from collections.abc import Callable, Generator, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from operator import methodcaller
from types import BuiltinFunctionType
from typing import Any, Final, NamedTuple

from natsctl.api.archive import archive_v1, archive_v2, s2
from natsctl.api.archive.archive import ArchivedMessage, ArchiveError, Gone, counted
from natsctl.api.archive.highwayhash import HighwayHash64
from natsctl.broker.subscription import _ack_frames, _message_frames
from natsctl.jetstream.consumers.delivery_budget import _first_deliveries
from natsctl.store import bulk, columns, frame, subject_table
from natsctl.store.filters import Filters
from natsctl.store.message import StoredMessage
from natsctl.wire import parser, server_frames
from natsctl.wire.client import encode_pub
from natsctl.wire.ops import PUB, RUN, Limits
from natsctl.wire.publish_run import PublishRun

Words = tuple[Any, ...]


class Case(NamedTuple):
    """A function of the module: plain arguments for it, and a check of its answer to them."""

    make: Callable[[random.Random], Words]
    check: Callable[..., object] | None = None


class FaultError(Exception):
    """A function that answered other than it should."""


SUBJECTS: Final = (b"a", b"a.b", b"a.b.c", b"ORDERS.new", b"*", b"a.*", b"x" * 200, b"\xff", b"a b")
BLOBS: Final = (b"", b"a", b"ab" * 3, b"0123456", b"01234567", b"012345678", bytes(100), b"\xff" * 1000, bytes(5000))
REPLIES: Final = (b"", b"", b"_INBOX.a.1", b"_INBOX.a.2", b"_INBOX.a.b.3", b"_R_.x", b"_GR_.y", b"$JS.ACK.z", b"ab")
HEADERS: Final = (b"", b"", b"NATS/1.0\r\n\r\n", b"NATS/1.0\r\nNats-Msg-Id: 1\r\n\r\n")
NUMBERS: Final = (0, 1, 2, 9, 10, 255, 65536, 2**31 - 1, 2**32 - 1, 2**32, 2**53, 2**62, 2**63 - 1)
OFFSETS: Final = (64, 100, 4096, 2**20, 2**31)
LINES: Final = (
    b"PUB a.b 3\r\nabc\r\n", b"PUB a.b _INBOX.1 0\r\n\r\n", b"HPUB a 12 14\r\nNATS/1.0\r\n\r\nhi\r\n", b"SUB a.* 1\r\n",
    b"SUB a.> q 2\r\n", b"UNSUB 1\r\n", b"PUB a 999999999\r\nx\r\n", b"PUB a 04\r\nabcd\r\n", b"PING\r\n", b"PUB ",
    b"HPUB a r 0 0\r\n\r\n", b" PUB a 0\r\n\r\n", b"PUB a\tb 1\r\nx\r\n", b"\r\n", b"PUB a 1\r\nxy\r\n", b"sub a 1\r\n",
)  # fmt: skip


def cut_or_changed(data: bytes, chance: random.Random) -> bytes:
    """Return `data` with one thing wrong."""
    if not data:
        return chance.choice(BLOBS)
    at, kind = chance.randrange(len(data)), chance.randrange(4)
    if kind == 0:
        return data[:at]
    if kind == 1:
        return data[:at] + bytes((chance.randrange(256),)) + data[at + 1 :]
    if kind == 2:
        return data[:at] + data[at + chance.randrange(1, 9) :]
    return data[:at] + chance.choice(BLOBS) + data[at:]


def same_as(specification: Callable[..., object]) -> Callable[..., None]:
    """Return a check that the answer is the specification's."""

    def check(answer: object, *words: object) -> None:
        expected = specification(*words)
        if answer != expected:
            raise FaultError(f"{answer!r}, where the specification has {expected!r}")

    return check


def _frame(chance: random.Random) -> Words:
    one = chance.choice
    words = (one(NUMBERS), one(NUMBERS), one(NUMBERS), one(NUMBERS))
    return (*words, one((0, 2, 4, 6)), one(SUBJECTS), one(HEADERS), one(BLOBS))


def _copies(chance: random.Random) -> Words:
    one = chance.choice
    count = chance.randrange(1, 5)
    copies = [(one(NUMBERS), one(NUMBERS), one(SUBJECTS), one(HEADERS), one(BLOBS)) for _ in range(count)]
    return one(NUMBERS), one(NUMBERS), one(NUMBERS), one(OFFSETS), copies


def _chunk(chance: random.Random) -> Words:
    chunk = b"".join(chance.choices(LINES, k=chance.randrange(1, 9)))
    if chance.randrange(2):
        chunk = cut_or_changed(chunk, chance)
    return chunk, chance.choice((8, 16, 4096)), chance.choice((2, 8, 1 << 20)), [], chance.randrange(2) == 0


def _check_chunk(end: int, chunk: bytes, max_line: int, max_payload: int, ops: list[Any], runs: bool) -> None:
    """Raise where the operations, and those that Python finds in the rest, are not those of the whole in Python."""
    whole, rest = (parser.Parser(Limits(max_line, max_payload)) for _ in range(2))
    expected, found = whole.feed(chunk), list[Any]()
    for op in ops:
        found += op[1].ops() if op[0] == RUN else [op]
    found += rest.feed(chunk[end:])
    faults = [reader.fault and (reader.fault.kind, reader.fault.unread) for reader in (whole, rest)]
    if expected != found or faults[0] != faults[1] or whole.buffered_bytes != rest.buffered_bytes:
        raise FaultError(f"{ops!r} up to {end}, where the whole is {expected!r}")


NAMES: Final = (b"a", b"a.b", b"a.b.c", b"a..b", b".", b"", b"b.", b"a.bb", b"\n.b", b"ORDERS.new", b"ab.b")
PATTERNS: Final = (
    b"*", b"a.*", b"a.>", b"*.b", b"*.*.c", b">.b.*", b"a.*b.>", b"ORDERS.*", b"\n.*", b"a..*", b"*..b", b"b.*",
    b"a.b.*", b"a.b.>", b"*.bb", b"*.>", b".*", b"*.", b"a.*.d",
)  # fmt: skip


def _names(chance: random.Random) -> Words:
    names = chance.choices(NAMES, k=chance.randrange(8))
    start, end = sorted((chance.randrange(len(names) + 1), chance.randrange(len(names) + 1)))
    return names, start, end, tuple(chance.sample(PATTERNS, chance.randrange(1, len(PATTERNS) + 1)))


def _matching(names: list[bytes], start: int, end: int, patterns: tuple[bytes, ...]) -> bytes:
    return Filters(list(patterns))._numbers_of(names, start, end).tobytes()


def _deliveries(chance: random.Random) -> Words:
    one, first = chance.choice, chance.randrange(3)
    count = chance.randrange(6)
    messages = [(0,) * first + (one(SUBJECTS), one(REPLIES), one(HEADERS), one(BLOBS)) for _ in range(count)]
    return messages, first, b" 7 ", chance.random() < 0.5, one((-1, 0, 100, 9000, 2**40))


def _joined_frames(*words: Any) -> tuple[bytes, int, int]:
    frames, body, done = _message_frames(*words)
    return b"".join(frames), body, done


def _firsts(chance: random.Random) -> Words:
    one, count = chance.choice, chance.randrange(5)
    messages = [(one(NUMBERS), one(NUMBERS), one(SUBJECTS), one(HEADERS), one(BLOBS)) for _ in range(count)]
    return messages, one((b"$JS.ACK.S.C.", b"%d", b"x" * 600)), one(NUMBERS), one((*NUMBERS, -1, -3, -(2**60)))


def _stored(chance: random.Random) -> Words:
    salt, _, _, _, copies = _copies(chance)
    salt %= 2**32
    blob, _, offsets, _ = frame._copies(salt, 1, 0, 64, copies)
    start, places = chance.choice((0, 64, 100)), list(offsets)
    if chance.randrange(3) == 0 and salt:
        blob = cut_or_changed(blob, chance)
    return (
        blob[max(0, start - 64) :],
        max(64, start),
        places,
        chance.randrange(len(places) + 1),
        salt,
        StoredMessage,
        chance.choice(([], None)),
    )


def _check_stored(end: int, *words: Any) -> None:
    specification: Callable[..., int] = frame._read_frames
    messages: list[StoredMessage] | None = None if words[-1] is None else []
    if (specification(*words[:-1], messages), messages) != (end, words[-1]):
        raise FaultError(f"{words[-1]!r} up to {end}, where the specification has {messages!r}")


def _logged(chance: random.Random) -> Words:
    """Return messages of a log, some timed, with a record or a message of a batch now and then."""
    one, salt = chance.choice, chance.randrange(2**32)
    seqs = accumulate(chance.choices((1, 1, 1, 2**40, 0), k=chance.randrange(6)))
    frames = [
        frame._message(
            salt, one(NUMBERS), seq, one(NUMBERS), one((0, 0, 2, 4)), one(SUBJECTS), one(HEADERS), one(BLOBS)
        )
        if chance.randrange(9)
        else frame.encode(frame.FLOOR, seq, 0, 0, salt, frame.FLOOR_BODY.pack(1, seq))
        for seq in seqs
    ]
    data = bytes(7) + b"".join(frames)
    data = cut_or_changed(data, chance) if chance.randrange(3) == 0 else data
    return data, 7, salt, one((200, 1 << 20)), 0, one(NUMBERS), one(NUMBERS), one((0, 7)), {b"a": 0}, [b"a"]


def _check_logged(answer: object, *words: Any) -> None:
    ids, names = {b"a": 0}, [b"a"]
    specification: Callable[..., object] = frame._scan_messages
    expected = specification(*words[:-2], ids, names)
    if (expected, ids, names) != (answer, *words[-2:]):
        raise FaultError(f"{answer!r} with {words[-2:]!r}, where the specification has {expected!r} with {ids!r}")


# Columns.


def _column(chance: random.Random) -> Words:
    top = chance.choice((0, 1, 255, 256, 65535, 65536, 2**31 - 1, 2**32 - 1))
    low = chance.randrange(2**32 - top)
    return (array("I", [low + int(chance.random() * (top + 1)) for _ in range(chance.choice((0, 1, 15, 16, 17, 40)))]),)


def _offsets(chance: random.Random) -> array[int]:
    step, first = (
        chance.choice((1, 200, 4000, 4096, 4400, 70000)),
        chance.choice((0, 64, 65535, 2**31, 2**32 - 3_000_000)),
    )
    steps = [int(chance.random() * step) for _ in range(chance.choice((0, 1, 14, 15, 16, 40)))]
    return array("I", accumulate(steps, initial=first)) if chance.randrange(9) else array("I")


def _lines(chance: random.Random) -> Words:
    return (bytes(chance.choices(b"\n\r a", k=chance.choice((0, 1, 63, 64, 65, 300)))),)


def _adjacent(chance: random.Random) -> Words:
    """Return offsets, the sizes between them, mostly, and what is added to each size."""
    offsets, overhead = _offsets(chance), chance.choice((0, 1, 10))
    ends = array("Q", offsets[1:]) + array("Q", [last + 99 for last in offsets[-1:]])
    sizes = array("I", [max(end - offset - overhead, 0) for offset, end in zip(offsets, ends, strict=True)])
    if sizes and not chance.randrange(4):
        sizes[chance.randrange(len(sizes))] += 1
    return offsets, columns.narrowed(sizes), overhead


def _anchored(chance: random.Random) -> Words:
    """Return anchors with sizes, and two positions; those of nothing if the messages are not adjacent."""
    offsets, sizes, overhead = _adjacent(chance)
    anchors = anchor_offsets(offsets, sizes, overhead)
    if anchors is None:
        anchors, sizes = b"", array("I")
    positions = sorted((chance.randrange(len(sizes) + 1), chance.randrange(len(sizes) + 1)))
    return (array("I", anchors), sizes, overhead, *positions)


def _summed(anchors: array[int], sizes: array[int], overhead: int, start: int, stop: int) -> bytes:
    places = columns.AdjacentOffsets(anchors.tobytes(), sizes, overhead)
    return array("I", [places[at] for at in range(start, stop)]).tobytes()


def _tallied(chance: random.Random) -> Words:
    count, top = chance.choice((0, 1, 20)), chance.choice((1, 9, 5000))
    sids = array(
        "I", [subject_table.GONE if chance.random() < 0.1 else int(chance.random() * top) for _ in range(count)]
    )
    base = chance.choice((0, 1, 2**53, 2**63))
    return (sids, None, base) if chance.randrange(2) else (sids, array("Q", range(base, base + 3 * count, 3)), 0)


def _tally(sids: array[int], seqs: array[int] | None, base: int) -> tuple[bytes, ...]:
    found = subject_table._tally_of(sids, range(base, base + len(sids)) if seqs is None else seqs)
    return tuple(column.tobytes() for column in found)


def _positions_in(sids: array[int], chance: random.Random) -> array[int]:
    return array("I", [at for at in range(len(sids)) if chance.randrange(3)])


def _masked(chance: random.Random) -> Words:
    """Return subject numbers, the dead ones, a mask, and two positions."""
    sids = columns.narrowed(_tallied(chance)[0])
    dead = bytearray(chance.choices((0, 1), k=len(sids))) if chance.randrange(2) else None
    mask = bytearray(chance.choices((0, 1), k=8)) if chance.randrange(2) else None
    return (sids, dead, mask, *sorted((chance.randrange(len(sids) + 1), chance.randrange(len(sids) + 1))))


def _taken(chance: random.Random) -> Words:
    """Return counts and newest sequences of nine subjects, and messages of them that go."""
    sids = array("I", chance.choices(range(9), k=chance.choice((0, 1, 20))))
    seqs = None if chance.randrange(2) else array("Q", range(5, 5 + len(sids)))
    dead = bytearray(len(sids)) if chance.randrange(2) else None
    counts, lasts = (array("Q", chance.choices(range(25), k=9)) for _ in range(2))
    return counts, lasts, dead, columns.narrowed(sids), sids, _positions_in(sids, chance), seqs, 5


def _crowded(chance: random.Random) -> Words:
    counts, _, _, sids, _, positions, _, _ = _taken(chance)
    return counts, sids, positions, chance.randrange(4)


def _counted(chance: random.Random) -> Words:
    counts, listed = array("Q", chance.choices((0, 1, 7, 2**40), k=9)), array("I", chance.choices(range(9), k=4))
    return counts, listed if chance.randrange(2) else None, chance.randrange(10), chance.randrange(3)


def _listed(chance: random.Random) -> Words:
    return _taken(chance)[-3:]


def _moved(chance: random.Random) -> Words:
    return _tallied(chance)[0], array("I", chance.choices((0, 1, subject_table.GONE), k=chance.randrange(9)))


def _keyed(chance: random.Random) -> Words:
    _, _, _, sids, _, positions, _, _ = _taken(chance)
    return array("I", sorted(set(sids))), array("I", [25] * len(set(sids))), sids, positions


def _seen(chance: random.Random) -> Words:
    _, _, _, sids, _, positions, _, _ = _taken(chance)
    return bytearray(chance.choices((0, 1), k=9)), sids, positions


def _bytes_of(work: Callable[..., array[int]]) -> Callable[..., bytes]:
    return lambda *words: work(*words).tobytes()


def spec(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the Python that a native function does the same as."""
    specification: Callable[..., Any] = getattr(function, "__wrapped__", function)  # without the module: itself
    return specification


def anchor_offsets(offsets: array[int], sizes: array[int], overhead: int) -> bytes | None:
    """Return every 16th offset, None unless each of the 15 after it is the sum of its predecessor's offset and size."""
    steps = enumerate(pairwise(offsets), 1)
    near = all(at % 16 == 0 or after - before == sizes[at - 1] + overhead for at, (before, after) in steps)
    return offsets[::16].tobytes() if near and len(sizes) == len(offsets) else None


def check_packed(answer: Any, column: array[int]) -> None:
    """Check that a packed column is read as the array that it is made of; None is one of numbers far apart."""
    if answer is None:
        if not column or max(column) - min(column) < 1 << 31:
            raise FaultError(f"{column!r} is not packed")
        return
    parts = [slice(None), slice(1, -1), slice(None, None, -3), slice(len(column), None)]
    read = [*answer], [answer[part] for part in parts], [answer[-at] for at in range(1, len(column) + 1)]
    expected = [*column], [column[part] for part in parts], [*reversed(column)]
    found = [answer.index(number, 0) for number in column]
    if read != expected or found != [column.index(number) for number in column]:
        raise FaultError(f"{read} with {found}, where the array has {expected}")
    if answer.total() != sum(column):
        raise FaultError(f"{answer.total()} is not the sum of {column!r}")


# Columns of messages.

BLOCKS: Final = (
    b"", b"", b"NATS/1.0\r\n\r\n", b"NATS/1.0\r\nA: b\r\nA:\t c : d\r\nno colon\r\n\r\n", b"NATS/1.0",
    b"\r\n:\r\n\xff: \xff", b"NATS/1.0 503\r\n\r\nA:b\r", b"a: b\r\nc:\r\n", b"\r\r\n\n: \r\n",
)  # fmt: skip


def texts_of(column: Sequence[bytes]) -> tuple[bytes, bytes]:
    return array("I", accumulate(map(len, column), initial=0)).tobytes(), b"".join(column)


def _columns_of(rows: Sequence[tuple[int, int, bytes, bytes, bytes]], headers: bool, values: bool) -> tuple[Any, ...]:
    seqs, times, *texts = zip(*rows, strict=True) if rows else ((), (), (), (), ())
    kept = (True, headers and any(texts[1]), values)
    pairs = [texts_of(column) if keep else (None, None) for column, keep in zip(texts, kept, strict=True)]
    return array("Q", seqs).tobytes(), array("q", times).tobytes(), *(part for pair in pairs for part in pair)


def _block(chance: random.Random) -> Words:
    one, frames = chance.choice, list[bytes]()
    for _ in range(chance.randrange(4)):
        frames.append(
            frame._message(0, 0, one(NUMBERS), one(NUMBERS), one((0, 2)), one(SUBJECTS), one(BLOCKS), one(BLOBS))
        )
    sizes = array("I", [len(frames), *(len(each) - frame.FRAME_OVER_SIZE for each in frames)])
    data = sizes.tobytes() + b"".join(frames)
    return cut_or_changed(data, chance) if chance.randrange(2) else data, one((True, False)), one((True, False))


def _block_columns(block: bytes, headers: bool, values: bool) -> tuple[Any, ...] | None:
    count = int.from_bytes(block[:4], "little")
    at, rows = 4 + 4 * count, []
    if len(block) < max(at, 4):
        return None
    for number in range(1, count + 1):
        length = int.from_bytes(block[4 * number : 4 * number + 4], "little") + frame.FRAME_OVER_SIZE
        each, at = block[at : at + length], at + length
        if len(each) < max(length, frame.HEAD_BYTES):
            return None
        magic, said, _, kind, flags, subject, seq, ts_ns, _ = frame.HEAD.unpack_from(each)
        begin = frame.HEAD_BYTES + subject
        body = begin + 4 * (flags & frame.HAS_HEADER)
        end = body + (int.from_bytes(each[begin:body], "little") if body <= length else 0)
        if (magic, said, kind) != (frame.MAGIC, length, frame.MSG) or end > length:
            return None
        rows.append((seq, ts_ns, each[frame.HEAD_BYTES : begin], each[body:end], each[end:]))
    return _columns_of(rows, headers, values) if at == len(block) else None


_PLACES: Final = (b"7.8.9.10", b"0.1.2.0", b"1.2.3.x", b"1.2..4", b"1.2.3", b"1.2.3.%d" % 10**18, b"+1.2.3.4")
_OTHERS: Final = (
    b"PING\r\n", b"MSG _I.1 7 5\r\nhello\r\n", b"MSG a 8 $JS.ACK.S.C.1.1.1.1.1 0\r\n\r\n", b"\r\n",
    b"MSG\r\n", b"-ERR 'x'\r\n", b"MSG a  7 1\r\nx\r\n", b"HMSG _I.2 7 16 16\r\nNATS/1.0 404\r\n\r\n\r\n",
    b"MSG a 7 b 1234567890\r\n", b"H\r\n", b"HMSG a 7 r 9 3\r\n",
)  # fmt: skip


def _window(chance: random.Random) -> Words:
    data, one = b"", chance.choice
    for _ in range(chance.randrange(5)):
        place = one(_PLACES[:2] if chance.randrange(8) else _PLACES)
        reply = b"$JS.ACK." + one((b"S.C.1.", b"d.a.S.C.1.", b"a.b.c.d.e.f.g.")) + place + one((b"", b"", b".t"))
        subject, header, body = (
            one((b"a.b", b"x", b"_Ix")),
            one(HEADERS),
            one((b"", b"\r\n", b"MSG a 7 b 0\r\n\r\n", b"x" * 99)),
        )
        sizes = b"%d %d" % (len(header), len(header + body)) if header else b"%d" % len(body)
        data += one(_OTHERS) if chance.randrange(4) == 0 else b""
        data += b"%bMSG %b 7 %b %b\r\n%b%b\r\n" % (b"H" * bool(header), subject, reply, sizes, header, body)
    data = cut_or_changed(data, chance) if chance.randrange(2) else data
    return data, b"7", b"_I.", one((True, False)), one((True, False))


def _window_of(data: bytes, sid: bytes, inbox: bytes, headers: bool, values: bool) -> tuple[Any, ...] | None:
    rows, places, others, at = [], [], array("Q"), 0
    try:
        for end, its_sid, subject, reply, header, body in server_frames.frames(data):
            begin, at = at, end
            if its_sid != sid or subject.startswith(inbox):
                others.extend((begin, end))
                continue
            words = reply.split(b".")
            last = len(words) - (len(words) > 11)
            place = [int(word) for word in words[last - 4 : last] if re.fullmatch(rb"\d{1,18}", word)]
            if last < 5 or len(words) > 14 or len(place) < 4:
                return None
            places.append(tuple(place))
            rows.append((place[0], place[2], subject, header, body))
    except server_frames.BrokenFrameError:
        return None
    ends = (places[0], places[-1]) if places else (None, None)
    return at, others.tobytes(), *ends, _columns_of(rows, headers, values)


def _check_window(answer: Any, data: bytes, *words: Any) -> None:
    """Raise where the answer is another, or none although the data has no word that is empty."""
    if answer is not None or not re.search(rb" [ \r]", data):
        same_as(_window_of)(answer, data, *words)


def _header_blocks(chance: random.Random) -> Words:
    blocks = chance.choices(BLOCKS, k=chance.randrange(6))
    ends, data = texts_of(blocks)
    first = chance.randrange(len(blocks) + 1)
    return ends, chance.choice((data, data, data[:3])), first, chance.randrange(len(blocks) - first + 2)


def _header_lists(ends: bytes, data: bytes, first: int, count: int) -> tuple[Any, ...] | None:
    places = array("I", ends)[first : first + count + 1]
    if len(places) <= count or (count and places[-1] > len(data)):
        return None
    lists = []
    for begin, end in pairwise(places):
        lines = [line for line in data[begin:end].split(b"\r\n")[1:] if b":" in line]
        lists.append([(line.split(b":", 1)[0], line.split(b":", 1)[1].lstrip(b" \t")) for line in lines])
    valid = sum(bool(found) << row for row, found in enumerate(lists)).to_bytes((count + 7) // 8, "little")
    keys, values = ([entry[at] for found in lists for entry in found] for at in (0, 1))
    list_ends = array("I", accumulate(map(len, lists), initial=0)).tobytes()
    return valid, list_ends, *texts_of(keys), *texts_of(values)


# Archives.

KEY: Final = bytes(range(7, 39))
HASHER: Final = HighwayHash64(KEY)


def _in_python(module: Any, work: Callable[[], Any]) -> Any:
    """Return what `work` does where that module has no native one."""
    lib, module.lib = module.lib, None
    try:
        return work()
    finally:
        module.lib = lib


def _end_of(steps: Generator[Any, None, Any]) -> Any:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def _hashed(chance: random.Random) -> Words:
    return chance.randbytes(32), chance.randbytes(chance.choice((0, 1, 3, 16, 19, 31, 32, 33, 100)))


@lru_cache
def _bodies() -> list[tuple[bytes, bool]]:
    """Return bodies of frames with the right check, and whether their content is plain; the shortest first."""
    from tests.api.archive.s2_elements import KINDS, block_of  # hypothesis takes its time to be imported

    chance, found = random.Random(0), list[tuple[bytes, bool]]()
    for at in range(300):
        count = chance.randrange(1, 8) if at else 3000
        chosen = [(chance.choice(KINDS), chance.randrange(1 << 20), chance.randrange(1 << 20)) for _ in range(count)]
        block, content = block_of(chosen)
        check = s2.mask(s2.crc32c(content)).to_bytes(4, "little")
        found += [(check + block, False), (check + content, True)]
    return sorted(found, key=lambda body: len(body[0]))


def _framed(chance: random.Random) -> Words:
    """Return frames, where to begin, and how much content is wanted at most."""
    data = b""
    for _ in range(chance.randrange(4)):
        body, plain = chance.choice(_bodies()[:400] if chance.randrange(200) else _bodies())
        data += b"%c%b%b" % (plain, len(body).to_bytes(3, "little"), body)
    data = cut_or_changed(data, chance) if chance.randrange(3) == 0 else data
    return bytearray(data) if chance.randrange(2) else data, chance.choice((0, 0, 0, 1)), chance.choice((0, 100, 2**20))


def _unframed(data: bytes | bytearray, at: int, most: int) -> tuple[bytes, int]:
    found, at = b"", min(at, len(data))
    while (content := _content(data[at:])) is not None and (not found or len(found + content) <= most):
        found += content
        at = s2._frame_end(data, at)
    return found, at


def _content(data: bytes | bytearray) -> bytes | None:
    """Return the content of the whole frame that the data begins with; None where it has none, or is damaged."""
    body = bytes(data[4 : s2._frame_end(data, 0)]) if len(data) >= 4 else b""
    if len(body) < 4 or data[0] > 1 or s2._frame_end(data, 0) > len(data):
        return None
    try:
        content: bytes = body[4:] if data[0] else _end_of(s2._decompressed(body[4:]))
    except s2.S2FrameError:
        return None
    return content if s2.mask(s2.crc32c(content)) == int.from_bytes(body[:4], "little") else None


def _archived(chance: random.Random) -> list[Any]:
    one, messages = chance.choice, []
    for _ in range(chance.randrange(4)):
        seq, ts_ns = one((*NUMBERS, 2**63 | 9, 2**64 - 1)), one((*NUMBERS, -1, -(2**63)))
        messages.append(ArchivedMessage(seq, ts_ns, one((*SUBJECTS, b"")), one(HEADERS), one(BLOBS[:-2])))
    return messages if chance.randrange(2) else [tuple(message) for message in messages]


def _of_version_1(messages: Sequence[Any], key: bytes) -> bytes:
    writer = archive_v1.BlockWriter("S")
    writer._hasher = HighwayHash64(key)
    writer.add(messages)
    found: bytes = _end_of(writer.close())
    return found


def _write_v1(messages: Sequence[Any], key: bytes) -> Any:
    return _in_python(archive_v1, lambda: _of_version_1(messages, key))


def _write_v2(messages: Sequence[Any]) -> Any:
    return _in_python(archive_v2, lambda: b"".join(archive_v2.WriterV2().messages(messages)))


@lru_cache
def _records() -> tuple[list[bytes], list[bytes]]:
    """Return records of both versions, each with one message."""
    chance, first, second = random.Random(0), list[bytes](), list[bytes]()
    while len(second) < 200:
        for message in _archived(chance):
            first.append(_write_v1([message], KEY))
            second.append(_write_v2([message]))
    return first, second


def _block_of(records: list[bytes], chance: random.Random) -> bytes:
    data = b"".join(chance.choices(records, k=chance.randrange(4)))
    return cut_or_changed(data, chance) if chance.randrange(2) else data


def _v1(chance: random.Random) -> Words:
    return _block_of(_records()[0], chance), KEY, ArchivedMessage, Gone


def _read_v1(data: bytes, key: bytes, message_type: type, gone_type: type) -> Any:
    try:
        records = archive_v1._parsed(data, "1.blk")
        archive_v1._compare(records, b"".join(map(HASHER.digest, records.hashed)), "1.blk")
    except ArchiveError:
        return None
    return records.items, records.end, records.next_bytes


def _v2(chance: random.Random) -> Words:
    return _block_of(_records()[1], chance) + bytes(5 * chance.randrange(2)), ArchivedMessage


def _read_v2(data: bytes, message_type: type) -> Any:
    try:
        return archive_v2._parsed(data)
    except ArchiveError:
        return None


def _count_v1(data: bytes, key: bytes, first_seq: int) -> Any:
    found = _read_v1(data, key, ArchivedMessage, Gone)
    whole = archive_v1._parsed(data, "1.blk").hashes if found is not None else []
    messages = [one for one in found[0] if isinstance(one, ArchivedMessage)] if found is not None else []
    if found is None or len(messages) < len(whole) or any(one.seq < first_seq for one in messages):
        return None
    return _counted_of(messages), *found[1:]


def _count_v2(data: bytes) -> Any:
    found = _read_v2(data, ArchivedMessage)
    return None if found is None or not all(one.seq for one in found[0]) else (_counted_of(found[0]), *found[1:])


def _counted_of(messages: list[ArchivedMessage]) -> tuple[Any, ...]:
    return tuple(counted(messages)) if messages else (0, 0, 0, 0, 0, 0, 0, 0, {})


# Runs: the first argument is what the run is made of.

Items = tuple[tuple[bytes, bytes, bytes, bytes], ...]
ACKED: Final = (1, 7, 10**18, 10**19 - 1)
_runs: dict[Any, Any] = {}
"""Runs that were made, by the module and their messages: making one takes longer than most calls."""
RUNS_KEPT: Final = 1000


def run_of(module: Any, items: Items) -> Any:
    """Return a run of the messages given, or None where they do not become one."""
    key = id(module), items
    if key not in _runs:
        ops: list[Any] = []
        module.read_ops(b"".join([encode_pub(*item) for item in items]), 4096, 1 << 20, ops, True)
        if len(_runs) > RUNS_KEPT:
            _runs.clear()
        _runs[key] = ops[0][1] if len(ops) == 1 and ops[0][0] == RUN else None
    return _runs[key]


def forget_runs() -> None:
    _runs.clear()


def _items(chance: random.Random) -> Items:
    if chance.randrange(4) == 0:
        return _ack_items(chance)
    one, subjects = chance.choice, (b"a.b", b"a.b", b"a.c", b"a.b.c", b"a..b", b"a.", b"s")
    replies, headers = chance.choice(
        [
            ((b"", *REPLIES[2:5]), (b"",)),
            ((b"", *REPLIES[2:5]), HEADERS[2:]),
            ((b"x.1.$FI", b"x.2.$FI", b"y.$FI"), (b"",)),
        ]
    )
    return tuple((one(subjects), one(replies), one(headers), one(BLOBS)) for _ in range(chance.randrange(4, 9)))


def _ack_items(chance: random.Random) -> Items:
    numbers = [chance.choices(ACKED, k=4) for _ in range(chance.randrange(4, 9))]
    subjects = [b"$JS.ACK.S.C.1.%d.%d.%d.%d" % tuple(four) for four in numbers]
    return tuple((subject, b"", b"", chance.choice((b"", b"+ACK"))) for subject in subjects)


def with_items(*makers: Callable[[random.Random], Any]) -> Callable[[random.Random], Words]:
    """Return a maker of a run's messages, and of further arguments."""
    return lambda chance: (_items(chance), *[make(chance) for make in makers])


def _place(chance: random.Random) -> int:
    return chance.randrange(4)


def _route(chance: random.Random) -> Words:
    items, start = _items(chance), _place(chance)
    first = items[start][0]
    size = chance.choice((len(first.rpartition(b".")[0]) + 1, chance.randrange(len(first) + 2)))
    return items, start, size, chance.randrange(2) == 0


def _part(chance: random.Random) -> Words:
    items = _items(chance)
    return (items, *sorted((chance.randrange(len(items) + 1), chance.randrange(len(items) + 1))))


def _check_part(answer: Any, items: Items, start: int, end: int) -> None:
    same_as(lambda items: [(PUB, *item) for item in items])(answer.ops(), items[start:end])


def _in_plain_python(name: str) -> Case:
    """Return a case in which a method or an attribute is compared with that of the Python class."""

    def specified(items: Items, *words: Any) -> Any:
        value = getattr(PublishRun([(PUB, *item) for item in items]), name)
        return value(*words) if callable(value) else value

    return Case(RUN_ARGUMENTS.get(name, with_items()), same_as(specified))


def _run_frames(items: Items, *words: int) -> Any:
    return frame._run(PublishRun([(PUB, *item) for item in items]), *words)


def _number(chance: random.Random) -> int:
    return chance.choice(NUMBERS[:-1])


def _offset(chance: random.Random) -> int:
    return chance.choice(OFFSETS)


def _stored_commits(chance: random.Random) -> Words:
    """Return commits of stored messages, a run among them as its messages, and further arguments."""
    commits: list[Any] = []
    for opening in range(chance.randrange(1, 4)):
        entries = [(_number(chance), b"", chance.choice(REPLIES)) for _ in range(chance.randrange(1, 5))]
        commits.append((entries, b'{"stream":"S%d", "seq":' % opening))
    number, offset = chance.randrange(len(commits)), 0
    entries = commits[number][0]
    index = chance.randrange(len(entries))
    if chance.randrange(2):
        items = _items(chance)
        entries[index], offset = (99, items, _number(chance)), chance.randrange(len(items))
    shared = chance.choice((b"", b"_INBOX.a.", b"_", b"x."))
    return commits, number, index, offset, shared, b" 7 "


def _with_runs(commits: Any, run_of_items: Callable[[Items], Any]) -> Any:
    """Return commits with runs in place of their messages, and anything else as it is."""

    def entry_of(entry: Any) -> Any:
        is_run = isinstance(entry, tuple) and len(entry) > 1 and isinstance(entry[1], tuple)
        return (entry[0], run_of_items(entry[1]), *entry[2:]) if is_run else entry

    return [
        ([entry_of(entry) for entry in commit[0]], *commit[1:]) if isinstance(commit, tuple) else commit
        for commit in commits
    ]


def _acked_in_python(commits: list[Any], *words: Any) -> Any:
    return _ack_frames(_with_runs(commits, lambda items: PublishRun([(PUB, *item) for item in items])), *words)


RUN_ARGUMENTS: Final = {
    "entries": with_items(_number),
    "subject": with_items(_place),
    "reply": with_items(_place),
    "same_subject": with_items(_place),
    "same_route": _route,
    "acked": lambda chance: (_ack_items(chance),),
    "messages": with_items(lambda chance: b" 7 ", lambda chance: chance.choice((-1, 0, 100, 9000, 2**40))),
}
"""What makes the arguments of methods that have some, or for which not every run is meant."""
RUNS: Final = "PublishRun."
"""Before the names of its methods in `CASES`."""
CASES: Final = {
    "frame": Case(_frame, same_as(frame._message)),
    "frame_copies": Case(_copies, same_as(frame._copies)),
    "read_frames": Case(_stored, _check_stored),
    "scan_messages": Case(_logged, _check_logged),
    "first_deliveries": Case(_firsts, same_as(_first_deliveries)),
    "trim_memory": Case(lambda chance: (), same_as(lambda: None)),
    "count_lines": Case(_lines, same_as(methodcaller("count", b"\n"))),
    "read_ops": Case(_chunk, _check_chunk),
    "ack_frames": Case(_stored_commits, same_as(_acked_in_python)),
    "message_frames": Case(_deliveries, same_as(_joined_frames)),
    "block_columns": Case(_block, same_as(_block_columns)),
    "deliveries": Case(_window, _check_window),
    "header_lists": Case(_header_blocks, same_as(_header_lists)),
    "matching": Case(_names, same_as(_matching)),
    "pack_column": Case(_column, check_packed),
    "anchor_offsets": Case(_adjacent, same_as(anchor_offsets)),
    "sum_offsets": Case(_anchored, same_as(_summed)),
    "tally": Case(_tallied, same_as(_tally)),
    "above": Case(_counted, same_as(spec(bulk._above_in))),
    "order": Case(lambda chance: _moved(chance)[:1], same_as(_bytes_of(spec(bulk.order_of)))),
    "pick": Case(_masked, same_as(_bytes_of(spec(bulk._positions)))),
    "renumber": Case(_moved, same_as(_bytes_of(spec(bulk.renumbered)))),
    "sequences": Case(_listed, same_as(_bytes_of(spec(bulk.sequences_at)))),
    "surplus": Case(_crowded, same_as(_bytes_of(spec(bulk._surplus)))),
    "count_down": Case(_keyed),  # these change their arguments: tests/native/test_columns.py compares
    "mark": Case(lambda chance: (bytearray(9), array("I", chance.choices(range(9), k=4)))),
    "take_out": Case(_taken),
    "unseen": Case(_seen),
    "highway": Case(_hashed, same_as(lambda key, data: HighwayHash64(key).digest(data))),
    "unframe": Case(_framed, same_as(_unframed)),
    "count_v1": Case(lambda chance: (*_v1(chance)[:2], chance.choice((0, 1, 5))), same_as(_count_v1)),
    "count_v2": Case(lambda chance: _v2(chance)[:1], same_as(_count_v2)),
    "write_v1": Case(lambda chance: (_archived(chance), KEY), same_as(_write_v1)),
    "read_v1": Case(_v1, same_as(_read_v1)),
    "write_v2": Case(lambda chance: (_archived(chance),), same_as(_write_v2)),
    "read_v2": Case(_v2, same_as(_read_v2)),
    RUNS + "part": Case(_part, _check_part),
    RUNS + "frames": Case(with_items(_number, _number, _number, _number, _offset), same_as(_run_frames)),
    **{
        RUNS + name: _in_plain_python(name)
        for name in [*(name for name in vars(PublishRun) if name[0] != "_" and name != "part"), "__len__"]
    },
}


def functions_of(module: Any) -> dict[str, Callable[..., Any]]:
    """Return each function of the module, and each method and attribute of its runs."""
    plain: dict[str, Callable[..., Any]] = {
        name: value for name, value in vars(module).items() if isinstance(value, BuiltinFunctionType)
    }
    run = module.PublishRun
    own = [name for name in dir(run) if not name.startswith("_")] + ["__len__"]
    plain["ack_frames"] = lambda commits, *words: module.ack_frames(
        _with_runs(commits, lambda items: run_of(module, items)), *words
    )
    return plain | {RUNS + name: _method(module, name) for name in own}


def _method(module: Any, name: str) -> Callable[..., Any]:
    def call(items: Items, *words: Any) -> Any:
        value = getattr(run_of(module, items), name)
        return value(*words) if callable(value) else value

    return call
