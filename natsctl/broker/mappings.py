"""Subject mappings of an account: what clients publish on one subject goes to another.

Theory of operation. Mappings are asked in the order they were added and the first whose source matches decides. Only
those are asked whose first token is the message's own, or a wildcard; an account without mappings is never asked.
"""

from __future__ import annotations

from typing import Protocol

_WILDCARDS = (b"*", b">")


class Mapping(Protocol):
    """One mapping: `natsctl.api.subject_transform.SubjectMapping`, or a `SpaceMapping`."""

    @property
    def src(self) -> str:
        """Return the pattern of the subjects that are mapped."""

    def apply(self, subject: bytes) -> bytes | None:
        """Return where a message on `subject` goes, None where that is not for this mapping to say."""


class SpaceMapping:
    """A whole space of subjects, `src.>`, under another name.

    What follows is taken as it is: API subjects may hold wildcards that are meant as text.
    """

    __slots__ = ("_dest", "_src", "src")

    def __init__(self, src: str, dest: str) -> None:
        """Map what begins with the tokens `src` to what begins with the tokens `dest`."""
        self.src = f"{src}.>"
        self._src = src.encode() + b"."
        self._dest = dest.encode() + b"."

    def apply(self, subject: bytes) -> bytes | None:
        """Return the subject in its new space, None for subjects of other spaces."""
        if not subject.startswith(self._src) or len(subject) == len(self._src):
            return None
        return self._dest + subject[len(self._src) :]


class Mappings:
    """The mappings of one account."""

    __slots__ = ("_any", "_by_head", "_mappings")

    def __init__(self) -> None:
        self._mappings: list[Mapping] = []
        self._by_head: dict[bytes, list[Mapping]] = {}
        self._any: list[Mapping] = []

    def add(self, mapping: Mapping) -> None:
        """Take one more mapping, to be asked last; one with the same source is replaced."""
        kept = [known for known in self._mappings if known.src != mapping.src]
        self._mappings = [*kept, mapping]
        heads = [(_head(known), known) for known in self._mappings]
        self._any = [known for head, known in heads if head in _WILDCARDS]
        self._by_head = {
            head: [known for other, known in heads if other == head or other in _WILDCARDS]
            for head, _ in heads
            if head not in _WILDCARDS
        }

    def sources(self) -> list[bytes]:
        """Return the patterns of what is mapped."""
        return [mapping.src.encode() for mapping in self._mappings]

    def apply(self, subject: bytes) -> bytes:
        """Return where a message on `subject` goes."""
        for mapping in self._by_head.get(subject.partition(b".")[0], self._any):
            mapped = mapping.apply(subject)
            if mapped is not None:
                return mapped
        return subject


def _head(mapping: Mapping) -> bytes:
    return mapping.src.partition(".")[0].encode()
