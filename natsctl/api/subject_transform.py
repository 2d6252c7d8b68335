"""The functions of a mapping's destination: `$2`, `{{partition(10,1,2)}}`, `{{split(1,-)}}` and more.

`parse_function` reads one token of a destination, `piece_of` returns its part of a new subject.
Refused arguments and error texts follow nats-server (server/subject_transform.go).

Mappings from a subject pattern to another subject, compiled once and applied to bytes.

A source is compiled into one expression with a group for each of its tokens, a destination into a template that the
groups, or the results of functions of them, are set into. Source: server/subject_transform.go.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from itertools import product
from operator import itemgetter
from typing import Any, Final, TypeAlias

import msgspec

from natsctl.api.errors import NatsctlError
from natsctl.api.subject_index import STEP, Steps, finish

Piece = Callable[[bytes], bytes]
"""Makes part of a destination of one token (partition: of several, joined)."""

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1

TOKENS: Final = 256
"""Functions of a destination that one step checks."""
CHUNK: Final = 4096
"""Characters of a subject that one step splits into tokens."""
MAX_ARGUMENTS: Final = 4096
"""Arguments of a function; no subject that a client can send has as many tokens."""
MAX_SUBJECT_BYTES: Final = 65535
"""Length of a destination, and of the subjects that it makes. A message with a longer one is dropped.

Source: records of nats-server's streams have 16 bits for it.
"""
MANY_TOKENS: Final = 64
"""Subjects for a source with more tokens are compared token by token: an expression would take long to compile."""
MAX_PARTITION_KEYS: Final = 4096
"""Maximum number of cached hashes."""

INVALID: Final = "invalid mapping destination"
UNKNOWN_FUNCTION: Final = INVALID + ": unknown function"
OUT_OF_RANGE: Final = INVALID + ": wildcard index out of range"
_TOO_FEW: Final = INVALID + ": not enough arguments passed to the function"
_TOO_MANY: Final = INVALID + ": too many arguments passed to the function"
_BAD_ARGUMENT: Final = INVALID + ": function argument is invalid or in the wrong format"

_NAMES: Final = (
    "wildcard", "partition", "splitFromLeft", "splitFromRight", "sliceFromLeft", "sliceFromRight", "right", "left",
    "split", "random",
)  # fmt: skip
"""In order of precedence for a token with several calls."""

_BLANK: Final = r"[\t\n\f\r ]*"
_BLANKS: Final = frozenset("\t\n\f\r ")
_OPENING: Final = re.compile(rf"\{{\{{{_BLANK}([A-Za-z]+){_BLANK}\(")
_CLOSING: Final = re.compile(rf"\){_BLANK}\}}\}}")
_INTEGER: Final = re.compile(r"([+-]?)(0*+)([0-9]{0,19})")
_COMMA: Final = "," + _BLANK
_FNV_BASIS: Final = 0x811C9DC5
_FNV_PRIME: Final = 0x01000193


class TransformError(NatsctlError):
    """A source or destination that cannot be compiled; the text is nats-server's."""

    def __init__(self, kind: str, text: str) -> None:
        """Set the side that is wrong as `kind`: `source` or `destination`."""
        super().__init__(text)
        self.kind = kind


class Function(msgspec.Struct, frozen=True):
    """One call: its name in lower case, the wildcards it reads (1-based), its number and its delimiter."""

    name: str
    wildcards: tuple[int, ...] = ()
    number: int = -1
    delimiter: str = ""


def parse_function(token: str) -> Function | None:
    """Return the function that a token of a destination calls, None for plain text. Raises TransformError."""
    if len(token) > 1 and token[0] == "$":
        index = _integer(token[1:], INT64_MAX)
        return None if index is None else Function("wildcard", (index,))
    if not looks_like_function(token):
        return None
    call = _call_in(token)
    if call is None:
        raise _bad(UNKNOWN_FUNCTION, token)
    name, text = call
    arguments = re.split(_COMMA, text, maxsplit=MAX_ARGUMENTS)
    if len(arguments) > MAX_ARGUMENTS:
        raise _bad(_BAD_ARGUMENT, token)
    return _function_readers[name](name, token, arguments)


