"""Declarations of the flags and arguments of commands, and the end of a command with an exit code."""

from __future__ import annotations

from typing import Any

WHOLE_MIN, WHOLE_MAX = -(2**63), 2**63 - 1
"""Limits of a number of the contract (Go's int64)."""


class ExitError(Exception):
    """The end of a command with this exit code."""

    def __init__(self, exit_code: int = 0) -> None:
        super().__init__(exit_code)
        self.exit_code = exit_code


class Argument:
    """An argument: its name in help, and its help."""

    def __init__(
        self, *, metavar: str = "", help: str = "", min: float | None = None, max: float | None = None
    ) -> None:
        self.metavar = metavar
        self.help = help
        self.min = min
        self.max = max


class Option(Argument):
    """A flag: its spellings (`--state/--no-state` for a switch that can be turned off), and its help."""

    def __init__(self, *names: str, hidden: bool = False, **described: Any) -> None:
        super().__init__(**described)
        self.names = names
        self.hidden = hidden

    @property
    def spellings(self) -> dict[str, bool]:
        """Return every spelling, and the value that it gives to a switch."""
        values: dict[str, bool] = {}
        for name in self.names:
            on, slash, off = name.partition("/")
            values[on] = True
            if slash:
                values[off] = False
        return values
