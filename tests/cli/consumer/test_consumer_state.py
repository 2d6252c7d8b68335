"""Pauses, resets, pins, removal, plots, lists and reports of consumers."""

import shlex
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cli.conftest import groups_of
from tests.support.commands import Run


def info_of(run: Run, name: str) -> dict[str, Any]:
    info: dict[str, Any] = run("con", "info", "ORDERS", name, "-j").json
    return info


def test_a_pause_holds_until_a_moment_and_resume_ends_it(fed: Run) -> None:
    fed("con", "add", "ORDERS", "C", "--pull")
    done = fed("con", "pause", "ORDERS", "C", "1h", "-f")
    assert done.code == 0
    assert "remaining" in done.out
    assert info_of(fed, "C")["paused"] is True
    assert fed("con", "fetch", "ORDERS", "C", "--wait", "100ms").code == 7
    resumed = fed("con", "resume", "ORDERS", "C", "-f")
    assert (resumed.code, "previously paused until" in resumed.out) == (0, True)
    assert fed("con", "resume", "ORDERS", "C").out == "Consumer ORDERS > C was not paused\n"
    assert fed("con", "fetch", "ORDERS", "C", "--no-wait", "-r").out == "1\n2\n3\n4\n5\n"


@pytest.fixture
def tokyo() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as here:
        here.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.parametrize(
    ("word", "wanted"),
    [
        ("2100-01-01T00:00:00Z", "2100-01-01T00:00:00Z"),
        ("2100-01-01 09:00:00", "2100-01-01T00:00:00Z"),
        ("2100-01-01 09:00", "2100-01-01T00:00:00Z"),
        ("2100-01-01", "2099-12-31T15:00:00Z"),
    ],
)
def test_a_moment_without_offset_is_local_and_shown_with_it(orders: Run, tokyo: None, word: str, wanted: str) -> None:
    orders("con", "add", "ORDERS", "C", "--pull")
    done = orders("con", "pause", "ORDERS", "C", word, "-j")
    assert (done.code, done.json["pause_until"]) == (0, wanted)
    assert "+09:00" in orders("con", "pause", "ORDERS", "C", word, "-f").out


def test_a_reset_delivers_again(fed: Run) -> None:
    fed("con", "add", "ORDERS", "C", "--pull")
    fed("con", "next", "ORDERS", "C", "--count", "4", "-r")
    refused = fed("con", "reset", "ORDERS", "C", "--sequence", "2")
    assert (refused.code, "--force" in refused.err) == (2, True)
    preview = fed("con", "reset", "ORDERS", "C", "--sequence", "2", "--dry-run", "-j").json
    assert preview["requests"] == [{"subject": "$JS.API.CONSUMER.RESET.ORDERS.C", "body": {"seq": 2}}]
    assert preview["effect"]["delivered_stream_seq"] == 4
    done = fed("con", "reset", "ORDERS", "C", "--sequence", "2", "-f", "-j")
    assert (done.code, done.json["reset_seq"]) == (0, 2)
    assert fed("con", "fetch", "ORDERS", "C", "--no-wait", "-r").out == "2\n3\n4\n5\n"


def test_unpin_lets_another_client_be_pinned(fed: Run) -> None:
    fed("con", "add", "ORDERS", "C", "--pinned-groups", "g", "--pinned-ttl", "1h")
    fed("con", "next", "ORDERS", "C", "-r")
    client = info_of(fed, "C")["priority_groups"][0]["pinned_client_id"]
    assert f"g: pinned to {client} since" in fed("con", "state", "ORDERS", "C").out
    assert fed("con", "find", "ORDERS", "--pinned", "-n").out == "C\n"
    done = fed("con", "unpin", "ORDERS", "C", "-f")
    assert done.out == f"Unpinned client {client} from Priority Group ORDERS > C > g\n"
    assert not info_of(fed, "C")["priority_groups"][0].get("pinned_client_id")
    assert "No client was pinned" in fed("con", "unpin", "ORDERS", "C", "g", "-f").out
    fed("con", "add", "ORDERS", "SEVERAL", "--pinned-groups", "g,h")
    assert "g, h" in fed("con", "unpin", "ORDERS", "SEVERAL").err
    fed("con", "add", "ORDERS", "PLAIN", "--pull")
    for words in (("C", "x"), ("PLAIN",)):
        assert fed("con", "unpin", "ORDERS", *words, "-f").code == 2


