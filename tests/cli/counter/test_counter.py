"""`natsctl counter` as a script runs it: sums of any size, where they came from, what is not a counter."""

import pytest

from tests.cli.conftest import eventually
from tests.support.commands import Run

LARGE = "340282366920938463463374607431768211456"


@pytest.fixture
def counting(natsctl: Run) -> Run:
    assert natsctl("str", "add", "HITS", "--subjects", "hits.>", "--allow-counter", "--allow-direct").code == 0
    assert natsctl("counter", "increment", "hits.a", "5").out == "5\n"
    assert natsctl("counter", "decrement", "hits.a", "2").out == "3\n"
    return natsctl


def test_a_counter_as_json_is_text_so_that_no_digit_is_lost(counting: Run) -> None:
    assert counting("ctr", "incr", "hits.big", LARGE, "-j").json["val"] == LARGE
    assert counting("ctr", "incr", "hits.big", LARGE).out.strip() == str(2 * int(LARGE))
    found = counting("ctr", "get", "hits.big", "-j").json
    assert (found["val"], found["incr"]) == (str(2 * int(LARGE)), f"+{LARGE}")
    assert (found["stream"], found["subject"], found["seq"]) == ("HITS", "hits.big", 4)


def test_one_is_added_unless_told_otherwise(counting: Run) -> None:
    assert counting("counter", "inc", "hits.new").out == "1\n"
    assert counting("counter", "dec", "hits.new").out == "0\n"


def test_the_ack_of_the_server_is_the_json_of_a_change(counting: Run) -> None:
    assert counting("counter", "d", "hits.a", "4", "-j").json == {"stream": "HITS", "seq": 3, "val": "-1"}


def test_a_view_tells_what_was_added_last(counting: Run) -> None:
    done = counting("counter", "view", "hits.a")
    assert "Value: 3\n" in done.out
    assert "Increment: -2\n" in done.out
    assert "Sequence: 2\n" in done.out


def test_a_view_tells_what_each_source_has_counted(counting: Run) -> None:
    assert counting("str", "add", "ALL", "--source", "HITS", "--allow-counter", "--allow-direct").code == 0
    assert counting("str", "info", "ALL", "-j").code == 0
    view = ("counter", "view", "hits.a", "--stream", "ALL")
    found = eventually(lambda: counting(*view, "-j"), lambda done: done.code == 0 and done.json["val"] == "3")
    assert found.json["sources"] == {"HITS": {"hits.a": "3"}}
    assert "HITS: 3 on hits.a" in counting(*view).out


def test_lists_hold_whole_counters_or_their_names(counting: Run) -> None:
    assert counting("counter", "incr", "hits.b").code == 0
    listed = counting("counter", "ls", "-j", "--details").json
    assert [(one["subject"], one["val"]) for one in listed] == [("hits.a", "3"), ("hits.b", "1")]
    assert counting("counter", "ls", "hits.b", "-n").out == "hits.b\n"
    assert counting("counter", "ls", "--stream", "HITS", "-n", "-j").json == ["hits.a", "hits.b"]
    assert counting("counter", "ls", "--stream", "HITS", "-j").json == ["hits.a", "hits.b"]
    table = counting("counter", "ls", "hits.>").out
    assert [line.split("│")[3].strip() for line in table.splitlines() if "hits." in line] == ["3", "1"]


def test_no_counters_are_an_empty_list(natsctl: Run) -> None:
    assert natsctl("counter", "ls", "-j").json == []
    done = natsctl("counter", "ls")
    assert (done.code, done.out) == (0, "")


@pytest.mark.parametrize("subject", ["hits.none", "elsewhere.x"])
def test_what_was_never_counted_is_not_found(counting: Run, subject: str) -> None:
    done = counting("counter", "get", subject, "-j")
    assert (done.code, done.out) == (3, "")
    assert done.error["subject"] == subject


def test_messages_of_another_stream_are_no_counters(natsctl: Run) -> None:
    assert natsctl("str", "add", "S", "--subjects", "s.*").code == 0
    assert natsctl("pub", "s.a", '{"val":5}', "-J").code == 0
    assert natsctl("counter", "get", "s.a").code == 2
    done = natsctl("counter", "incr", "s.a", "-j")
    assert (done.code, done.error["err_code"]) == (1, 10168)
    assert "--allow-counter" in done.error["hint"]


def test_a_dry_run_tells_the_sum_before_and_after(counting: Run) -> None:
    done = counting("counter", "incr", "hits.a", "10", "--dry-run", "-j")
    assert done.json["requests"] == [{"subject": "hits.a", "headers": {"Nats-Incr": ["+10"]}, "data": ""}]
    assert done.json["effect"] == {"stream": "HITS", "before": "3", "after": "13"}
    assert counting("counter", "get", "hits.a").out == "3\n"
