"""Lists, reports and searches of streams, and the subjects that they hold."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import msgspec
import pytest

from natsctl.cli.render.streams import dot_graph, flows, leaders_of, replicas
from natsctl.cli.stream.reports import StreamReport
from tests.cli.conftest import groups_of
from tests.support.commands import Run


@pytest.fixture
def filled(natsctl: Run) -> Run:
    natsctl("str", "add", "BIG", "--subjects", "b.*", "--storage", "memory")
    natsctl("str", "add", "EMPTY", "--subjects", "e", "--description", "nothing [red]here")
    natsctl("str", "add", "COPY", "--mirror", "EMPTY")
    natsctl("str", "add", "ALL", "--source", '{"name": "EMPTY", "filter_subject": "e"}')
    natsctl("str", "add", "KV_b", "--subjects", "$KV.b.>")
    natsctl("pub", "b.one", "x" * 100, "--count", "5", "-q", "-J")
    natsctl("pub", "b.two", "x" * 100, "--count", "2", "-q", "-J")
    natsctl("con", "add", "BIG", "C", "--pull")
    return natsctl


def names(done: Any) -> list[str]:
    return [one["config"]["name"] for one in done.json]


def test_lists_are_sorted_chosen_and_turned_round(filled: Run) -> None:
    assert names(filled("str", "ls", "-j", "--details"))[-1] == "BIG"
    assert filled("str", "ls", "--sort", "messages", "-r", "-j").json[0] == "BIG"
    assert filled("str", "ls", "-j").json == ["ALL", "BIG", "COPY", "EMPTY"]
    assert filled("str", "ls", "-j", "-R").json == ["EMPTY", "COPY", "BIG", "ALL"]
    by_name = names(filled("str", "ls", "--sort", "name", "-j", "--details", "-a"))
    assert by_name == ["ALL", "BIG", "COPY", "EMPTY", "KV_b"] == filled("str", "ls", "-j", "-a").json
    alone = filled("str", "ls", "--details")
    assert (alone.code, alone.out, "-j" in alone.err) == (2, "", True)
    assert filled("str", "ls", "-n", "-r").out == "KV_b\nEMPTY\nCOPY\nBIG\nALL\n"
    lines = filled("str", "ls", "--columns", "name,storage,subjects").out.splitlines()
    assert [cell.strip() for cell in lines[2].strip("│").split("│")] == ["Name", "Storage", "Subjects"]
    assert "Retention" in filled("str", "ls", "--wide").out
    # As the tool takes its group's flag: before the verb, and with verbs that list nothing.
    assert filled("ms", "-a", "ls", "-j").json == ["ALL", "BIG", "COPY", "EMPTY", "KV_b"]
    assert filled("str", "-a", "state", "BIG").code == filled("str", "info", "BIG", "--all").code == 0
    assert filled("str", "ls", "--subject", "e", "-n").out == "EMPTY\n"


def test_lists_are_narrowed_by_patterns_of_names(filled: Run) -> None:
    assert filled("str", "ls", "*B*", "-n").out == "BIG\n"
    assert filled("str", "ls", "KV_*", "-j").json == ["KV_b"]
    assert filled("str", "ls", "Z*").out == "No Streams match Z*\n"


@pytest.mark.ours("how lists are shown")
def test_an_empty_list_says_what_it_left_out(natsctl: Run) -> None:
    assert (natsctl("str", "ls").out, natsctl("str", "ls", "-j").json) == ("No Streams defined\n", [])
    natsctl("str", "add", "KV_b", "--subjects", "$KV.b.>")
    assert natsctl("str", "ls").out == "No Streams defined, pass -a to include system streams\n"
    assert natsctl("str", "report", "-j").json["totals"]["streams"] == 1, "reports have all streams, as those of nats"


def test_a_report_has_totals_and_what_is_copied(filled: Run) -> None:
    out = filled("str", "report").out
    total = next(line for line in out.splitlines() if "Total" in line)
    assert [cell.strip() for cell in total.strip("│").split("│")][3:5] == ["1", "7"]
    assert "Replication Report" in out
    assert out.index("COPY") < out.index("Mirror")
    document = filled("str", "report", "-j").json
    assert (document["totals"]["messages"], document["totals"]["streams"]) == (7, 5)
    assert [one["config"]["name"] for one in document["streams"]][-1] == "BIG"
    msgspec.convert(document, StreamReport)


ORDERS = (
    (("-n",), "ALL"), (("-m", "-R"), "BIG"), (("-o", "-R"), "BIG"), (("-t", "-R"), "BIG"),
    (("--sort", "bytes"), "ALL"),
)  # fmt: skip


def test_a_report_is_sorted_by_its_flags(filled: Run) -> None:
    for words, first in ORDERS:
        assert filled("str", "report", *words, "-j").json["streams"][0]["config"]["name"] == first, words
    lines = filled("str", "report", "--sort", "messages", "--columns", "Stream,Messages").out
    assert (lines.count("Bytes"), re.search(r"BIG\W+7\b", lines) is not None) == (0, True)


@pytest.mark.ours("how lists are shown")
def test_raw_rows_have_as_many_cells_as_the_head(filled: Run) -> None:
    lines = filled("str", "report", "--raw", "-l").out.splitlines()
    rows = [line for line in lines if line.startswith("│") and "Mirror" not in line and "Source" not in line]
    assert len({line.count("│") for line in rows}) == 1
    big = next(line for line in rows if " BIG " in line)
    size = filled("str", "info", "BIG", "-j").json["state"]["bytes"]
    assert f" {size} " in big


@pytest.mark.ours("how lists are shown")
def test_a_graph_of_what_is_copied_is_written(filled: Run, tmp_path: Path) -> None:
    path = tmp_path / "streams.dot"
    assert filled("str", "report", "--dot", str(path)).code == 0
    text = path.read_text()
    assert text.startswith("digraph")
    assert text.count(" -> ") == 2
    assert 'label="Source, e"' in text
    assert filled("str", "report", "--dot", "-").out == text
    assert filled("str", "report", "--dot", str(tmp_path)).code == 2


@pytest.mark.ours("how lists are shown")
def test_a_report_that_is_watched_is_shown_again(filled: Run) -> None:
    done = filled("str", "report", "--watch", "100ms", "--count", "2")
    assert (done.code, done.out.count("Stream Report")) == (0, 2)
    first, second = filled("str", "report", "--watch", "100ms", "--count", "2", "-j").lines
    assert [one["config"]["name"] for one in first["streams"]] == [one["config"]["name"] for one in second["streams"]]
    assert first["totals"]["streams"] >= 4


def test_streams_are_found_by_what_they_are(filled: Run) -> None:
    for words, _, found in (row.partition("  →") for row in groups_of("found.txt")["stream"]):
        assert sorted(filled("str", "find", *shlex.split(words), "-n", "-j").json) == found.split(), words


def test_a_search_shows_tables_names_and_whole_objects(filled: Run) -> None:
    assert filled("str", "find", "--mirrored", "-n").out == "COPY\n"
    assert "╭" in filled("str", "find", "--mirrored").out
    assert filled("str", "find", "--created", "1h").out == "No Streams meet the criteria\n"
    assert filled("str", "find", "--mirrored", "-j").json[0]["config"]["mirror"] == {"name": "EMPTY"}


def test_subjects_are_counted_sorted_and_named(filled: Run) -> None:
    assert filled("str", "subjects", "BIG", "-j").json == {"b.two": 2, "b.one": 5}
    assert list(filled("str", "subjects", "BIG", "--sort", "name", "-j").json) == ["b.one", "b.two"]
    assert filled("str", "subj", "BIG", "-R", "--names").out == "b.one\nb.two\n"
    assert filled("str", "subj", "BIG", "*.two", "-j").json == {"b.two": 2}
    assert "2 Subjects in stream BIG" in filled("str", "subj", "BIG").out
    assert filled("str", "subj", "EMPTY").out == "No subjects match > in Stream EMPTY\n"
    assert filled("str", "subj", "EMPTY", "-j").json == {}
    assert filled("str", "subj", "BIGG").code == 3


@pytest.mark.ours("how lists are shown")
def test_streams_that_do_not_answer_are_rows_with_a_reason(natsctl: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from natsctl.client.manager import Manager
    from natsctl.client.requests import Listing

    async def stream_list(manager: Manager, **_: Any) -> Listing[Any]:
        return Listing([], {"streams": [], "missing": ["LOST"], "offline": {"OLD": "needs level 9"}})

    monkeypatch.setattr(Manager, "stream_list", stream_list)
    listed = natsctl("str", "ls", "-j")
    assert (listed.code, listed.json, listed.err) == (0, [], "warning: inaccessible streams: LOST, OLD\n")
    for command in ("ls", "report"):
        done = natsctl("str", command)
        assert "no answer" in done.out
        assert "offline: needs level 9" in done.out
        assert "inaccessible streams: LOST, OLD" in done.err
    assert natsctl("str", "report", "-j").json["unavailable"] == {"LOST": "no answer", "OLD": "offline: needs level 9"}


def clustered(name: str, leader: str, *others: str, **more: Any) -> Any:
    from natsctl.api.stream import StreamInfo

    peers = [{"name": other, "current": other != "behind", "active": 1} for other in others]
    return msgspec.convert(
        {"config": {"name": name, **more}, "cluster": {"name": "C", "leader": leader, "replicas": peers}}, StreamInfo
    )


def test_replicas_show_the_leader_and_who_lags() -> None:
    assert replicas(clustered("S", "n2", "n1", "behind").cluster) == "behind!, n1, n2*"


def test_leaders_are_counted_by_server() -> None:
    infos = [clustered("A", "n1", "n2"), clustered("B", "n1", "n2")]
    assert leaders_of(infos) == [("n1", "C", 2), ("n2", "C", 0)]


def test_names_in_a_graph_are_quoted() -> None:
    info = clustered('a"b', "n1", sources=[{"name": "c\\d"}])
    text = dot_graph(flows([info]), [info.config.name])
    assert json.dumps('a"b') in text
    assert json.dumps("c\\d") in text
