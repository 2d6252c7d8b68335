"""Checks of a bundle: their definition, the run of all checks, and the report of their outcomes.

Codes, outcomes, thresholds and the JSON form of a report are as in `nats audit analyze`; its reports can be read
here and the other way round. Source: jsm.go, audit/analysis.go and audit/checks.go.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from natsctl.api.errors import NatsctlError, UsageError, file_errors
from natsctl.api.times import parse_time
from natsctl.client.audit.bundle import Bundle, Metadata

REPORT_TYPE: Final = "io.nats.audit.v1.analysis"
UNITS: Final = ("%", "int", "uint", "")


class CheckOutcome(enum.IntEnum):
    """Outcome of a check; `SKIP` means that it could not run."""

    PASS = 0
    WARN = 1
    FAIL = 2
    SKIP = 3


class CheckSkippedError(NatsctlError):
    """A check lacks the documents that it needs."""


class Threshold(msgspec.Struct, kw_only=True):
    """A number that a check compares with; `set_value` is the user's."""

    key: str
    check: str = ""
    description: str
    default: float
    unit: str = ""
    set_value: float | msgspec.UnsetType = msgspec.UNSET

    @property
    def value(self) -> float:
        return self.default if self.set_value is msgspec.UNSET else self.set_value

    def read(self, text: str) -> float:
        """Return a value of this threshold's unit. Raises ValueError."""
        try:
            value = float(text.removesuffix("%") if self.unit == "%" else text)
        except ValueError:
            raise ValueError(f"expected a number, not {text!r}") from None
        if self.unit == "%" and not 0 <= value <= 100:
            raise ValueError(f"expected a percentage from 0 to 100, not {text}")
        if self.unit in ("int", "uint") and value != int(value):
            raise ValueError(f"expected a whole number, not {text}")
        if value < 0 and self.unit == "uint":
            raise ValueError(f"expected a number that is not negative, not {text}")
        return value


class AuditCheck(msgspec.Struct):
    """Description of a check, without its function."""

    code: str
    suite: str
    name: str
    description: str
    configuration: dict[str, Threshold] = {}


class Examples(msgspec.Struct, omit_defaults=True):
    """Faults that a check found: the first ones, how many more there were, and why it could not run."""

    examples: list[str] = []
    error: str = ""
    omitted: int = 0

    @property
    def count(self) -> int:
        return len(self.examples) + self.omitted


class CheckResult(msgspec.Struct):
    check: AuditCheck
    outcome: int
    outcome_string: str
    examples: Examples


class Analysis(msgspec.Struct):
    """Report of all checks of a bundle."""

    type: str
    time: str
    metadata: Metadata
    skipped_checks: list[str] | None
    skipped_suites: list[str] | None
    checks: list[CheckResult]
    outcomes: dict[str, int]


Log = Callable[[str], None]


@dataclass(slots=True)
class AuditInspection:
    """A check under way: its bundle and the faults it finds."""

    bundle: Bundle
    check: AuditCheck
    limit: int
    write: Log
    found: Examples = field(default_factory=Examples)

    def value(self, key: str) -> float:
        return self.check.configuration[key].value

    def log(self, text: str) -> None:
        self.write(f"{self.check.code}: {text}")

    def fault(self, text: str) -> None:
        if self.limit and len(self.found.examples) >= self.limit:
            self.found.omitted += 1
        else:
            self.found.examples.append(text)

    def outcome(self, otherwise: CheckOutcome) -> CheckOutcome:
        """Return PASS without faults, `otherwise` with some."""
        return otherwise if self.found.count else CheckOutcome.PASS

    def servers(self) -> list[tuple[str, str]]:
        pairs = {
            (artifact.cluster, artifact.server)
            for artifact in self.bundle.artifacts
            if artifact.cluster and artifact.server
        }
        return sorted(pairs)

    def data(self, kind: str, *, required: bool = False) -> Iterator[tuple[str, str, dict[str, Any]]]:
        """Yield cluster, server and data of every document of a type, server after server.

        A server without one is logged; if it is `required`, CheckSkippedError is raised.
        """
        for cluster, server in self.servers():
            pages = list(self.bundle.documents(artifact_type=kind, cluster=cluster, server=server))
            if not pages and required:
                raise CheckSkippedError(f"there are no {kind} of server {server} in cluster {cluster}")
            if not pages:
                self.log(f"there are no {kind} of server {server} in cluster {cluster}")
            for _, page in pages:
                if isinstance(data := page.get("data"), dict):
                    yield cluster, server, data
                else:
                    self.log(f"the {kind} of server {server} in cluster {cluster} are empty")


Run = Callable[[AuditInspection], CheckOutcome]


@dataclass(frozen=True, slots=True)
class Registered:
    check: AuditCheck
    run: Run


_CHECKS: Final[list[Registered]] = []


def registered(code: str, suite: str, name: str, description: str, *thresholds: Threshold) -> Callable[[Run], Run]:
    """Make a function a check of every bundle; its module must be one of `all_checks`."""
    for threshold in thresholds:
        threshold.check = code
    check = AuditCheck(code, suite, name, description, {threshold.key: threshold for threshold in thresholds})

    def register(run: Run) -> Run:
        _CHECKS.append(Registered(check, run))
        return run

    return register


