"""Fuzzing of the native module: `python -m tests.support.native_fuzz --inputs 100000 --sanitize address,undefined`.

Every function is called with plain arguments, whose answer must be that of its specification in Python, and with spoilt
ones, for which any ordinary exception will do. `CASES` has a row for each function; one without a row gets arbitrary
arguments. `--threads` also runs that many rounds of `CommitThreads` with disks that refuse, files that are gone, and
stops while jobs wait; `--leaks` looks for memory and references that calls keep.

With `--sanitize` the module is built with GCC's sanitizers (address, undefined, thread) and the calls run in a process
of their own. Inputs are made in blocks: the number of the block that ended such a process is printed, and `--show`
prints each of its inputs before the call.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import select
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Callable, Iterator
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from itertools import islice
from pathlib import Path
from types import BuiltinFunctionType, ModuleType
from typing import Any, Final, NamedTuple

from natsctl.broker.subscription import _message_frames
from natsctl.jetstream.consumers.delivery_budget import _first_deliveries
from natsctl.native import build
from natsctl.store import frame
from natsctl.store.filters import Filters
from natsctl.store.message import StoredMessage
from natsctl.wire import parser
from natsctl.wire.ops import RUN, Limits

BLOCK: Final = 500
"""Inputs between two notes of how far a run has come."""
SPOILT_SHARE: Final = 0.3
COMPARED_SHARE: Final = 0.25
"""Share of the plain inputs that are compared with the specification, which takes most of the time."""
GROWN_BYTES: Final = 4 << 20
"""Memory that a process may have more after calls that were made before; small blocks are counted one by one."""
PATIENCE_S: Final = 60.0
"""Time in which a job must end, on a busy machine too."""
FLAGS: Final = ("-g", "-O1", "-fno-omit-frame-pointer", "-fno-sanitize-recover=all")
OPTIONS: Final = {
    "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=0:allocator_may_return_null=1",  # Python itself leaves memory behind
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    "TSAN_OPTIONS": "halt_on_error=1:report_signal_unsafe=0",
}

Words = tuple[Any, ...]


class Case(NamedTuple):
    """A function of the module: plain arguments for it, and a check of its answer to them."""

    make: Callable[[random.Random], Words]
    check: Callable[..., object] | None = None


class FaultError(Exception):
    """A function that answered other than it should."""


# Values: small pools, since making them takes longer than most calls.

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


class _Index:
    def __index__(self) -> int:
        return 7


class _Bytes(bytes):
    pass


ODD: Final[Words] = (
    None, True, -1, 0, 1, 7, 2**31, 2**32, 2**63, -(2**63), 1.5, "", "text", "\udc80", b"", b"x", bytes(70000),
    bytearray(b"abc"), memoryview(b"abc"), _Bytes(b"abc"), (), (1,), (0, 1, 2, 3, 4), (b"",) * 5, [], [None], [b"a"],
    [(1, b"", b"r")], [(0, b"a", b"", b"", b"x")], {}, set(), frozenset({b"_R_"}), array("I", [1, 2]), array("Q", [1]),
    array("b"), int, bytes, tuple, object(), _Index(), lambda *words: words, iter(()), range(3),
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


def spoilt(words: Words, chance: random.Random) -> Words:
    """Return arguments of which one is wrong, or a part of one, or too few or too many."""
    kind = chance.randrange(10)
    if kind == 0:
        return words[:-1]
    if kind == 1:
        return (*words, chance.choice(ODD))
    if not words:
        return words
    at = chance.randrange(len(words))
    return (*words[:at], _spoilt_value(words[at], chance), *words[at + 1 :])


def _spoilt_value(value: Any, chance: random.Random) -> Any:
    if isinstance(value, bytes) and chance.randrange(2):
        return cut_or_changed(value, chance)
    if isinstance(value, list | tuple) and value and chance.randrange(4):
        members = list(value)
        at = chance.randrange(len(members))
        members[at] = _spoilt_value(members[at], chance)
        return type(value)(members)
    return chance.choice(ODD)


# The rows.


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


def _run(chance: random.Random) -> Words:
    one = chance.choice
    payloads = chance.choices(BLOBS, k=chance.randrange(1, 6))
    words = (one(NUMBERS), one(NUMBERS), one(NUMBERS), one(NUMBERS), one(OFFSETS), one(SUBJECTS))
    return (*words, payloads if chance.randrange(2) else tuple(payloads))


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


def _entries(chance: random.Random) -> list[Any]:
    one = chance.choice
    return [(one(NUMBERS), one(SUBJECTS), one(REPLIES)) for _ in range(chance.randrange(6))]


def _acks(chance: random.Random) -> Words:
    entries = _entries(chance)
    start, end = sorted((chance.randrange(len(entries) + 1), chance.randrange(len(entries) + 1)))
    return entries, chance.choice(BLOBS), b" 7 ", start, end


def _ack_frames(entries: list[Any], opening: bytes, sid: bytes, start: int, end: int) -> tuple[bytes, int, int]:
    bodies = [(reply, b"%b%d}" % (opening, seq)) for seq, _, reply in entries[start:end] if reply]
    frames = [b"MSG %b%b%d\r\n%b\r\n" % (reply, sid, len(body), body) for reply, body in bodies]
    return b"".join(frames), sum(len(body) for _, body in bodies), len(bodies)


def _inboxes(chance: random.Random) -> Words:
    entries = _entries(chance)
    return (
        entries,
        chance.randrange(len(entries) + 1),
        chance.choice((b"_INBOX.a.", b"_INBOX.a.b.", b"_", b"", b"_R_.x")),
    )


def _one_inbox(entries: list[Any], start: int, shared: bytes) -> int:
    for at, (_, _, reply) in islice(enumerate(entries), start, None):
        if reply and (not reply.startswith(shared) or reply == shared or b"." in reply[len(shared) :]):
            return at
    return len(entries)


NAMES: Final = (b"a", b"a.b", b"a.b.c", b"a..b", b".", b"", b"b.", b"a.bb", b"\n.b", b"ORDERS.new", b"ab.b")
PATTERNS: Final = (b"*", b"a.*", b"a.>", b"*.b", b"*.*.c", b">.b.*", b"a.*b.>", b"ORDERS.*", b"\n.*")


def _names(chance: random.Random) -> Words:
    names = chance.choices(NAMES, k=chance.randrange(8))
    start, end = sorted((chance.randrange(len(names) + 1), chance.randrange(len(names) + 1)))
    return names, start, end, tuple(chance.sample(PATTERNS, chance.randrange(1, 4)))


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
        [],
    )


def _check_stored(end: int, *words: Any) -> None:
    specification: Callable[..., int] = frame._read_frames
    messages: list[StoredMessage] = []
    if (specification(*words[:-1], messages), messages) != (end, words[-1]):
        raise FaultError(f"{words[-1]!r} up to {end}, where the specification has {messages!r}")


# Runs: the first argument is what the run is made of.

Items = list[tuple[bytes, bytes, bytes]]
ACKS: Final = [(b"$JS.ACK.S.C.1.%d.%d.1700000000000000000.%d" % (n, n + 1, 9 - n), b"", b"+ACK") for n in range(8)]


def run_of(module: Any, items: Items) -> Any:
    """Return a run of the messages given, or None where they do not become one."""
    lines = [b"PUB %b %b%d\r\n%b\r\n" % (s, r and r + b" ", len(p), p) for s, r, p in items]
    ops: list[Any] = []
    module.read_ops(b"".join(lines), 4096, 1 << 20, ops, True)
    return ops[0][1] if ops and ops[0][0] == RUN else None


def _items(chance: random.Random) -> Items:
    if chance.randrange(4) == 0:
        return ACKS[chance.randrange(4) :]
    one, subjects = chance.choice, (b"a.b", b"a.b", b"a.c", b"a.b.c", b"a..b", b"a.", b"s")
    return [(one(subjects), one((b"", *REPLIES[2:5])), one(BLOBS)) for _ in range(chance.randrange(4, 9))]


def with_items(*makers: Callable[[random.Random], Any]) -> Callable[[random.Random], Words]:
    """Return a maker of a run's messages, and of further arguments."""
    return lambda chance: (_items(chance), *[make(chance) for make in makers])


