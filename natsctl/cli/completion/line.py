"""Words as the shells write them: bash hands over its whole line, and takes back what comes behind its last break."""

from __future__ import annotations

from collections.abc import Sequence

from natsctl.cli.completion.entry import ANY_FILE, FILES, Candidate

_BLANKS = " \t\n"
_SPECIAL = frozenset(" \t!\"#$&'()*;<>?[\\]^`{|}~")


def split(line: str) -> list[str]:
    """Return the words of a bash line behind the command.

    The last one may be empty, or in quotes that are still open.
    """
    words, word, quote, begun, escaped = [], "", "", False, False
    for char in line:
        if escaped:
            word, escaped = word + char, False
        elif char == "\\" and quote != "'":
            escaped = begun = True
        elif quote:
            quote, word = ("", word) if char == quote else (quote, word + char)
        elif char in "'\"":
            quote, begun = char, True
        elif char in _BLANKS:
            if begun:
                words.append(word)
            word, begun = "", False
        else:
            word, begun = word + char, True
    return [*words, word][1:]


def shown(found: Sequence[Candidate], shell: str, line: str, breaks: str) -> str:
    """Return the lines that the script of a shell reads; "" for nothing."""
    if any(one.word == ANY_FILE for one in found):
        return f"{FILES}\n"
    words = {one.word: one for one in found if one.word.isprintable()}
    if shell == "bash":
        quoted = _is_quoted(line)
        cut = _behind_break(split(line)[-1], breaks) if words and not quoted else 0
        return "".join(f"{word[cut:] if quoted else _escaped(word[cut:])}\n" for word in words)
    return "".join(f"{one.word}\t{_one_line(one.meaning)}\n" for one in words.values())


def _behind_break(current: str, breaks: str) -> int:
    """Return the position of the word that bash replaces, in one that it breaks at `=` or `:`."""
    return 1 + max((current.rfind(char) for char in "=:" if char in breaks), default=-1)


def _is_quoted(line: str) -> bool:
    """Whether the last word begins with a quote, which bash closes itself."""
    quote = ""
    for at, char in enumerate(line):
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"" and (not at or line[at - 1] != "\\"):
            quote = char
    return bool(quote)


def _escaped(word: str) -> str:
    return "".join(f"\\{char}" if char in _SPECIAL else char for char in word)


def _one_line(text: str) -> str:
    return " ".join(text.split())
