"""The form of an explanation: causes with evidence, checks without a finding, and facts that no server reports.

The rules are functions of facts that were gathered before, in tables ordered from the strongest cause to the weakest.
A rule returns a `Cause`, a text that all is well, or None if it does not apply.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, TypeVar

import msgspec

from natsctl.api.errors import closest
from natsctl.api.subjects import has_wildcard, matches, overlaps

MAX_SHOWN: Final = 5
"""Most subjects, sequences or names that one line of evidence lists."""


class Cause(msgspec.Struct):
    """One cause: a sentence, the numbers and fields that show it, and the next command."""

    text: str
    evidence: list[str]
    next: str = ""


class Explanation(msgspec.Struct):
    """Why something behaves as it does.

    `verdict` is the text of the first cause, or a sentence that says that all is well; `fine` lists checks that
    found no cause, `unknown` the facts that no server reports, and `state` the numbers that it was made from.
    """

    about: str
    verdict: str
    causes: list[Cause]
    fine: list[str]
    unknown: list[str] = msgspec.field(default_factory=list)
    state: list[str] = msgspec.field(default_factory=list)


FactsT = TypeVar("FactsT")
Outcome = Cause | str | None


def apply_rules(
    about: str, rules: Iterable[Callable[[FactsT], Outcome]], facts: FactsT, healthy: str, **rest: Any
) -> Explanation:
    """Return the explanation that rules give, in their order; `healthy` is the verdict if none finds a cause."""
    outcomes = [rule(facts) for rule in rules]
    causes = [outcome for outcome in outcomes if isinstance(outcome, Cause)]
    fine = [outcome for outcome in outcomes if isinstance(outcome, str)]
    return Explanation(about, causes[0].text if causes else healthy, causes, fine, **rest)


def causes_of(rules: Iterable[Callable[[FactsT], Outcome]], facts: FactsT) -> list[Cause]:
    """Return the causes that rules find, in their order."""
    return [outcome for rule in rules if isinstance(outcome := rule(facts), Cause)]


def listed(names: Sequence[object], most: int = MAX_SHOWN) -> str:
    """Return names separated by commas, the first few of many."""
    shown = ", ".join(map(str, names[:most]))
    return f"{shown} and {len(names) - most:,} more" if len(names) > most else shown


def near_misses(pattern: str, subjects: Iterable[str]) -> list[str]:
    """Return why stored or configured subjects come close to a pattern without matching it, the nearest first."""
    known = list(dict.fromkeys(subjects))
    reasons = dict.fromkeys(text for test in (_case, _depth, _missing_token) for text in test(pattern, known))
    if not reasons:
        reasons = dict.fromkeys(f"{name} is spelled differently" for name in closest(pattern, known))
    return list(reasons)[:MAX_SHOWN]


def _case(pattern: str, subjects: Sequence[str]) -> Iterator[str]:
    for name in subjects:
        if not overlaps(pattern, name) and overlaps(pattern.lower(), name.lower()):
            yield f"{name} differs only in upper and lower case"


def _depth(pattern: str, subjects: Sequence[str]) -> Iterator[str]:
    """Find subjects that begin as the pattern does but have another number of tokens."""
    tokens = pattern.removesuffix(".>").split(".")
    for name in subjects:
        parts = name.split(".")
        if len(parts) > len(tokens) and matches(pattern, ".".join(parts[: len(tokens)])):
            yield f"{name} has more tokens: * matches exactly one, > matches the rest"
        elif len(parts) == len(tokens) and pattern.endswith(".>") and overlaps(".".join(tokens), name):
            yield f"{name} has no token at the place of >, and > matches at least one"


def _missing_token(pattern: str, subjects: Sequence[str]) -> Iterator[str]:
    tokens = pattern.split(".")
    for name in subjects:
        parts = name.split(".")
        for longer, shorter, word in ((parts, tokens, "more"), (tokens, parts, "fewer")):
            if len(longer) != len(shorter) + 1:
                continue
            rest = ".".join(shorter)
            if any(overlaps(".".join(longer[:place] + longer[place + 1 :]), rest) for place in range(len(longer))):
                yield f"{name} has one token {word}"
                break


def is_selected(filters: Sequence[str], subject: str) -> bool:
    """Return whether a consumer with these filters (none: everything) gets messages on a subject or pattern."""
    test = overlaps if has_wildcard(subject) else matches
    return not filters or any(test(pattern, subject) for pattern in filters)