def looks_like_function(token: str) -> bool:
    """Return whether a token is written in double braces."""
    return len(token) > 4 and token.startswith("{{") and token.endswith("}}")


def names_function(token: str) -> bool:
    """Return whether a token in double braces calls a function that exists, whatever its arguments."""
    return _call_in(token) is not None


def _call_in(token: str) -> tuple[str, str] | None:
    """Return the lower-case name of the function that a token calls and its arguments as text.

    The first call of a name reaches to the last end of a call, and the names have an order of precedence.
    """
    end = -1
    for closing in _CLOSING.finditer(token):
        end = closing.start()
    starts: dict[str, int] = {}
    for opening in _OPENING.finditer(token, 0, max(end, 0)):
        name = _spellings().get(opening[1])
        if name is not None:
            starts.setdefault(name, opening.end())
    for name in _NAMES:
        start = starts.get(name.lower())
        if start is not None and "\n" not in (text := token[start:end]):
            return name.lower(), text
    return None


@lru_cache(maxsize=1)
def _spellings() -> dict[str, str]:
    """Return the lower-case names by their spellings: the first letter of each word may be of either case."""
    spelled = {}
    for name in _NAMES:
        heads = [at for at, letter in enumerate(name) if not at or letter.isupper()]
        for cases in product((str.lower, str.upper), repeat=len(heads)):
            letters = list(name)
            for at, case in zip(heads, cases, strict=True):
                letters[at] = case(letters[at])
            spelled["".join(letters)] = name.lower()
    return spelled


def _bad(why: str, token: str) -> TransformError:
    return TransformError("destination", f"{why} in {token}")


def _integer(text: str, largest: int) -> int | None:
    """Return a number as Go reads it, None for anything else or beyond `largest`."""
    match = _INTEGER.fullmatch(text)
    if match is None or not (match[2] or match[3]):
        return None
    number = int(match[1] + (match[3] or "0"))
    return number if -largest - 1 <= number <= largest else None


def _argument(token: str, text: str, largest: int = INT64_MAX) -> int:
    number = _integer(text.strip(" "), largest)
    if number is None:
        raise _bad(_BAD_ARGUMENT, token)
    return number


def _count(token: str, text: str) -> int:
    """Return a number of partitions; a negative one wraps around as in nats-server."""
    number = _argument(token, text)
    if number > INT32_MAX:
        raise _bad(_BAD_ARGUMENT, token)
    return (number + 2**31) % 2**32 - 2**31


def _exactly_two(token: str, arguments: list[str]) -> None:
    if len(arguments) != 2:
        raise _bad(_TOO_FEW if len(arguments) < 2 else _TOO_MANY, token)


def _read_wildcard(name: str, token: str, arguments: list[str]) -> Function:
    if len(arguments) > 1 or not arguments[0]:
        raise _bad(_TOO_MANY if len(arguments) > 1 else _TOO_FEW, token)
    return Function(name, (_argument(token, arguments[0]),))


def _read_partition(name: str, token: str, arguments: list[str]) -> Function:
    count = _count(token, arguments[0])
    return Function(name, tuple(_argument(token, text) for text in arguments[1:]), count)


def _read_index_and_number(name: str, token: str, arguments: list[str]) -> Function:
    _exactly_two(token, arguments)
    return Function(name, (_argument(token, arguments[0]),), _argument(token, arguments[1], INT32_MAX))


def _read_split(name: str, token: str, arguments: list[str]) -> Function:
    _exactly_two(token, arguments)
    index, delimiter = _argument(token, arguments[0]), arguments[1]
    if " " in delimiter or "." in delimiter:
        raise _bad(_BAD_ARGUMENT, token)
    return Function(name, (index,), delimiter=delimiter)


