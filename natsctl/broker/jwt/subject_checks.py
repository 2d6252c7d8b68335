"""How JWTs look at subjects: laxer than the server, and in the words of nats-server's jwt package."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_REFERENCE: Final = re.compile(r"\$(-?\d+)\Z")


def subject_faults(subject: str) -> Iterator[str]:
    """Yield what is wrong with a subject."""
    if not subject:
        yield "subject cannot be empty"
        return
    if " " in subject:
        yield f'subject "{subject}" cannot have spaces'
    if subject[0] == "." or subject[-1] == ".":
        yield f'subject "{subject}" cannot start or end with a `.`'
    if ".." in subject:
        yield f'subject "{subject}" cannot contain consecutive `.`'


def has_wildcards(subject: str) -> bool:
    """Return whether a subject is a pattern."""
    tokens = subject.split(".")
    return tokens[-1] == ">" or "*" in tokens


def contains(wide: str, narrow: str) -> bool:
    """Return whether every subject that `narrow` matches is matched by `wide`."""
    outer, inner = wide.split("."), narrow.split(".")
    if len(inner) < len(outer) or (len(inner) > len(outer) and outer[-1] != ">"):
        return False
    for index, token in enumerate(outer):
        if token == ">" and index == len(outer) - 1:
            return True
        if token not in ("*", inner[index]):
            return False
    return True


def without_references(renaming: str) -> str:
    """Return the pattern of a renaming: `$1` and its like are any token."""
    return ".".join("*" if _REFERENCE.match(token) else token for token in renaming.split("."))


def renaming_faults(renaming: str, subject: str) -> Iterator[str]:
    """Yield what is wrong with the local name of an imported subject."""
    yield from subject_faults(renaming)
    if not subject:
        yield "subject cannot be empty"
    if (renaming.split(".")[-1] == ">") != (subject.split(".")[-1] == ">"):
        yield "both, renaming subject and subject, need to end or not end in >"
    wildcards, used = subject.split(".").count("*"), 0
    for token in renaming.split("."):
        reference = _REFERENCE.match(token)
        if reference and int(reference[1]) > wildcards:
            yield f'Reference ${token} in "{renaming}" reference * in "{subject}" that do not exist'
        else:
            used += token == "*" or reference is not None
    if used != wildcards:
        yield "subject does not contain enough * or reference wildcards $[0-9]"
