"""What is wrong with a pipeline's files, each fault with its file and line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from natsctl.api.errors import NatsctlError
from natsctl.api.exit_codes import ExitCode


@dataclass(frozen=True, order=True)
class Fault:
    """One fault; `file` is as seen from the project's folder, `line` counts from 1 and is 0 where it is not known."""

    file: str
    line: int
    text: str
    hint: str = ""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        hint = f" ({self.hint})" if self.hint else ""
        return f"{place}: {self.text}{hint}" if place else f"{self.text}{hint}"


class PipelineFaults(NatsctlError):
    """A pipeline's files do not say what can be done; `faults` are in the order of files and lines."""

    exit_code: ClassVar[int] = ExitCode.USAGE

    def __init__(self, faults: Sequence[Fault]) -> None:
        self.faults = tuple(sorted(faults))
        super().__init__("\n".join(str(fault) for fault in self.faults))


class NoPipeline(NatsctlError):
    """There is no pipeline of that name, or in that folder."""

    exit_code: ClassVar[int] = ExitCode.NOT_FOUND


class NoTable(NatsctlError):
    """The pipeline has no table of that name."""

    exit_code: ClassVar[int] = ExitCode.NOT_FOUND


def check_tables(wanted: Iterable[str], known: Iterable[str]) -> None:
    """Raises NoTable for a name that is none of a pipeline's tables: Spark would pass over it without a word."""
    names = sorted(known)
    folded = {name.lower() for name in names}
    for name in wanted:
        if name.lower() not in folded:
            raise NoTable(f"the pipeline has no table {name}", hint=f"it has {', '.join(names) or 'none'}")


class PipelineBusy(NatsctlError):
    """The pipeline runs already."""

    exit_code: ClassVar[int] = ExitCode.CONFLICT
