"""Questions about the flags of a table that were not given, as `stream add` and `consumer add` ask them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from natsctl.cli.framework.flags import Config, Flag, Given
from natsctl.cli.framework.prompts import Question, prompt, prompt_confirm


class FlagDialogue:
    """A dialogue that adds answers to a configuration; a flag that was given is not asked about."""

    def __init__(self, table: Sequence[Flag], config: Config, given: Given) -> None:
        self._flags = {flag.name: flag for flag in table}
        self._config = config
        self._given = given

    def ask(
        self,
        name: str,
        text: str,
        default: str = "",
        choices: tuple[tuple[str, str], ...] = (),
        *,
        check: Callable[[Any], None] | None = None,
        required: bool = False,
    ) -> None:
        """Ask for the value of a flag; `check` raises ValueError for values that are not accepted."""
        if name not in self._given:
            self._flags[name].place(self._config, self.value(name, text, default, choices, check, required))

    def confirm(self, name: str, text: str, default: bool = False, *, inverted: bool = False) -> None:
        """Ask whether a switch is on, or with `inverted` whether it is off."""
        if name not in self._given:
            yes = prompt_confirm(text, default, self.help(name))
            self._flags[name].place(self._config, yes is not inverted)

    def value(
        self,
        name: str,
        text: str,
        default: str = "",
        choices: tuple[tuple[str, str], ...] = (),
        check: Callable[[Any], None] | None = None,
        required: bool = False,
    ) -> Any:
        """Return the answer to a question about a flag, without using it."""

        def read(answer: str) -> Any:
            value = self._flags[name].kind.read(answer)
            if check is not None:
                check(value)
            return value

        return prompt(Question(text, self.help(name), default, read, required, choices))

    def help(self, name: str) -> str:
        text = self._flags[name].help
        return f"{text[0].upper()}{text[1:]}. Settable using {name}"
