"""What takes messages and streams away: told before it happens, by age and by pattern, never by surprise."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from natsctl.api.times import parse_time

Run = Callable[..., Any]


@pytest.fixture
def filled(natsctl: Run) -> Run:
    natsctl("str", "add", "S", "--subjects", "s.*")
    natsctl("pub", "s.a", "x", "--count", "6", "-q", "-J")
    natsctl("pub", "s.b", "x", "--count", "4", "-q", "-J")
    natsctl("str", "rmm", "S", "2", "-f")
    return natsctl


@pytest.mark.parametrize(
    ("words", "effect"),
    [
        ((), {"messages": 9, "first_seq": 1, "last_seq": 10}),
        (("--subject", "s.b"), {"messages": 4, "first_seq": 7, "last_seq": 10}),
        (("--subject", "nothing"), {"messages": 0}),
        (("--keep", "3"), {"messages": 6, "first_seq": 1}),
        (("--keep", "100"), {"messages": 0}),
        (("--seq", "4"), {"messages": 2, "first_seq": 1}),
        (("--seq", "9", "--subject", "s.b"), {"messages": 2, "first_seq": 7}),
        (("--seq", "100"), {"messages": 9, "first_seq": 1, "last_seq": 10}),
        (("--keep", "1", "--subject", "s.a"), {"messages": 4, "first_seq": 1}),
        (("--older-than", "1h"), {"messages": 0}),
    ],
)
def test_a_dry_run_knows_what_a_purge_then_removes(filled: Run, words: tuple[str, ...], effect: dict[str, int]) -> None:
    planned = filled("str", "purge", "S", *words, "--dry-run", "-j").json
    told = planned["effect"]
    told.pop("bytes_about", None)
    assert told == effect
    assert filled("str", "info", "S", "-j").json["state"]["messages"] == 9
    assert filled("str", "purge", "S", *words, "-f", "-j").json["purged"] == effect["messages"]


def test_counting_needs_no_direct_gets(filled: Run) -> None:
    filled("str", "edit", "S", "--no-allow-direct", "-f")
    assert filled("str", "purge", "S", "--seq", "4", "--dry-run", "-j").json["effect"]["messages"] == 2
    bounded = filled("str", "purge", "S", "--seq", "9", "--subject", "s.b", "--dry-run", "-j").json["effect"]
    assert bounded["messages_at_most"] == 4


def test_messages_go_by_age(filled: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    filled("pub", "s.a", "new", "--count", "2", "-q", "-J")
    last_old, first_new = (parse_time(filled("str", "get", "S", seq, "-j").json["time"]) for seq in ("10", "11"))
    now_ns = (last_old + first_new) // 2 + 3_500_000_000
    monkeypatch.setattr(time, "time_ns", lambda: now_ns)
    done = filled("str", "purge", "S", "--older-than", "3500ms", "-f", "-j")
    assert done.json["purged"] == 9
    state = filled("str", "info", "S", "-j").json["state"]
    assert (state["messages"], state["first_seq"]) == (2, 11)
    assert filled("str", "purge", "S", "--older-than", "1h", "-f", "-j").json["purged"] == 0


def test_what_would_go_is_told_before(filled: Run) -> None:
    assert filled("str", "purge", "S", "--subject", "s.b").code == 2
    told = filled("str", "purge", "S", "--subject", "s.b", "--dry-run").out
    assert "messages: 4" in told
    assert "first seq: 7\nlast seq: 10" in told
    assert "Purged 4 messages" in filled("str", "purge", "S", "--subject", "s.b", "-f").err


def test_several_streams_are_purged_by_pattern_and_only_by_force(filled: Run) -> None:
    filled("str", "add", "S2", "--subjects", "t")
    filled("str", "add", "KV_S", "--subjects", "$KV.S.>")
    filled("pub", "$KV.S.a", "x", "-q", "-J")
    assert filled("str", "purge", "S*").code == 2
    planned = filled("str", "purge", "S*", "--dry-run", "-j").json
    assert [one["subject"] for one in planned["requests"]] == ["$JS.API.STREAM.PURGE.S", "$JS.API.STREAM.PURGE.S2"]
    assert (planned["effect"]["messages"], list(planned["effect"]["streams"])) == (9, ["S", "S2"])
    done = filled("str", "purge", "S*", "*2", "-f", "-j")
    assert [(one["stream"], one["purged"]) for one in done.json] == [("S", 9), ("S2", 0)]
    assert filled("str", "info", "KV_S", "-j").json["state"]["messages"] == 1
    assert filled("str", "purge", "NO*", "-f").code == 3


def test_removing_tells_what_is_lost_and_takes_several(filled: Run) -> None:
    planned = filled("str", "rm", "S", "--dry-run", "-j").json
    assert (planned["effect"]["messages"], planned["effect"]["consumers"]) == (9, 0)
    refused = filled("str", "rm", "S")
    assert refused.code == 2
    assert "cannot ask whether to delete Stream S" in refused.err
    filled("str", "add", "T", "--subjects", "t")
    done = filled("str", "rm", "S", "T", "-f", "-j")
    assert [one["stream"] for one in done.json] == ["S", "T"]
    assert filled("str", "ls", "-n").out == ""


def test_what_is_missing_may_be_missing(natsctl: Run) -> None:
    assert natsctl("str", "rm", "NOPE", "-f").code == 3
    done = natsctl("str", "rm", "NOPE", "-f", "--missing-ok", "-j")
    assert (done.code, done.json) == (0, {"success": True})
    assert natsctl("str", "rm", "NO*", "--missing-ok", "-f").code == 0
    natsctl("str", "add", "S", "--subjects", "s")
    assert natsctl("str", "rmm", "S", "5", "-f").code == 3
    assert natsctl("str", "rmm", "S", "5", "-f", "--missing-ok", "-j").json == {"success": True}


def test_a_sealed_stream_stays_so_and_a_refusal_is_told(filled: Run) -> None:
    assert filled("str", "seal", "S").code == 2
    assert filled("str", "seal", "S", "--dry-run", "-j").json["requests"][0]["body"]["sealed"] is True
    assert filled("str", "seal", "S", "-f", "-j").json["config"]["sealed"] is True
    again = filled("str", "seal", "S", "-f")
    assert (again.code, "sealed already" in again.err) == (0, True)
    assert filled("str", "purge", "S", "-f").code == 1
    assert filled("str", "seal", "NOPE", "-f").code == 3


def test_whole_streams_go_only_when_their_name_is_typed(person: Callable[..., Any], filled: Run) -> None:
    one = person("str", "rm", "S")
    one.sees("Stream S holds 9 messages")
    one.answers("Really delete Stream S: type S to do it", "y\r")
    one.sees("y is not S")
    one.child.send("\x15\r")
    assert one.end()[0] == 0
    assert filled("str", "info", "S").code == 0
    one = person("str", "purge", "S")
    one.sees("9 messages of Stream S would be removed")
    one.answers("type S to do it", "S\r")
    assert one.end()[0] == 0
    assert filled("str", "info", "S", "-j").json["state"]["messages"] == 0
