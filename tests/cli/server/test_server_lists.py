"""`server list`, `ping`, `info`, `report`, `request`, `account` and `config`: what is asked, and how it is shown."""

import asyncio
import re
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from natsctl.cli.render.server_reports import is_meta_leader
from natsctl.cli.server.overview import compacted
from natsctl.client.checks import CheckMetric, MonitoringCheck
from natsctl.client.system.system_account import ServerAnswer
from natsctl.client.system.top import ApiCounts
from tests.cli.conftest import eventually
from tests.support.commands import Run


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
        (("--host", "one"), 0), (("--tags", "az:1,disk:ssd"), 0), (("--tags", "az:2"), 3), (("--host", "two"), 3),
        (("--cluster", "C"), 3),
    ],
)  # fmt: skip
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
    title, _, columns = system("srv", "rep", what).out.splitlines()[:3]
    assert ("Report" in title, "Server" in columns) == (True, True)


@pytest.mark.parametrize(("what", "shown"), [("cpu", r"\d+%"), ("mem", r"\([\d.]+ [KM]iB\)")])
def test_use_is_shown_as_bars(system: Run, what: str, shown: str) -> None:
    assert re.search(rf"^one: █+ {shown}$", system("srv", "rep", what).out, re.MULTILINE)
    assert system("srv", "rep", what, "-j", "-R").json["one"] >= 0


def test_health_fails_when_a_server_is_not_well(system: Run, user: Run) -> None:
    # nats-server knows JetStream of an account only from its first stream on.
    assert user("str", "add", "S", "--subjects", "s", "--defaults").code == 0
    # nats-server calls a stream that it has just removed lost, until its files are gone too.
    eventually(lambda: system("srv", "rep", "health").out, lambda well: "ok (200)" in well)
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

    monkeypatch.setattr(
        "natsctl.cli.framework.live.time", SimpleNamespace(sleep=wait)
    )  # there alone: other threads sleep too
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


