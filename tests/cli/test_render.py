"""Values, pages, tables, messages, progress and plots as people read them; text that must not drive the terminal."""

import io
import json
import re
import time
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from natsctl.api.consumer import ConsumerConfig
from natsctl.api.errors import UnreachableError, UsageError
from natsctl.api.stream import ClusterInfo, StreamConfig
from natsctl.cli.framework.live import _Lines
from natsctl.cli.framework.output import show_page
from natsctl.cli.render import consumers, streams, text
from natsctl.cli.render.change import LABELS, changes, render_change
from natsctl.cli.render.measurements import fine
from natsctl.cli.render.message import ReceivedMessage, message_document, render_next, render_received
from natsctl.cli.render.page import Page
from natsctl.cli.render.plot import Rate, Series, counted, plot_lines, plot_text
from natsctl.cli.render.streams import render_cluster
from natsctl.cli.render.tables import Column, render_columns, render_table, selected_columns, sorted_rows
from natsctl.cli.render.text import FOREVER_NS, age_limit, body_text, duration, folded, limit, safe, when
from natsctl.cli.spark_work import Measured, _TaskMeter
from natsctl.cli.stream.transfer import StoredRows

S = 1_000_000_000


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0s"), (900, "1µs"), (431_388, "431µs"), (999_499, "999µs"), (999_500, "1ms"), (250_000_000, "250ms"),
        (999_600_000, "1.00s"), (59_996_000_000, "1m0s"), (12_340_000_000, "12.34s"), (2 * S, "2.00s"),
        (303 * S, "5m3s"), (7200 * S, "2h0m0s"), ((3 * 24 + 4) * 3600 * S, "3d4h0m0s"),
        (365 * 86400 * S, "1y0d0h0m0s"), (-2 * S, "-2.00s"), (FOREVER_NS, "never"),
    ],
)  # fmt: skip
def test_durations_are_short_and_exact_enough(ns: int, text: str) -> None:
    assert duration(ns) == text


@pytest.mark.parametrize(("ns", "text"), [(999, "999ns"), (999_499, "999µs"), (999_700, "1.00ms"), (0, "0s")])
def test_measured_times_have_three_digits(ns: int, text: str) -> None:
    assert fine(ns) == text


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


