"""Fuzzing of the native module: `python -m tests.support.native_fuzz --inputs 100000 --sanitize address,undefined`.

Every function is called with the plain arguments of its row in `native_cases`, whose answer must be that of its
specification in Python, and with arguments made of those by a change or two, for which any ordinary exception will do.
`--threads` also runs that many rounds of `native_threads`; `--leaks` looks for memory and references that calls keep.

With `--sanitize` the module is built with GCC's sanitizers (address, undefined, thread) and the calls run in a process
of their own. Inputs are made in blocks: the number of the block that ended such a process is printed, and `--show`
prints each of its inputs before the call.
"""

import argparse
import gc
import os
import random
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
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from natsctl.native import build
from tests.support.native_cases import BLOBS, CASES, NUMBERS, Case, FaultError, Words, forget_runs, functions_of
from tests.support.native_threads import run_threads

BLOCK: Final = 1000
"""Inputs between two notes of how far a run has come."""
PLAIN: Final = 40
"""Inputs of a block that are drawn as a row says, and compared; all others are made of these by one or two changes."""
GROWN_BYTES: Final = 4 << 20
"""Memory that a process may have more after calls that were made before; small blocks are counted one by one."""
FLAGS: Final = ("-g", "-O1", "-fno-omit-frame-pointer", "-fno-sanitize-recover=all")
OPTIONS: Final = {
    # Python itself leaves memory behind; a stack for each allocation would take most of the time.
    "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=0:allocator_may_return_null=1:malloc_context_size=1",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    "TSAN_OPTIONS": "halt_on_error=1:report_signal_unsafe=0",
}


SMALL: Final = (0, 1, 255, 256, 5000, 65535, 65536, 2**32 - 1)
"""Numbers of columns: none between 65,536 and that of no subject, since `tally` counts by their size."""


class _Index:
    def __index__(self) -> int:
        return 7


class _Bytes(bytes):
    pass


ODD: Final[Words] = (
    None, True, -1, 0, 1, 7, 2**31, 2**32, 2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), 1.5, "", "text", "\udc80", b"",
    b"x", bytes(70000),
    bytearray(b"abc"), memoryview(b"abc"), _Bytes(b"abc"), (), (1,), (0, 1, 2, 3, 4), (b"",) * 5, [], [None], [b"a"],
    [(1, b"", b"r")], [(0, b"a", b"", b"", b"x")], {}, set(), frozenset({b"_R_"}), array("I", [1, 2]), array("Q", [1]),
    array("b"), int, bytes, tuple, object(), _Index(), lambda *words: words, iter(()), range(3),
)  # fmt: skip


def changed(words: Words, others: Words, chance: random.Random) -> Words:
    """Return arguments of which one is changed, or another input's, or of which there are too few or too many."""
    draw = chance.random
    kind = draw()
    if kind < 0.02 or not words:
        return words[:-1] if kind < 0.01 else (*words, _any_of(ODD, draw))
    at = int(draw() * len(words))
    other = others[at] if at < len(others) else None
    new = other if kind < 0.2 else _changed_value(words[at], other, draw)
    return (*words[:at], new, *words[at + 1 :])


def _any_of(values: Any, draw: Callable[[], float]) -> Any:
    return values[int(draw() * len(values))]


def _changed_value(value: Any, other: Any, draw: Callable[[], float]) -> Any:
    kind = type(value)
    if draw() < 0.08:
        return _any_of(ODD, draw)
    if kind is bytes:
        return _changed_bytes(value, other, draw)
    if kind is int:
        return value + int(draw() * 5) - 2 if draw() < 0.7 else _any_of(NUMBERS, draw)
    if kind is array and value:
        numbers = array(value.typecode, value)
        numbers[int(draw() * len(numbers))] = _any_of(SMALL, draw) & (1 << 8 * numbers.itemsize) - 1
        return numbers if draw() < 0.8 else numbers[: int(draw() * len(numbers))]
    if kind in (list, tuple) and value:
        return kind(_changed_members([*value], draw))
    return _any_of(ODD, draw)


def _changed_bytes(data: bytes, other: Any, draw: Callable[[], float]) -> bytes:
    """Return `data` with one thing wrong, or with the end of the other."""
    if not data:
        return _any_of(BLOBS, draw)  # type: ignore[no-any-return]
    at, kind = int(draw() * len(data)), draw()
    if kind < 0.5:
        return b"%b%c%b" % (data[:at], int(draw() * 256), data[at + 1 :])
    if kind < 0.6:
        return data[:at]
    if kind < 0.75:
        return data[:at] + data[at + 1 + int(draw() * 8) :]
    if kind < 0.9 and type(other) is bytes:
        return data[:at] + other[int(draw() * len(other)) :]
    return data[:at] + _any_of(BLOBS, draw) + data[at:]  # type: ignore[no-any-return]


def _changed_members(members: list[Any], draw: Callable[[], float]) -> list[Any]:
    at, kind = int(draw() * len(members)), draw()
    if kind < 0.1:
        del members[at]
    elif kind < 0.2:
        members.insert(at, members[-1])
    else:
        members[at] = _changed_value(members[at], members[-1], draw)
    return members


# Calls.


def _arbitrary(chance: random.Random) -> Words:
    return tuple(chance.choices((*ODD, *BLOBS, *NUMBERS), k=chance.randrange(9)))


ARBITRARY: Final = Case(_arbitrary)
"""The row of a function without one."""


def cases_of(module: Any) -> dict[str, tuple[Callable[..., Any], Case]]:
    """Return each function of the module and each method of its runs, with the case for it."""
    return {name: (function, CASES.get(name, ARBITRARY)) for name, function in functions_of(module).items()}


def inputs(case: Case, seed: str, number: int) -> Iterator[tuple[Words, bool]]:
    """Return the inputs of a block, and for each whether it is a plain one."""
    chance = random.Random(f"{seed}:{number}")
    pool = [case.make(chance) for _ in range(PLAIN)]
    for words in pool:
        yield words, case.check is not None
    for at in range(BLOCK - PLAIN):
        words = changed(pool[at % PLAIN], _any_of(pool, chance.random), chance)
        yield (words if at % 4 else changed(words, words, chance)), False


def run_block(name: str, function: Callable[..., Any], case: Case, seed: str, number: int, show: bool = False) -> None:
    """Call the function with the inputs of a block. Raises FaultError."""
    for words, plain in inputs(case, seed, number):
        if show:
            print(f"{name}{words!r}", flush=True)
        given = [list(word) if type(word) is list else word for word in words]  # as a call may leave them
        try:
            answer = function(*given)
        except SystemError as error:  # such as one of a result with an exception, or of none without one
            if plain or "bad argument" not in str(error):
                raise FaultError(f"{name}{words!r}: {error!r}") from error
        except Exception as error:
            if plain:
                raise FaultError(f"{name}{words!r}: {error!r}") from error
        else:
            if plain and case.check is not None:
                _compare(name, case.check, answer, given)


def _compare(name: str, check: Callable[..., object], answer: Any, given: list[Any]) -> None:
    try:
        check(answer, *given)
        count_references((answer, given))
    except FaultError as fault:
        raise FaultError(f"{name}{tuple(given)!r}: {fault}") from None


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
    pool = [words for words, _ in inputs(case, seed, 0)]
    # Numbers and None are used everywhere.
    held = [member for words in pool for member in _members(words) if not isinstance(member, int | None)]

    def once() -> None:
        for words in pool:
            try:
                function(*[list(word) if type(word) is list else word for word in words])
            except Exception:
                continue
        forget_runs()

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


# The command.


def load(path: Path) -> ModuleType:
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
