"""Suggestions for a name that does not exist."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

MAX_SUGGESTIONS = 3
_CUTOFF = 0.6


def closest(word: str, known: Iterable[str]) -> list[str]:
    """Return the known names nearest to `word`, best first, at most three.

    Case is ignored, and a unique beginning counts. Of a mapping of names to what they stand for, one name of each is
    returned: a command is not suggested a second time by its alias.
    """
    import difflib

    by_folded: dict[str, str] = {}
    for name in known:
        by_folded.setdefault(name.lower(), name)
    folded = word.lower()
    most = len(by_folded) if isinstance(known, Mapping) else MAX_SUGGESTIONS
    near = difflib.get_close_matches(folded, by_folded, max(most, 1), _CUTOFF)
    near += [name for name in sorted(by_folded) if len(folded) > 1 and name.startswith(folded) and name not in near]
    found: dict[object, str] = {}
    for name in (by_folded[name] for name in near):
        found.setdefault(id(known[name]) if isinstance(known, Mapping) else name, name)
    return list(found.values())[:MAX_SUGGESTIONS]


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `did you mean "ORDERS"?`, or nothing when no known name is near."""
    near = closest(word, known)
    if not near:
        return ""
    quoted = [f'"{name}"' for name in near]
    choice = quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} or {quoted[-1]}"
    return f"did you mean {choice}?"