def _part(chance: random.Random) -> Words:
    items = _items(chance)
    return (items, *sorted((chance.randrange(len(items) + 1), chance.randrange(len(items) + 1))))


def _check_part(answer: Any, items: Items, start: int, end: int) -> None:
    same_as(_ops_of)(answer.ops(), items[start:end])


def _ops_of(items: Items) -> list[Any]:
    return [(0, s, r, b"", p) for s, r, p in items]


def _stored_of(items: Items, first: int) -> list[Any]:
    return [(seq, s, r) for seq, (s, r, _) in enumerate(items, first)]


def _one_subject(items: Items) -> int:
    return next((at for at, item in enumerate(items) if item[0] != items[0][0]), len(items))


def _run_acks(items: Items, first: int, opening: bytes, sid: bytes, start: int, end: int) -> tuple[bytes, int, int]:
    return _ack_frames(_stored_of(items, first), opening, sid, start, end)


def _run_frames(items: Items, salt: int, synced: int, first: int, ts_ns: int, offset: int) -> Any:
    copies = [(seq, ts_ns, s, b"", p) for seq, (s, _, p) in enumerate(items, first)]
    return frame._copies(salt, synced, 0, offset, copies)


def _number(chance: random.Random) -> int:
    return chance.choice(NUMBERS[:-1])


