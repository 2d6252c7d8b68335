"""Declarations of the flags and arguments of commands, and the end of a command with an exit code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from natsctl.api.errors import UsageError
from natsctl.hints import Any

WHOLE_MIN, WHOLE_MAX = -(2**63), 2**63 - 1
"""Limits of a number of the contract (Go's int64)."""


class ExitError(Exception):
    """The end of a command with this exit code."""

    def __init__(self, exit_code: int = 0) -> None:
        super().__init__(exit_code)
        self.exit_code = exit_code


@contextmanager
def as_usage_error(what: str) -> Iterator[None]:
    """Raise UsageError `WHAT: reason` for a file or value that cannot be used."""
    try:
        yield
    except (OSError, ValueError) as failure:
        raise UsageError(f"{what}: {getattr(failure, 'strerror', None) or failure}") from failure


class Argument:
    """An argument: its name in help, its help, and its limits; `read` returns the value of a text or raises ValueError.

    Without `read` the annotation of the parameter decides.
    """

    def __init__(
        self,
        *,
        metavar: str = "",
        help: str = "",
        min: float | None = None,
        max: float | None = None,
        read: Callable[[str], Any] | None = None,
    ) -> None:
        self.metavar = metavar
        self.help = help
        self.min = min
        self.max = max
        self.read = read


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
