"""`server check`: thresholds, exit codes, formats."""

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import eventually, groups_of
from tests.support.commands import Run


def rows(group: str) -> list[tuple[str, int, str]]:
    """Lines of checks as a user or through the system account, how they end, and a text that they print."""
    parts = [line.split("  →  ") for line in groups_of("server/checks.txt")[group]]
    return [(line, int(code), says.strip()) for line, code, says in parts]


@pytest.fixture
def checked(user: Run) -> Run:
    user("str", "add", "S", "--subjects", "s.>", "--defaults")
    user("con", "add", "S", "C", "--pull", "--defaults")
    user("pub", "s.a", "hello", "--count", "4", "-q", "-J")
    user("pub", "s.b", "1700000000", "-q", "-J")
    return user


@pytest.mark.parametrize(("words", "code", "says"), rows("user"))
def test_thresholds_give_the_exit_code_of_nagios(checked: Run, words: str, code: int, says: str) -> None:
    done = checked("server", "check", *words.split())
    assert (done.code, says in done.out) == (code, True), done


@pytest.mark.parametrize(("words", "code", "says"), rows("system"))
def test_servers_are_checked_through_the_system_account(system: Run, words: str, code: int, says: str) -> None:
    done = system("server", "check", *words.split())
    assert (done.code, says in done.out) == (code, True), done


def test_a_mirror_that_lags_is_critical(user: Run, tmp_path: Path) -> None:
    user("str", "add", "S", "--subjects", "s.>", "--defaults")
    mirror = tmp_path / "mirror.json"
    mirror.write_text(json.dumps({"name": "M", "mirror": {"name": "S"}, "max_msgs": 2, "discard": "new"}))
    user("str", "add", "M", "--config", str(mirror))
    user("pub", "s.a", "hello", "--count", "20", "-q", "-J")
    check = ("server", "check", "stream", "--stream", "M", "--lag-critical", "5")
    done = eventually(lambda: user(*check), lambda done: done.code)
    assert (done.code, "origins that lag: S" in done.out) == (2, True), done


def test_a_key_must_have_a_value(checked: Run) -> None:
    checked("kv", "add", "B")
    checked("kv", "put", "B", "k", "v")
    assert checked("srv", "check", "kv", "--bucket", "B", "--key", "k").code == 0
    checked("kv", "del", "B", "k", "-f")
    assert "key k has no value" in checked("srv", "check", "kv", "--bucket", "B", "--key", "k").out
    assert checked("srv", "check", "kv", "--bucket", "B", "--values-warn", "3", "--values-critical", "0").code == 1


def test_metadata_set_thresholds_and_flags_win_over_them(user: Run) -> None:
    user("str", "add", "M", "--subjects", "m", "--metadata", "io.nats.monitor.msgs-critical=1", "--defaults")
    assert user("srv", "check", "stream", "--stream", "M").code == 2
    user("pub", "m", "x", "--count", "3", "-q", "-J")
    assert user("srv", "check", "stream", "--stream", "M").code == 0
    assert user("srv", "check", "stream", "--stream", "M", "--msgs-critical", "7").code == 2
    user("str", "edit", "M", "--metadata", "io.nats.monitor.msgs-critical=many", "-f")
    bad = user("srv", "check", "stream", "--stream", "M", "--format", "json")
    assert (bad.code, bad.json["critical"][0].startswith("metadata io.nats.monitor.msgs-critical: ")) == (2, True)


def test_a_server_that_is_down_is_critical(command: Run) -> None:
    done = command("nats://127.0.0.1:1")("srv", "check", "connection")
    assert done.code == 2
    assert done.out.startswith("CRITICAL Connection Crit:")


def test_json_tells_the_status_and_every_value(checked: Run) -> None:
    for flags in (("-j",), ("--format", "json")):
        done = checked("srv", "check", "stream", "--stream", "S", "--msgs-critical", "9", *flags)
        assert done.code == 2
        assert (done.json["status"], done.json["critical"]) == ("CRITICAL", ["5 messages"])
        assert {"name": "messages", "value": 5, "warning": 0, "critical": 9} in done.json["perf_data"]


def test_prometheus_gets_metrics_and_exit_code_0(checked: Run) -> None:
    words = ("srv", "check", "stream", "--stream", "S", "--msgs-critical", "9", "--format", "prometheus")
    done = checked(*words, "--namespace", "mine")
    assert done.code == 0
    assert 'mine_stream_messages{item="S"} 5' in done.out
    assert 'mine_stream_status_code{item="S",status="CRITICAL"} 2' in done.out
    assert len(re.findall(r"^# TYPE \S+ gauge$", done.out, re.MULTILINE)) == done.out.count('{item="S"')


def test_text_shows_tables_for_a_person(checked: Run) -> None:
    out = checked("srv", "check", "consumer", "--stream", "S", "--consumer", "C", "--format", "text").out
    assert "S_C: OK" in out
    assert re.search(r"│ pending +│ +5 │", out)


def test_the_result_can_go_to_a_file_in_one_step(checked: Run, folder: Path) -> None:
    path = folder / "nats.prom"
    path.write_text("old")
    words = ("srv", "check", "jetstream", "--outfile", str(path), "--format")
    assert checked(*words, "prometheus").out == ""
    assert "nats_server_check_jetstream_streams" in path.read_text()
    assert checked(*words, "text").code == 0
    assert "Check Metrics" in path.read_text()
    assert [one.name for one in folder.iterdir()] == ["nats.prom"]
    assert checked("srv", "check", "jetstream", "--outfile", str(folder / "no" / "x")).code == 2


def test_names_cannot_break_the_line(command: Run) -> None:
    done = command("nats://127.0.0.1:1")("srv", "check", "request", "--subject", "a|b\x1b[2J\n")
    assert done.out.count("\n") == 1
    assert "\x1b" not in done.out


def _credentials(folder: Path, claims: dict[str, Any]) -> str:
    import base64

    parts = [
        base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in ({"typ": "JWT"}, claims)
    ]
    path = folder / "user.creds"
    path.write_text(f"-----BEGIN NATS USER JWT-----\n{'.'.join(parts)}.sig\n------END NATS USER JWT------\n")
    return str(path)


@pytest.mark.parametrize(
    ("left_s", "flags", "code"),
    [
        (None, (), 2), (None, ("--no-require-expiry",), 0), (-5, (), 2), (3600, (), 0),
        (3600, ("--validity-warn", "2h", "--validity-critical", "30m"), 1), (3600, ("--validity-critical", "2h"), 2),
    ],
)  # fmt: skip
def test_credentials_are_checked_without_a_server(
    command: Run, folder: Path, left_s: int | None, flags: tuple[str, ...], code: int
) -> None:

    claims = {} if left_s is None else {"exp": int(time.time()) + left_s}
    done = command("nats://127.0.0.1:1")(
        "srv", "check", "credential", "--credential", _credentials(folder, claims), *flags
    )
    assert done.code == code, done
