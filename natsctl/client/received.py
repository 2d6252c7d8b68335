"""Record of the answers one command received from servers: entries that it left out, and its latest answers.

A list leaves out an entry that cannot be read and reports it at the end, so that one bad stream, object, service or
server does not hide the others. When a command fails on a value, its latest answers are checked against their models:
this distinguishes a server's fault from natsctl's, and costs nothing when the command succeeds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from natsctl.api.errors import NatsctlError, ProtocolError
from natsctl.api.units import plural
from natsctl.hints import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from natsctl.client.requests import Answer


T = TypeVar("T")
R = TypeVar("R")

UNUSABLE: Final = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""Errors of code that uses a value of another type or range than it expects."""
_KEPT: Final = 16
"""Answers and subjects that are remembered."""
_KEPT_FAULTS: Final = 4096
"""Reported faults that are remembered, so that work without end does not grow."""


def not_traced(subject: str, content: object) -> None:
    """Show nothing of a request or an answer."""


class UnreadableEntriesError(ProtocolError):
    """Entries of a list could not be read; the others were shown."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("; ".join(faults))
        self.faults = faults


class Received:
    """The record of one command, shared by its connections."""

    __slots__ = ("_answers", "_unreadable", "report", "subjects")

    def __init__(self) -> None:
        self._answers: deque[Answer[Any]] = deque(maxlen=_KEPT)
        self._unreadable: dict[str, bool] = {}
        """Faults of entries that were left out, and whether each was reported already."""
        self.report: Callable[[str], None] | None = None
        """Reports a fault immediately: for long-running work."""
        self.subjects: deque[str] = deque(maxlen=_KEPT)
        """Subjects of the last requests and subscriptions."""

    def note(self, answer: Answer[Any]) -> None:
        """Remember an answer that has a model."""
        self._answers.append(answer)

    def leave_out(self, fault: str) -> None:
        """Report that an entry of a list could not be read, and why: once, at once or in the end."""
        if fault in self._unreadable:
            return
        if self.report is not None:
            if len(self._unreadable) >= _KEPT_FAULTS:
                del self._unreadable[next(iter(self._unreadable))]
            self.report(fault)
        self._unreadable[fault] = self.report is not None

    def readable(self, entries: Iterable[T], read: Callable[[T], R], what: Callable[[T], str]) -> list[R]:
        """Return what `read` makes of each entry; those it cannot read are left out, under the name `what` has."""
        found = []
        for entry in entries:
            try:
                found.append(read(entry))
            except (ProtocolError, *UNUSABLE) as failure:
                self.leave_out(f"{what(entry)} is not understood: {_reason(failure)}")
        return found

    def check(self) -> None:
        """Raise UnreadableEntriesError if entries were left out."""
        if known := len(self._unreadable):
            raise UnreadableEntriesError(self.unreported() or [f"{plural(known, 'fault')} reported above"])

    def unreported(self) -> list[str]:
        """Return the faults that were not reported yet, and forget all."""
        faults, self._unreadable = self._unreadable, {}
        return [fault for fault, is_reported in faults.items() if not is_reported]

    def fault_behind(self, failure: Exception) -> NatsctlError | None:
        """Return the error for a failure caused by a server's answer, or None if all answers are valid."""
        if isinstance(failure, UnicodeEncodeError):
            return None  # an argument that is not UTF-8; JSON of a server never has half a character
        for answer in self._answers:
            try:
                answer.checked()
            except ProtocolError as broken:
                return broken
        known = [answer.subject for answer in self._answers]
        other = [subject for subject in self.subjects if subject not in known]
        # Models allow for absent fields, negative counts, and any text instead of a time.
        lacking = [
            answer.subject for answer in self._answers if isinstance(failure, KeyError) and _lacks(answer, failure)
        ]
        suspects = lacking or other or (known if isinstance(failure, ValueError | ArithmeticError) else [])
        if not suspects:
            return None
        fault = ProtocolError(f"the answer on {suspects[-1]} is not understood: {_reason(failure)}")
        fault.subject = suspects[-1]
        return fault


def _lacks(answer: Answer[Any], failure: Exception) -> bool:
    return isinstance(failure, KeyError) and failure.args[0] not in answer.raw


def _reason(failure: Exception) -> str:
    if isinstance(failure, NatsctlError):
        return failure.text.partition(" is not understood: ")[2] or failure.text
    if isinstance(failure, KeyError):
        return f"it lacks {failure}"
    return str(failure) or type(failure).__name__
