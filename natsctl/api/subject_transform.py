"""Mappings from a subject pattern to another subject, compiled once and applied to bytes.

A source is compiled into one expression with a group for each of its tokens, a destination into a template that the
groups, or what functions make of them, are set into. Source: server/subject_transform.go.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from natsctl.api.mapping_functions import (
    INVALID,
    OUT_OF_RANGE,
    UNKNOWN_FUNCTION,
    Function,
    TransformError,
    looks_like_function,
    names_function,
    parse_function,
    piece_of,
)

__all__ = ["SubjectMapping", "TransformError", "check_mapping"]

BAD_SUBJECT: Final = "invalid subject"
_NOT_STRICT: Final = INVALID + ": the only mapping function allowed for import transforms is {{Wildcard()}}"
_UNUSED_WILDCARDS: Final = INVALID + ": not using all of the token wildcard(s)"

_TOKEN: Final = r"([^.]+)"
_TAIL: Final = r"([^.]+(?:\.[^.]+)*)"

Reader = Callable[[re.Match[bytes]], bytes]
"""Makes what goes into one gap of a template."""


class SubjectMapping:
    """A mapping that was compiled."""

    __slots__ = ("_groups", "_match", "_passes", "_readers", "_template", "dest", "src")

    def __init__(self, src: str, dest: str, functions: list[Function | None], draw: Callable[[int], int]) -> None:
        """Plan what `compile` has checked."""
        self.src = src
        self.dest = dest
        tokens, targets = src.split("."), dest.split(".")
        self._passes = src == dest == ">"
        self._match = re.compile(_expression(tokens).encode()).fullmatch
        self._template = ".".join(
            target.replace("%", "%%") if function is None and target != ">" else "%b"
            for target, function in zip(targets, functions, strict=True)
        ).encode()
        self._groups: tuple[int, ...] | None = _groups(tokens, targets, functions)
        self._readers = _readers(tokens, targets, functions, draw) if self._groups is None else []

    @classmethod
    def compile(
        cls, src: str, dest: str, strict: bool = False, draw: Callable[[int], int] | None = None
    ) -> SubjectMapping:
        """Return the mapping from `src` ("": everything) to `dest` ("": the subject stays). Raises TransformError.

        `strict` asks for a mapping that can be turned round; `draw` returns that many random bits, for `random`.
        """
        src = src or ">"
        tokens = _tokens(src, "source")
        if not dest:
            return cls(src, dest, [None], _draw_nothing)
        targets = _tokens(dest, "destination")
        if "*" in targets or (tokens[-1] == ">") != (targets[-1] == ">"):
            raise TransformError("destination", BAD_SUBJECT)
        wildcards = tokens.count("*") if _has_wildcard(tokens) else -1
        functions = [_checked(target, wildcards, strict) for target in targets]
        if strict and sum(len(function.wildcards) for function in functions if function) < wildcards:
            raise TransformError("destination", f"{_UNUSED_WILDCARDS} in {dest}")
        return cls(src, dest, functions, draw or Sequence(src + dest).draw)

    def apply(self, subject: bytes) -> bytes | None:
        """Return where a literal subject is mapped to, or None when the source does not match it."""
        if self._passes:
            return subject
        found = self._match(subject)
        if found is None or ((b"*" in subject or b">" in subject) and not _is_literal(subject)):
            return None
        if self._groups is None:
            return self._template % tuple([read(found) for read in self._readers])
        if self._groups:
            return self._template % found.group(*self._groups)
        return self._template % () if self.dest else subject


class Sequence:
    """Numbers without order for mappings that are given no source of random bits; the same for the same seed."""

    __slots__ = ("_state",)

    def __init__(self, seed: str) -> None:
        self._state = int.from_bytes(seed.encode()[-8:], "little")

    def draw(self, bits: int) -> int:
        """Return the next number of `bits` (at most 64) bits."""
        self._state = (self._state * 6364136223846793005 + 1442695040888963407) & (2**64 - 1)
        return self._state >> (64 - bits)


def check_mapping(src: str, dest: str) -> None:
    """Raise TransformError unless a configuration may hold this mapping; texts are ValidateMapping's of nats-server."""
    if not dest:
        return
    ended = False
    for token in dest.split("."):
        if not token or ended:
            where = f" in {token}" if token else ""
            raise TransformError("destination", f"{INVALID}: invalid transform{where}")
        if looks_like_function(token):
            if not names_function(token):
                raise TransformError("destination", f"{UNKNOWN_FUNCTION} in {token}")
        elif token == ">":
            ended = True
        elif any(blank in token for blank in "\t\n\f\r "):
            raise TransformError("destination", f"{INVALID}: invalid transform")
    SubjectMapping.compile(src, dest)


def _draw_nothing(bits: int) -> int:
    return 0


def _tokens(subject: str, kind: str) -> list[str]:
    tokens = subject.split(".")
    if not all(tokens) or ">" in tokens[:-1]:
        raise TransformError(kind, BAD_SUBJECT)
    return tokens


def _has_wildcard(tokens: list[str]) -> bool:
    return "*" in tokens or tokens[-1] == ">"


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
            parts.append(_TOKEN)  # a token that only begins with a star matches everything too, as in nats-server
        else:
            parts.append(f"({re.escape(token)})")
    return r"\.".join(parts)


def _stars(tokens: list[str]) -> list[int]:
    """Return the groups of the wildcards."""
    return [at for at, token in enumerate(tokens, 1) if token == "*"]


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
    """Return what fills the gaps of a template, in order."""
    stars, readers = _stars(tokens), []
    for target, function in zip(targets, functions, strict=True):
        if function is not None:
            readers.append(_reader(function, stars if _has_wildcard(tokens) else None, draw))
        elif target == ">":
            readers.append(_group(len(tokens)))
    return readers


def _reader(function: Function, stars: list[int] | None, draw: Callable[[int], int]) -> Reader:
    """Return what fills the gap of a function; a literal source (`stars` None) gives it the whole subject."""
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


def _first_token(found: re.Match[bytes]) -> bytes:
    """Return what nats-server reads for a wildcard below 1."""
    return found[0].partition(b".")[0]


def _is_literal(subject: bytes) -> bool:
    tokens = subject.split(b".")
    return b"*" not in tokens and b">" not in tokens
