"""What people complain about in the `nats` tool, each answered by the command that docs/complaints.md shows for it.

The command of a row stands in its test word for word; `run` in a test takes the line as it is typed.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Line = Callable[..., Any]
PAGE = Path(__file__).parents[3] / "docs" / "complaints.md"


@pytest.fixture
def run(natsctl: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Line:
    """Runs a line as it is typed, without a terminal, on a server with the stream ORDERS of three messages."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))

    def line(text: str, stdin: bytes | None = None) -> Any:
        first, *words = shlex.split(text)
        assert first == "natsctl"
        return natsctl(*words, stdin=stdin)

    line("natsctl stream add ORDERS --subjects 'ORDERS.*' --if-not-exists")
    line("natsctl publish ORDERS.new 'order {{Count}}' --count 3 -J -q")
    return line


def test_01_no_prompt_without_a_terminal(run: Line) -> None:
    done = run("natsctl stream add NEW --subjects new.*")
    assert done.code == 0
    assert "?" not in done.err


def test_02_defaults_are_for_every_question(run: Line) -> None:
    assert run("natsctl consumer add ORDERS WORK --defaults").code == 0


def test_03_a_request_that_nobody_answers_fails(run: Line) -> None:
    assert run("natsctl request nobody.there hello").code == 5


def test_04_every_list_and_report_has_json(run: Line) -> None:
    run("natsctl consumer add ORDERS WORK --pull")
    assert run("natsctl consumer ls ORDERS -j --details").json[0]["config"]["ack_policy"] == "explicit"
    for line in ("natsctl stream report -j", "natsctl account info -j", "natsctl kv ls -j"):
        assert run(line).code == 0
        assert isinstance(run(line).json, dict | list)


def test_05_stdout_is_one_document(run: Line) -> None:
    assert run("natsctl stream purge ORDERS -f -j").json["purged"] == 3
    assert isinstance(run("natsctl stream gaps ORDERS -j").json, dict | list)


def test_06_edit_changes_what_was_asked_for(run: Line) -> None:
    run("natsctl stream add QUIET --subjects quiet --no-ack --compression s2")
    before = run("natsctl stream info QUIET -j").json["config"]
    assert run("natsctl stream edit QUIET --max-msgs 5 -f").code == 0
    assert run("natsctl stream info QUIET -j").json["config"] == {**before, "max_msgs": 5}


def test_07_a_file_of_what_is_there_changes_nothing(run: Line) -> None:
    Path("orders.json").write_text(run("natsctl stream info ORDERS -j").out)
    assert run("natsctl stream edit ORDERS --config orders.json --dry-run").code == 0
    Path("bare.json").write_text('{"name": "ORDERS", "num_replicas": 1}')
    assert run("natsctl stream edit ORDERS --config bare.json --dry-run").code == 0
    Path("part.json").write_text('{"max_msgs": 7}')
    assert run("natsctl stream edit ORDERS --config part.json --dry-run").code == 10


def test_08_creating_and_removing_may_be_repeated(run: Line) -> None:
    assert run("natsctl stream add ORDERS --subjects other --if-not-exists").code == 0
    assert run("natsctl stream rm GONE -f --missing-ok").code == 0


def test_09_configuration_is_kept_as_files(run: Line) -> None:
    assert run("natsctl export --full --output account.yaml").code == 0
    assert run("natsctl plan -f account.yaml").code == 0
    run("natsctl stream edit ORDERS --max-msgs 7 -f")
    assert "max_msgs" in run("natsctl diff -f account.yaml").out
    assert run("natsctl apply -f account.yaml").code == 0
    assert run("natsctl stream info ORDERS -j").json["config"]["max_msgs"] == -1


def test_10_files_are_yaml_with_durations_and_sizes(run: Line) -> None:
    Path("new.yaml").write_text("subjects: [new.*]  # for people\nmax_age: 1y2d\nmax_bytes: 5GiB\n")
    assert run("natsctl stream add NEW --config new.yaml").code == 0
    config = run("natsctl stream info NEW -j").json["config"]
    assert (config["max_age"], config["max_bytes"]) == (367 * 86400 * 10**9, 5 * 2**30)


def test_11_a_consumer_file_may_name_the_stream(run: Line) -> None:
    run("natsctl consumer add ORDERS WORK --pull")
    Path("work.json").write_text(run("natsctl consumer info ORDERS WORK -j").out)
    run("natsctl consumer rm ORDERS WORK -f")
    assert run("natsctl consumer add --config work.json").code == 0
    assert run("natsctl consumer ls ORDERS -n").out == "WORK\n"