def _read_random(name: str, token: str, arguments: list[str]) -> Function:
    if len(arguments) != 1:
        raise _bad(_TOO_FEW, token)
    return Function(name, (), _count(token, arguments[0]))


_function_readers: Final[dict[str, Callable[[str, str, list[str]], Function]]] = {
    "wildcard": _read_wildcard,
    "partition": _read_partition,
    "split": _read_split,
    "random": _read_random,
    **dict.fromkeys(("splitfromleft", "splitfromright", "slicefromleft", "slicefromright"), _read_index_and_number),
    **dict.fromkeys(("left", "right"), _read_index_and_number),
}


# The result of each function for a token


def piece_of(function: Function, draw: Callable[[int], int]) -> Piece:
    """Return the result of a function of its token; `draw` returns that many random bits."""
    size = function.number
    if function.name == "partition":
        return lambda key: partition(key, size)
    if function.name == "random":
        return lambda _: b"%d" % (draw(31) % abs(size)) if size else b"0"
    if function.name == "split":
        delimiter = function.delimiter.encode()
        return lambda token: split(token, delimiter)
    cut = _cuts.get(function.name)
    if cut is None:
        return bytes
    return lambda token: cut(token, size) if 0 < size < len(token) else token


@lru_cache(maxsize=MAX_PARTITION_KEYS)
def partition(key: bytes, count: int) -> bytes:
    """Return the number of the partition, 0 to `count` - 1, of a key: its FNV-1a hash of 32 bits modulo `count`."""
    if not count:
        return b"0"
    value = _FNV_BASIS
    for byte in key:
        value = (value ^ byte) * _FNV_PRIME & 0xFFFFFFFF
    return b"%d" % (value % (count & 0xFFFFFFFF))


def split(token: bytes, delimiter: bytes) -> bytes:
    """Return a token with dots for delimiters; those at its ends and next to each other leave no empty token.

    Two at its beginning do leave one, as in nats-server.
    """
    parts = token.split(delimiter) if delimiter else _characters(token)
    made = []
    for index, part in enumerate(parts):
        made.append(part)
        if index < len(parts) - 1 and parts[index + 1] and (index or part):
            made.append(b".")
    return b"".join(made)


def _characters(token: bytes) -> list[bytes]:
    return [char.encode("utf-8", "surrogateescape") for char in token.decode("utf-8", "surrogateescape")]


def _slice_from_left(token: bytes, size: int) -> bytes:
    return b".".join([token[at : at + size] for at in range(0, len(token), size)])


def _slice_from_right(token: bytes, size: int) -> bytes:
    first = len(token) % size
    rest = [token[at : at + size] for at in range(first, len(token), size)]
    return b".".join([token[:first], *rest] if first else rest)


_cuts: Final[dict[str, Callable[[bytes, int], bytes]]] = {
    "splitfromleft": lambda token, size: b"%b.%b" % (token[:size], token[size:]),
    "splitfromright": lambda token, size: b"%b.%b" % (token[:-size], token[-size:]),
    "slicefromleft": _slice_from_left,
    "slicefromright": _slice_from_right,
    "left": lambda token, size: token[:size],
    "right": lambda token, size: token[-size:],
}


BAD_SUBJECT: Final = "invalid subject"
_NOT_STRICT: Final = INVALID + ": the only mapping function allowed for import transforms is {{Wildcard()}}"
_UNUSED_WILDCARDS: Final = INVALID + ": not using all of the token wildcard(s)"

_TOKEN: Final = r"([^.]+)"
_TAIL: Final = r"([^.]+(?:\.[^.]+)*)"


class SplitSubject(tuple[bytes, ...]):
    """A subject and its tokens as the groups of a match: the first is the subject, a tail counts as one token."""

    def group(self, *numbers: int) -> Any:
        """Return one token, or several."""
        return itemgetter(*numbers)(self)


TokenMatch: TypeAlias = re.Match[bytes] | SplitSubject
Reader = Callable[[TokenMatch], bytes]
"""Makes the text of one gap of a template."""


