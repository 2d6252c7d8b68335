"""Messages of streams: views, gaps, plots, translations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Run = Callable[..., Any]


@pytest.fixture
def filled(natsctl: Run) -> Run:
    natsctl("str", "add", "S", "--subjects", "s.*")
    natsctl("pub", "s.a", "{{Count}}", "--count", "8", "-q", "-J")
    natsctl("pub", "s.b", "last\x1b[2J", "-q", "-J", "-H", "K:V")
    for seq in ("3", "4", "6"):
        natsctl("str", "rmm", "S", seq, "-f")
    return natsctl


def test_a_view_in_a_pipe_is_everything(filled: Run) -> None:
    done = filled("str", "view", "S", "3")
    shown = [line.split()[0] for line in done.out.splitlines() if line.startswith("[")]
    assert shown == ["[1]", "[2]", "[5]", "[7]", "[8]", "[9]"]
    assert "Reached apparent end of data" in done.err
    assert filled("con", "ls", "S", "-n").out == ""


def test_a_view_begins_where_it_is_told(filled: Run) -> None:
    assert [one["seq"] for one in filled("str", "view", "S", "2", "--id", "6", "-j").lines] == [7, 8, 9]
    assert [one["seq"] for one in filled("str", "view", "S", "--subject", "s.b", "-j").lines] == [9]
    assert len(filled("str", "view", "S", "50", "--since", "1h", "-j").lines) == 6
    assert filled("str", "view", "S", "2", "--raw", "--subject", "s.a").out.startswith("1\n2\n")
    done = filled("str", "view", "S", "--id", "9")
    assert "K: V" in done.out
    assert "last\x1b[2J\n" in done.out
    assert "Reached apparent end of data" in done.err
    assert filled("str", "view", "S", "--id", "9", "--since", "1h").code == 2
    assert filled("str", "view", "NOPE").code == 3


@pytest.mark.parametrize("retention", ["interest", "workqueue"])
def test_a_view_takes_nothing_from_a_queue(natsctl: Run, retention: str) -> None:
    natsctl("str", "add", "Q", "--subjects", "q", "--retention", retention)
    natsctl("con", "add", "Q", "C", "--pull")
    natsctl("pub", "q", "x", "--count", "3", "-q", "-J")
    assert len(natsctl("str", "view", "Q", "-j").lines) == 3
    assert natsctl("str", "info", "Q", "-j").json["state"]["messages"] == 3


def test_bodies_are_translated(filled: Run) -> None:
    assert filled("str", "get", "S", "5", "--translate", "sed s/^/{{Subject}}=/").out.endswith("\n\ns.a=5\n\n")
    assert filled("str", "view", "S", "1", "--raw", "--translate", "tr 1 9").out.startswith("9\n")


def test_gaps_are_ranges_in_every_form(filled: Run) -> None:
    assert filled("str", "gaps", "S", "-j").json == [[3, 4], [6, 6]]
    assert filled("str", "gaps", "S", "--json").json == [[3, 4], [6, 6]]
    assert "2 gaps found in Stream S" in filled("str", "gaps", "S").out
    filled("str", "add", "FULL", "--subjects", "f")
    assert filled("str", "gaps", "FULL", "-j").json == []
    assert filled("str", "gaps", "FULL").out == "No deleted messages in FULL\n"


def test_gaps_are_found_where_the_server_names_only_some(filled: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from natsctl.client.manager import Manager

    whole = Manager.stream_info

    async def cut(manager: Manager, stream: str, **more: Any) -> Any:
        answer = await whole(manager, stream, **more)
        if answer.raw["state"].get("deleted"):
            answer.raw["state"]["deleted"] = answer.raw["state"]["deleted"][:1]
        return answer

    monkeypatch.setattr(Manager, "stream_info", cut)
    assert filled("str", "gaps", "S", "-f", "-j").json == [[3, 4], [6, 6]]
    assert filled("con", "ls", "S", "-n").out == ""


def test_a_plot_ends_after_its_looks_and_needs_room(filled: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("LINES", "30")
    out = filled("str", "graph", "S", "--count", "2", "--watch", "100ms").out
    assert out.count("Stream S") == 2
    assert "Messages: 6" in out
    assert "Messages Stored: 0/s" in out
    without_end = filled("str", "graph", "S")
    assert (without_end.code, "--count" in without_end.err) == (2, True)
    monkeypatch.setenv("COLUMNS", "15")
    assert filled("str", "graph", "S", "--count", "1").code == 2


def test_a_person_turns_pages(person: Callable[..., Any], filled: Run) -> None:
    one = person("str", "view", "S", "4")
    one.sees("[7] Subject")
    one.answers("Next Page?", "\r")
    one.sees("[9] Subject")
    status, screen = one.end()
    assert (status, "Reached apparent end of data" in screen) == (0, True)
    one = person("str", "view", "S", "4")
    one.answers("Next Page?", "\x03")
    assert one.end()[0] == 130