def test_12_names_are_asked_for_as_names(run: Line) -> None:
    done = run("natsctl stream ls -n --trace")
    assert "STREAM.NAMES" in done.err
    assert "STREAM.LIST" not in done.err


def test_13_a_stream_that_cannot_be_shown_is_reported(run: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    from natsctl.client.requests import Requests

    asked = Requests.exchange

    async def partly(self: Requests, subject: str, *rest: Any, **more: Any) -> dict[str, Any]:
        answer = await asked(self, subject, *rest, **more)
        return {**answer, "missing": ["AWAY"]} if subject.endswith("STREAM.LIST") else answer

    monkeypatch.setattr(Requests, "exchange", partly)
    assert "AWAY" in run("natsctl stream ls").err


def test_14_a_backup_gives_up_by_progress_and_is_whole_or_absent(run: Line) -> None:
    assert run("natsctl stream backup ORDERS saved --idle-timeout 10s").code == 0
    assert run("natsctl backup verify saved").code == 0
    assert run("natsctl stream backup NOPE other").code == 3
    assert not Path("other").exists()


def test_15_a_restore_says_what_becomes_of_what_is_there(run: Line) -> None:
    run("natsctl stream backup ORDERS saved")
    assert run("natsctl stream restore saved").code == 4
    assert run("natsctl stream restore saved --on-existing skip").code == 0
    assert run("natsctl stream restore COPY saved --subjects 'COPY.*'").code == 0
    assert run("natsctl stream info COPY -j").json["state"]["messages"] == 3


def test_16_what_is_written_is_executed(run: Line) -> None:
    # tests/cli/cheat runs every line of every topic.
    assert "natsctl stream restore saved" in run("natsctl cheat backup").out


def test_17_streams_in_memory_are_saved_too(run: Line) -> None:
    run("natsctl stream add FAST --subjects fast --storage memory")
    run("natsctl publish fast x -J")
    assert run("natsctl stream backup FAST saved").code == 0
    run("natsctl stream rm FAST -f")
    assert run("natsctl stream restore saved").code == 0
    assert run("natsctl stream info FAST -j").json["state"]["messages"] == 1


def test_18_backups_are_looked_into_without_a_server(run: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    run("natsctl stream backup ORDERS saved")
    with monkeypatch.context() as alone:
        alone.setenv("NATS_URL", "nats://127.0.0.1:1")
        assert len(run("natsctl backup cat saved --subject ORDERS.new --seq 2-3 -j").lines) == 2
        assert run("natsctl backup edit saved part --seq 2-3").code == 0
        assert run("natsctl backup inspect part").code == 0


def test_19_a_purge_shows_its_effect_first(run: Line) -> None:
    told = run("natsctl stream purge ORDERS --keep 1 --dry-run -j").json
    assert told["requests"][0]["body"] == {"keep": 1}
    assert 2 in [value for value in told["effect"].values() if isinstance(value, int)]
    assert run("natsctl stream purge ORDERS --older-than 1h -f -j").json["purged"] == 0


def test_20_a_typo_is_an_error_and_never_replaced(run: Line) -> None:
    done = run("natsctl stream purge ORDRES -f")
    assert (done.code, 'did you mean "ORDERS"' in done.err) == (3, True)


def test_21_failures_say_what_to_look_at(run: Line) -> None:
    lost = run("natsctl -s nats://127.0.0.1:1 stream ls")
    assert (lost.code, "natsctl server run" in lost.err) == (5, True)
    away = run("natsctl --js-domain nowhere stream ls")
    assert away.code == 5
    assert "$JS.nowhere.API.STREAM.LIST" in away.err
    assert "domain" in away.err
    assert json.loads(run("natsctl stream info NOPE -j").err)["error"]["err_code"] == 10059


def test_22_secrets_stay_off_the_command_line_and_the_screen(run: Line) -> None:
    assert run("natsctl context add prod --user bob --password-stdin", stdin=b"s3cret\n").code == 0
    listed = run("natsctl context ls -j")
    assert listed.json[0]["password"] == "********"
    assert "s3cret" not in listed.out


def test_23_stdin_is_read_where_it_is_asked_for(run: Line) -> None:
    assert run("natsctl publish ORDERS.new body -J", stdin=b"eaten?").code == 0
    assert run("natsctl stream get ORDERS --last-for ORDERS.new -j").json["data"] == "Ym9keQ=="
    assert run("natsctl publish ORDERS.new -J", stdin=b"of stdin").code == 0
    assert "of stdin" in run("natsctl stream get ORDERS --last-for ORDERS.new").out


def test_24_a_body_is_sent_as_it_is(run: Line) -> None:
    body = '{"a": "{{Count}}", "b": {"c": {}}}'
    assert run(f"natsctl publish ORDERS.new '{body}' --no-templates -J").code == 0
    assert body in run("natsctl stream get ORDERS --last-for ORDERS.new").out
    assert run("natsctl publish ORDERS.new '{\"b\": {{ .x }}}' -J").code == 0
    assert '{"b": {{ .x }}}' in run("natsctl stream get ORDERS --last-for ORDERS.new").out


def test_25_a_batch_is_one_request_and_may_be_empty(run: Line) -> None:
    run("natsctl consumer add ORDERS WORK --pull")
    assert len(run("natsctl consumer fetch ORDERS WORK --count 10 --no-wait -j").lines) == 3
    assert run("natsctl consumer fetch ORDERS WORK --count 10 --no-wait").code == 7
    assert run("natsctl consumer fetch ORDERS WORK --count 10 --no-wait --no-fail-empty").code == 0
    assert run("natsctl consumer info ORDERS WORK -j").json["num_waiting"] == 0


def test_26_streams_of_buckets_are_edited_by_force(run: Line) -> None:
    run("natsctl kv add CFG")
    assert run("natsctl stream edit KV_CFG --description mine -f").code == 0


def test_27_names_are_completed(run: Line) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "natsctl", *shlex.split("natsctl __complete zsh stream info OR")[1:]],
        env={**os.environ, "NATSCTL_COMPLETION_MS": "20000"}, capture_output=True, text=True, timeout=30, check=True,
    )  # fmt: skip
    assert done.stdout == "ORDERS\t\n"


