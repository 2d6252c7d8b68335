"""Subject mappings of an account: what clients publish on one subject goes to another.

Theory of operation. Mappings are asked in the order they were added and the first whose source matches decides. Only
those are asked whose first token is the message's own, or a wildcard; an account without mappings is never asked.
"""

from __future__ import annotations

from natsctl.api.subject_transform import SubjectMapping

_WILDCARDS = (b"*", b">")


class Mappings:
    """The mappings of one account."""

    __slots__ = ("_any", "_by_head", "_mappings")

    def __init__(self) -> None:
        self._mappings: list[SubjectMapping] = []
        self._by_head: dict[bytes, list[SubjectMapping]] = {}
        self._any: list[SubjectMapping] = []

    def add(self, mapping: SubjectMapping) -> None:
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

    def apply(self, subject: bytes) -> bytes:
        """Return where a message on `subject` goes."""
        for mapping in self._by_head.get(subject.partition(b".")[0], self._any):
            mapped = mapping.apply(subject)
            if mapped is not None:
                return mapped
        return subject


def _head(mapping: SubjectMapping) -> bytes:
    return mapping.src.partition(".")[0].encode()