def test_the_time_that_is_left_counts_from_when_something_was_known(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 0.0
    monkeypatch.setattr("natsctl.cli.framework.live.time.monotonic", lambda: now)
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
    monkeypatch.setattr("natsctl.cli.framework.live.LINE_EVERY_S", 0.0)
    steps = ((0, 0), (1, 4), (2, 4)), ((0, 500), (5, 500))
    with _TaskMeter("Import", quiet=False, timed_tasks=False) as meter:
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

    measured = StoredRows(stored)
    assert measured() is None
    assert len(answers) == 4, "nothing is asked before the rows are counted"
    measured.total = 100
    found = [measured() for _ in range(4)]
    assert [each and each.done for each in found] == [None, 40, 40, 100]


NOW_NS = 1_767_225_600_000_000_000


def test_a_page_in_a_pipe_is_never_wrapped() -> None:
    page = Page("x")
    page.section().row("Label", "word " * 200)
    assert len(page.text().splitlines()) == 3


def test_changes_are_told_field_by_field_for_people() -> None:
    old = {"max_age": 0, "subjects": ["a"], "max_bytes": -1, "placement": {"cluster": "x"}, "sealed": False}
    new = {"max_age": 60_000_000_000, "subjects": ["a", "b"], "max_bytes": 1024, "description": "hi"}
    assert [render_change(change) for change in changes(old, new)] == [
        "max_age: unlimited → 1m0s", "subjects: a → a, b", "max_bytes: unlimited → 1.0 KiB",
        "placement.cluster: x → (none)", "description: (none) → hi",
    ]  # fmt: skip


def test_labels_of_changes_are_those_of_the_pages() -> None:
    pages = Path(streams.__file__).read_text() + Path(consumers.__file__).read_text()
    assert [label for label in LABELS.values() if f'"{label}"' not in pages] == []
    fields = {*StreamConfig.__struct_fields__, *ConsumerConfig.__struct_fields__}
    assert LABELS.keys() - fields == set()


def test_what_the_server_keeps_in_metadata_and_absent_zeros_are_no_change() -> None:
    old = {"metadata": {"_nats.ver": "1", "a": "b"}, "max_msgs": 0}
    assert changes(old, {"metadata": {"a": "b"}, "sealed": False}) == []


DELIVERED = ReceivedMessage(
    "ORDERS.processed", "$JS.ACK.ORDERS.DISPATCH.2.5.3.1500000000000000000.1", (("K", "v"),), b"order 2", NOW_NS
)


def test_a_delivered_message_tells_where_it_stands() -> None:
    assert (
        render_next(DELIVERED) == "--- received on ORDERS.processed / tries: 2 / cons seq: 3 / str seq: 5 / pending: 1"
    )
    assert (
        render_received(3, DELIVERED)
        == "[#3] Received JetStream message: stream: ORDERS seq: 5 / pending: 1 / subject: ORDERS.processed"
        " / time: 2017-07-14 02:40:00 +00:00"
    )
    plain = ReceivedMessage("a\x07", "b", (), b"", 0)
    assert render_received(1, plain, False) == '[#1] Received on "a\\x07" with reply "b"'


def test_a_message_as_data_keeps_every_byte() -> None:
    document = json.loads(json.dumps(message_document(DELIVERED)))
    assert (document["data"], document["text"], document["headers"]) == ("b3JkZXIgMg==", "order 2", {"K": ["v"]})
    assert (document["stream_seq"], document["deliveries"], document["time"]) == (5, 2, "2017-07-14T02:40:00Z")
    binary = message_document(ReceivedMessage("a", "", (), b"\xff\x00", 0))
    assert binary["data"] == "/wA="
    assert "text" not in binary


def test_a_page_is_json_of_labels_and_values_for_tests_of_the_nats_tool(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = Page("Heading")
    page.section().row("Name", "x")
    section = page.section("State")
    section.many("Sources", ["A", "B"])
    section.row("Messages", "1,000")
    page.section("Empty")
    render_cluster(page, ClusterInfo(leader="alone"))
    monkeypatch.setenv("TESTING", "true")
    show_page(page)
    assert json.loads(capsys.readouterr().out) == {
        "Header": "Heading",
        "Name": "x",
        "State": {"Sources": "A", "Messages": "1,000"},
        "Cluster Information": {"Name": "", "Leader": "alone"},
    }
    monkeypatch.setenv("TESTING", "false")
    show_page(page)
    text = capsys.readouterr().out
    assert (text.startswith("Heading\n"), "Cluster" in text) == (True, False)


TITLES = ("Consumer", "Redelivered", "Unprocessed", "Acknowledgment Floor")
ROW = ("A_RATHER_LONG_CONSUMER_NAME", "12", "1,234,567", "1,234,000")


def drawn(table: object, width: int) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width, no_color=True).print(table)
    return [line.rstrip() for line in out.getvalue().splitlines()]


def report(width: int, titles: tuple[str, ...] = TITLES) -> list[str]:
    return drawn(render_table("Report", titles, (ROW,), titles[1:]), width)


def test_headers_stay_whole_while_there_is_room() -> None:
    assert any("Redelivered" in line and "Unprocessed" in line for line in report(70))


def test_without_room_each_row_is_a_paragraph() -> None:
    lines = report(30, ("Consumer", "Redelivered", "Unprocessed", "Floor"))
    assert not any("│" in line for line in lines)
    assert any(line.strip() == "Redelivered: 12" for line in lines)
    assert lines[0].strip() == "Report"
    below = [line.strip() for line in report(20)]
    assert below[below.index("Redelivered:") + 1] == "12", "labels that leave no room stand above"


WIDE = (
    ("ORDERS", "2026-07-20 15:23:51 +02:00", "", "what was ordered", "1,234"),
    ("ARCHIVE-OF-EVERYTHING-THAT-WAS-EVER-ORDERED", "never", "", "", "7"),
)
WIDE_TITLES = ("Name", "Created", "Placement", "Description", "Messages")


def spared(width: int, least: tuple[str, ...] = ("Description", "Created")) -> list[str]:
    return drawn(render_table("Streams", WIDE_TITLES, WIDE, ("Messages",), least=least, more="--columns"), width)


def headings(lines: list[str]) -> list[str]:
    return [cell.strip() for cell in next(line for line in lines if "│ Name" in line).split("│")[1:-1]]


@pytest.mark.parametrize(
    ("width", "shown", "created", "below"),
    [
        (200, "Name Created Placement Description Messages", "15:23:51 +02:00", ""),
        (111, "Name Created Description Messages", "15:23:51 +02:00", ""),
        (96, "Name Created Description Messages", "15:23:51 │", "times are +02:00"),
        (60, "Name Created Messages", "15:23:51", "times are +02:00 hidden columns: Description (--columns)"),
        (46, "Name Messages", "", "hidden columns: Created, Description (--columns)"),
    ],
)
def test_a_narrower_table_spares_what_matters_least(width: int, shown: str, created: str, below: str) -> None:
    lines = spared(width)
    assert headings(lines) == shown.split()
    assert any(created in line for line in lines)
    assert " ".join(lines).rpartition("╯")[2].strip() == below


def test_a_column_that_went_for_nothing_comes_back() -> None:
    assert headings(spared(60, ("Messages", "Created", "Description"))) == ["Name", "Description", "Messages"]


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        ("a few words", 6, ["a few", "words"]),
        ("ARCHIVE-OF-EVERYTHING", 12, ["ARCHIVE-OF-", "EVERYTHING"]),
        ("nats://nats-1.example.net:4222,nats://b", 31, ["nats://nats-1.example.net:4222,", "nats://b"]),
        ("films/2026/the-long-name", 13, ["films/2026/", "the-long-name"]),
        ("nats://127.0.0.1:4222", 18, ["nats://127.0.0.1:", "4222"]),
        ("JSMirrorWithSubjectsErr", 14, ["JSMirrorWith", "SubjectsErr"]),
        ("1 @ 2026-07-20 15:23:51 +02:00", 27, ["1 @", "2026-07-20 15:23:51 +02:00"]),
        ("of unlimited (1.0 GiB reserved)", 18, ["of unlimited", "(1.0 GiB reserved)"]),
        ("abcdefgh", 3, ["abc", "def", "gh"]),
        ("名前名前", 5, ["名前", "名前"]),
    ],
)
def test_texts_go_on_at_their_joints(text: str, width: int, lines: list[str]) -> None:
    assert folded(text, width) == lines


