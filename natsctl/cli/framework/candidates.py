"""`natsctl __complete SHELL WORD…`: candidates for the last word, for the scripts of the shells.

A person waits for the answer, so it comes within `DEADLINE_S` or not at all: an alarm ends the process, and nothing
slow is loaded (no Typer, no nats-py, no asyncio, never an embedded server). A failure prints nothing.
NATSCTL_COMPLETION_MS gives slow machines and networks more time, and names that a server gave within the last minute
come from a file (name_cache.py). Flags come from the declarations of the typed command; only its module is
imported.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from natsctl.api.errors import NatsctlError
from natsctl.cli.framework.command_line import Command, Parameter, command_of, find, leading, take_out
from natsctl.cli.framework.globals import GLOBAL_FLAGS
from natsctl.cli.framework.nouns import BY_WORD, NOUNS
from natsctl.cli.framework.verbs import Verb
from natsctl.client.received import UNUSABLE

DEADLINE_S = 1.0
"""Seconds from the start of the process; the alarm is set to the remaining time."""
_BUDGET = "NATSCTL_COMPLETION_MS"
FILES = ":files"
ANY_FILE = "\0files"
"""Placeholder for file names: the shell completes them."""


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
            found = list(candidates(typed or [""], deadline_s, meanings=shell != "bash"))
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


def candidates(words: Sequence[str], deadline_s: float, *, meanings: bool = True) -> Iterator[Candidate]:
    """Yield the candidates for the last of the arguments after `natsctl`."""
    current = words[-1]
    line = read_line(words[:-1])
    if line.metavar:
        yield from _beginning(values_of(line, line.metavar, deadline_s, current), current)
    elif current.startswith("-"):
        yield from _of_flag(line, current, deadline_s)
    elif line.verbs:
        yield from _commands(line.verbs, current, (time.monotonic() + deadline_s) / 2 if meanings else 0)
    elif metavar := line.next_argument():
        yield from _beginning(values_of(line, metavar, deadline_s, current), current)


def _of_flag(line: TypedLine, current: str, deadline_s: float) -> Iterator[Candidate]:
    name, equals, begun = current.partition("=")
    if equals:
        metavar = line.flags.get(name, ("", ""))[0]
        for one in _beginning(values_of(line, metavar, deadline_s, begun), begun):
            yield one if one.word == ANY_FILE else Candidate(f"{name}={one.word}", one.meaning)
        return
    for spelling, (_, meaning) in line.flags.items():
        if spelling.startswith(current) and (spelling.startswith("--") or current == spelling):
            yield Candidate(spelling, meaning)


def _commands(verbs: Sequence[Verb], current: str, until_s: float) -> Iterator[Candidate]:
    """Yield names of commands; aliases only if no name matches.

    Their meanings are in the modules of the commands; once `until_s` has passed, names come without them.
    """
    matches = [(verb.name, verb) for verb in verbs if verb.name.startswith(current)]
    matches = matches or [(word, verb) for verb in verbs for word in verb.words if word.startswith(current)]
    for word, found in matches:
        yield Candidate(word, found.summary if time.monotonic() < until_s else found.help)


def _beginning(found: Iterator[Candidate], current: str) -> Iterator[Candidate]:
    return (one for one in found if one.word == ANY_FILE or one.word.startswith(current))


class TypedLine:
    """The state of a command line before the argument being typed."""

    def __init__(self) -> None:
        self.noun = ""
        self.verbs: Sequence[Verb] = ()
        """Nouns or verbs, while the command is not complete."""
        self.flags = {name: (flag.metavar, flag.help) for flag in GLOBAL_FLAGS for name in flag.spellings}
        """Every flag by its spelling: metavar ("" for a switch) and meaning."""
        self.parameters: list[str] = []
        """Metavars of the arguments; one that ends in `...` takes all further arguments."""
        self.arguments: list[str] = []
        self.options: dict[str, Any] = {}
        self.metavar = ""
        """The metavar of the preceding flag, if that needs a value."""

    def next_argument(self) -> str:
        if len(self.arguments) < len(self.parameters):
            return self.parameters[len(self.arguments)]
        last = self.parameters[-1] if self.parameters else ""
        return last if last.endswith("...") else ""

    def value(self, metavar: str) -> str:
        return next((v for name, v in zip(self.parameters, self.arguments, strict=False) if name == metavar), "")

    def waits(self, words: Sequence[str]) -> bool:
        if words and "=" not in words[-1]:
            self.metavar = self.flags.get(words[-1], ("", ""))[0]
        return bool(self.metavar)


def read_line(words: Sequence[str]) -> TypedLine:
    """Return the state after these arguments; raises UsageError for an unknown flag before the command."""
    line = TypedLine()
    if line.waits(words):
        return line
    line.options, rest = leading(words)
    if not rest:
        line.verbs = NOUNS
    elif noun := BY_WORD.get(rest[0]):
        line.noun = noun.name
        rows, left = find(noun, rest[1:])
        if not any(word == "-" or not word.startswith("-") for word in left):
            line.verbs = rows[-1].verbs
        if function := rows[-1].function:
            _read_command(line, command_of(function), left)
    return line


def _read_command(line: TypedLine, command: Command, words: list[str]) -> None:
    for option in command.options:
        if not option.declared.hidden:
            metavar = "" if option.is_switch else option.declared.metavar
            line.flags |= dict.fromkeys(option.declared.spellings, (metavar, option.declared.help))
    line.parameters = [_metavar(parameter) for parameter in command.arguments]
    if line.waits(words):
        words.pop()
    with contextlib.suppress(NatsctlError):
        options, kept = take_out(words, command.flags)
        line.options |= options
        line.arguments = [word for word in kept.arguments if word == "-" or not word.startswith("-")]


def _metavar(argument: Parameter) -> str:
    """Return the metavar of an argument without the brackets of an optional one; `...` after it for several."""
    bare = (argument.declared.metavar or argument.name).replace("[", "").replace("]", "").split(" ")[-1]
    return f"{bare}..." if argument.several and not bare.endswith("...") else bare


_FILE = re.compile(r"\b(FILE|FOLDER|DIR|PATH|TARGET|DESTINATION_FILE)\b")
_WORD = re.compile(r"[a-z][a-z0-9_-]*\Z")

SHELLS = ("bash", "zsh", "fish")

Source = Callable[[TypedLine, str, float], Iterator[Candidate]]


def values_of(line: TypedLine, metavar: str, deadline_s: float, current: str) -> Iterator[Candidate]:
    """Yield the possible values of a metavar at that position; none for free text."""
    bare = metavar.strip("[]").removesuffix("...").strip("[]")
    # `SUBJECT[,SUBJECT]` accepts several with commas; the last one is being typed.
    several = bare.partition("[,")[0] if "[," in bare else ""
    if several and "," in current:
        before, _, last = current.rpartition(",")
        for one in values_of(line, several, deadline_s, last):
            yield Candidate(f"{before},{one.word}", one.meaning)
        return
    bare = several or bare
    if (line.noun, bare) in _BY_NOUN:
        yield from _BY_NOUN[line.noun, bare](line, current, deadline_s)
    elif bare in _SOURCES:
        yield from _SOURCES[bare](line, current, deadline_s)
    elif _FILE.search(bare):
        yield Candidate(ANY_FILE)
    else:
        yield from (Candidate(word) for word in bare.split("|") if "|" in bare and _WORD.match(word))


def _contexts(line: TypedLine, current: str, deadline_s: float) -> Iterator[Candidate]:
    from natsctl.client.contexts import Contexts

    known = Contexts(os.environ)
    selected = known.selected()
    return (Candidate(name, "selected" if name == selected else "") for name in known.names())


def _errors(line: TypedLine, current: str, deadline_s: float) -> Iterator[Candidate]:
    from natsctl.api.catalogue import entries

    return (Candidate(str(number), entry.description) for number, entry in entries().items())


def _schemas(line: TypedLine, current: str, deadline_s: float) -> Iterator[Candidate]:
    from natsctl.cli.schema import kinds

    for id in kinds():
        yield Candidate(id)
        yield Candidate(id.rpartition(".")[2])


def _topics(line: TypedLine, current: str, deadline_s: float) -> Iterator[Candidate]:
    from natsctl.cli.cheat import topics

    return (Candidate(topic.name, topic.title) for topic in topics())


def _of_store(kind: str, line: TypedLine, current: str, deadline_s: float) -> Iterator[Candidate]:
    from natsctl.client.auth.nsc_store import NscStore

    known = NscStore.of_environment(os.environ)
    operators = known.names()
    operator = line.value("OPERATOR") or known.selected() or (operators[0] if len(operators) == 1 else "")
    if kind == "operator":
        return (Candidate(name, "selected" if name == known.selected() else "") for name in operators)
    if kind == "account":
        return (Candidate(name) for name in known.account_names(operator))
    accounts = [line.value("ACCOUNT")] if line.value("ACCOUNT") else known.account_names(operator)
    return (Candidate(name, account) for account in accounts for name in known.user_names(operator, account))


def _keys_of_contexts(line: TypedLine, current: str, deadline_s: float) -> Iterator[Candidate]:
    from natsctl.client.context_file import EMPTY

    return map(Candidate, EMPTY)


def _on_server(kind: str, line: TypedLine, current: str, deadline_s: float) -> Iterator[Candidate]:
    from natsctl.cli.framework.server_names import names_of

    return map(Candidate, names_of(kind, line, current, deadline_s))


_SOURCES: dict[str, Source] = {
    "CONTEXT": _contexts,
    "CODE": _errors,
    "TOPIC": _topics,
    "SHELL": lambda *_: map(Candidate, SHELLS),
    "STREAM": partial(_on_server, "stream"),
    "CONSUMER": partial(_on_server, "consumer"),
    "TEMPLATE": partial(_on_server, "template"),
    "BUCKET": partial(_on_server, "bucket"),
    "KEY": partial(_on_server, "key"),
    "OBJECT": partial(_on_server, "object"),
    "SUBJECT": partial(_on_server, "subject"),
    "FILTER": partial(_on_server, "subject"),
    "NAME|JSON": partial(_on_server, "stream"),
}

_BY_NOUN: dict[tuple[str, str], Source] = {
    ("stream", "SOURCE"): partial(_on_server, "stream"),
    ("stream", "NAME"): partial(_on_server, "stream"),
    ("consumer", "SOURCE"): partial(_on_server, "consumer"),
    ("object", "BUCKET"): partial(_on_server, "store"),
    ("kv", "FILTER"): partial(_on_server, "key"),
    ("schema", "ID"): _schemas,
    ("auth", "OPERATOR"): partial(_of_store, "operator"),
    ("auth", "ACCOUNT"): partial(_of_store, "account"),
    ("auth", "USER"): partial(_of_store, "user"),
    ("context", "KEY"): _keys_of_contexts,
    ("context", "NAME"): _contexts,
}
"""Sources by noun and metavar, for nouns with another meaning of the metavar."""


_BLANKS = " \t\n"
_ESCAPES = str.maketrans({char: f"\\{char}" for char in " \t!\"#$&'()*;<>?[\\]^`{|}~"})


def split(line: str) -> list[str]:
    """Return the arguments of a bash line.

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
    if any(one.word == ANY_FILE for one in found):
        return f"{FILES}\n"
    words = {one.word: one for one in found if one.word.isprintable()}
    if shell == "bash":
        quoted = _is_quoted(line)
        cut = _behind_break(split(line)[-1], breaks) if words and not quoted else 0
        return "".join(f"{word[cut:] if quoted else word[cut:].translate(_ESCAPES)}\n" for word in words)
    return "".join(f"{one.word}\t{' '.join(one.meaning.split())}\n" for one in words.values())


def _behind_break(current: str, breaks: str) -> int:
    """Return the start of the part that bash replaces in a word with `=` or `:`."""
    return 1 + max((current.rfind(char) for char in "=:" if char in breaks), default=-1)


def _is_quoted(line: str) -> bool:
    """Return whether the last argument has an open quote (bash closes it)."""
    quote = ""
    for index, char in enumerate(line):
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"" and (not index or line[index - 1] != "\\"):
            quote = char
    return bool(quote)