def test_several_consumers_are_removed_by_name_and_pattern(orders: Run) -> None:
    for name in ("A", "TMP_1", "TMP_2", "what?"):
        orders("con", "add", "ORDERS", name, "--pull")
    planned = orders("con", "rm", "ORDERS", "TMP_*", "A", "--dry-run", "-j").json
    assert [one["subject"].rpartition(".")[2] for one in planned["requests"]] == ["TMP_1", "TMP_2", "A"]
    counts = dict.fromkeys(("outstanding_acks", "unprocessed", "ack_floor_stream_seq"), 0)
    assert planned["effect"]["consumers"][0] == {"name": "TMP_1", **counts}
    assert orders("con", "rm", "ORDERS", "TMP_*").code == 2, "nobody to ask"
    done = orders("con", "rm", "ORDERS", "TMP_*", "what?", "-f", "-j")
    assert done.json == {"success": True, "removed": ["TMP_1", "TMP_2", "what?"], "missing": []}
    assert orders("con", "ls", "ORDERS", "-n").out == "A\n"


def test_what_is_absent_counts_as_removed_where_that_is_fine(orders: Run) -> None:
    assert orders("con", "rm", "ORDERS", "C", "-f").code == 3
    done = orders("con", "rm", "ORDERS", "C", "-f", "--missing-ok", "-j")
    assert (done.code, done.json) == (0, {"success": True, "removed": [], "missing": ["C"]})
    assert orders("con", "rm", "NOPE", "C", "-f", "--missing-ok").code == 0
    assert orders("con", "rm", "ORDERS", "A", "B", "-f").code == 3
    assert orders("con", "rm", "ORDERS", "X*", "-f").code == 3
    assert orders("con", "rm", "ORDERS", "X*", "-f", "--missing-ok").code == 0


def test_removing_needs_no_listing_when_forced(orders: Run) -> None:
    orders("con", "add", "ORDERS", "C", "--pull")
    done = orders("con", "rm", "ORDERS", "C", "-f", "--trace")
    asked = [line.split()[1] for line in done.err.splitlines() if line.startswith(">>>")]
    assert [one.rpartition("API.")[2].rstrip(":") for one in asked] == ["CONSUMER.DELETE.ORDERS.C"]


def test_a_graph_plots_what_is_outstanding_and_how_fast_it_goes(fed: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "40")
    fed("con", "add", "ORDERS", "C", "--pull")
    done = fed("con", "graph", "ORDERS", "C", "--count", "1")
    assert done.code == 0, done.err
    for title in ("Unprocessed Messages: 5", "Outstanding Acks: 0", "Delivered: 0/s", "Acknowledged: 0/s"):
        assert title in done.out
    assert fed("con", "graph", "ORDERS", "NOPE", "--count", "1").code == 3


def test_the_page_tells_what_the_server_says_of_groups_and_levels(orders: Run) -> None:
    orders("con", "add", "ORDERS", "C", "--pinned-groups", "g", "--pinned-ttl", "30s", "--metadata", "a=b")
    lines = [line.strip() for line in orders("con", "info", "ORDERS", "C").out.splitlines()]
    for wanted in ("Priority Policy: Pinned Client", "Pinned TTL: 30.00s", "Priority Groups: g: no client", "a: b"):
        assert wanted in lines
    assert any(line.startswith("Required API Level: 1") for line in lines)


