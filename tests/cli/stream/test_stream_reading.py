"""Messages of streams: views, gaps, plots, searches, and what takes them away."""

import shlex
import time
from typing import Any

import pytest

from natsctl.api.times import parse_time
from tests.cli.conftest import groups_of
from tests.support.commands import Run


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


def test_gaps_are_ranges_in_every_form(filled: Run) -> None:
    assert filled("str", "gaps", "S", "-j").json == [[3, 4], [6, 6]]
    assert filled("str", "gaps", "S", "--json").json == [[3, 4], [6, 6]]
    assert "2 gaps found in Stream S" in filled("str", "gaps", "S").out
    filled("str", "add", "FULL", "--subjects", "f")
    assert filled("str", "gaps", "FULL", "-j").json == []
    assert filled("str", "gaps", "FULL").out == "No deleted messages in FULL\n"


@pytest.mark.ours("how messages are shown")
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


@pytest.mark.ours("how messages are shown")
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


@pytest.mark.ours("how messages are shown")
def test_a_person_turns_pages(person: Run, filled: Run) -> None:
    one = person("str", "view", "S", "4")
    one.sees("[7] Subject")
    one.answers("Next Page?", "\r")
    one.sees("[9] Subject")
    status, screen = one.end()
    assert (status, "Reached apparent end of data" in screen) == (0, True)
    one = person("str", "view", "S", "4")
    one.answers("Next Page?", "\x03")
    assert one.end()[0] == 130


READS: list[tuple[str, ...]] = [(), ("--direct",)]
"""Through an ordered consumer, and by direct gets."""


@pytest.fixture
def orders(natsctl: Run) -> Run:
    natsctl("str", "add", "S", "--subjects", "s.>", "--allow-direct")
    for number in (1, 2, 3):
        body = f'{{"total": {number}00, "items": [{{"sku": "a{number}"}}], "note": "Größe"}}'
        natsctl("pub", "s.new", body, "-H", f"Kind:k{number}", "-H", "Trace: t", "-q", "-J")
    natsctl("pub", "s.text", "plain Text (x)", "-q", "-J")
    natsctl("pub", "s.bare", "null", "-H", "Nats-Sequence:77", "-q", "-J")
    natsctl("str", "rmm", "S", "2", "-f")
    natsctl("pub", "s.new", '{"total": "many"}', "-q", "-J")
    return natsctl


def found(run: Run, *words: str) -> list[int]:
    done = run("str", "search", "S", *words, "-j")
    assert done.code in (0, 7), done
    assert (done.code == 7) == (not done.lines), done
    return [one["seq"] for one in done.lines]


@pytest.mark.parametrize("way", READS)
def test_messages_are_found_by_what_they_are(orders: Run, way: tuple[str, ...]) -> None:
    for words, _, seqs in (row.partition("  →") for row in groups_of("found.txt")["messages"]):
        assert found(orders, *shlex.split(words), *way) == [*map(int, seqs.split())], words


def test_found_messages_are_shown_as_they_are_stored(orders: Run) -> None:
    for way in READS:
        done = orders("str", "grep", "S", "a1", *way)
        assert done.out.startswith("Item: S#1 received ")
        assert 'on Subject s.new\nKind: k1\nTrace: t\n\n{"total": 100,' in done.out
        assert done.err == "5 messages of Stream S searched, 1 found\n"
        assert orders("str", "search", "S", "--subject", "s.text", "--raw", *way).out == "plain Text (x)\n"
        (one,) = orders("str", "search", "S", "--seq", "5", "-j", *way).lines
        assert one == orders("str", "get", "S", "5", "-j").json
    assert orders("con", "ls", "S", "-n").out == ""


def test_a_search_counts_and_says_when_nothing_is_there(orders: Run) -> None:
    done = orders("str", "search", "S", "total", "--total")
    assert (done.code, done.out, done.err) == (0, "3\n", "")
    assert orders("str", "search", "S", "total", "--total", "-j").json == {"matches": 3, "searched": 5}
    done = orders("str", "search", "S", "zzz", "--total")
    assert (done.code, done.out) == (7, "0\n")
    done = orders("str", "search", "S", "zzz", "-j")
    assert (done.code, done.out) == (7, "")
    assert done.error["description"] == "no message matches: 5 messages of Stream S searched"
    assert orders("str", "search", "S", "--since", time.strftime("%Y-01-01"), "--seq", "1-1", "--total").out == "1\n"


@pytest.mark.parametrize("retention", ["interest", "workqueue"])
@pytest.mark.parametrize("direct", ["--allow-direct", "--no-allow-direct"])
def test_a_search_takes_nothing_from_a_queue(natsctl: Run, retention: str, direct: str) -> None:
    natsctl("str", "add", "Q", "--subjects", "q.*", "--retention", retention, direct)
    natsctl("con", "add", "Q", "C", "--pull")
    natsctl("pub", "q.a", "x{{Count}}", "--count", "3", "-q", "-J")
    natsctl("pub", "q.b", "x", "-H", "K:v", "-q", "-J")
    for words, seqs in (
        (("x",), [1, 2, 3, 4]),
        (("--subject", "q.b", "--subject", "q.c"), [4]),
        (("x", "--seq", "2-3", "--since", "1h"), [2, 3]),
        (("--header", "K", "--since", "1h"), [4]),
    ):
        assert [one["seq"] for one in natsctl("str", "search", "Q", *words, "-j").lines] == seqs
    assert natsctl("str", "info", "Q", "-j").json["state"]["messages"] == 4
    assert natsctl("con", "info", "Q", "C", "-j").json["num_ack_pending"] == 0