class SubjectMapping:
    """A mapping that was compiled."""

    __slots__ = (
        "_draw", "_groups", "_literal", "_match", "_passes", "_readers", "_room", "_separators", "_template",
        "dest", "src",
    )  # fmt: skip

    def __init__(self, src: str, dest: str, draw: Callable[[int], int]) -> None:
        """Keep a mapping that was checked; the functions of its destination are read with the first message."""
        self.src = src = src or ">"
        self.dest = dest
        self._passes = src == dest == ">"
        self._separators = src.count(".")
        self._draw = draw
        self._match: Callable[[bytes], TokenMatch | None] | None = None
        """Planned with the first subject that may match: a pattern may have more tokens than any message's subject."""
        self._template = b""
        self._literal = True
        self._groups: tuple[int, ...] | None = ()
        self._readers: list[Reader] = []
        self._room = 0
        """Bytes that the gaps of the template may have in all."""

    @classmethod
    def compile(
        cls,
        src: str,
        dest: str,
        strict: bool = False,
        draw: Callable[[int], int] | None = None,
        *,
        literal: bool = True,
    ) -> SubjectMapping:
        """Return the mapping from `src` ("": everything) to `dest` ("": the subject stays). Raises TransformError.

        `strict` asks for a mapping that can be turned round; `draw` returns that many random bits, for `random`.
        Without `literal`, tokens of a subject that look like wildcards are text, as in API subjects.
        """
        return finish(cls.compiling(src, dest, strict, draw, literal=literal))

    @classmethod
    def compiling(
        cls,
        src: str,
        dest: str,
        strict: bool = False,
        draw: Callable[[int], int] | None = None,
        *,
        literal: bool = True,
    ) -> Steps[SubjectMapping]:
        """Compile a mapping in steps."""
        src = src or ">"
        stars, tail = yield from _surveying(src, "source")
        if not dest:
            return cls(src, dest, lambda bits: 0)
        stars_of_dest, tail_of_dest = yield from _surveying(dest, "destination")
        if stars_of_dest or tail is not tail_of_dest:
            raise TransformError("destination", BAD_SUBJECT)
        wildcards = stars if stars or tail else -1
        functions: dict[str, Function | None] = {}
        used = 0
        for targets in _chunks(dest):
            for target in targets:
                if target[0] not in "${":
                    continue
                if target not in functions:
                    functions[target] = _checked(target, wildcards, strict)
                    if not len(functions) % TOKENS:
                        yield STEP
                function = functions[target]
                used += len(function.wildcards) if function is not None else 0
            if len(dest) > CHUNK:
                yield STEP
        if strict and used < wildcards:
            raise TransformError("destination", f"{_UNUSED_WILDCARDS} in {dest}")
        mapping = cls(src, dest, draw or Sequence(src + dest).draw)
        mapping._literal = literal
        return mapping

    def _planned(self) -> Callable[[bytes], TokenMatch | None]:
        tokens, targets = self.src.split("."), self.dest.split(".") if len(self.dest) <= MAX_SUBJECT_BYTES else []
        calls = [target for target in dict.fromkeys(targets) if target[:1] in "${"]
        functions = [*map({target: parse_function(target) for target in calls}.get, targets)]
        if any(functions):
            self._template = ".".join(
                target.replace("%", "%%") if function is None and target != ">" else "%b"
                for target, function in zip(targets, functions, strict=True)
            ).encode()
            self._groups = _groups(tokens, targets, functions)
            self._readers = _readers(tokens, targets, functions, self._draw) if self._groups is None else []
        elif targets:
            text = self.dest.replace("%", "%%").encode()
            self._template, self._groups = (text[:-1] + b"%b", (len(tokens),)) if targets[-1] == ">" else (text, ())
        gaps = len(self._readers if self._groups is None else self._groups)
        self._room = MAX_SUBJECT_BYTES - len(self._template % ((b"",) * gaps))
        if len(tokens) > MANY_TOKENS:
            literals = [b"" if token[:1] == "*" else token.encode() for token in tokens]
            self._match = partial(_match_tokens, literals)
        else:
            self._match = re.compile(_expression(tokens).encode()).fullmatch
        return self._match

    def apply(self, subject: bytes) -> bytes | None:
        """Return the destination of a subject, None if the source does not match it, and b"" if it is too long."""
        if self._passes:
            return subject
        match = self._match
        if match is None:
            if subject.count(b".") < self._separators:
                return None
            match = self._planned()
        found = match(subject)
        if found is None or (self._literal and (b"*" in subject or b">" in subject) and not _is_literal(subject)):
            return None
        if self._groups is None:
            return self._read(found)
        if self._groups:
            room = self._room
            if len(self._groups) * len(subject) > room and sum(len(found[group]) for group in self._groups) > room:
                return b""
            return self._template % found.group(*self._groups)
        return self._template % () if self.dest else subject

    def _read(self, found: TokenMatch) -> bytes:
        parts, room = list[bytes](), self._room
        for reader in self._readers:
            part = reader(found)
            room -= len(part)
            if room < 0:
                return b""
            parts.append(part)
        return self._template % tuple(parts)