def test_28_times_have_their_offset(run: Line) -> None:
    assert re.search(r"\d\d:\d\d:\d\d \+00:00", run("natsctl stream info ORDERS --utc").out)
    assert re.fullmatch(r"\d{4}-.*(Z|[+-]\d\d:\d\d)", run("natsctl stream info ORDERS -j").json["created"])
    run("natsctl consumer add ORDERS WORK --pull")
    paused = run("natsctl consumer pause ORDERS WORK 1h -f -j").json
    assert paused["paused"] is True


def test_29_reports_are_sorted_and_have_the_columns_that_are_asked_for(run: Line) -> None:
    run("natsctl stream add SMALL --subjects small")
    lines = run("natsctl stream report --sort messages --columns Stream,Messages").out
    assert "Bytes" not in lines
    assert re.search(r"ORDERS\W+3\b", lines)


def test_30_programs_are_commands_and_commands_a_library(
    run: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "natsctl-hello"
    script.write_text("#!/bin/sh\necho hello\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    line = "natsctl hello"
    said = subprocess.run([sys.executable, "-m", *line.split()], capture_output=True, text=True, timeout=30)
    assert (said.returncode, said.stdout) == (0, "hello\n")
    assert "Programs on PATH:" in run("natsctl --help").out
    program = (
        "import asyncio, os\n"
        "from natsctl.client.dial import connect\n"
        "from natsctl.client.manager import Manager\n"
        "from natsctl.client.servers import resolve\n"
        "from natsctl.client.settings import Settings\n"
        "async def main():\n"
        "    async with await connect(resolve(Settings(), os.environ), name='script') as connection:\n"
        "        print(*await Manager(connection).stream_names())\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout == "ORDERS\n"


def test_31_messages_are_searched_by_content_and_headers(run: Line) -> None:
    run("""natsctl publish ORDERS.new '{"total": 120}' -H Kind:web -J""")
    run("""natsctl publish ORDERS.new '{"total": 80}' -H Kind:web -J""")
    run("""natsctl publish ORDERS.new '{"total": 120}' -J""")
    (one,) = run("natsctl stream search ORDERS --header Kind --expression 'json.total > 100' -j").lines
    assert one["subject"] == "ORDERS.new"
    assert run("natsctl stream search ORDERS --header Kind:shop").code == 7


def test_every_row_of_the_page_has_its_test() -> None:
    source = Path(__file__).read_text()
    rows = re.findall(r"^\| (\d+) \| .*? \| `([^`]+)` \| \[(test_\w+)\]", PAGE.read_text(), re.MULTILINE)
    assert [int(number) for number, _, _ in rows] == list(range(1, 32))
    for number, command, name in rows:
        body = re.search(rf"^def {name}\(.*?(?=^def |\Z)", source, re.MULTILINE | re.DOTALL)
        assert body is not None, name
        assert name.startswith(f"test_{int(number):02}_")
        assert command in body[0], command
