"""Tiers of the tests: which runs select a test, how many examples it tries, and what a tier costs.

`pytest` runs the default tier. Each other tier has a marker, which the options of pyproject.toml deselect: `pytest -m
fuzz` runs one of them, `pytest -m ""` everything. docs/CONTRIBUTING.md has the table.
"""

import os
import shutil
from collections import defaultdict
from collections.abc import Generator, Iterable
from typing import Any, Final

import pytest
from hypothesis import settings
from hypothesis.configuration import set_hypothesis_home_dir

from natsctl.api.versions import SERVER_VERSION
from natsctl.testing.process import reference_binary, reference_version

TIERS: Final = {
    "spark": "starts a Java virtual machine",
    "live": "kills servers, starts clusters, runs for long or depends on the pace of the machine",
    "docs": "examples and pages, executed",
    "reference": "runs nats-server, to compare with it; arguments name other programs that the test needs",
    "fuzz": "property, mutation and simulation tests at full size",
}
"""Marker of each tier but the default one, in order of precedence: a test counts for the first that it has."""
_SMALL: Final = 20
"""Divisor from the examples of a full run to those of the default tier."""

full = False
"""Whether property tests run at full size, which makes them part of the tier `fuzz`."""


def examples(count: int, **options: Any) -> settings:
    """Return Hypothesis settings that try `count` examples at full size, and a twentieth of them by default."""
    return settings(max_examples=count if full else max(count // _SMALL, 5), **options)


def seeds(small: int, count: int) -> Iterable[Any]:
    """Return parameters 0 … count - 1; those from `small` on belong to the tier `fuzz`."""
    return [*range(small), *(pytest.param(seed, marks=pytest.mark.fuzz) for seed in range(small, count))]


def sized(small: int, count: int) -> int:
    """Return how many rounds a loop of a test marked `sized` makes: `count` at full size, else `small`."""
    return count if full else small


def tier_of(marks: Iterable[str]) -> str:
    """Return the tier of a test with these markers."""
    present = set(marks)
    return next((tier for tier in TIERS if tier in present), "default")


class TierPlugin:
    """Assigns tests to tiers, skips what this machine cannot run, and reports what the tiers cost."""

    def __init__(self, config: pytest.Config) -> None:
        global full
        for tier, text in TIERS.items():
            config.addinivalue_line("markers", f"{tier}: {text}")
        expression = config.option.markexpr or "fuzz"
        full = bool(eval(expression, {}, defaultdict(bool, fuzz=True)))  # as pytest does for a test marked `fuzz`
        # Workers that write the same files of Hypothesis read each other's halves.
        set_hypothesis_home_dir(config.rootpath / ".hypothesis" / os.environ.get("PYTEST_XDIST_WORKER", "alone"))
        settings.register_profile("small", deadline=None, max_examples=100 // _SMALL, derandomize=True)
        settings.register_profile("full", deadline=None, max_examples=100, print_blob=True)
        settings.load_profile("full" if full else "small")
        self._config = config
        self._seconds: dict[str, float] = defaultdict(float)
        self._counts: dict[str, int] = defaultdict(int)
        self._cpu_s: dict[str, tuple[float, str, float]] = {}
        self._begun_s = self._taken_s = 0.0
        self._counts_teardown = True

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Mark the tests whose tier follows from what they are; skip what needs a program that is missing."""
        for item in items:
            for tier in _implied(item):
                item.add_marker(tier)
            if reason := _unavailable(item):
                item.add_marker(pytest.mark.skip(reason=reason))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Generator[None, object, object]:
        """Measure the CPU of a test with its fixtures and the processes that it waited for.

        What ends with the last test of a module, such as a server for all of them, is not the CPU of that test.
        """
        item.user_properties.append(("tier", tier_of(mark.name for mark in item.iter_markers())))
        item.user_properties.append(("limit", max((m.args[0] for m in item.iter_markers("cpu")), default=0.0)))
        self._begun_s = sum(os.times()[:4])
        self._counts_teardown = nextitem is not None and nextitem.path == item.path
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Add the CPU so far to the last report of a test."""
        report = yield
        if call.when != "teardown" or self._counts_teardown:
            self._taken_s = sum(os.times()[:4]) - self._begun_s
        if call.when == "teardown":
            report.user_properties.append(("cpu_s", self._taken_s))
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        known: dict[str, Any] = dict(report.user_properties)
        tier = str(known.get("tier", "default"))
        self._seconds[tier] += report.duration
        if "cpu_s" in known:
            self._counts[tier] += 1
            self._cpu_s[report.nodeid] = (float(known["cpu_s"]), tier, float(known.get("limit", 0.0)))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print a line for each tier, and the tests that take more CPU than the default tier allows."""
        bound = self._config.getoption("max_cpu_s")
        if bound is None:
            return
        terminalreporter.section("tiers")
        for tier in self._seconds:
            cpu_s = sum(cpu for cpu, of, _ in self._cpu_s.values() if of == tier)
            minutes = f"{self._seconds[tier] / 60:6.1f} worker minutes {cpu_s / 60:6.1f} of CPU"
            terminalreporter.line(f"{tier:9} {self._counts[tier]:6} tests {minutes}")
        for name, cpu_s in self.too_slow(bound):
            terminalreporter.line(f"more than {bound:g} s of CPU: {cpu_s:.1f} s {name}", red=True)

    def too_slow(self, bound: float) -> list[tuple[str, float]]:
        """Return the tests of the default tier above the bound, or above what their own mark allows."""
        rows = self._cpu_s.items()
        return [(name, cpu) for name, (cpu, tier, own) in rows if tier == "default" and cpu > max(bound, own)]

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail a run in which a test took too much."""
        bound = self._config.getoption("max_cpu_s")
        if bound is not None and self.too_slow(bound) and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _implied(item: pytest.Item) -> Iterable[str]:
    """The tiers that a test belongs to by what it uses."""
    fixtures = getattr(item, "fixturenames", ())
    values = getattr(getattr(item, "callspec", None), "params", {}).values()
    if any(value == "reference" or (isinstance(value, tuple) and "reference" in value) for value in values):
        yield "reference"
    if item.get_closest_marker("exact"):
        yield "reference"
    if "three" in fixtures:
        yield from ("live", "reference")
    if "spark" in fixtures:
        yield "spark"
    is_property = getattr(getattr(item, "obj", None), "is_hypothesis_test", False)
    if full and (is_property or item.get_closest_marker("sized")):
        yield "fuzz"


def _unavailable(item: pytest.Item) -> str:
    """Why this machine cannot run a test, "" if it can."""
    marks = list(item.iter_markers("reference"))
    if not marks:
        return ""
    if reference_binary() is None:
        return "nats-server is not on PATH"
    missing = [program for mark in marks for program in mark.args if shutil.which(program) is None]
    if missing:
        return f"{missing[0]} is not on PATH"
    if item.get_closest_marker("exact") and reference_version() != SERVER_VERSION:
        return f"nats-server is {reference_version()}, not {SERVER_VERSION}: it words errors and names differently"
    return ""