@pytest.fixture
def ten(natsctl: Run) -> Run:
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
def test_a_dry_run_knows_what_a_purge_then_removes(ten: Run, words: tuple[str, ...], effect: dict[str, int]) -> None:
    planned = ten("str", "purge", "S", *words, "--dry-run", "-j").json
    told = planned["effect"]
    told.pop("bytes_about", None)
    assert told == effect
    assert ten("str", "info", "S", "-j").json["state"]["messages"] == 9
    assert ten("str", "purge", "S", *words, "-f", "-j").json["purged"] == effect["messages"]


def test_counting_needs_no_direct_gets(ten: Run) -> None:
    ten("str", "edit", "S", "--no-allow-direct", "-f")
    assert ten("str", "purge", "S", "--seq", "4", "--dry-run", "-j").json["effect"]["messages"] == 2
    bounded = ten("str", "purge", "S", "--seq", "9", "--subject", "s.b", "--dry-run", "-j").json["effect"]
    assert bounded["messages_at_most"] == 4


def test_messages_go_by_age(ten: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    ten("pub", "s.a", "new", "--count", "2", "-q", "-J")
    last_old, first_new = (parse_time(ten("str", "get", "S", seq, "-j").json["time"]) for seq in ("10", "11"))
    now_ns = (last_old + first_new) // 2 + 3_500_000_000
    monkeypatch.setattr(time, "time_ns", lambda: now_ns)
    done = ten("str", "purge", "S", "--older-than", "3500ms", "-f", "-j")
    assert done.json["purged"] == 9
    state = ten("str", "info", "S", "-j").json["state"]
    assert (state["messages"], state["first_seq"]) == (2, 11)
    assert ten("str", "purge", "S", "--older-than", "1h", "-f", "-j").json["purged"] == 0


def test_several_streams_are_purged_by_pattern_and_only_by_force(ten: Run) -> None:
    ten("str", "add", "S2", "--subjects", "t")
    ten("str", "add", "KV_S", "--subjects", "$KV.S.>")
    ten("pub", "$KV.S.a", "x", "-q", "-J")
    assert ten("str", "purge", "S*").code == 2
    planned = ten("str", "purge", "S*", "--dry-run", "-j").json
    assert [one["subject"] for one in planned["requests"]] == ["$JS.API.STREAM.PURGE.S", "$JS.API.STREAM.PURGE.S2"]
    assert (planned["effect"]["messages"], list(planned["effect"]["streams"])) == (9, ["S", "S2"])
    done = ten("str", "purge", "S*", "*2", "-f", "-j")
    assert [(one["stream"], one["purged"]) for one in done.json] == [("S", 9), ("S2", 0)]
    assert ten("str", "info", "KV_S", "-j").json["state"]["messages"] == 1
    assert ten("str", "purge", "NO*", "-f").code == 3


def test_removing_tells_what_is_lost_and_takes_several(ten: Run) -> None:
    planned = ten("str", "rm", "S", "--dry-run", "-j").json
    assert (planned["effect"]["messages"], planned["effect"]["consumers"]) == (9, 0)
    refused = ten("str", "rm", "S")
    assert refused.code == 2
    assert "cannot ask whether to delete Stream S" in refused.err
    ten("str", "add", "T", "--subjects", "t")
    done = ten("str", "rm", "S", "T", "-f", "-j")
    assert [one["stream"] for one in done.json] == ["S", "T"]
    assert ten("str", "ls", "-n").out == ""


def test_what_is_missing_may_be_missing(natsctl: Run) -> None:
    assert natsctl("str", "rm", "NOPE", "-f").code == 3
    done = natsctl("str", "rm", "NOPE", "-f", "--missing-ok", "-j")
    assert (done.code, done.json) == (0, {"success": True})
    assert natsctl("str", "rm", "NO*", "--missing-ok", "-f").code == 0
    natsctl("str", "add", "S", "--subjects", "s")
    assert natsctl("str", "rmm", "S", "5", "-f").code == 3
    assert natsctl("str", "rmm", "S", "5", "-f", "--missing-ok", "-j").json == {"success": True}


def test_a_sealed_stream_stays_so_and_a_refusal_is_told(ten: Run) -> None:
    assert ten("str", "seal", "S").code == 2
    assert ten("str", "seal", "S", "--dry-run", "-j").json["requests"][0]["body"]["sealed"] is True
    assert ten("str", "seal", "S", "-f", "-j").json["config"]["sealed"] is True
    again = ten("str", "seal", "S", "-f")
    assert (again.code, "sealed already" in again.err) == (0, True)
    assert ten("str", "purge", "S", "-f").code == 1
    assert ten("str", "seal", "NOPE", "-f").code == 3
