"""`natsctl __complete SHELL WORD…`: candidates for the last word, for the scripts of the shells.

A person waits for the answer, so it comes within `DEADLINE_S` or not at all: an alarm ends the process, and nothing
slow is loaded (no Typer, no nats-py, no asyncio, never an embedded server). A failure prints nothing.
NATSCTL_COMPLETION_MS gives slow machines and networks more time, and names that a server gave within the last minute
come from a file (name_cache.py). The declarations of the commands are read from
`completion_tables/<noun>.json`, which `python -m tests.support.generated_docs` writes: to read the declarations
themselves, Typer would have to be loaded.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from natsctl.api.errors import NatsctlError
from natsctl.cli.framework.globals import GLOBAL_FLAGS, leading, take_out
from natsctl.cli.framework.nouns import BY_WORD, NOUNS
from natsctl.client.received import UNUSABLE

DEADLINE_S = 1.0
"""Seconds from the start of the process; the alarm is set to the remaining time."""
_BUDGET = "NATSCTL_COMPLETION_MS"
FILES = ":files"
ANY_FILE = "\0files"
"""Placeholder for file names, which the shell completes itself."""


class Candidate(NamedTuple):
    """A possible word, and its meaning."""

    word: str
    meaning: str = ""


def answer(words: Sequence[str]) -> int:
    """Print the candidates; always success."""
    deadline_s = time.monotonic() - _age_s() + _budget_s()
    with _silence_after(deadline_s):
        shell, *rest = words or ("",)
        typed, breaks = (split(rest[0]), rest[1] if len(rest) > 1 else "") if shell == "bash" and rest else (rest, "")
        found: list[Candidate] = []
        with contextlib.suppress(NatsctlError, OSError, *UNUSABLE):
            found = list(candidates(typed or [""], deadline_s))
        sys.stdout.write(shown(found, shell, (rest or [""])[0], breaks))
    return 0


def _budget_s() -> float:
    given = os.environ.get(_BUDGET, "")
    return int(given) / 1000 if given.isdigit() else DEADLINE_S


def _age_s() -> float:
    """Return the seconds since this process was started.

    On systems without that figure, return the processor time used.
    """
    try:
        with open("/proc/self/stat", encoding="utf-8", errors="replace") as file:  # noqa: PTH123  # quicker
            ticks = int(file.read().rpartition(")")[2].split()[19])
        return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"))
    except (OSError, ValueError, AttributeError, IndexError):
        return time.process_time()


@contextlib.contextmanager
def _silence_after(deadline_s: float) -> Iterator[None]:
    """End the process silently at the deadline; the output is written as a whole or not at all."""
    before = signal.signal(signal.SIGALRM, lambda number, frame: os._exit(0))
    signal.setitimer(signal.ITIMER_REAL, max(0.001, deadline_s - time.monotonic()))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def candidates(words: Sequence[str], deadline_s: float) -> Iterator[Candidate]:
    """Yield the candidates for the last of the words, which follow `natsctl`."""
    current = words[-1]
    place = find(words[:-1])
    if place.takes:
        yield from _beginning(values_of(place, place.takes, deadline_s, current), current)
    elif current.startswith("-"):
        yield from _of_flag(place, current, deadline_s)
    elif place.commands:
        yield from _commands(place, current)
    elif metavar := place.argument():
        yield from _beginning(values_of(place, metavar, deadline_s, current), current)


def _of_flag(place: Place, current: str, deadline_s: float) -> Iterator[Candidate]:
    name, equals, begun = current.partition("=")
    if equals:
        metavar = place.flags.get(name, ("", ""))[0]
        for one in _beginning(values_of(place, metavar, deadline_s, begun), begun):
            yield one if one.word == ANY_FILE else Candidate(f"{name}={one.word}", one.meaning)
        return
    for spelling, (_, meaning) in place.flags.items():
        if spelling.startswith(current) and (spelling.startswith("--") or current == spelling):
            yield Candidate(spelling, meaning)


def _commands(place: Place, current: str) -> Iterator[Candidate]:
    """Yield names of commands; aliases only if no name matches."""
    named = [one for one in place.commands if one.names[0].startswith(current)]
    if named:
        yield from (Candidate(one.names[0], one.meaning) for one in named)
        return
    for one in place.commands:
        yield from (Candidate(alias, one.meaning) for alias in one.names[1:] if alias.startswith(current))


def _beginning(found: Iterator[Candidate], current: str) -> Iterator[Candidate]:
    return (one for one in found if one.word == ANY_FILE or one.word.startswith(current))


COMMANDS = Path(__file__).with_name("completion_tables")


class Command(NamedTuple):
    """A noun or verb that may follow."""

    names: tuple[str, ...]
    meaning: str


class Place:
    """Position on the command line, derived from the words before it."""

    def __init__(self, flags: dict[str, tuple[str, str]]) -> None:
        self.noun = ""
        self.commands: list[Command] = []
        """Nouns or verbs, while the command is not complete."""
        self.flags = flags
        """Every flag by its spelling: metavar ("" for a switch) and meaning."""
        self.arguments: list[str] = []
        """Metavars of the arguments; one that ends in `...` takes all further words."""
        self.given: list[str] = []
        """The arguments that are there already."""
        self.options: dict[str, Any] = {}
        """The global options that are there already."""
        self.takes = ""
        """The metavar of the preceding flag, if that needs a value."""

    def argument(self) -> str:
        """Return the metavar of the argument that comes next, or ""."""
        if len(self.given) < len(self.arguments):
            return self.arguments[len(self.given)]
        last = self.arguments[-1] if self.arguments else ""
        return last if last.endswith("...") else ""

    def value(self, metavar: str) -> str:
        """Return the value given for the argument of that metavar, or ""."""
        for name, value in zip(self.arguments, self.given, strict=False):
            if name == metavar:
                return value
        return ""


def find(words: Sequence[str]) -> Place:
    """Return the position after these words; raises UsageError if they name no command."""
    place = Place({name: (flag.metavar, flag.help) for flag in GLOBAL_FLAGS for name in flag.spellings})
    if _waits(place, words):
        return place
    place.options, rest = leading(words)
    if not rest:
        place.commands = [Command(noun.words, noun.help) for noun in NOUNS]
        return place
    if noun := BY_WORD.get(rest[0]):
        place.noun = noun.name
        _below(place, declared(noun.name), list(rest[1:]))
    return place


def declared(noun: str) -> dict[str, Any]:
    """Return the declarations of a noun and its verbs; empty for a noun without a table."""
    file = COMMANDS / f"{noun}.json"
    return dict(json.loads(file.read_text(encoding="utf-8"))) if file.exists() else {}


def _waits(place: Place, words: Sequence[str]) -> bool:
    """Return whether the last word is a flag that needs a value."""
    if words and "=" not in words[-1]:
        place.takes = place.flags.get(words[-1], ("", ""))[0]
    return bool(place.takes)


def _below(place: Place, command: dict[str, Any], words: list[str]) -> None:
    while verbs := command.get("commands"):
        word = next((one for one in words if one == "-" or not one.startswith("-")), "")
        below = next((one for one in verbs if word in one["names"]), None)
        if below is None:
            place.commands = [] if word else [Command(tuple(one["names"]), one["meaning"]) for one in verbs]
            break
        words.remove(word)
        command = below
    _command_at(place, command, words)


def _command_at(place: Place, command: dict[str, Any], words: list[str]) -> None:
    """Record the declarations of a command, and the arguments already given."""
    own: dict[str, list[str]] = command.get("flags", {})
    place.flags |= {name: (metavar, meaning) for name, (metavar, meaning) in own.items()}
    place.arguments = command.get("arguments", [])
    if _waits(place, words):
        words.pop()
    with contextlib.suppress(NatsctlError):
        more, kept = take_out(words, {name: bool(metavar) for name, (metavar, _) in own.items()})
        place.options |= more
        words = kept.all
    place.given = _positional(words, own)


def _positional(words: Sequence[str], own: dict[str, list[str]]) -> list[str]:
    """Return the words that are neither flags nor values of flags."""
    found: list[str] = []
    left = list(words)
    while left:
        word = left.pop(0)
        if word == "--":
            return found + left
        if not word.startswith("-") or word == "-":
            found.append(word)
        elif own.get(word, [""])[0] and left:
            left.pop(0)
    return found


_FILE = re.compile(r"\b(FILE|FOLDER|DIR|PATH|TARGET|DESTINATION_FILE)\b")
_WORD = re.compile(r"[a-z][a-z0-9_-]*\Z")

SHELLS = ("bash", "zsh", "fish")

Source = Callable[[Place, str, float], Iterator[Candidate]]


def values_of(place: Place, metavar: str, deadline_s: float, current: str) -> Iterator[Candidate]:
    """Yield the possible values of a metavar at that position; none for free text."""
    bare = metavar.strip("[]").removesuffix("...").strip("[]")
    # `SUBJECT[,SUBJECT]` takes several with commas, of which the last one is being typed.
    several = bare.partition("[,")[0] if "[," in bare else ""
    if several and "," in current:
        before, _, last = current.rpartition(",")
        for one in values_of(place, several, deadline_s, last):
            yield Candidate(f"{before},{one.word}", one.meaning)
        return
    bare = several or bare
    if (place.noun, bare) in _BY_NOUN:
        yield from _BY_NOUN[place.noun, bare](place, current, deadline_s)
    elif bare in _SOURCES:
        yield from _SOURCES[bare](place, current, deadline_s)
    elif _FILE.search(bare):
        yield Candidate(ANY_FILE)
    else:
        yield from (Candidate(word) for word in bare.split("|") if "|" in bare and _WORD.match(word))


def _contexts(place: Place, current: str, deadline_s: float) -> Iterator[Candidate]:
    from natsctl.client.contexts import Contexts

    known = Contexts(os.environ)
    selected = known.selected()
    return (Candidate(name, "selected" if name == selected else "") for name in known.names())


def _errors(place: Place, current: str, deadline_s: float) -> Iterator[Candidate]:
    from natsctl.api.catalogue import entries

    return (Candidate(str(number), entry.description) for number, entry in entries().items())


def _schemas(place: Place, current: str, deadline_s: float) -> Iterator[Candidate]:
    from natsctl.cli.schema import kinds

    for id in kinds():
        yield Candidate(id)
        yield Candidate(id.rpartition(".")[2])


def _topics(place: Place, current: str, deadline_s: float) -> Iterator[Candidate]:
    from natsctl.cli.cheat import TOPICS

    return (Candidate(topic.name, topic.title) for topic in TOPICS)


def _shells(place: Place, current: str, deadline_s: float) -> Iterator[Candidate]:
    return (Candidate(shell) for shell in SHELLS)


def _of_store(kind: str) -> Source:
    def names(place: Place, current: str, deadline_s: float) -> Iterator[Candidate]:
        from natsctl.client.auth.nsc_store import NscStore

        known = NscStore.of_environment(os.environ)
        operators = known.names()
        operator = place.value("OPERATOR") or known.selected() or (operators[0] if len(operators) == 1 else "")
        if kind == "operator":
            return (Candidate(name, "selected" if name == known.selected() else "") for name in operators)
        if kind == "account":
            return (Candidate(name) for name in known.account_names(operator))
        accounts = [place.value("ACCOUNT")] if place.value("ACCOUNT") else known.account_names(operator)
        return (Candidate(name, account) for account in accounts for name in known.user_names(operator, account))

    return names


def _keys_of_contexts(place: Place, current: str, deadline_s: float) -> Iterator[Candidate]:
    from natsctl.client.context_file import EMPTY

    return (Candidate(key) for key in EMPTY)


def _on_server(kind: str) -> Source:
    def names(place: Place, current: str, deadline_s: float) -> Iterator[Candidate]:
        from natsctl.cli.framework.server_names import names_of

        return (Candidate(name) for name in names_of(kind, place, current, deadline_s))

    return names


_SOURCES: dict[str, Source] = {
    "CONTEXT": _contexts,
    "CODE": _errors,
    "TOPIC": _topics,
    "SHELL": _shells,
    "STREAM": _on_server("stream"),
    "CONSUMER": _on_server("consumer"),
    "TEMPLATE": _on_server("template"),
    "BUCKET": _on_server("bucket"),
    "KEY": _on_server("key"),
    "OBJECT": _on_server("object"),
    "SUBJECT": _on_server("subject"),
    "FILTER": _on_server("subject"),
    "NAME|JSON": _on_server("stream"),
}
"""Sources of the words, by metavar."""

_BY_NOUN: dict[tuple[str, str], Source] = {
    ("stream", "SOURCE"): _on_server("stream"),
    ("stream", "NAME"): _on_server("stream"),
    ("consumer", "SOURCE"): _on_server("consumer"),
    ("object", "BUCKET"): _on_server("store"),
    ("kv", "FILTER"): _on_server("key"),
    ("schema", "ID"): _schemas,
    ("auth", "OPERATOR"): _of_store("operator"),
    ("auth", "ACCOUNT"): _of_store("account"),
    ("auth", "USER"): _of_store("user"),
    ("context", "KEY"): _keys_of_contexts,
    ("context", "NAME"): _contexts,
}
"""Sources by noun and metavar, for nouns with another meaning of the metavar."""


_BLANKS = " \t\n"
_SPECIAL = frozenset(" \t!\"#$&'()*;<>?[\\]^`{|}~")


def split(line: str) -> list[str]:
    """Return the words of a bash line after the command.

    The last one may be empty, or have an unclosed quote.
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
    """Return the start of the part that bash replaces in a word with `=` or `:`."""
    return 1 + max((current.rfind(char) for char in "=:" if char in breaks), default=-1)


def _is_quoted(line: str) -> bool:
    """Return whether the last word has an open quote, which bash closes itself."""
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
