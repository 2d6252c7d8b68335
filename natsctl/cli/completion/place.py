"""Position of a word on the command line: the command it belongs to, and the values that the command takes there.

The commands' declarations are read from `commands/<noun>.json`, which `python -m tests.support.generated_docs` writes:
to read the declarations themselves, Typer would have to be loaded, which takes more than the time there is.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from natsctl.api.errors import NatsctlError
from natsctl.cli.globals import GLOBAL_FLAGS, leading, take_out
from natsctl.cli.nouns import BY_WORD, NOUNS

COMMANDS = Path(__file__).with_name("commands")


class Command(NamedTuple):
    """A noun or verb that may come next."""

    names: tuple[str, ...]
    meaning: str


@dataclass(slots=True)
class Place:
    """Position on the command line, read off the words before it: what may stand there."""

    noun: str = ""
    commands: list[Command] = field(default_factory=list)
    """Nouns or verbs, while the command is not complete."""
    flags: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Every flag by its spelling: metavar ("" for a switch) and meaning."""
    arguments: list[str] = field(default_factory=list)
    """Metavars of the arguments; one that ends in `...` takes all further words."""
    given: list[str] = field(default_factory=list)
    """The arguments that are there already."""
    options: dict[str, Any] = field(default_factory=dict)
    """The global options that are there already."""
    takes: str = ""
    """The metavar of the flag right before, which waits for its value."""

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
    """Return the place behind these words; raises UsageError for words that are no command."""
    place = Place(flags={name: (flag.metavar, flag.help) for flag in GLOBAL_FLAGS for name in flag.spellings})
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
    """Return what a noun and its verbs declare; nothing for one that did not exist when the file was made."""
    file = COMMANDS / f"{noun}.json"
    return dict(json.loads(file.read_text(encoding="utf-8"))) if file.exists() else {}


def _waits(place: Place, words: Sequence[str]) -> bool:
    """Whether the last word is a flag that waits for its value."""
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
    """Take over what a command declares, and which of it is there."""
    own: dict[str, list[str]] = command.get("flags", {})
    place.flags |= {name: (metavar, meaning) for name, (metavar, meaning) in own.items()}
    place.arguments = command.get("arguments", [])
    if _waits(place, words):
        words.pop()
    with contextlib.suppress(NatsctlError):
        more, words = take_out(words, {name: bool(metavar) for name, (metavar, _) in own.items()})
        place.options |= more
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
