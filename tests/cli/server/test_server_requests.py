"""`server request`, `account`, `config`: servers' own answers, and what is asked of one server."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]
KINDS = {
    "accounts": "accounts",
    "connections": "connections",
    "gateways": "outbound_gateways",
    "jetstream-health": "status",
    "jetstream": "config",
    "leafnodes": "leafnodes",
    "routes": "num_routes",
    "subscriptions": "num_subscriptions",
    "variables": "server_id",
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_one_document_a_server(system: Run, kind: str) -> None:
    done = system("server", "request", kind)
    (answer,) = done.lines
    assert done.code == 0
    assert answer["server"]["name"] == "one"
    assert KINDS[kind] in answer["data"]


@pytest.mark.parametrize("kind", ["ipqueue", "raft"])
def test_what_a_server_may_have_nothing_of_is_asked_too(system: Run, kind: str) -> None:
    (answer,) = system("srv", "req", kind).lines
    assert isinstance(answer["data"], dict)


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
    assert system("srv", "a", "i", "A", "-j").json["data"]["account_detail"]["account_name"] == "A"


def test_an_account_that_is_not_there_is_not_found(system: Run) -> None:
    done = system("srv", "account", "info", "SYSS")
    assert (done.code, 'did you mean "SYS"' in done.err) == (3, True)


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


def test_mappings_are_tried_without_a_server(command: Callable[[str], Run]) -> None:
    offline = command("nats://127.0.0.1:1")
    assert offline("srv", "mappings", "a.*", "b.{{wildcard(1)}}.c", "a.x").out == "b.x.c\n"
    done = offline("srv", "mappings", "a.*", "b.{{wildcard(1)}}", "a.x", "c.x", "-j")
    assert (done.code, done.json) == (1, [{"subject": "a.x", "mapped": "b.x"}, {"subject": "c.x", "mapped": None}])
    assert offline("srv", "mappings", "a.*", "b.{{wildcard(2)}}", "a.x").code == 2
    assert offline("srv", "mappings", "a.*", "b.$1", "a.*").code == 2
    assert "is valid" in offline("srv", "mappings", "a", "b").err


def test_passwords_are_hashed_without_a_server(command: Callable[[str], Run], monkeypatch: pytest.MonkeyPatch) -> None:
    import bcrypt

    offline = command("nats://127.0.0.1:1")
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


def test_thresholds_count_when_they_mean_something() -> None:
    from natsctl.client.checks import Check, Metric, Status

    def status(value: float, warning: float | None, critical: float | None, low: bool | None = None) -> Status:
        check = Check("s", "n")
        check.compare(Metric("m", value, ""), "text", warning, critical, low=low)
        return check.status

    assert status(5, 5, 6) is Status.WARNING
    assert status(6, 5, 6) is Status.CRITICAL
    assert status(4, 6, 5) is Status.CRITICAL  # less is worse, as critical is the smaller one
    assert status(9, 6, 5) is Status.OK
    assert status(9, 6, 5, low=False) is Status.CRITICAL
    assert status(0, None, 0) is Status.OK
    assert status(0, None, 0, low=True) is Status.CRITICAL
    assert status(9, -1, -1) is Status.OK


def test_the_result_of_a_check_can_be_read_back() -> None:
    from natsctl.cli.render.servers import document
    from natsctl.client.checks import Check, Metric

    check = Check("stream", "S", critical=["a"], unknown=["u"], metrics=[Metric("m", 1.5, "help", "s", 1, None)])
    assert json.loads(json.dumps(document(check))) == {
        "status": "CRITICAL", "check_suite": "stream", "check_name": "S", "critical": ["a"], "unknown": ["u"],
        "perf_data": [{"name": "m", "value": 1.5, "unit": "s", "warning": 1, "critical": 0}],
    }  # fmt: skip
