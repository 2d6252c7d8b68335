"""Mappings of subjects: an account's mappings, and the two names of an imported subject.

The exporting account and the importing one may name a subject differently. A local name is written as a pattern
(`bar.*.*`) or as a destination that says where each token comes from (`bar.$2.$1`, `bar.{{wildcard(2)}}.$1`).
Source: server/subject_transform.go of nats-server.

Theory of operation of an account's mappings. A source has one destination, or several that share its messages. They
are tried in the order they were added and the first with a matching source decides. If there are more than a few, only
the ones that an index finds for the subject are tried; an account without mappings pays nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Final, TypeAlias

from natsctl.api.subject_index import Steps, SubjectIndex, finish
from natsctl.api.subject_transform import (
    SubjectMapping,
    TransformError,
    checking_mapping,
    parse_function,
    source_pattern,
)
from natsctl.api.subjects import has_wildcard, is_subset, is_valid_subject

if TYPE_CHECKING:
    from natsctl.broker.broker_options import Rng
    from natsctl.broker.imports.account_config import SubjectMap


def pattern_of(destination: str) -> str:
    """Return the pattern that all subjects of a destination match: its tokens `$n` as `*`."""
    return ".".join("*" if _wildcard(token) else token for token in destination.split("."))


def destination_of(pattern: str) -> str:
    """Return a pattern as a destination, `$1`, `$2` and so on for its stars; a destination stays unchanged."""
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
    for index, (mine, theirs) in enumerate(zip(have, want, strict=False)):
        if mine == "*" and theirs != ">":
            have[index] = theirs
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


Shares: TypeAlias = list[tuple[int, SubjectMapping]]
"""The destinations of one source, lightest first, each with the highest number of 0 to 100 that draws it."""


def compiling_shares(config: SubjectMap, draw: Callable[[int], int] | None = None) -> Steps[Shares]:
    """Return a configured mapping; the remaining share keeps its subject, unless the source is a destination too.

    Raises TransformError with nats-server's text.
    """
    src, total = config.source, 0
    if not is_valid_subject(src):
        raise TransformError("source", "invalid subject")
    weights: dict[str, int] = {}
    for to in config.destinations:
        if to.subject in weights:
            raise TransformError("destination", f'duplicate entry for "{to.subject}"')
        if to.weight > 100:
            raise TransformError("destination", "individual weights need to be <= 100")
        total += to.weight
        if total > 100:
            raise TransformError("destination", "total weight needs to be <= 100")
        yield from checking_mapping(src, to.subject)
        weights[to.subject] = to.weight
    if total != 100 and src not in weights:
        rest = destination_of(src) if has_wildcard(src) else src
        weights[rest] = weights.get(rest, 0) + 100 - total
    shares, limit = Shares(), 0
    for destination, weight in sorted(weights.items(), key=itemgetter(1)):
        limit += weight
        mapping = yield from SubjectMapping.compiling(src, destination, draw=draw, literal=False)
        shares.append((limit, mapping))
    return shares


class Mappings:
    __slots__ = ("_configured", "_drawn", "_index", "_mappings", "_rng", "_served")

    def __init__(self, rng: Rng) -> None:
        self._rng = rng
        self._configured: dict[str, Shares] = {}
        self._served: dict[str, Shares] = {}
        self._mappings: list[Shares] = []
        self._index: SubjectIndex[int] | None = None
        """The positions of the mappings by source, if there are more than a few."""
        self._drawn: dict[bytes, bytes] = {}
        """Destinations of the next message by its subject."""

    def add(self, mapping: SubjectMapping) -> None:
        """Add a mapping of the server itself (tried last), or replace the one with the same source."""
        self._served = {**self._served, mapping.src: [(100, mapping)]}
        finish(self._arranging())

    @classmethod
    def compile(cls, configured: Iterable[SubjectMap], rng: Rng, before: Mappings | None) -> Steps[Mappings]:
        """Return the mappings of a configuration, with the server's own of `before`."""
        mappings = cls(rng)
        for config in configured:
            mappings._configured[config.source] = yield from compiling_shares(config, rng.getrandbits)
            yield MAPPING_COST * len(config.destinations)
        mappings._served = before._served if before is not None else {}
        yield from mappings._arranging()
        return mappings

    def keep(self, before: Mappings | None) -> None:
        """Adopt subjects of the mappings in effect that changed while these were compiled."""
        if before is not None and before._served is not self._served:
            self._served = before._served
            finish(self._arranging())

    def _arranging(self) -> Steps[None]:
        self._mappings = [*(self._configured | self._served | self._configured).values()]  # the configured ones first
        self._index = None
        if len(self._mappings) > FEW_MAPPINGS:
            self._index = SubjectIndex()
            for place, shares in enumerate(self._mappings):
                self._index.add(source_pattern(shares[0][1].src), place)
                yield 1

    def _candidates(self, subject: bytes) -> Sequence[Shares]:
        """Return the mappings that may apply to a message on `subject`, in order."""
        if self._index is None:
            return self._mappings
        return [self._mappings[place] for place in sorted(self._index.matching(subject))]

    def sources(self) -> list[bytes]:
        return [shares[0][1].src.encode() for shares in self._mappings]

    def apply(self, subject: bytes) -> bytes:
        """Return the destination of a message on `subject`, b"" to drop it: its share has no weight."""
        if self._drawn and (drawn := self._drawn.pop(subject, None)) is not None:
            return drawn
        for shares in self._candidates(subject):
            limit, mapping = shares[0]
            mapped = mapping.apply(subject)
            if mapped is not None:
                return mapped if limit == 100 else self._draw(shares, subject)
        return subject

    def _draw(self, shares: Shares, subject: bytes) -> bytes:
        number = self._rng.random() * 100
        drawn = next((mapping for limit, mapping in shares if number < limit), None)
        return (drawn.apply(subject) or b"") if drawn is not None else b""

    def put_back(self, subject: bytes, destination: bytes) -> None:
        """Have the next message on `subject` go to `destination`: it may be a random one, and the message waits."""
        if len(self._drawn) >= MAX_DRAWN:
            del self._drawn[next(iter(self._drawn))]
        self._drawn[subject] = destination

    def moves(self, subject: bytes) -> bool:
        """Return whether a message on `subject` goes anywhere else, or may."""
        for shares in self._candidates(subject):
            limit, mapping = shares[0]
            mapped = mapping.apply(subject)
            if mapped is not None:
                return mapped != subject or limit < 100
        return False