@pytest.fixture
def three(fed: Run) -> Run:
    """A pull consumer with a lost ack, a fresh one in groups, and a push consumer."""
    fed("con", "add", "ORDERS", "WORK", "--pull", "--description", "works", "--max-deliver", "5")
    fed("con", "next", "ORDERS", "WORK", "--no-ack", "-r")
    fed("con", "add", "ORDERS", "GROUPS", "--overflow-groups", "g")
    fed("con", "add", "ORDERS", "PUSH", "--target", "out", "--ack", "none")
    return fed


def names(run: Run, *words: str) -> list[str]:
    done = run("con", "find", "ORDERS", *words, "-n")
    assert done.code == 0, done.err
    return sorted(done.out.split())


def test_find_keeps_those_for_which_every_condition_holds(three: Run) -> None:
    for words, _, found in (row.partition("  →") for row in groups_of("found.txt")["consumer"]):
        assert names(three, *shlex.split(words)) == found.split(), words


def test_find_shows_a_table_whole_objects_or_names(three: Run) -> None:
    (only,) = three("con", "find", "ORDERS", "--expression", "config.max_deliver == 5", "-j").json
    assert only["config"]["max_deliver"] == 5
    assert three("con", "find", "ORDERS", "--push", "-n", "-j").json == ["PUSH"]
    assert "PUSH" in three("con", "find", "ORDERS", "--push").out
    assert three("con", "find", "ORDERS", "--leader", "nobody").out == "No Consumers match\n"


def test_columns_are_chosen_and_sorted_by(three: Run) -> None:
    out = three("con", "ls", "ORDERS", "--columns", "name,mode", "--sort", "unprocessed", "-R").out
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in out.splitlines() if line.startswith("│")]
    assert rows[0] == ["Name", "Mode"]
    assert rows[-1] == ["WORK", "Pull"]
    wide = three("con", "ls", "ORDERS", "--wide").out
    assert "Filters" in wide
    assert "Filters" not in three("con", "ls", "ORDERS").out
    sorted_by_name = three("con", "ls", "ORDERS", "--sort", "name", "-R", "-j")
    assert sorted_by_name.json == ["WORK", "PUSH", "GROUPS"]
    whole = three("con", "ls", "ORDERS", "--sort", "name", "-R", "-j", "--details").json
    assert [one["config"]["durable_name"] for one in whole] == sorted_by_name.json
    alone = three("con", "ls", "ORDERS", "--details")
    assert (alone.code, alone.out, "-j" in alone.err) == (2, "", True)


def test_a_report_shows_where_each_consumer_stands_and_the_sums(three: Run) -> None:
    out = three("con", "report", "ORDERS").out
    assert "Consumer report for ORDERS with 3 consumers" in out
    work = next(line for line in out.splitlines() if "WORK" in line)
    assert " ".join(cell.strip() for cell in work.split("│")[1:9]) == "WORK Pull Explicit 30.00s 1 0 4 / 80% 0"
    assert "1 outstanding ack, 0 redelivered, 14 unprocessed" in out
    raw = three("con", "report", "ORDERS", "-r").out
    assert "30000000000" in raw
    assert three("con", "report", "ORDERS", "--sort", "speed").code == 2


def test_a_report_as_data_holds_whole_objects(three: Run) -> None:
    document = three("con", "report", "ORDERS", "-j", "-l").json
    assert (document["stream"], document["messages"], document["leaders"]) == ("ORDERS", 5, [])
    assert [one["name"] for one in document["consumers"]] == ["GROUPS", "PUSH", "WORK"]
    assert document["consumers"][0]["config"]["priority_groups"] == ["g"]


def test_a_report_of_nothing_and_of_a_missing_stream(orders: Run) -> None:
    assert orders("con", "report", "ORDERS").out == "No Consumers defined\n"
    assert orders("con", "report", "ORDRES").code == 3
