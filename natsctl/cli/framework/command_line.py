"""A command line: its command, its global options, the values of its parameters, and its execution.

It is sorted in one pass: global options, flags of the command, arguments. A line with its arguments in order is
read here; Typer sorts the others and reports their faults (irregular_lines.py); its import takes longer than a short
command. `Parameter.read` reads the values of both.
"""

from __future__ import annotations

import builtins
import functools
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from types import FrameType

from natsctl.api.errors import NatsctlError, UsageError
from natsctl.cli.framework.globals import BY_SPELLING, MAY_BE_EMPTY, OF_NOUNS, GlobalFlag, GlobalOptions
from natsctl.cli.framework.name_cache import READING, forget_names
from natsctl.cli.framework.output import DisplaySettings, hint_of, render_error, write_stderr
from natsctl.cli.framework.parameters import WHOLE_MAX, WHOLE_MIN, ExitError, Option, as_usage_error
from natsctl.cli.framework.resolve import did_you_mean
from natsctl.cli.framework.session import Session, given_on_stdin
from natsctl.cli.framework.verbs import Verb
from natsctl.client.message import DryRunError
from natsctl.client.received import UNUSABLE, UnreadableEntriesError
from natsctl.hints import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from natsctl.cli.framework.flags import Flag
    from natsctl.cli.framework.invocation import CommandHost

_TERMINATED = 128 + signal.SIGTERM


def run_noun(noun: Verb, words: Sequence[str], given: dict[str, Any], host: CommandHost | None = None) -> int:
    rows, rest = find(noun, words)
    path = " ".join(["natsctl", *(row.name for row in rows)])
    function = rows[-1].function
    if function is None:
        return _show_group(noun, rows[-1], path, rest, given)
    command = command_of(function)
    if host is not None:
        rest = host.started(rows, rest, has_json="--json" in command.flags)
    more, kept = take_out(rest, command.flags, OF_NOUNS.get(noun.name))
    given = {**given, **more}
    if "help" in given:
        from natsctl.cli.framework.help import render_command_help

        print(render_command_help(command, path, rows[-1].examples))
        return 0
    if host is not None:
        given.update(host.missing_options(given))
    with DisplaySettings(given), _ending_cleanly() if host is None else nullcontext():
        options = GlobalOptions(**given_on_stdin(given))
        session = Session(options, json=wants_json(rest) or (host is not None and host.json), host=host)
        try:
            return _run(command, kept, path, session)
        except (NatsctlError, KeyboardInterrupt) as failure:
            _report_unreadable(session, failure)
            raise
        finally:
            session.close()
            if rows[-1].name not in READING:
                forget_names(os.environ)


@contextmanager
def _ending_cleanly() -> Iterator[None]:
    """End as Ctrl-C does on SIGTERM, so that unfinished work is cleaned up."""
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _terminate(number: int, frame: FrameType | None) -> None:
    sys.exit(_TERMINATED)


def _show_group(noun: Verb, group: Verb, path: str, words: Sequence[str], given: dict[str, Any]) -> int:
    """Show the page of a group: on stdout for --help, else on stderr as a usage error."""
    more, kept = take_out(words, {}, OF_NOUNS.get(noun.name))
    asked = "help" in {**given, **more}
    if kept.all and not asked:
        if kept.all[0] == "help":
            return run_noun(noun, [*path.split()[2:], *kept.all[1:], "--help"], {**given, **more})
        raise _unknown(group, kept.all[0], path)
    from natsctl.cli.framework.help import render_group_help

    print(render_group_help(group.help, group.verbs, path, group.examples), file=sys.stdout if asked else sys.stderr)
    return 0 if asked else UsageError.exit_code


def _unknown(group: Verb, word: str, path: str) -> UsageError:
    if word.startswith("-") and word not in ("-", "--"):
        flag = word.partition("=")[0]
        return UsageError(f"unknown flag {flag}", hint=did_you_mean(flag, BY_SPELLING) or f"see {path} --help")
    by_word = {name: verb for verb in group.verbs for name in verb.words}
    return UsageError(f"unknown command {word!r}", hint=did_you_mean(word, by_word) or f"see {path} --help")


def _report_unreadable(session: Session, failure: BaseException) -> None:
    """Report the entries that were left out, before another failure; stderr of -j is one object, so in its hint."""
    faults = session.received.unreported()
    if faults and session.json and isinstance(failure, NatsctlError):
        failure.hint = "\n".join(filter(None, (hint_of(failure), *faults)))
    elif faults:
        write_stderr(render_error(UnreadableEntriesError(faults), session.json))