class Sequence:
    """Numbers without order for mappings that are given no source of random bits; the same for the same seed."""

    __slots__ = ("_state",)

    def __init__(self, seed: str) -> None:
        self._state = int.from_bytes(seed.encode()[-8:], "little")

    def draw(self, bits: int) -> int:
        """Return the next number of `bits` (at most 64) bits."""
        self._state = (self._state * 6364136223846793005 + 1442695040888963407) & (2**64 - 1)
        return self._state >> (64 - bits)


def source_pattern(src: str) -> bytes:
    """Return the pattern under which a mapping's source is found in an index.

    A token that only begins with a star matches everything too, as in nats-server.
    """
    return ".".join("*" if token[:1] == "*" else token for token in (src or ">").split(".")).encode()


def check_mapping(src: str, dest: str) -> None:
    """Raise TransformError unless a configuration may hold this mapping; texts are ValidateMapping's of nats-server."""
    finish(checking_mapping(src, dest))


def checking_mapping(src: str, dest: str) -> Steps[None]:
    """Do in steps what `check_mapping` does."""
    if not dest:
        return
    closed, seen = False, set[str]()
    for tokens in _chunks(dest):
        for token in tokens:
            if closed:
                where = f" in {token}" if token else ""
                raise TransformError("destination", f"{INVALID}: invalid transform{where}")
            if token in seen:
                continue
            _check_token(token)
            closed = token == ">"
            if token[0] == "{":
                seen.add(token)
                if not len(seen) % TOKENS:
                    yield STEP
        if len(dest) > CHUNK:
            yield STEP
    yield from SubjectMapping.compiling(src, dest)


def _check_token(token: str) -> None:
    if not token:
        raise TransformError("destination", f"{INVALID}: invalid transform")
    if looks_like_function(token):
        if not names_function(token):
            raise TransformError("destination", f"{UNKNOWN_FUNCTION} in {token}")
    elif not _BLANKS.isdisjoint(token):
        raise TransformError("destination", f"{INVALID}: invalid transform")


def _chunks(subject: str) -> Iterator[list[str]]:
    """Yield the tokens of a subject in lists, each from about `CHUNK` characters."""
    start = 0
    while (end := subject.find(".", start + CHUNK)) >= 0:
        yield subject[start:end].split(".")
        start = end + 1
    yield subject[start:].split(".")


def _surveying(subject: str, kind: str) -> Steps[tuple[int, bool]]:
    """Return the number of stars of a subject, and whether it has a tail."""
    stars, tail = 0, False
    for tokens in _chunks(subject):
        if tail or not all(tokens) or ">" in tokens[:-1]:
            raise TransformError(kind, BAD_SUBJECT)
        stars += tokens.count("*")
        tail = tokens[-1] == ">"
        if len(subject) > CHUNK:
            yield STEP
    return stars, tail


