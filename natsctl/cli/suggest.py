"""What the user may have meant by a name that does not exist."""

from __future__ import annotations

from collections.abc import Iterable

MAX_SUGGESTIONS = 3
_CUTOFF = 0.6


def closest(word: str, known: Iterable[str]) -> list[str]:
    """The known names nearest to `word`, best first, at most three; case is ignored, and a unique beginning counts."""
    import difflib

    by_folded: dict[str, str] = {}
    for name in known:
        by_folded.setdefault(name.lower(), name)
    folded = word.lower()
    near = difflib.get_close_matches(folded, by_folded, MAX_SUGGESTIONS, _CUTOFF)
    near += [name for name in sorted(by_folded) if len(folded) > 1 and name.startswith(folded) and name not in near]
    return [by_folded[name] for name in near[:MAX_SUGGESTIONS]]


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`did you mean "ORDERS"?`, or nothing when no known name is near."""
    near = closest(word, known)
    if not near:
        return ""
    quoted = [f'"{name}"' for name in near]
    choice = quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} or {quoted[-1]}"
    return f"did you mean {choice}?"