def percent(key: str, description: str, default: float = 90) -> Threshold:
    return Threshold(key=key, description=description, default=default, unit="%")


def all_checks() -> list[Registered]:
    from natsctl.client.audit import server_checks, stream_checks  # noqa: F401  # they register their checks

    return sorted(_CHECKS, key=lambda known: (known.check.suite, known.check.code))


def thresholds_of(checks: Sequence[Registered]) -> dict[str, Threshold]:
    """Return every threshold by `code.key` in lower case."""
    return {
        f"{check.check.code}.{threshold.key}".lower(): threshold
        for check in checks
        for threshold in check.check.configuration.values()
    }


def with_thresholds(checks: Sequence[Registered], given: Mapping[str, str]) -> list[Registered]:
    """Return the checks with the given thresholds, named `CODE.KEY`. Raises UsageError."""
    known = thresholds_of(checks)
    values: dict[tuple[str, str], float] = {}
    for name, text in given.items():
        threshold = known.get(name.lower())
        if threshold is None:
            raise UsageError(f"--threshold: no check has {name}", hint="natsctl audit checks lists them")
        try:
            values[threshold.check, threshold.key] = threshold.read(text)
        except ValueError as failure:
            raise UsageError(f"--threshold {name}: {failure}") from None

    def changed(one: Registered) -> Registered:
        configuration = {
            key: msgspec.structs.replace(threshold, set_value=values.get((one.check.code, key), msgspec.UNSET))
            for key, threshold in one.check.configuration.items()
        }
        return Registered(msgspec.structs.replace(one.check, configuration=configuration), one.run)

    return [changed(check) for check in checks]


def analyze(
    bundle: Bundle, checks: Sequence[Registered], *, skip: Sequence[str] = (), limit: int = 0, log: Log
) -> Analysis:
    """Return the report of all checks except the codes in `skip`; `limit` faults of each, 0 for all."""
    skipped = {code.upper() for code in skip}
    results = []
    for check in checks:
        inspection = AuditInspection(bundle, check.check, limit, log)
        outcome = CheckOutcome.SKIP
        if check.check.code not in skipped:
            try:
                outcome = check.run(inspection)
            except (CheckSkippedError, UsageError) as failure:
                inspection.found.error = failure.text
            except (AttributeError, KeyError, TypeError, ValueError) as failure:
                inspection.found.error = f"a document of the bundle is damaged: {failure!r}"
        results.append(CheckResult(check.check, int(outcome), outcome.name, inspection.found))
    outcomes = {outcome.name: 0 for outcome in CheckOutcome}
    for result in results:
        outcomes[result.outcome_string] += 1
    now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    return Analysis(REPORT_TYPE, now, bundle.metadata, sorted(skip), [], results, outcomes)


def load_analysis(path: Path) -> Analysis:
    """Return a saved report. Raises UsageError for another file."""
    with file_errors(path, UsageError):
        content = path.read_bytes()
    try:
        found = json.loads(content)
        if not isinstance(found, dict) or found.get("type") != REPORT_TYPE:
            raise UsageError(f"{path} is no report of an audit: its type is not {REPORT_TYPE}")
        return msgspec.convert(found, Analysis)
    except (ValueError, msgspec.ValidationError) as failure:
        raise UsageError(f"{path}: {failure}") from failure


def markdown(report: Analysis, limit: int = 0) -> str:
    origin = report.metadata
    lines = [
        f"# NATS Audit Report produced {_moment(report.time)}",
        "",
        "## Connection Details",
        "",
        f"Report generated using archive from **{origin.connect_url}** by **{origin.user_name}** "
        f"created **{_moment(origin.capture_timestamp)}**",
        "",
        "## Report Summary",
        "",
        "|Status|Count|",
        "|------|-----|",
        *(f"|{name}|{report.outcomes.get(name, 0)}|" for name in ("FAIL", "WARN", "PASS", "SKIP")),
        "",
        "## Results",
    ]
    by_suite: dict[str, list[CheckResult]] = {}
    for result in report.checks:
        by_suite.setdefault(result.check.suite, []).append(result)
    for suite in sorted(by_suite):
        lines += ["", f"### Check Suite: {suite}"]
        for result in sorted(by_suite[suite], key=lambda one: one.check.code):
            lines += ["", f"#### {result.check.name}", "", f"Outcome: **{result.outcome_string}**"]
            if result.examples.error:
                lines += ["", f"Error: {_cell(result.examples.error)}"]
            shown = result.examples.examples[: limit or None]
            if shown:
                lines += ["", "|#|Example|", "|-|-------|"]
                lines += [f"|{number}|{_cell(text)}|" for number, text in enumerate(shown, 1)]
    return "\n".join(lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _moment(text: str) -> str:
    """Return a time of a report in readable form, or unchanged if it is invalid."""
    try:
        return datetime.fromtimestamp(parse_time(text) / 1e9, UTC).strftime("%d %b %y %H:%M +0000")
    except (ValueError, OverflowError, OSError):
        return text
