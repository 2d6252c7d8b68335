"""Mappings of subjects: an account's mappings, and the two names of an imported subject.

The exporting account and the importing one may name a subject differently. A local name is written as a pattern
(`bar.*.*`) or as a destination that says where each token comes from (`bar.$2.$1`, `bar.{{wildcard(2)}}.$1`).
Source: server/subject_transform.go of nats-server.

Theory of operation of an account's mappings. They are tried in the order they were added and the first with a matching
source decides. If there are more than a few, only the ones that an index finds for the subject are tried; an account
without mappings pays nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from natsctl.api.subject_index import Steps, SubjectIndex, finish
from natsctl.api.subject_transform import (
    SubjectMapping,
    TransformError,
    check_mapping,
    parse_function,
    source_pattern,
)
from natsctl.api.subjects import has_wildcard, is_subset, is_valid_subject, matches

if TYPE_CHECKING:
    from natsctl.broker.broker_options import Rng
    from natsctl.broker.imports.account_config import SubjectMap


class PatternMapping:
    """A mapping that only moves tokens. Tokens of a message that look like wildcards are text, as in API subjects."""

    __slots__ = ("_cut", "_head", "_new", "_pattern", "_plan", "_tail", "src")

    def __init__(self, src: str, dest: str) -> None:
        """Map subjects that match `src` to `dest` (with wildcards as its only functions)."""
        self.src = src
        self._pattern = src.encode()
        source, target = src.split("."), dest.split(".")
        self._head = self._new = b""
        if source[-1] == target[-1] == ">" and "*" not in source:
            self._head, self._new = (text[:-1].encode() for text in (src, dest))
        stars = [at for at, token in enumerate(source) if token == "*"]
        self._tail = len(source) - 1 if source[-1] == ">" else -1
        self._plan: list[bytes | int] = []
        for token in target[:-1] if target[-1] == ">" else target:
            index = _wildcard(token)
            self._plan.append(stars[index - 1] if index else token.encode())
        self._cut = len(self._head)

    def apply(self, subject: bytes) -> bytes | None:
        """Return the destination of a message on `subject`, or None if the source does not match."""
        if self._head:
            if len(subject) == self._cut or not subject.startswith(self._head):
                return None
            return self._new + subject[self._cut :]
        if not matches(self._pattern, subject):
            return None
        tokens = subject.split(b".")
        made = [tokens[part] if isinstance(part, int) else part for part in self._plan]
        return b".".join(made + tokens[self._tail :] if self._tail >= 0 else made)


def only_moves(destination: str) -> bool:
    """Return whether a destination has only wildcards as functions. Raises TransformError for unknown ones."""
    functions = [parse_function(token) for token in destination.split(".")]
    return all(
        function is None or (function.name == "wildcard" and function.wildcards[0] > 0) for function in functions
    )


def pattern_of(destination: str) -> str:
    """Return the pattern that all subjects of a destination match: its tokens `$n` as `*`."""
    return ".".join("*" if _wildcard(token) else token for token in destination.split("."))


def destination_of(pattern: str) -> str:
    """Return a pattern as a destination: its stars as `$1`, `$2` and so on; a destination stays what it is."""
    tokens, star = [], 0
    for token in pattern.split("."):
        star += token == "*"
        tokens.append(f"${star}" if token == "*" else token)
    return ".".join(tokens)


def swapped(source: str, destination: str) -> str | None:
    """Return the destination from the pattern of `destination` back to `source`, as nats-server makes it.

    The stars of `source` become the placeholders of `destination` in their order. None if these are too few, or do not
    cover the pattern: requests then go to `source` as text. Source: subjectTransform.reverse and addServiceImport.
    """
    placeholders = iter([token for token in destination.split(".") if _wildcard(token)])
    back = ".".join(next(placeholders, "*") if token == "*" else token for token in source.split("."))
    try:
        SubjectMapping.compile(pattern_of(destination), back, strict=True)
    except TransformError:
        return None
    return back


def carried_back(subject: str, source: str, destination: str) -> str:
    """Return the pattern of subjects that `destination` maps from `source` into the pattern `subject`."""
    have = subject.split(".")
    known: dict[int, str] = {}
    tail: list[str] = []
    for at, token in enumerate(destination.split(".")):
        index = _wildcard(token)
        if index:
            known[index] = have[at]
        elif token == ">":
            tail = have[at:]
    tokens, star = list[str](), 0
    for token in source.split("."):
        if token == "*":
            star += 1
            tokens.append(known[star])
        elif token == ">":
            tokens += tail
        else:
            tokens.append(token)
    return ".".join(tokens)


def common(subject: str, local: str) -> tuple[str, bool] | None:
    """Return the part of a pattern `local` for a subscription to `subject`, and whether `subject` narrows it.

    None if they have nothing in common. Patterns are narrowed only where nats-server does.
    """
    if subject == local:
        return local, False
    if is_subset(subject, local):
        return subject, True
    if is_subset(local, subject):
        return local, False
    have, want = subject.split("."), local.split(".")
    if "*" not in have and have[-1] != ">":
        return None
    for at, (mine, theirs) in enumerate(zip(have, want, strict=False)):
        if mine == "*" and theirs != ">":
            have[at] = theirs
    if have[-1] == ">" and len(want) >= len(have):
        have = have[:-1] + want[len(have) - 1 :]
    narrowed = ".".join(have)
    return (narrowed, True) if is_subset(narrowed, local) else None


def _wildcard(token: str) -> int:
    """Return the number of the source's star for a token of a destination, or 0."""
    function = parse_function(token)
    return function.wildcards[0] if function is not None and function.name == "wildcard" else 0


