"""The two names of an imported subject: what the exporting account calls it, and what the importing one does.

A local name is written as a pattern (`bar.*.*`) or as a destination that tells where each token comes from
(`bar.$2.$1`, `bar.{{wildcard(2)}}.$1`). Source: server/subject_transform.go of nats-server.
"""

from __future__ import annotations

from natsctl.api.mapping_functions import parse_function
from natsctl.api.subjects import is_subset, matches


class PatternMapping:
    """A mapping that only moves tokens. Those of a message that look like wildcards are text, as in API subjects."""

    __slots__ = ("_cut", "_head", "_new", "_pattern", "_plan", "_tail", "src")

    def __init__(self, src: str, dest: str) -> None:
        """Map what matches `src` to `dest`, whose functions are wildcards alone."""
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
        """Return where a message on `subject` goes, None where the source does not match."""
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
    """Return whether the functions of a destination are wildcards alone. Raises TransformError for unknown ones."""
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

    None where they have nothing in common. What nats-server does not narrow is not narrowed here.
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