def _run(command: Command, words: Words, path: str, session: Session) -> int:
    try:
        result = command.call(command.values(words, path), session)
        session.received.check()
    except ExitError as end:
        return end.exit_code
    except DryRunError as preview:
        from natsctl.cli.framework.consent import show_preview

        show_preview(preview, session.effect, as_json=session.json)
        return 0
    except UNUSABLE as failure:
        if session.archive:
            raise UsageError(f"{session.archive}: a document of the bundle is damaged: {failure!r}") from failure
        fault = session.received.fault_behind(failure)
        if fault is None:
            raise
        if session.options.trace:
            import traceback

            traceback.print_exception(failure)
        raise fault from failure
    return result if isinstance(result, int) and not isinstance(result, bool) else 0


def find(noun: Verb, words: Sequence[str]) -> tuple[list[Verb], list[str]]:
    """Return the rows from a noun to the command of the arguments, and the remaining arguments.

    Flags before a verb are moved after it, as they belong to the command. A word after a flag that is not a verb is the
    flag's value; any other word that is not a verb ends the search.
    """
    rows = [noun]
    early: list[str] = []
    rest = list(words)
    while (at := _verb_at(rows[-1].verbs, rest)) is not None:
        early += rest[:at]
        # Two rows may share an alias, as `i` of `info` and `imports`: it is the later one's, as in the nats tool.
        rows.append([verb for verb in rows[-1].verbs if rest[at] in verb.words][-1])
        rest = rest[at + 1 :]
    return rows, [*early, *rest]


def _verb_at(verbs: Sequence[Verb], words: Sequence[str]) -> int | None:
    after_flag = False
    for index, word in enumerate(words):
        if word == "--":
            return None
        if any(word in verb.words for verb in verbs):
            return index
        is_flag = word.startswith("-") and word != "-"
        if not is_flag and not after_flag:
            return None
        after_flag = is_flag and "=" not in word
    return None


def wants_json(words: Sequence[str]) -> bool:
    """Return whether the arguments request JSON, so that a failure to parse them is shown as JSON too."""
    for word in words:
        if word == "--":
            return False
        if word in ("-j", "--json"):
            return True
    return False


