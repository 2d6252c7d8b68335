"""Values as people read them, and text that must not drive the terminal."""

from __future__ import annotations

import time

import pytest

from natsctl.api.errors import UnreachableError
from natsctl.cli.live import _Lines
from natsctl.cli.render import text
from natsctl.cli.render.text import FOREVER_NS, age_limit, body_text, duration, limit, safe, when
from natsctl.cli.spark_work import Measured, _Meter
from natsctl.cli.stream.transfer import Stored

S = 1_000_000_000


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0s"),
        (900, "1µs"),
        (431_388, "431µs"),
        (250_000_000, "250ms"),
        (12_340_000_000, "12.34s"),
        (2 * S, "2.00s"),
        (303 * S, "5m3s"),
        (7200 * S, "2h0m0s"),
        ((3 * 24 + 4) * 3600 * S, "3d4h0m0s"),
        (365 * 86400 * S, "1y0d0h0m0s"),
        (-2 * S, "-2.00s"),
        (FOREVER_NS, "never"),
    ],
)
def test_durations_are_short_and_exact_enough(ns: int, text: str) -> None:
    assert duration(ns) == text


def test_no_limit_is_a_word() -> None:
    assert [limit(-1), limit(0), limit(1234567)] == ["unlimited", "unlimited", "1,234,567"]
    assert [age_limit(0), age_limit(60 * S)] == ["unlimited", "1m0s"]


def test_control_characters_in_names_are_shown_and_not_obeyed() -> None:
    assert safe("a\x1b[31mb\rc\nd") == "a\\x1b[31mb\\x0dc\\x0ad"
    assert safe("x\u202ey\u2066z\x9b") == "x\\u202ey\\u2066z\\x9b"
    assert safe("Bestellung №7 [bold]") == "Bestellung №7 [bold]"


def test_bodies_keep_lines_and_tabs_but_obey_nothing() -> None:
    assert body_text(b"a\tb\r\nc\x1b]0;x\x07\xff") == "a\tb\nc\\x1b]0;x\\x07\\xff"


def test_times_are_local_with_their_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    try:
        assert when("2026-07-20T13:23:51.9Z") == "2026-07-20 18:53:51 +05:30"
        assert text.exact_stamp(1_500_000_000_123_456_789) == "Jul 14 08:10:00.123456"
    finally:
        monkeypatch.undo()
        time.tzset()
    assert when("0001-01-01T00:00:00Z") == "never"


def test_ages_never_are_negative() -> None:
    assert text.ago("2026-01-01T00:00:10Z", 0) == "0s"
    assert text.ago("1970-01-01T00:00:01Z", 3 * S) == "2.00s"
    assert text.ago(None, 3 * S) == "never"


def test_what_has_not_begun_tells_no_time_that_is_left() -> None:
    lines = _Lines("Query", 4, "tasks")
    assert lines._figures(0, 0, 2.0) == "0% of 4 tasks"
    assert lines._figures(1, 1, 2.0) == "25% of 4 tasks, 0 tasks/s, 6.00s left"


def test_the_time_that_is_left_counts_from_when_something_was_known(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 0.0
    monkeypatch.setattr("natsctl.cli.live.time.monotonic", lambda: now)
    lines = _Lines("Import", None, "messages")
    now = 60.0
    lines.at(100, 500)
    now = 64.0
    lines.at(300, 500)
    first, second = capsys.readouterr().err.splitlines()
    assert first.endswith("Import: 20% of 500 messages")
    assert second.endswith("Import: 60% of 500 messages, 50 messages/s, 4.00s left")


def test_work_that_is_measured_in_another_unit_gets_another_bar(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("natsctl.cli.live.LINE_EVERY_S", 0.0)
    steps = ((0, 0), (1, 4), (2, 4)), ((0, 500), (5, 500))
    with _Meter("Import", quiet=False, timed_tasks=False) as meter:
        for unit, some in zip(("tasks", "messages"), steps, strict=True):
            for done, total in some:
                meter.show(Measured(unit, done, total))
    tasks, more_tasks, first, second = capsys.readouterr().err.splitlines()
    assert tasks.endswith("Import: 25% of 4 tasks")
    assert more_tasks.endswith("Import: 50% of 4 tasks"), "their number grows: no time can be made of them"
    assert first.endswith("Import: 0% of 500 messages")
    assert second.endswith("left")


def test_an_import_goes_on_when_the_server_cannot_be_asked_how_far_it_is() -> None:
    answers: list[int | Exception] = [0, 40, UnreachableError("away"), 200]

    def stored() -> int:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    measured = Stored(stored)
    assert measured() is None
    assert len(answers) == 4, "nothing is asked before the rows are counted"
    measured.total = 100
    found = [measured() for _ in range(4)]
    assert [each and each.done for each in found] == [None, 40, 40, 100]
