"""`server list`, `ping`, `info` and `report`: what is asked of all servers, and how it is shown."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from natsctl.cli.render.server_reports import is_meta_leader
from natsctl.cli.server.overview import compacted
from natsctl.client.system.system_account import ServerAnswer
from natsctl.client.system.top import ApiCounts

Run = Callable[..., Any]
WELL_WITHIN_S = 20.0


def test_list_shows_each_server_with_the_totals(system: Run) -> None:
    done = system("srv", "list")
    assert done.code == 0
    assert re.search(r"│ one +│ +│ \S+ +│ 2\.\d+\.\d+ +│ yes", done.out)
    assert "1 server" in done.out
    assert "Cluster Overview" not in done.out


def test_list_as_json_is_what_servers_sent(system: Run) -> None:
    (answer,) = system("server", "ls", "-j").json
    assert answer["server"]["name"] == "one"
    assert answer["server"]["tags"] == ["az:1", "disk:ssd"]
    assert answer["statsz"]["active_servers"] == 1


def test_list_of_names_is_one_on_a_line(system: Run) -> None:
    assert system("srv", "ls", "-n").out == "one\n"


def test_list_ends_as_soon_as_all_known_servers_have_answered(system: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    system("srv", "ls", "-n")
    for name in ("QUIET_S", "KNOWN_QUIET_S"):
        monkeypatch.setattr(f"natsctl.client.system.system_account.{name}", 60.0)
    begin_s = time.monotonic()
    assert system("srv", "ls", "-n", "--timeout", "60s").out == "one\n"
    assert time.monotonic() - begin_s < 30.0  # below the wait for silence


def test_fewer_servers_than_expected_are_shown_and_fail(system: Run) -> None:
    done = system("srv", "ls", "2", "-n", "--timeout", "1s")
    assert (done.code, done.out) == (5, "one\n")
    assert "1 of 2 servers answered" in done.err


@pytest.mark.parametrize(
    ("flags", "code"),
    [
        (("--host", "one"), 0),
        (("--tags", "az:1,disk:ssd"), 0),
        (("--tags", "az:2"), 3),
        (("--host", "two"), 3),
        (("--cluster", "C"), 3),
    ],
)
def test_flags_say_which_servers_are_meant(system: Run, flags: tuple[str, ...], code: int) -> None:
    assert system("srv", "ls", *flags).code == code


def test_without_the_system_account_the_hint_says_what_is_needed(user: Run) -> None:
    done = user("srv", "ls", "-j")
    assert (done.code, done.out) == (6, "")
    assert "system account" in done.error["hint"]


def test_columns_and_order_can_be_chosen(system: Run) -> None:
    out = system("srv", "ls", "--columns", "version,name", "--sort", "mem").out
    assert re.search(r"│ Version │ Name ", out)
    assert system("srv", "ls", "--sort", "nonsense").code == 2


def test_ping_tells_how_quickly_each_answers(system: Run) -> None:
    out = system("srv", "ping").out
    assert re.search(r"^one  rtt=\S+s$", out, re.MULTILINE)
    assert "1 server answered" in out
    (answer,) = system("srv", "ping", "-j").json
    assert answer["rtt"] > 0


def test_a_plot_counts_answers_by_time(system: Run) -> None:
    out = system("srv", "ping", "--graph").out
    assert re.search(r"^1 ┤ *█$", out, re.MULTILINE)
    assert out.endswith("Answers per 25 ms\n")


def test_compact_names_lack_the_domain_that_all_share(system: Run) -> None:
    answers = [
        ServerAnswer({"server": {"name": name}, "data": {"meta_cluster": {"leader": "a.n.example.net"}}})
        for name in ("a.n.example.net", "b.example.net")
    ]
    short = compacted(answers)
    assert [one.name for one in short] == ["a.n", "b"]
    assert [is_meta_leader(one) for one in short] == [True, False]
    assert [one.name for one in compacted(answers[:1])] == ["a"]
    assert compacted([]) == []
    for words in (("ls",), ("report", "jetstream")):
        assert re.search(r"│ one\*? +│", system("srv", *words, "--compact").out)


def test_requests_about_consumers_are_counted_by_stream_when_asked() -> None:
    counts = ApiCounts(60.0, consumers=False)
    for subject in (
        "$JS.API.CONSUMER.CREATE.S.C.s.*", "$JS.API.CONSUMER.CREATE.S.D", "$JS.hub.API.CONSUMER.MSG.NEXT.S.C",
        "$JS.API.CONSUMER.DURABLE.CREATE.S.C", "$JS.API.CONSUMER.LIST.S", "$JS.API.STREAM.INFO.S",
    ):  # fmt: skip
        counts.add({"subject": subject}, 1.0)
    assert {row["subject"]: row["requests"] for row in counts.rows(1.0)} == {
        "$JS.API.CONSUMER.CREATE.S.*": 2, "$JS.hub.API.CONSUMER.MSG.NEXT.S.*": 1,
        "$JS.API.CONSUMER.DURABLE.CREATE.S.*": 1, "$JS.API.CONSUMER.LIST.S": 1, "$JS.API.STREAM.INFO.S": 1,
    }  # fmt: skip


def test_a_watch_shortens_long_names_when_asked(system: Run) -> None:
    done = system("srv", "watch", "api", "requests", "--no-record-consumer", "--compact", "--count", "1")
    assert (done.code, "JetStream API Requests: nothing yet" in done.out) == (0, True)


def test_info_is_of_the_connected_server_unless_named(system: Run) -> None:
    for words in ((), ("one",)):
        out = system("srv", "info", *words).out
        assert out.startswith("Server information for one (N")
        assert "Tags: az:1, disk:ssd" in out
        assert "API Support Level" in out
    assert system("srv", "info", "-j").json["data"]["server_name"] == "one"


def test_a_name_that_no_server_has_is_told_with_the_likely_one(system: Run) -> None:
    done = system("srv", "info", "onne")
    assert done.code == 3
    assert 'did you mean "one"' in done.err


def test_connections_are_shown_with_totals_and_counts(system: Run) -> None:
    out = system("srv", "report", "conn", "--sort", "cid", "--account", "SYS").out
    assert "Top 1 Connections out of 1 by cid" in out
    assert "Connections per server" in out
    (row,) = system("srv", "report", "connections", "--account", "SYS", "-j").json
    assert (row["account"], row["server"]["name"]) == ("SYS", "one")


def test_connections_that_ended_are_shown_with_the_reason(system: Run) -> None:
    system("srv", "ping")
    rows = system("srv", "rep", "conns", "--state", "closed", "--account", "SYS", "--top", "1", "-j").json
    assert len(rows) == 1
    assert rows[0]["reason"]
    assert "Reason" in system("srv", "rep", "conns", "--state", "all", "--top", "3").out
    assert system("srv", "rep", "conns", "--closed-reason", "no such reason", "-j").json == []


def test_connections_can_be_filtered_by_an_expression(system: Run) -> None:
    assert system("srv", "rep", "conns", "--filter", 'account == "SYS"', "-j").json
    assert system("srv", "rep", "conns", "--filter", 'account == "NOPE"', "-j").json == []
    assert system("srv", "rep", "conns", "--filter", "((").code == 2


def test_accounts_are_shown_over_all_servers(system: Run) -> None:
    out = system("srv", "rep", "accounts").out
    assert re.search(r"│ SYS +│ +1 │", out)
    rows = {row["account"]: row for row in system("srv", "rep", "accounts", "-j").json}
    own = rows["SYS"]
    assert (own["connections"], own["server"][0]["name"]) == (1, "one")
    (connection,) = own["connection_info"]
    assert (connection["account"], connection["server"]["ver"]) == ("SYS", own["server"][0]["ver"])
    assert connection["subscriptions_list"]
    alone = system("srv", "rep", "accounts", "SYS", "-j").json
    assert (alone["account"], alone["connections"]) == ("SYS", 1)
    assert system("srv", "rep", "accounts", "NOBODY", "-j").code == 3


@pytest.mark.parametrize("what", ["leafnodes", "routes", "gateways"])
def test_what_a_lone_server_lacks_is_an_empty_list(system: Run, what: str) -> None:
    assert system("srv", "rep", what, "-j").json == []
    assert "no connections" in system("srv", "rep", what).out


@pytest.mark.parametrize(("what", "shown"), [("cpu", r"\d+%"), ("mem", r"\([\d.]+ [KM]iB\)")])
def test_use_is_shown_as_bars(system: Run, what: str, shown: str) -> None:
    assert re.search(rf"^one: █+ {shown}$", system("srv", "rep", what).out, re.MULTILINE)
    assert system("srv", "rep", what, "-j", "-R").json["one"] >= 0


def test_health_fails_when_a_server_is_not_well(system: Run, user: Run) -> None:
    # nats-server knows JetStream of an account only from its first stream on.
    assert user("str", "add", "S", "--subjects", "s", "--defaults").code == 0
    until_s = time.monotonic() + WELL_WITHIN_S
    while "ok (200)" not in (well := system("srv", "rep", "health").out):
        # nats-server calls a stream that it has just removed lost, until its files are gone too.
        assert "not be recovered" in " ".join(well.replace("│", " ").split())
        assert time.monotonic() < until_s, well
    ill = system("srv", "rep", "health", "--account", "A", "--stream", "NOPE")
    assert ill.code == 1
    assert "NOPE" in ill.out
    assert "not well: one" in ill.err


def test_jetstream_counts_what_an_account_holds(system: Run, user: Run) -> None:
    user("str", "add", "S", "--subjects", "s", "--defaults")
    user("con", "add", "S", "C", "--pull", "--defaults")
    user("pub", "s", "12345", "-J")
    out = system("srv", "rep", "js", "--account", "A", "--leaders").out
    assert re.search(r"│ one +│ +│ +1 │ +1 │ +1 │", out)
    assert re.search(r"RAFT Leader Report(.|\n)*│ one +│ +│ +1 │ +1 │", out)
    assert system("srv", "rep", "jetstream", "-j").json[0]["data"]["streams"] == 1


def test_a_stream_above_an_api_level_is_found(system: Run, user: Run) -> None:
    user("str", "add", "NEWER", "--subjects", "n", "--allow-msg-ttl", "--defaults")
    user("str", "add", "OLD", "--subjects", "o", "--defaults")
    user("con", "add", "NEWER", "C", "--pull")
    found = system("srv", "rep", "downgrade", "0", "-j").json
    assert found == {"streams": [{"account": "A", "name": "NEWER", "api_level": 1}]}
    every = system("srv", "rep", "downgrade", "0", "--all", "-j").json
    assert every["consumers"] == [{"account": "A", "name": "C", "stream": "NEWER*", "api_level": 0}]
    assert "NEWER*" in system("srv", "rep", "downgrade", "0", "--all").out
    assert "All assets are compatible" in system("srv", "rep", "downgrade", "1").out
    assert system("srv", "rep", "downgrade", "1", "-j").json == {}


def test_a_watched_report_ends_with_ctrl_c(system: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr("natsctl.cli.live.time", SimpleNamespace(sleep=wait))  # there alone: other threads sleep too
    done = system("srv", "rep", "mem", "--watch", "5")
    assert (done.code, waits) == (130, [5.0, 5.0])
    assert done.out.count("Memory Usage") == 2


@pytest.mark.parametrize("what", ["mem", "health", "jetstream", "connections"])
def test_a_watched_report_is_a_document_on_each_line_for_a_program(system: Run, what: str) -> None:
    first, second = system("srv", "rep", what, "--watch", "100ms", "--count", "2", "-j").lines
    assert len(first) >= 1
    assert len(second) >= 1


@pytest.mark.parametrize("what", ["servers", "jetstream", "accounts"])
def test_what_is_watched_can_be_read_by_a_program(system: Run, what: str) -> None:
    first, second = system("srv", "watch", what, "--count", "2", "--every", "100ms", "-j").lines
    assert len(first["rows"]) == len(second["rows"]) >= 1
    assert first["rows"][0]["rates"].values()
    assert all(rate == 0 for rate in first["rows"][0]["rates"].values())


def test_a_graph_needs_a_terminal_or_an_end(system: Run) -> None:
    assert system("srv", "graph").code == 2
    out = system("srv", "graph", "one", "--count", "1").out
    assert "Server one" in out
    assert "Connections" in out
    assert "API Requests" in system("srv", "graph", "--jetstream", "--count", "1").out
