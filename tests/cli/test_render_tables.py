"""Tables in narrow and wide places: whole words as long as there is room, paragraphs where there is none."""

from __future__ import annotations

import io

import pytest

from natsctl.api.errors import UsageError
from natsctl.api.units import plural
from natsctl.cli.render.tables import Column, render_columns, render_table, selected_columns, sorted_rows
from natsctl.cli.render.text import folded

TITLES = ("Consumer", "Redelivered", "Unprocessed", "Acknowledgment Floor")
ROW = ("A_RATHER_LONG_CONSUMER_NAME", "12", "1,234,567", "1,234,000")


def drawn(width: int, titles: tuple[str, ...] = TITLES, rows: tuple[tuple[str, ...], ...] = (ROW,)) -> list[str]:
    from rich.console import Console

    out = io.StringIO()
    Console(file=out, width=width, no_color=True).print(render_table("Report", titles, rows, titles[1:]))
    return out.getvalue().splitlines()


@pytest.mark.parametrize("width", [20, 30, 40, 60, 80, 200])
def test_every_width_is_kept_to_and_no_letter_is_lost(width: int) -> None:
    lines = drawn(width)
    assert max(map(len, lines)) <= width
    letters = "".join(lines)
    for part in ("12", "1,234,567"):
        assert part in letters
    flat = "".join(char for char in letters if char.isalnum() or char == "_")
    assert flat.count("A_RATHER") == 1


def test_headers_stay_whole_while_there_is_room() -> None:
    assert any("Redelivered" in line and "Unprocessed" in line for line in drawn(70))


def test_without_room_each_row_is_a_paragraph() -> None:
    lines = drawn(30, ("Consumer", "Redelivered", "Unprocessed", "Floor"))
    assert not any("│" in line for line in lines)
    assert any(line.strip() == "Redelivered: 12" for line in lines)
    assert lines[0].strip() == "Report"
    below = [line.strip() for line in drawn(20)]
    assert below[below.index("Redelivered:") + 1] == "12", "labels that leave no room stand above"


WIDE = (
    ("ORDERS", "2026-07-20 15:23:51 +02:00", "", "what was ordered", "1,234"),
    ("ARCHIVE-OF-EVERYTHING-THAT-WAS-EVER-ORDERED", "never", "", "", "7"),
)
WIDE_TITLES = ("Name", "Created", "Placement", "Description", "Messages")


def spared(width: int, least: tuple[str, ...] = ("Description", "Created")) -> list[str]:
    from rich.console import Console

    out = io.StringIO()
    table = render_table("Streams", WIDE_TITLES, WIDE, ("Messages",), least=least, more="--columns")
    Console(file=out, width=width, no_color=True).print(table)
    return out.getvalue().splitlines()


def headings(lines: list[str]) -> list[str]:
    return [cell.strip() for cell in next(line for line in lines if "│ Name" in line).split("│")[1:-1]]


def test_where_all_has_room_all_is_shown_as_it_is() -> None:
    lines = spared(200)
    assert headings(lines) == list(WIDE_TITLES)
    assert any("15:23:51 +02:00" in line for line in lines)
    assert lines[-1].startswith("╰")


def test_empty_columns_go_first_and_nothing_is_said_of_them() -> None:
    lines = spared(111)
    assert headings(lines) == ["Name", "Created", "Description", "Messages"]
    assert any("15:23:51 +02:00" in line for line in lines)
    assert lines[-1].startswith("╰")


def test_then_times_lose_the_offset_that_all_have_which_is_told_once() -> None:
    lines = spared(96)
    assert headings(lines) == ["Name", "Created", "Description", "Messages"]
    assert any("2026-07-20 15:23:51 │" in line for line in lines)
    assert lines[-1] == "times are +02:00"


def test_then_the_least_columns_go_and_are_named() -> None:
    assert headings(spared(60)) == ["Name", "Created", "Messages"]
    assert spared(60)[-1] == "hidden columns: Description (--columns)"
    assert headings(spared(40)) == ["Name", "Messages"]
    assert " ".join(spared(46)[-2:]) == "hidden columns: Created, Description (--columns)"


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


def test_one_is_not_many() -> None:
    assert [plural(number, "message") for number in (0, 1, 1234)] == ["0 messages", "1 message", "1,234 messages"]


NUMBERS: tuple[Column[int], ...] = (
    Column("Name", lambda row: f"n{row}"),
    Column("Ack Pending", str, lambda row: row),
    Column("Extra", lambda row: "x", wide=True),
)


def test_columns_are_chosen_in_their_order_and_sorted_by_what_they_mean() -> None:
    assert [column.title for column in selected_columns(NUMBERS, None, False)] == ["Name", "Ack Pending"]
    assert [column.title for column in selected_columns(NUMBERS, None, True)] == ["Name", "Ack Pending", "Extra"]
    assert [column.title for column in selected_columns(NUMBERS, "extra ack_pending", False)] == [
        "Extra",
        "Ack Pending",
    ]
    assert sorted_rows([10, 9, 100], NUMBERS, "ack-pending", False) == [9, 10, 100]
    assert sorted_rows([10, 9, 100], NUMBERS, None, True) == [9, 100, 10]
    with pytest.raises(UsageError, match="--columns: there is no column 'nam'"):
        selected_columns(NUMBERS, "nam", False)
    assert len(render_columns("T", NUMBERS, [1]).rows) == 1