FEW_MAPPINGS: Final = 8
"""Mappings that are tried one after another."""
MAPPING_COST: Final = 8
"""Cost of each destination of a mapping that is compiled."""
MAX_DRAWN: Final = 1024
"""Messages that keep their destination while they wait; others get a new one."""


Mapping: TypeAlias = "SubjectMapping | PatternMapping | WeightedDestination"


class WeightedDestination:
    """A source with several destinations; each message goes to one. A share without a weight is dropped."""

    __slots__ = ("_pattern", "_rng", "_shares", "src")

    def __init__(self, src: str, shares: Sequence[tuple[int, Mapping]], rng: Rng) -> None:
        """Take destinations with their weights in percent, lightest first."""
        self.src = src
        self._pattern = src.encode()
        self._rng = rng
        self._shares: list[tuple[int, Mapping]] = []
        limit = 0
        for weight, mapping in shares:
            limit += weight
            self._shares.append((limit, mapping))

    def apply(self, subject: bytes) -> bytes | None:
        """Return the destination of a message, b"" to drop it."""
        if not matches(self._pattern, subject):
            return None
        drawn = self._rng.random() * 100
        for limit, mapping in self._shares:
            if drawn < limit:
                return mapping.apply(subject)
        return b""


def compile_mapping(config: SubjectMap, rng: Rng) -> Mapping:
    """Return a configured mapping; the remaining share keeps its subject, unless the source is a destination too.

    Raises TransformError with nats-server's text.
    """
    src, total = config.source, 0
    if not is_valid_subject(src):
        raise TransformError("source", "invalid subject")
    shares: dict[str, tuple[int, Mapping]] = {}
    for to in config.destinations:
        if to.subject in shares:
            raise TransformError("destination", f'duplicate entry for "{to.subject}"')
        if to.weight > 100:
            raise TransformError("destination", "individual weights need to be <= 100")
        total += to.weight
        if total > 100:
            raise TransformError("destination", "total weight needs to be <= 100")
        check_mapping(src, to.subject)
        shares[to.subject] = (to.weight, _one_mapping(src, to.subject, rng))
    if total != 100 and src not in shares:
        rest = destination_of(src) if has_wildcard(src) else src
        shares[src] = (100 - total, PatternMapping(src, rest))
    weight, only = next(iter(shares.values()))
    if weight == 100:
        return only
    return WeightedDestination(src, sorted(shares.values(), key=lambda share: share[0]), rng)