def leading(words: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    given: dict[str, Any] = {}
    left = list(words)
    while left and left[0].startswith("-"):
        flag = BY_SPELLING.get(left[0].partition("=")[0])
        if flag is None:
            raise UsageError(f"unknown flag {left[0]}", hint=did_you_mean(left[0], BY_SPELLING))
        _take(flag, left, given)
    return given, left


class Dash(str):
    """A lone `-` argument; the nats tool reads it as an empty text. After `--` it is a plain `-`."""

    __slots__ = ()


class Words(NamedTuple):
    """The arguments of a command line without its global options: all of them, and sorted."""

    all: list[str]
    flags: list[tuple[str, str | None]]
    """The flags of the command, each with its value; None for a switch."""
    arguments: list[str]
    unusual: bool = False
    """Whether some are not sorted: flags that the command does not have or that lack a value, several in one word."""


def take_out(
    words: Sequence[str], own: Mapping[str, bool], of_noun: GlobalFlag | None = None
) -> tuple[dict[str, Any], Words]:
    """Return the global options among a command's arguments, and the rest; raises UsageError.

    `own` are the command's flags, and whether each takes a value; values are never read as flags. Everything after `--`
    is an argument. `of_noun` is treated like a global option. A lone `-` becomes a Dash.
    """
    known = {**BY_SPELLING, **dict.fromkeys(of_noun.spellings if of_noun else (), of_noun)}
    given: dict[str, Any] = {}
    kept = Words([], [], [])
    unusual = False
    left = list(words)
    while left:
        name = left[0].partition("=")[0]
        if left[0] == "--":
            kept.all.extend(left)
            kept.arguments.extend(left[1:])
            break
        if name in own:
            unusual |= _keep(left, own[name], kept)
        elif flag := known.get(name):
            _take(flag, left, given)
        else:
            word = left.pop(0)
            word = Dash(word) if word == "-" else word
            kept.all.append(word)
            kept.arguments.append(word)
            unusual |= word.startswith("-") and word != "-"
    return given, kept._replace(unusual=unusual)


def _keep(left: list[str], takes_value: bool, kept: Words) -> bool:
    """Move one flag of the command, with its value, from `left` to `kept`; return whether that is unusual."""
    word = left.pop(0)
    kept.all.append(word)
    name, equals, value = word.partition("=")
    if not takes_value:
        kept.flags.append((name, None))
        return bool(equals)
    if equals:
        kept.flags.append((name, value))
        return not name.startswith("--")
    if not left:
        return True
    kept.all.append(left[0])
    kept.flags.append((name, left.pop(0)))
    return False


def _take(flag: GlobalFlag, left: list[str], given: dict[str, Any]) -> None:
    name, equals, value = left.pop(0).partition("=")
    if not flag.metavar:
        if equals:
            raise UsageError(f"{name} takes no value")
        given[flag.field] = True
        return
    if not equals:
        if not left:
            raise UsageError(f"{name} needs a value ({flag.metavar})")
        value = left.pop(0)
    if not value and flag.field not in MAY_BE_EMPTY:
        raise UsageError(f"{name} is empty", hint="leave the flag out to mean none; is a variable unset?")
    try:
        given[flag.field] = flag.read(value)
    except ValueError as failure:
        raise UsageError(f"{name}: {failure}") from failure


_KINDS: dict[Any, tuple[type, bool]] = {
    annotation: (kind, several)
    for kind in (str, int, float, bool)
    for several, whole in ((False, kind), (True, list[kind]))  # type: ignore[valid-type]  # computed
    for annotation in (whole, whole | None)
}
"""Type of one value, and whether there may be several, by the annotations that a parameter can have.

Others are paths.
"""
_TRUE = ("true", "1", "yes", "on")
_FALSE = ("false", "0", "no", "off")
_MAY_BE_EMPTY = ("BODY", "PAYLOAD", "VALUE", "TEXT", "PASSWORD", "PATTERN")
"""Metavars of values that may be empty. An empty name, subject or duration is a variable that was not set: treated as
missing it would purge a whole stream, or remove a bucket instead of a key."""
NEEDED: Any = object()
"""Default of an argument that has to be given."""


def _kind_of(annotation: Any) -> tuple[type, bool]:
    if annotation not in _KINDS:
        from pathlib import Path

        for several, whole in ((False, Path), (True, list[Path])):
            _KINDS.update(dict.fromkeys((whole, whole | None), (Path, several)))
    return _KINDS[annotation]


class Parameter:
    """A flag or an argument of one command, and the reader of its values."""

    __slots__ = ("_kind", "declared", "default", "name", "several")

    def __init__(self, name: str, annotation: Any, declared: Any, default: Any = NEEDED) -> None:
        self.name = name
        self.declared = declared
        self.default = default
        self._kind, self.several = (str, "list[" in str(annotation)) if declared.read else _kind_of(annotation)

    @property
    def is_option(self) -> bool:
        return isinstance(self.declared, Option)

    @property
    def is_switch(self) -> bool:
        return self._kind is bool and self.is_option

    @property
    def is_needed(self) -> bool:
        return self.default is NEEDED

    @property
    def label(self) -> str:
        if self.is_option:
            return str(self.declared.names[0]).partition("/")[0]
        return str(self.declared.metavar or self.name).strip("[].")

    def read(self, given: Any) -> Any:
        if self.is_switch:
            return given
        try:
            return [self._read(text) for text in given] if self.several else self._read(given)
        except ValueError as failure:
            raise UsageError(f"{self.label}{failure}") from None

    def _read(self, text: str) -> Any:
        # Flags of a table check empty values themselves.
        if not text and not self.name.startswith("flag_") and self.declared.metavar.strip("[].") not in _MAY_BE_EMPTY:
            raise ValueError(" is empty")
        if self.declared.read is not None:
            with as_usage_error(self.label):
                return self.declared.read(text)
        if self._kind is str:
            return text
        if self._kind is bool:
            if text.lower() not in _TRUE + _FALSE:
                raise ValueError(f": {text!r} is neither true nor false")
            return text.lower() in _TRUE
        try:
            value = self._kind(text)
        except ValueError:
            raise ValueError(f": {text!r} is not {'a whole number' if self._kind is int else 'a number'}") from None
        if self._kind in (int, float) and (fault := self._fault(value)):
            raise ValueError(f": {text} is {fault}")
        return value

    def _fault(self, number: float) -> str:
        low, high = self.declared.min, self.declared.max
        if self._kind is int and number > WHOLE_MAX:
            return f"too large: it can be at most {WHOLE_MAX if high is None else high}"
        if (low is None or number >= low) and (high is None or number <= high) and number >= WHOLE_MIN:
            return ""
        upper = high if high is not None or low is not None else WHOLE_MAX
        bounds = (f"at least {low}" if low is not None else "", f"at most {upper}" if upper is not None else "")
        return f"not {' and '.join(filter(None, bounds))}"


def parameters_of(function: Any, hints: dict[str, Any]) -> list[Parameter]:
    """Return the parameters that the annotations of a function and its bundles declare."""
    code = function.__code__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    positional = function.__defaults__ or ()
    defaults = dict(zip(names[code.co_argcount - len(positional) : code.co_argcount], positional, strict=True))
    return _declared(hints, names, defaults | (function.__kwdefaults__ or {}))


def _declared(hints: dict[str, Any], names: Iterable[str], defaults: dict[str, Any]) -> list[Parameter]:
    """Return the parameters that annotations declare; the other names are not for the command line."""
    declared: list[Parameter] = []
    for name in names:
        hint = hints[name]
        if _is_bundle(hint):
            declared += _declared(hints_of(hint), hint._fields, hint._field_defaults)
        elif metadata := getattr(hint, "__metadata__", None):
            declared.append(Parameter(name, hint.__origin__, metadata[0], defaults.get(name, NEEDED)))
    return declared


def hints_of(source: Any) -> dict[str, Any]:
    """Return the annotations of a function or class by name.

    Annotations that are names are looked up: compiling the first text costs as much as reading a command line.
    """
    known = getattr(source, "__globals__", {})
    hints = {name: known.get(text, getattr(builtins, str(text), text)) for name, text in source.__annotations__.items()}
    hints.pop("return", None)
    if any(isinstance(hint, str) or hasattr(hint, "__forward_arg__") for hint in hints.values()):
        from typing import get_type_hints

        return get_type_hints(source, include_extras=True)
    return hints


def _is_bundle(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")


class Command:
    """A command that can run: its function, and the parameters of that.

    `session` is the session of the command line, `given` the flags of the table that `flags.flagged` named; a parameter
    whose type is a bundle of options takes all of them.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self._table: Sequence[Flag] = getattr(function, "flag_table", ())
        self._hints = hints_of(function)
        self.parameters = parameters_of(function, self._hints) + [flag.declared() for flag in self._table]
        self.arguments = [parameter for parameter in self.parameters if not parameter.is_option]
        self.options = [parameter for parameter in self.parameters if parameter.is_option]
        self._flags = {
            spelling: (option, on) for option in self.options for spelling, on in option.declared.spellings.items()
        }

    @functools.cached_property
    def flags(self) -> dict[str, bool]:
        """Return the flags of the command, and whether each takes a value."""
        return {spelling: not parameter.is_switch for spelling, (parameter, _) in self._flags.items()}

    def values(self, words: Words, path: str = "") -> dict[str, Any]:
        given = self.sorted(words)
        if given is None:
            from natsctl.cli.framework.irregular_lines import sorted_by_typer

            given = sorted_by_typer(self.parameters, list(words.all), path)
        try:
            return {
                parameter.name: parameter.read(given[parameter.name]) if parameter.name in given else parameter.default
                for parameter in self.parameters
            }
        except UsageError as failure:
            failure.hint = f"see {path} --help"
            raise

    def sorted(self, words: Words) -> dict[str, Any] | None:
        """Return the text or switch of each given parameter, or None if the arguments are not in order."""
        if words.unusual:
            return None
        given: dict[str, Any] = {}
        for spelling, text in words.flags:
            parameter, on = self._flags[spelling]
            if parameter.several:
                given.setdefault(parameter.name, []).append(text)
            else:
                given[parameter.name] = on if parameter.is_switch else text
        left = list(words.arguments)
        for parameter in self.arguments:
            if parameter.several and left:
                given[parameter.name], left = left, []
            elif left:
                given[parameter.name] = left.pop(0)
        if left or any(one.is_needed and one.name not in given for one in self.parameters):
            return None
        return given

    def call(self, values: dict[str, Any], session: Any) -> Any:
        keywords: dict[str, Any] = {}
        for name, hint in self._hints.items():
            if name == "session":
                keywords[name] = session
            elif _is_bundle(hint):
                keywords[name] = hint(**{field: values[field] for field in hint._fields})
            elif name == "given" and self._table:
                keywords[name] = self.given(values)
            elif name in values:
                keywords[name] = values[name]
        return self.function(**keywords)

    def given(self, values: dict[str, Any]) -> dict[str, Any]:
        read = ((flag, values[flag.parameter]) for flag in self._table)
        return {flag.name: flag.read(value) for flag, value in read if value not in (None, [])}


@functools.cache
def command_of(function: Callable[..., Any]) -> Command:
    """Return the command of a function, created once per process."""
    return Command(function)
