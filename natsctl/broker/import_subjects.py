"""The two names of an imported subject: what the exporting account calls it, and what the importing one does.

A local name is written as a pattern (`bar.*.*`) or as a destination that tells where each token comes from
(`bar.$2.$1`, `bar.{{wildcard(2)}}.$1`). Source: server/subject_transform.go of the reference.
"""

from __future__ import annotations

from natsctl.api.mapping_functions import parse_function
from natsctl.api.subjects import is_subset


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


def swapped(source: str, destination: str) -> str:
    """Return the destination that leads from the pattern of `destination` back to `source`."""
    order = [index for token in destination.split(".") if (index := _wildcard(token))]
    tokens, star = [], 0
    for token in source.split("."):
        if token == "*":
            star += 1
            token = f"${order.index(star) + 1}"
        tokens.append(token)
    return ".".join(tokens)


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
    """Return what of a pattern `local` a subscription to `subject` may take, and whether that is only a part of it.

    None where they have nothing in common. What the reference does not narrow is not narrowed here.
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
    """Return which star of the source a token of a destination stands for, 0 for none."""
    function = parse_function(token)
    return function.wildcards[0] if function is not None and function.name == "wildcard" else 0