KINDS = {
    "accounts": "accounts", "connections": "connections", "gateways": "outbound_gateways",
    "jetstream-health": "status", "jetstream": "config", "leafnodes": "leafnodes", "routes": "num_routes",
    "subscriptions": "num_subscriptions", "variables": "server_id",
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_one_document_a_server(system: Run, kind: str) -> None:
    done = system("server", "request", kind)
    (answer,) = done.lines
    assert done.code == 0
    assert answer["server"]["name"] == "one"
    assert KINDS[kind] in answer["data"]


def test_details_are_asked_for_unless_a_flag_says_otherwise(system: Run) -> None:
    for kind, flag, field in (("ipqueue", "--no-all", "all"), ("jetstream-health", "--no-details", "details")):
        for words, wanted in (((), "true"), ((flag,), "false")):
            assert f'"{field}":{wanted}' in system("srv", "req", kind, *words, "--trace").err.replace(": ", ":")


def test_flags_go_into_the_request(system: Run, user: Run) -> None:
    user("str", "add", "S", "--subjects", "s", "--defaults")
    (answer,) = system("srv", "req", "jsz", "--all", "--account", "A").lines
    (detail,) = answer["data"]["account_details"]
    assert detail["stream_detail"][0]["config"]["name"] == "S"
    (answer,) = system("srv", "req", "connections", "--filter-account", "SYS", "--subscriptions").lines
    assert {one["account"] for one in answer["data"]["connections"]} == {"SYS"}
    assert system("srv", "req", "connections", "--filter-account", "NOPE", "--filter-empty").out == ""
    (answer,) = system("srv", "req", "subsz", "--detail", "--filter-subject", "s").lines
    assert any(one["subject"] == "s" for one in answer["data"]["subscriptions_list"])


def test_one_page_may_be_asked_for(system: Run, user: Run) -> None:
    user("str", "add", "S", "--subjects", "s", "--defaults")
    (answer,) = system("srv", "req", "subsz", "--detail", "--limit", "1", "--offset", "1", "--name", "one").lines
    data = answer["data"]
    assert (len(data["subscriptions_list"]), data["limit"], data["offset"]) == (1, 1, 1)
    assert system("srv", "req", "--name", "two", "subsz").code == 3
    assert system("srv", "req", "gateways", "1", "west").code == 0


def test_a_refusal_is_shown_and_fails(system: Run) -> None:
    done = system("srv", "req", "accounts", "--account", "NOPE")
    assert done.code == 1
    assert "NOPE does not exist" in done.lines[0]["error"]["description"]
    assert "one: " in done.err


def test_every_page_of_an_answer_is_fetched() -> None:
    from natsctl.client.system.system_account import ServerAnswer, every_page

    asked: list[dict[str, Any]] = []

    async def ask(body: dict[str, Any]) -> ServerAnswer:
        asked.append(body)
        offset = body.get("offset", 0)
        found = list(range(offset, min(offset + 2, 5)))
        return ServerAnswer({"data": {"total": 5, "limit": 2, "offset": offset, "connections": found}})

    whole = asyncio.run(every_page("connections", {"auth": True}, ask))
    assert whole.data["connections"] == [0, 1, 2, 3, 4]
    assert [one.get("offset") for one in asked] == [None, 2, 4]


def test_a_client_can_be_disconnected(system: Run) -> None:
    done = system("srv", "req", "kick", "99999", "one")
    assert (done.code, "no such client" in done.err) == (1, True)
    dry = system("srv", "req", "kick", "7", "one", "--dry-run", "-j")
    (planned,) = dry.json["requests"]
    assert planned["subject"].endswith(".KICK")
    assert planned["body"] == {"cid": 7}


def test_a_profile_is_written_or_said_to_be_missing(system: Run, folder: Path, operated: Any) -> None:
    done = system("srv", "req", "profile", "goroutine", str(folder), "-j")
    if operated.kind == "natsctl":  # a program in Python has no profiles of Go's
        assert (done.code, "not found" in done.error["description"]) == (1, True)
    else:
        (one,) = done.json
        assert Path(one["file"]).stat().st_size > 100
    assert system("srv", "req", "profile", "nonsense", str(folder)).code == 2


def test_a_server_reads_its_configuration_again(system: Run) -> None:
    done = system("srv", "config", "reload", "one", "-f", "-j")
    assert done.code == 0
    assert "error" not in done.json
    assert "nothing was sent" in system("srv", "config", "reload", "--dry-run").err


def test_an_account_is_shown_with_its_imports(system: Run) -> None:
    out = system("srv", "account", "info", "A").out
    assert out.startswith("Account information for account A on one")
    assert "JetStream: true" in out
    assert re.search(r"Subject: \S+ from subject \$SYS\.REQ\.ACCOUNT\.A\.CONNZ in account SYS\n +Type: service\n", out)
    assert system("srv", "a", "i", "A", "-j").json["account_name"] == "A"


@pytest.mark.parametrize(
    "words",
    ["cluster step-down -f", "cluster peer-remove n2 -f"],
)
def test_what_needs_a_cluster_says_so_and_changes_nothing(system: Run, user: Run, words: str) -> None:
    user("str", "add", "S", "--subjects", "s", "--defaults")
    done = system("srv", *words.split(), "-j")
    assert done.code == 1
    assert "not clustered" in done.error["description"]
    assert user("str", "ls", "-n").out == "S\n"


def test_a_lone_server_purges_an_account_too(system: Run, user: Run) -> None:
    user("str", "add", "S", "--subjects", "s", "--defaults")
    done = system("srv", "account", "purge", "A", "-f")
    assert (done.code, done.out) == (0, "Purge operation on account A initiated\n"), done.err


def test_a_lone_server_is_in_balance(system: Run) -> None:
    document = system("srv", "cluster", "balance", "-f", "-j").json
    assert document["balanced"] == 0
    assert document["servers"][0]["server"]["name"] == "one"
    assert system("srv", "cluster", "balance", "--kind", "router").code == 2


def test_mappings_are_tried_without_a_server(offline: Run) -> None:
    assert offline("srv", "mappings", "a.*", "b.{{wildcard(1)}}.c", "a.x").out == "b.x.c\n"
    done = offline("srv", "mappings", "a.*", "b.{{wildcard(1)}}", "a.x", "c.x", "-j")
    assert (done.code, done.json) == (1, [{"subject": "a.x", "mapped": "b.x"}, {"subject": "c.x", "mapped": None}])
    assert offline("srv", "mappings", "a.*", "b.{{wildcard(2)}}", "a.x").code == 2
    assert offline("srv", "mappings", "a.*", "b.$1", "a.*").code == 2
    assert "is valid" in offline("srv", "mappings", "a", "b").err


def test_passwords_are_hashed_without_a_server(offline: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    import bcrypt

    hashed = offline("srv", "passwd", "--pass", "a long password", "-c", "4").out.strip()
    assert hashed.startswith("$2a$04$")
    assert bcrypt.checkpw(b"a long password", hashed.encode())
    made = offline("srv", "passwd", "-g", "-c", "4", "-j").json
    assert bcrypt.checkpw(made["password"].encode(), made["hash"].encode())
    monkeypatch.setenv("PASSWORD", "from the environment")
    assert bcrypt.checkpw(b"from the environment", offline("srv", "passwd", "-c", "4").out.strip().encode())
    monkeypatch.delenv("PASSWORD")
    for words in (("--pass", "short"), ("--pass", "x" * 73), (), ("-g", "--pass", "a long password")):
        assert offline("srv", "passwd", *words).code == 2


@pytest.mark.parametrize(
    ("value", "warning", "critical", "low", "status"),
    [(0, None, 0, None, "OK"), (0, None, 0, True, "CRITICAL"), (9, -1, -1, None, "OK")],
)
def test_thresholds_count_when_they_mean_something(
    value: float, warning: float | None, critical: float, low: bool | None, status: str
) -> None:
    check = MonitoringCheck("s", "n")
    check.compare(CheckMetric("m", value, ""), "text", warning, critical, low=low)
    assert check.status.name == status