def _one_mapping(src: str, dest: str, rng: Rng) -> Mapping:
    """Return a mapping that was checked."""
    mapping = SubjectMapping.compile(src, dest, draw=rng.getrandbits)
    return PatternMapping(src, dest) if only_moves(dest) else mapping


class Mappings:
    __slots__ = ("_configured", "_drawn", "_index", "_mappings", "_served")

    def __init__(self) -> None:
        self._configured: list[Mapping] = []
        self._served: list[Mapping] = []
        self._mappings: list[Mapping] = []
        self._index: SubjectIndex[int] | None = None
        """The positions of the mappings by source, if there are more than a few."""
        self._drawn: dict[bytes, bytes] = {}
        """Destinations of the next message by its subject."""

    def add(self, mapping: Mapping) -> None:
        """Add a mapping of the server itself (tried last), or replace the one with the same source."""
        self._served = [*(known for known in self._served if known.src != mapping.src), mapping]
        finish(self._arranging())

    @classmethod
    def compile(cls, configured: Iterable[SubjectMap], rng: Rng, before: Mappings | None) -> Steps[Mappings]:
        """Return the mappings of a configuration, with the server's own of `before`."""
        mappings, compiled = cls(), dict[str, Mapping]()
        for config in configured:
            mapping = compile_mapping(config, rng)
            compiled[mapping.src] = mapping
            yield MAPPING_COST * len(config.destinations)
        mappings._configured = list(compiled.values())
        mappings._served = before._served if before is not None else []
        yield from mappings._arranging()
        return mappings

    def keep(self, before: Mappings | None) -> None:
        """Adopt subjects of the mappings in effect that changed while these were compiled."""
        if before is not None and before._served is not self._served:
            self._served = before._served
            finish(self._arranging())

    def _arranging(self) -> Steps[None]:
        sources = {mapping.src for mapping in self._configured}
        self._mappings = [*self._configured, *(known for known in self._served if known.src not in sources)]
        self._index = None
        if len(self._mappings) > FEW_MAPPINGS:
            self._index = SubjectIndex()
            for place, mapping in enumerate(self._mappings):
                self._index.add(source_pattern(mapping.src), place)
                yield 1

    def _candidates(self, subject: bytes) -> Sequence[Mapping]:
        """Return the mappings that may apply to a message on `subject`, in order."""
        if self._index is None:
            return self._mappings
        return [self._mappings[place] for place in sorted(self._index.matching(subject))]

    def sources(self) -> list[bytes]:
        """Return the patterns of mapped subjects."""
        return [mapping.src.encode() for mapping in self._mappings]

    def apply(self, subject: bytes) -> bytes:
        """Return the destination of a message on `subject`."""
        if self._drawn and (drawn := self._drawn.pop(subject, None)) is not None:
            return drawn
        for mapping in self._candidates(subject):
            mapped = mapping.apply(subject)
            if mapped is not None:
                return mapped
        return subject

    def put_back(self, subject: bytes, destination: bytes) -> None:
        """Have the next message on `subject` go to `destination`: it may be a random one, and the message waits."""
        if len(self._drawn) >= MAX_DRAWN:
            del self._drawn[next(iter(self._drawn))]
        self._drawn[subject] = destination

    def moves(self, subject: bytes) -> bool:
        """Return whether a message on `subject` goes anywhere else, or may."""
        for mapping in self._candidates(subject):
            mapped = mapping.apply(subject)
            if mapped is not None:
                return mapped != subject or isinstance(mapping, WeightedDestination)
        return False
