"""The words of a command line, read by what a command's parameters declare.

Flags and arguments may be mixed; `--` ends flags. A flag that needs a value takes the next word whatever it begins with, so that
`--max-age -1` means what it says. Short switches may be joined (`-rf`), a short flag may carry its value (`-n5`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from natsctl.api.errors import UsageError
from natsctl.cli.app import Option, Parameter
from natsctl.cli.suggest import did_you_mean

_NUMBER = re.compile(r"-\d")


class _Words:
    """A cursor over the words that are left."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words = list(words)
        self._next = 0

    def __bool__(self) -> bool:
        return self._next < len(self._words)

    def take(self) -> str:
        word = self._words[self._next]
        self._next += 1
        return word


class _Flags:
    """The flags of a command and the global ones, by every spelling; a command's own wins."""

    def __init__(self, parameters: Sequence[Parameter]) -> None:
        self.by_name: dict[str, tuple[Parameter, bool]] = {}
        for parameter in parameters:
            if not isinstance(parameter.spec, Option):
                continue
            for flag in parameter.spec.flags:
                self.by_name.setdefault(flag, (parameter, True))
                if parameter.spec.negatable and flag.startswith("--"):
                    self.by_name.setdefault(f"--no-{flag[2:]}", (parameter, False))

    def find(self, name: str) -> tuple[Parameter, bool]:
        try:
            return self.by_name[name]
        except KeyError:
            shown = [flag for flag, (parameter, _) in self.by_name.items() if not parameter.spec.hidden]  # type: ignore[union-attr]  # only options are in the table
            raise UsageError(f"unknown flag {name}", hint=did_you_mean(name, shown)) from None


def parse(parameters: Sequence[Parameter], words: Sequence[str], *, stop_at_argument: bool = False) -> Parsed:
    """The values that the words give to the parameters; raises UsageError for a word that fits none.

    With `stop_at_argument` reading ends at the first word that is no flag; it and what follows are in `rest`.
    """
    flags = _Flags(parameters)
    parsed = Parsed(parameters)
    left = _Words(words)
    only_arguments = False
    while left:
        word = left.take()
        if only_arguments or not word.startswith("-") or word == "-" or _is_number(word, flags):
            if stop_at_argument:
                parsed.rest = [word, *_remaining(left)]
                break
            parsed.arguments.append(word)
        elif word == "--":
            only_arguments = True
        elif word.startswith("--"):
            name, equals, value = word.partition("=")
            _long(parsed, flags, name, value if equals else None, left.take if left else None)
        else:
            _short(parsed, flags, word, left)
    return parsed


def _is_number(word: str, flags: _Flags) -> bool:
    return _NUMBER.match(word) is not None and word[:2] not in flags.by_name


def _remaining(left: _Words) -> list[str]:
    words = []
    while left:
        words.append(left.take())
    return words


def _long(parsed: Parsed, flags: _Flags, name: str, value: str | None, take: Callable[[], str] | None) -> None:
    parameter, positive = flags.find(name)
    if parameter.switch:
        given = True if value is None else _value(parameter, value)
        parsed.set(parameter, given if positive else not given)
        return
    if value is None:
        if take is None:
            raise UsageError(f"{name} needs a value")
        value = take()
    parsed.set(parameter, _value(parameter, value))


def _short(parsed: Parsed, flags: _Flags, word: str, left: _Words) -> None:
    letters = word[1:]
    while letters:
        name, letters = f"-{letters[0]}", letters[1:]
        parameter, positive = flags.find(name)
        if parameter.switch:
            parsed.set(parameter, positive)
            continue
        if not letters and not left:
            raise UsageError(f"{name} needs a value")
        value = letters.removeprefix("=") if letters else left.take()
        parsed.set(parameter, _value(parameter, value))
        return


def _value(parameter: Parameter, word: str) -> Any:
    """The word as the parameter's type; UsageError tells which flag or argument it was meant for."""
    if parameter.choices and word not in parameter.choices:
        folded = {choice.lower(): choice for choice in parameter.choices}
        if word.lower() not in folded:
            allowed = ", ".join(parameter.choices)
            hint = did_you_mean(word, parameter.choices)
            raise UsageError(f"{parameter.label}: {word!r} is not one of {allowed}", hint=hint)
        word = folded[word.lower()]
    try:
        return parameter.read(word)
    except ValueError as failure:
        raise UsageError(f"{parameter.label}: {failure}") from failure


class Parsed:
    """What was given, by parameter; `rest` holds the words after the first argument where reading stopped there."""

    def __init__(self, parameters: Sequence[Parameter]) -> None:
        self.given: dict[str, Any] = {}
        self.arguments: list[str] = []
        self.rest: list[str] = []
        self._parameters = parameters

    def set(self, parameter: Parameter, value: Any) -> None:
        """Keep a flag's value: the last one, or all of them where it may be repeated."""
        if parameter.repeated:
            self.given.setdefault(parameter.name, []).append(value)
        else:
            self.given[parameter.name] = value

    def values(self, parameters: Sequence[Parameter]) -> dict[str, Any]:
        """Every parameter's value, arguments in order and defaults filled in; raises UsageError for one missing or too many."""
        values: dict[str, Any] = {}
        words = list(self.arguments)
        for parameter in parameters:
            if not isinstance(parameter.spec, Option):
                self._take_argument(parameter, words)
            if parameter.name in self.given:
                values[parameter.name] = self.given[parameter.name]
            elif parameter.required:
                raise UsageError(f"{parameter.label} is needed")
            else:
                default = parameter.default
                values[parameter.name] = [] if parameter.repeated and default is None else default
        if words:
            raise UsageError(f"unexpected argument {words[0]!r}")
        return values

    def _take_argument(self, parameter: Parameter, words: list[str]) -> None:
        count = len(words) if parameter.repeated else min(1, len(words))
        for word in words[:count]:
            self.set(parameter, _value(parameter, word))
        del words[:count]