def _offset(chance: random.Random) -> int:
    return chance.choice(OFFSETS)


def _bounds(chance: random.Random) -> Words:
    items, start, end = _part(chance)
    return items, _number(chance), b'{"stream":"S", "seq":', b" 7 ", start, end


RUNS: Final = "PublishRun."
"""Before the names of its methods in `CASES`."""
CASES: Final = {
    "frame": Case(_frame, same_as(frame._message)),
    "frame_run": Case(_run, same_as(frame._run)),
    "frame_copies": Case(_copies, same_as(frame._copies)),
    "read_frames": Case(_stored, _check_stored),
    "first_deliveries": Case(_firsts, same_as(_first_deliveries)),
    "read_ops": Case(_chunk, _check_chunk),
    "ack_frames": Case(_acks, same_as(_ack_frames)),
    "message_frames": Case(_deliveries, same_as(_joined_frames)),
    "one_inbox": Case(_inboxes, same_as(_one_inbox)),
    "matching": Case(_names, same_as(_matching)),
    RUNS + "ops": Case(with_items(), same_as(_ops_of)),
    RUNS + "subjects": Case(with_items(), same_as(lambda items: [s for s, _, _ in items])),
    RUNS + "payloads": Case(with_items(), same_as(lambda items: [p for _, _, p in items])),
    RUNS + "entries": Case(with_items(_number), same_as(_stored_of)),
    RUNS + "part": Case(_part, _check_part),
    RUNS + "one_subject": Case(with_items(), same_as(_one_subject)),
    RUNS + "reply": Case(with_items(lambda chance: chance.randrange(4)), same_as(lambda items, at: items[at][1])),
    RUNS + "acks": Case(_bounds, same_as(_run_acks)),
    RUNS + "one_inbox": Case(
        with_items(lambda chance: chance.randrange(4), lambda chance: chance.choice((b"_INBOX.a.", b"_", b""))),
        same_as(lambda items, start, shared: _one_inbox(_stored_of(items, 0), start, shared)),
    ),
    RUNS + "messages": Case(
        with_items(lambda chance: b" 7 ", lambda chance: chance.choice((-1, 0, 100, 9000, 2**40))),
        same_as(lambda items, sid, room: _joined_frames([(s, r, b"", p) for s, r, p in items], 0, sid, True, room)),
    ),
    RUNS + "frames": Case(with_items(_number, _number, _number, _number, _offset), same_as(_run_frames)),
}


def _arbitrary(chance: random.Random) -> Words:
    return tuple(chance.choices((*ODD, *BLOBS, *NUMBERS), k=chance.randrange(9)))


def cases_of(module: Any) -> dict[str, tuple[Callable[..., Any], Case]]:
    """Return each function of the module and each method of its runs, with the case for it."""
    plain = {name: value for name, value in vars(module).items() if isinstance(value, BuiltinFunctionType)}
    found: dict[str, tuple[Callable[..., Any], Case]] = {}
    for name, function in plain.items():
        found[name] = function, CASES.get(name, Case(_arbitrary))
    for name in dir(module.PublishRun):
        if not name.startswith("_") and callable(getattr(module.PublishRun, name)):
            found[RUNS + name] = _method(module, name), CASES.get(RUNS + name, Case(_arbitrary_of_run))
    return found


def _method(module: Any, name: str) -> Callable[..., Any]:
    return lambda items, *words: getattr(run_of(module, items), name)(*words)