def _checked(target: str, wildcards: int, strict: bool) -> Function | None:
    """Return the function of a destination's token; `wildcards` of the source, -1 when it is a literal."""
    function = parse_function(target)
    if function is None:
        return None
    if wildcards < 0:
        if function.name not in ("random", "partition"):
            raise TransformError("destination", f"{OUT_OF_RANGE} in {target}")
        return function
    if strict and function.name != "wildcard":
        raise TransformError("destination", f"{_NOT_STRICT} in {target}")
    beyond = next((index for index in function.wildcards if index > wildcards), None)
    if beyond is not None:
        raise TransformError("destination", f"{OUT_OF_RANGE} in {target}: [{beyond}]")
    return function


def _expression(tokens: list[str]) -> str:
    """Return the expression of a source; its groups are the tokens, the tail counting as one."""
    parts = []
    for token in tokens:
        if token == ">":
            parts.append(_TAIL)
        elif token.startswith("*"):
            parts.append(_TOKEN)  # `source_pattern`
        else:
            parts.append(f"({re.escape(token)})")
    return r"\.".join(parts)


def _stars(tokens: list[str]) -> list[int]:
    return [number for number, token in enumerate(tokens, 1) if token == "*"]


def _groups(tokens: list[str], targets: list[str], functions: list[Function | None]) -> tuple[int, ...] | None:
    """Return the groups that go into the gaps as they are, None when a function has to be asked."""
    stars, groups = _stars(tokens), []
    for target, function in zip(targets, functions, strict=True):
        if function is None:
            if target == ">":
                groups.append(len(tokens))
        elif function.name == "wildcard" and function.wildcards[0] > 0:
            groups.append(stars[function.wildcards[0] - 1])
        else:
            return None
    return tuple(groups)


def _readers(
    tokens: list[str], targets: list[str], functions: list[Function | None], draw: Callable[[int], int]
) -> list[Reader]:
    """Return the texts that fill the gaps of a template, in order."""
    stars, readers = _stars(tokens), []
    for target, function in zip(targets, functions, strict=True):
        if function is not None:
            readers.append(_reader(function, stars if "*" in tokens or tokens[-1] == ">" else None, draw))
        elif target == ">":
            readers.append(_group(len(tokens)))
    return readers


def _reader(function: Function, stars: list[int] | None, draw: Callable[[int], int]) -> Reader:
    """Return the text that fills the gap of a function; a literal source (`stars` None) gives it the whole subject."""
    indexes = function.wildcards if stars is not None else ()
    fields = [_group(stars[index - 1]) if index > 0 else _first_token for index in indexes] if stars is not None else []
    piece = piece_of(function, draw)
    if not fields:
        return lambda found: piece(found[0])
    if len(fields) == 1:
        (field,) = fields
        return lambda found: piece(field(found))
    return lambda found: piece(b"".join([field(found) for field in fields]))


def _group(number: int) -> Reader:
    return lambda found: found[number]


def _first_token(found: TokenMatch) -> bytes:
    """Return the number that nats-server reads for a wildcard below 1."""
    return found[0].partition(b".")[0]


def _match_tokens(literals: list[bytes], subject: bytes) -> SplitSubject | None:
    """Match a subject with the tokens of a source; b"" is any token, and b">" at the end a tail."""
    tail = literals[-1] == b">"
    tokens = subject.split(b".", len(literals) - 1)
    if len(tokens) != len(literals) or b"" in tokens or b"" in (ends := tokens[-1].split(b".")):
        return None
    if not tail and len(ends) > 1:
        return None
    checked = literals[:-1] if tail else literals
    if any(literal and literal != token for literal, token in zip(checked, tokens, strict=False)):
        return None
    return SplitSubject((subject, *tokens))


def _is_literal(subject: bytes) -> bool:
    tokens = subject.split(b".")
    return b"*" not in tokens and b">" not in tokens