NUMBERS: tuple[Column[int], ...] = (
    Column("Name", lambda row: f"n{row}"),
    Column("Ack Pending", str, lambda row: row),
    Column("Extra", lambda row: "x", wide=True),
)


def test_columns_are_chosen_in_their_order_and_sorted_by_what_they_mean() -> None:
    assert [column.title for column in selected_columns(NUMBERS, None, False)] == ["Name", "Ack Pending"]
    assert [column.title for column in selected_columns(NUMBERS, None, True)] == ["Name", "Ack Pending", "Extra"]
    chosen = selected_columns(NUMBERS, "extra ack_pending", False)
    assert [column.title for column in chosen] == ["Extra", "Ack Pending"]
    assert sorted_rows([10, 9, 100], NUMBERS, "ack-pending", False) == [9, 10, 100]
    assert sorted_rows([10, 9, 100], NUMBERS, None, True) == [9, 100, 10]
    with pytest.raises(UsageError, match="--columns: there is no column 'nam'"):
        selected_columns(NUMBERS, "nam", False)
    assert len(render_columns("T", NUMBERS, [1]).rows) == 1


ROWS = [
    ("ORDERS", "a text that has some words and goes on", "1,234"),
    ("WIDE_名前_\x1b[2J", "", "7"),
    ("X" * 40, "two\nlines", "12,345,678"),
]


def drawn_streams(width: int, *, sections: bool) -> list[str]:
    table = render_table("Streams of somebody", ("Name", "Description", "Messages"), ROWS, ("Messages",))
    if sections:
        table.add_section()
        table.add_row("Total", "", "3")
    return drawn(table, width)


@pytest.mark.parametrize("sections", [False, True])
@pytest.mark.parametrize("width", [50, 60, 80, 200])
def test_every_letter_of_a_table_is_shown_in_lines_of_one_length(width: int, sections: bool) -> None:
    title, *lines = drawn_streams(width, sections=sections)
    assert title.strip() == "Streams of somebody"
    assert {cell_len(line) for line in lines} == {cell_len(lines[0])}
    assert cell_len(lines[0]) <= width
    cells = [re.split("[│├┤]", line)[1:-1] for line in lines]
    names = "".join(row[0].strip() for row in cells if len(row) == 3)
    assert names == "NameORDERS" + "WIDE_名前_\\x1b[2J" + "X" * 40 + ("Total" if sections else "")
    assert "12,345,678" in "".join(lines)


def test_coloured_rules_leave_the_cells_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NATS_COLOR", "red")
    out = io.StringIO()
    table = render_table("T", ("Name",), [("A",)])
    Console(file=out, width=80, force_terminal=True, color_system="standard").print(table)
    assert "\x1b[31m│\x1b[0m A    \x1b[31m│\x1b[0m" in out.getvalue()


@pytest.mark.parametrize("values", [[], [0], [5], [-3, 2], [1e12, 1], [7] * 500, list(range(300))])
@pytest.mark.parametrize(("width", "height"), [(20, 5), (60, 10), (200, 2)])
def test_lines_fit_whatever_the_values_are(values: list[float], width: int, height: int) -> None:
    lines = plot_lines(values, width, height)
    assert len(lines) == height
    assert max(map(len, lines)) <= width


def test_the_largest_value_is_the_highest_bar_and_the_newest_is_last() -> None:
    lines = plot_lines([0, 8, 0, 3], 20, 2)
    bars = [line.partition("┤")[2] for line in lines]
    assert bars[0] == " █"
    assert bars[1] == "▁█▁▇"


def test_a_level_that_hardly_moves_is_seen_to_move() -> None:
    top = plot_lines([1000, 1001], 40, 4)[0].partition("┤")[2]
    assert top == " █"


def test_only_the_newest_values_are_shown() -> None:
    assert plot_lines([9] * 100 + [0] * 100, 30, 1)[0].count("▁") > 0
    assert "█" not in "".join(plot_lines([9] * 100 + [0] * 100, 30, 3))


def test_rates_come_from_counters_and_never_fall_below_zero() -> None:
    rate = Rate("r")
    for counter, at_s in ((10, 0.0), (30, 2.0), (5, 3.0)):
        rate.count(counter, at_s)
    assert list(rate.values) == [10.0, 0.0]


def test_titles_have_the_newest_value() -> None:
    series = Series("Messages")
    series.add(1234)
    assert plot_text([series], 40, 10).splitlines()[0] == "Messages: 1,234"
    assert [counted(value) for value in (0, 12.34, 1234, 123_456, 2.5e6)] == ["0", "12.3", "1,234", "123K", "2.5M"]