def _arbitrary_of_run(chance: random.Random) -> Words:
    return (_items(chance), *chance.choices((*ODD, -7, 2, 3), k=chance.choice((0, 1, 1, 2, 2, 3))))


# Calls.


def inputs(case: Case, seed: str, number: int) -> Iterator[tuple[Words, bool]]:
    """Return the inputs of a block, and for each whether it is a plain one."""
    chance = random.Random(f"{seed}:{number}")
    for _ in range(BLOCK):
        words = case.make(chance)
        if case.check is None or chance.random() >= SPOILT_SHARE:
            yield words, case.check is not None
        else:
            yield spoilt(words, chance), False


def run_block(name: str, function: Callable[..., Any], case: Case, seed: str, number: int, show: bool = False) -> None:
    """Call the function with the inputs of a block. Raises FaultError."""
    compare = random.Random(number).random
    for words, plain in inputs(case, seed, number):
        if show:
            print(f"{name}{words!r}", flush=True)
        given = tuple(list(word) if type(word) is list else word for word in words)  # as a call may leave them
        try:
            answer = function(*given)
        except SystemError as error:  # such as one of a result with an exception, or of none without one
            if plain or "bad argument" not in str(error):
                raise FaultError(f"{name}{words!r}: {error!r}") from error
        except Exception as error:
            if plain:
                raise FaultError(f"{name}{words!r}: {error!r}") from error
        else:
            if plain and case.check is not None and compare() < COMPARED_SHARE:
                try:
                    case.check(answer, *given)
                    count_references((answer, given))
                except FaultError as fault:
                    raise FaultError(f"{name}{words!r}: {fault}") from None


def count_references(values: Words) -> None:
    """Raise FaultError for an object within `values` that has fewer references than lists and tuples that hold it."""
    holders, todo = dict[int, list[Any]](), [values]
    seen = {id(values)}
    while todo:
        for member in todo.pop():
            holders.setdefault(id(member), [member, 0])[1] += 1
            if type(member) in (list, tuple) and id(member) not in seen:
                seen.add(id(member))
                todo.append(member)
    del todo
    for holder in holders.values():
        # Two more: the list with its count, and the argument of getrefcount.
        if sys.getrefcount(holder[0]) < holder[1] + 2:
            raise FaultError(f"{holder[0]!r} has too few references")


