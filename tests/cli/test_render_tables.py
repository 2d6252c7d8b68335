"""Tables in narrow and wide places: whole words as long as there is room, paragraphs where there is none."""

from __future__ import annotations

import io

import pytest

from natsctl.api.errors import UsageError
from natsctl.cli.render.columns import Column, chosen, ordered, render_columns
from natsctl.cli.render.table import render_table

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


NUMBERS: tuple[Column[int], ...] = (
    Column("Name", lambda row: f"n{row}"),
    Column("Ack Pending", str, lambda row: row),
    Column("Extra", lambda row: "x", wide=True),
)


def test_columns_are_chosen_in_their_order_and_sorted_by_what_they_mean() -> None:
    assert [column.title for column in chosen(NUMBERS, None, False)] == ["Name", "Ack Pending"]
    assert [column.title for column in chosen(NUMBERS, None, True)] == ["Name", "Ack Pending", "Extra"]
    assert [column.title for column in chosen(NUMBERS, "extra ack_pending", False)] == ["Extra", "Ack Pending"]
    assert ordered([10, 9, 100], NUMBERS, "ack-pending", False) == [9, 10, 100]
    assert ordered([10, 9, 100], NUMBERS, None, True) == [9, 100, 10]
    with pytest.raises(UsageError, match="--columns: there is no column 'nam'"):
        chosen(NUMBERS, "nam", False)
    assert render_columns("T", NUMBERS, [1]).row_count == 1
