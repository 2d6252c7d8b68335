"""Results of a plan: the end of each change, and their summary."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

from msgspec import field

from natsctl.api.errors import ApiResponseError, ExitCode, NatsctlError, UnreachableError
from natsctl.api.model import Model
from natsctl.desired.assets import AssetKey
from natsctl.desired.plan import Action, Change


class Status(StrEnum):
    """The end of a change."""

    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"


class Failure(Model, kw_only=True, omit_defaults=False):
    """The reason of a failure: the server's error, or one of ours without numbers; `exit_code` is its own exit code."""

    code: int = 0
    err_code: int = 0
    description: str
    subject: str = ""
    hint: str = ""
    exit_code: int = int(ExitCode.FAILED)


class Result(Model, kw_only=True, omit_defaults=False):
    """The result of one change.

    `detail` describes a completed one, `because` names the asset that caused a skipped one, or the reason why nothing
    more was started. `elapsed` in ns.
    """

    action: Action
    kind: str
    stream: str
    consumer: str = ""
    status: Status
    detail: str = ""
    because: str = ""
    error: Failure | None = None
    warnings: list[str] = field(default_factory=list)
    elapsed: int = 0
    by_others: bool = False
    """Made by another client meanwhile; it counts as unchanged."""

    @property
    def key(self) -> AssetKey:
        return AssetKey(self.stream, self.consumer)


class Summary(Model, kw_only=True, omit_defaults=False):
    """The number of assets by result; `elapsed` in ns."""

    created: int = 0
    updated: int = 0
    replaced: int = 0
    deleted: int = 0
    unchanged: int = 0
    failed: int = 0
    skipped: int = 0
    elapsed: int = 0


class Outcome(Model, kw_only=True, omit_defaults=False):
    """All results in the order of the plan; `ended` is the reason why not all were started, "" if all were.

    It is "stopped" (after a failure, as requested), "interrupted" or "lost" (the connection).
    """

    results: list[Result] = field(default_factory=list)
    summary: Summary = field(default_factory=Summary)
    ended: str = ""

    @property
    def exit_code(self) -> ExitCode:
        """The exit code of the command: the code common to all failures, else FAILED."""
        if self.ended == INTERRUPTED:
            return ExitCode.INTERRUPTED
        if self.ended == LOST:
            return ExitCode.UNREACHABLE
        codes = {result.error.exit_code for result in self.results if result.error is not None}
        if len(codes) == 1:
            return ExitCode(codes.pop())
        return ExitCode.FAILED if codes else ExitCode.DONE


STOPPED = "stopped"
INTERRUPTED = "interrupted"
LOST = "lost"

_COUNTED = {
    Action.CREATE: "created",
    Action.UPDATE: "updated",
    Action.REPLACE: "replaced",
    Action.DELETE: "deleted",
    Action.NONE: "unchanged",
}


def outcome_of(results: Sequence[Result], unchanged: int, elapsed: int, ended: str) -> Outcome:
    """Return the outcome of these results and of `unchanged` assets without one."""
    counts = Summary(unchanged=unchanged, elapsed=elapsed)
    for result in results:
        name = (
            _COUNTED[Action.NONE if result.by_others else result.action]
            if result.status is Status.DONE
            else str(result.status)
        )
        setattr(counts, name, getattr(counts, name) + 1)
    return Outcome(results=list(results), summary=counts, ended=ended)


def result_of(change: Change, status: Status, **rest: Any) -> Result:
    of = {name: getattr(change, name) for name in ("action", "kind", "stream", "consumer")}
    return Result(**of, status=status, **rest)


_AGAIN = "it is not known whether it was done; apply again: completed changes are recognized"


def failure_of(failure: NatsctlError) -> Failure:
    api = failure.error if isinstance(failure, ApiResponseError) else None
    hint = failure.hint or (_AGAIN if isinstance(failure, UnreachableError) else "")
    return Failure(
        code=api.code if api else 0,
        err_code=api.err_code if api else 0,
        description=failure.text,
        subject=failure.subject,
        hint=hint,
        exit_code=int(failure.exit_code),
    )