def find_leaks(name: str, function: Callable[..., Any], case: Case, seed: str, calls: int) -> None:
    """Raise FaultError where calls keep memory, or references to their arguments."""
    pool = [words for number in range(2) for words, _ in inputs(case, seed, number)]
    held = [
        member for words in pool for member in _members(words) if not isinstance(member, int)
    ]  # numbers are used everywhere

    def once() -> None:
        for words in pool:
            try:
                function(*[list(word) if type(word) is list else word for word in words])
            except Exception:
                continue

    once()
    gc.collect()
    before, blocks, memory = [sys.getrefcount(member) for member in held], sys.getallocatedblocks(), _memory_bytes()
    for _ in range(max(1, calls // len(pool))):
        once()
    gc.collect()
    kept = sys.getallocatedblocks() - blocks
    grown = _memory_bytes() - memory
    after = [sys.getrefcount(member) for member in held]
    if changed := [
        (member, now - then) for member, then, now in zip(held, before, after, strict=True) if abs(now - then) > 9
    ]:
        raise FaultError(f"{name} keeps references, or drops some: {changed[:3]!r}")
    if kept > calls // 100 or grown > GROWN_BYTES:
        raise FaultError(f"{name}: {kept} blocks and {grown:,} bytes more after {calls:,} calls")


def _members(value: object) -> Iterator[object]:
    yield value
    if isinstance(value, list | tuple):
        for member in value:
            yield from _members(member)


def _memory_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# Threads that write.


class _Stream:
    """A file of the stress, with the bytes that it must hold."""

    def __init__(self, folder: Path, number: int, chance: random.Random) -> None:
        self.kind = chance.choice(("file", "file", "file", "full", "gone", "read-only"))
        path = folder / str(number)
        path.touch()
        if self.kind == "full" and Path("/dev/full").exists():
            self.fd = os.open("/dev/full", os.O_WRONLY)
        else:
            self.fd = os.open(path, os.O_RDONLY if self.kind == "read-only" else os.O_RDWR)
        if self.kind == "gone":
            path.unlink()
        self.expected = bytearray()
        self.waits = False

    def submit(self, threads: Any, chance: random.Random) -> None:
        """Submit one or two writes at the end; their bytes are the job's alone."""
        writes, what = [], []
        for _ in range(chance.randrange(1, 3)):
            data = chance.randbytes(chance.choice((0, 1, 100, 9000)))
            synced = bool(chance.randrange(2))
            writes.append((self.fd, data, len(self.expected), synced))
            what.append((len(data), synced))
            self.expected += data
        self.waits = True
        threads.submit((self, what), tuple(writes))

    def take(self, writes: list[tuple[int, bool]], outcome: int, number: int) -> None:
        """Check how a job ended of which the sizes are given, and whether they were to be synced."""
        self.waits = False
        refused = self.kind in ("full", "read-only") and any(size for size, _ in writes)
        lost = self.kind == "gone" and any(synced for _, synced in writes)
        # The special file takes no sync, and a write without bytes succeeds on any.
        special = self.kind == "full" and any(synced for _, synced in writes)
        expected = {1} if refused and not special else {1, 2} if refused else {2} if lost or special else {0}
        if outcome not in expected or bool(number) != bool(outcome):
            raise FaultError(f"a {self.kind} file: outcome {outcome}, errno {number}, for {writes!r}")

    def close(self) -> None:
        """Check the file's content."""
        if self.kind == "file" and os.pread(self.fd, len(self.expected) + 1, 0) != self.expected:
            raise FaultError("a file does not hold what was written")
        os.close(self.fd)


def run_threads(module: Any, rounds: int, seed: str) -> None:
    """Submit jobs of many streams, stop while some wait, and collect every one once. Raises FaultError."""
    for number in range(rounds):
        chance = random.Random(f"{seed}:{number}")
        with tempfile.TemporaryDirectory(prefix="native-fuzz-") as folder:
            _one_round(module, Path(folder), chance)


def _one_round(module: Any, folder: Path, chance: random.Random) -> None:
    out, wake = os.pipe()
    os.set_blocking(out, False)
    os.set_blocking(wake, False)
    streams = [_Stream(folder, number, chance) for number in range(chance.randrange(1, 24))]
    threads = module.CommitThreads(wake, chance.choice((1, 2, 12, 64)))
    left, stopped = chance.choice((0, 10, 100)), False
    while left or any(stream.waits for stream in streams):
        for stream in streams:
            if left and not stream.waits and chance.randrange(3):
                stream.submit(threads, chance)
                left -= 1
        if left == 0 and chance.randrange(2):
            threads.stop(True)  # with jobs that wait
            stopped = True
        blocked = all(stream.waits for stream in streams) or not left
        if select.select([out], [], [], PATIENCE_S if blocked else 0)[0]:
            os.read(out, select.PIPE_BUF)
        elif blocked and any(stream.waits for stream in streams):
            raise FaultError("a job does not end")
        for (stream, writes), outcome, failure, seconds in threads.collect():
            if seconds < 0:
                raise FaultError(f"a job took {seconds} s")
            stream.take(writes, outcome, failure)
    if stopped:
        _refuse(threads)
    elif chance.randrange(2):
        for stream in streams:  # whose ends are not collected
            stream.submit(threads, chance)
    del threads
    for stream in streams:
        stream.close()
    os.close(out)
    os.close(wake)


def _refuse(threads: Any) -> None:
    try:
        threads.submit(None, ((-1, b"x", 0, True),))
    except RuntimeError:
        return
    raise FaultError("a job is taken by threads that have ended")


# The command.


def load(path: Path) -> ModuleType:
    """Return a build of the module."""
    name = "natsctl.native._native"
    spec = spec_from_file_location(name, path, loader=ExtensionFileLoader(name, str(path)))
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> int:
    """Run the inputs; return 1 where one of them found a fault."""
    reader = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    reader.add_argument("--inputs", type=int, default=100_000, help="how many, for all functions together")
    reader.add_argument("--seed", default="1")
    reader.add_argument("--first", type=int, default=0, help="the number of the first block")
    reader.add_argument("--function", action="append", help="one of those to call; all without it")
    reader.add_argument("--show", action="store_true", help="print each input before the call")
    reader.add_argument("--threads", type=int, default=0, metavar="ROUNDS", help="rounds of CommitThreads")
    reader.add_argument("--leaks", type=int, default=0, metavar="CALLS", help="calls of each function")
    reader.add_argument("--sanitize", help="sanitizers: address,undefined or thread")
    reader.add_argument("--module", type=Path, help="a build of the module; without it, and a sanitizer, it is built")
    options = reader.parse_args()
    with tempfile.TemporaryDirectory(prefix="native-fuzz-") as folder:
        if options.sanitize:
            return _sanitized(Path(folder), options.sanitize)
        path = options.module or build.build(Path(folder) / build.NAME)
        try:
            _run_all(load(path), options)
        except FaultError as fault:
            print(f"a fault with seed {options.seed}: {str(fault)[:2000]}", file=sys.stderr)
            return 1
    return 0


def _run_all(module: ModuleType, options: argparse.Namespace) -> None:
    cases = {name: case for name, case in cases_of(module).items() if name in (options.function or [name])}
    blocks = -(-options.inputs // (BLOCK * len(cases))) if cases else 0
    note, began = os.environ.get("NATIVE_FUZZ_NOTE"), time.monotonic()
    for name, (function, case) in cases.items():
        for number in range(options.first, options.first + blocks):
            if note:
                Path(note).write_text(f"--function {name} --first {number} --inputs {BLOCK} --seed {options.seed}")
            run_block(name, function, case, options.seed, number, options.show)
        if options.leaks:
            find_leaks(name, function, case, options.seed, options.leaks)
    if note:
        Path(note).write_text(f"--inputs 0 --threads {options.threads} --seed {options.seed}")
    run_threads(module, options.threads, options.seed)
    done = [f"{blocks * BLOCK * len(cases):,} inputs of {len(cases)} functions"]
    done += [f"{options.threads} rounds of threads"] * bool(options.threads)
    done += [f"{options.leaks:,} calls of each that keep nothing"] * bool(options.leaks)
    print(f"{', '.join(done)}, in {time.monotonic() - began:.0f} s: no fault")
    if bare := sorted(name for name, (_, case) in cases.items() if case.check is None):
        print(f"without a row, and called with arbitrary arguments: {', '.join(bare)}")


def _sanitized(folder: Path, names: str) -> int:
    """Run the command again, in a process with the sanitizers; return its status."""
    libraries = [
        _library(f"lib{ {'address': 'asan', 'undefined': 'ubsan', 'thread': 'tsan'}[name] }.so")
        for name in names.split(",")
    ]
    if None in libraries:
        print(f"the sanitizers {names} are not installed: nothing is run")
        return 0
    note, preload = folder / "note", " ".join(str(library) for library in libraries)
    environment = {"LD_PRELOAD": preload, "PYTHONMALLOC": "malloc", "NATSCTL_PURE": "1", "NATIVE_FUZZ_NOTE": str(note)}
    environment = dict(os.environ) | OPTIONS | environment
    start = [sys.executable]
    if shutil.which("setarch") and subprocess.run(["setarch", "-R", "true"], capture_output=True).returncode == 0:
        start = ["setarch", "-R", *start]  # ThreadSanitizer knows no memory layout that is too random
    if subprocess.run([*start, "-c", ""], env=environment, capture_output=True).returncode:
        print(f"Python does not run with the sanitizers {names} here: nothing is run")
        return 0
    module = build.build(folder / build.NAME, (*FLAGS, f"-fsanitize={names}"))
    words = [word for word in sys.argv[1:] if word not in ("--sanitize", names) and not word.startswith("--sanitize=")]
    command = [*start, "-m", "tests.support.native_fuzz", *words, "--module", str(module)]
    done = subprocess.run(command, env=environment)
    if done.returncode:
        words = shlex.split(note.read_text()) if note.exists() else []
        again = shlex.join(["python", "-m", "tests.support.native_fuzz", "--sanitize", names, *words, "--show"])
        print(f"exit status {done.returncode}; to see the input: {again}", file=sys.stderr)
    return 1 if done.returncode else 0


def _library(name: str) -> Path | None:
    """Return a library of the compiler, or None where it has none."""
    compiler = shlex.split(os.environ.get("CC") or "cc")
    if shutil.which(compiler[0]) is None:
        return None
    found = subprocess.run([*compiler, f"-print-file-name={name}"], capture_output=True, text=True).stdout.strip()
    return Path(found) if Path(found).is_absolute() else None


if __name__ == "__main__":
    sys.exit(main())
