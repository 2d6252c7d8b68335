"""Commands as a person runs them: at a pseudo-terminal, with questions, lists, confirmations and bars."""

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from natsctl.cli.stream.dialogue import read_name, read_start_time, read_subject
from tests.support.commands import Run

pytest.importorskip("pexpect")
pytestmark = pytest.mark.ours("questions are asked before a request, whatever the server is")


def test_a_stream_is_made_from_answers_in_the_documented_order(person: Run, natsctl: Run) -> None:
    one = person("str", "add")
    one.dialogue("""
        Stream Name: ORDERS | Subjects: ORDERS.* SHOP | Storage | Replication | Retention Policy: work
    """)
    one.answers("Discard Policy", "\x1b[A\r")
    one.dialogue("""
        Stream Messages Limit: 100 | Per Subject Messages Limit | Total Stream Size: 1GB | Message TTL: 1y
        Max Message Size | Duplicate tracking time window | Allow message Roll-ups: y | Allow message deletion
        Allow purging subjects or the entire stream
    """)
    status, screen = one.end()
    assert status == 0, screen
    assert "Stream ORDERS was created" in screen
    config = natsctl("str", "info", "ORDERS", "-j").json["config"]
    wanted = {
        "subjects": ["ORDERS.*", "SHOP"],
        "storage": "file",
        "num_replicas": 1,
        "retention": "workqueue",
        "discard": "new",
        "max_msgs": 100,
        "max_bytes": 1 << 30,
        "max_age": 31536000 * 10**9,
        "max_msg_size": -1,
        "duplicate_window": 120 * 10**9,
        "allow_rollup_hdrs": True,
        "deny_delete": False,
        "deny_purge": False,
        "allow_direct": True,
    }
    assert {key: config.get(key) for key in wanted} == wanted


def test_a_question_mark_explains_and_names_the_flag(person: Run) -> None:
    one = person("str", "add", "S")
    one.answers("Subjects", "?\r")
    one.sees("Settable using --subjects")
    one.answers("Subjects", "s\r")
    one.answers("Storage", "?")
    one.sees("Settable using --storage")
    one.answers("Storage")
    for question in ("Replication", "Retention Policy", "Discard Policy", "Stream Messages Limit"):
        one.answers(question)
    for question in ("Per Subject Messages Limit", "Total Stream Size", "Message TTL", "Max Message Size"):
        one.answers(question)
    one.answers("Duplicate tracking time window")
    one.answers("Allow message Roll-ups", "?")
    one.sees("Settable using --allow-rollup")
    one.child.sendintr()
    assert one.end()[0] == 130


def test_a_wrong_answer_is_told_and_asked_again(person: Run, natsctl: Run) -> None:
    given = shlex.split("--subjects s --storage file --retention limits --discard old --max-msgs 1")
    one = person("str", "add", *given)
    one.answers("Stream Name", "a.b\r")
    one.sees("none of them blank")
    one.child.send("\x7f\x7f\x7fS\r")
    one.answers("Replication", "0\r")
    one.sees("expected at least 1")
    one.child.send("\x7f1\r")
    one.answers("Per Subject Messages Limit", "x\r")
    one.sees("whole number")
    one.child.sendintr()
    assert one.end()[0] == 130
    assert natsctl("str", "ls", "-n").out == ""


@pytest.mark.parametrize("flag", ["--defaults", "--no-input"])
def test_nothing_is_asked_when_told_so(person: Run, flag: str) -> None:
    status, screen = person("str", "add", "S", "--subjects", "s", flag).end()
    assert (status, "? " in screen) == (0, False)
    status, screen = person("str", "add", flag).end()
    assert status == 2
    assert "STREAM" in screen


def test_a_consumer_is_made_as_the_document_shows(person: Run, natsctl: Run) -> None:
    natsctl("str", "add", "OTHER", "--subjects", "o")
    natsctl("str", "add", "ORDERS", "--subjects", "ORDERS.*")
    one = person("con", "add", "--sample", "100")
    one.dialogue("""
        Select a Stream: ORD | Consumer name: NEW | Delivery target (empty for Pull Consumers)
        Start policy (all, new, last, subject, 1h, msg sequence): all | Acknowledgment policy | Replay policy
        Filter Stream by subjects (blank for all): ORDERS.received | Maximum Allowed Deliveries: 20
        Maximum Acknowledgments Pending | Deliver headers only without bodies | Add a Retry Backoff Policy
    """)
    status, screen = one.end()
    assert status == 0, screen
    config = natsctl("con", "info", "ORDERS", "NEW", "-j").json["config"]
    assert (config["filter_subject"], config["max_deliver"], config["sample_freq"]) == ("ORDERS.received", 20, "100")
    assert (config["ack_policy"], config["replay_policy"]) == ("explicit", "instant")


def test_a_push_consumer_is_asked_for_what_concerns_it(person: Run, natsctl: Run) -> None:
    natsctl("str", "add", "ORDERS", "--subjects", "ORDERS.*")
    one = person("con", "add", "ORDERS", "MONITOR")
    one.dialogue("""
        Delivery target: monitor.ORDERS | Delivery Queue Group | Start policy: last | Acknowledgment policy
        Replay policy | Filter Stream by subjects | Idle Heartbeat: 5s | Enable Flow Control: y
        Deliver headers only
    """)
    assert one.end()[0] == 0
    config = natsctl("con", "info", "ORDERS", "MONITOR", "-j").json["config"]
    assert (config["deliver_subject"], config["ack_policy"], config["flow_control"]) == ("monitor.ORDERS", "none", True)
    assert config["idle_heartbeat"] == 5 * 10**9


def test_a_backoff_is_made_from_answers(person: Run, natsctl: Run) -> None:
    natsctl("str", "add", "ORDERS", "--subjects", "ORDERS.*")
    words = shlex.split(
        "--pull --ack explicit --deliver all --replay instant --filter= --max-deliver=-1 --max-pending 5"
        " --no-headers-only"
    )
    one = person("con", "add", "ORDERS", "C", *words)
    one.dialogue("""
        Add a Retry Backoff Policy: y | Backoff policy | Minimum retry time: 1s | Maximum retry time: 5s
        Number of steps: 4
    """)
    assert one.end()[0] == 0
    config = natsctl("con", "info", "ORDERS", "C", "-j").json["config"]
    assert (config["backoff"], config["max_deliver"]) == ([10**9, 2 * 10**9, 3 * 10**9, 4 * 10**9], 5)


def test_a_wrong_name_is_an_error_and_no_list(person: Run, natsctl: Run) -> None:
    natsctl("str", "add", "ORDERS", "--subjects", "ORDERS.*")
    for words in (("purge",), ("rm",), ("info",), ("edit",)):
        status, screen = person("str", *words, "ORDRES").end()
        assert status == 3
        assert 'did you mean "ORDERS"?' in screen
        assert "Really" not in screen


def test_confirmations_take_no_for_an_answer(person: Run, natsctl: Run) -> None:
    natsctl("str", "add", "ORDERS", "--subjects", "ORDERS.*")
    natsctl("pub", "ORDERS.a", "x", "-q", "-J")
    for words, question in (
        (("purge", "ORDERS"), "Really purge Stream ORDERS"),
        (("rm", "ORDERS"), "Really delete Stream ORDERS"),
        (("rmm", "ORDERS", "1"), "Really remove message 1 from Stream ORDERS"),
        (("edit", "ORDERS", "--max-age", "1d"), "Really edit Stream ORDERS"),
    ):
        one = person("str", *words)
        one.answers(question)
        assert one.end()[0] == 0
    one = person("str", "rmm")
    one.answers("Select a Stream", "ORD\r")
    one.answers("Message Sequence to remove", "1\r")
    one.answers("Really remove message 1", "\x04")
    assert one.end()[0] == 130
    info = natsctl("str", "info", "ORDERS", "-j").json
    assert (info["state"]["messages"], info["config"]["max_age"]) == (1, 0)
    one = person("str", "edit", "ORDERS", "--max-age", "1d")
    one.sees("Maximum Age (max_age): unlimited → 1d0h0m0s")
    one.answers("Really edit Stream ORDERS", "y\r")
    assert one.end()[0] == 0
    one = person("str", "rm")
    one.answers("Select a Stream")
    one.answers("Really delete Stream ORDERS: type ORDERS", "ORDERS\r")
    assert one.end()[0] == 0
    assert natsctl("str", "ls", "-n").out == ""


def test_a_list_picks_nothing_where_nothing_matches(person: Run, natsctl: Run) -> None:
    for name in ("AAA", "ORDERS"):
        natsctl("str", "add", name, "--subjects", name)
    one = person("str", "rm", columns=60)
    one.answers("Select a Stream", "nomatch\r\r")
    one.sees("[filter: nomatch, 0 of 2]")
    one.sees("no match: backspace takes a letter back")
    one.child.send("\x7f" * len("nomatch") + "ORD\r")
    one.answers("Really delete Stream ORDERS: type ORDERS", "ORDERS\r")
    assert one.end()[0] == 0
    assert natsctl("str", "ls", "-n").out == "AAA\n"


def test_a_long_list_shows_its_place_and_its_filter_below_the_question(person: Run, natsctl: Run) -> None:
    for number in range(45):
        natsctl("kv", "add", f"B{number}")
    one = person("str", "info", "--all")
    one.answers("Select a Stream", "")
    one.sees(" of 45]")
    one.child.send("B39")
    one.sees("filter:")
    one.child.send("\r")
    one.sees("KV_B39")
    assert one.end()[0] == 0


def test_what_is_wider_than_the_terminal_goes_on_between_words(person: Run, natsctl: Run) -> None:
    natsctl("str", "add", "S", "--subjects", "s")
    code, screen = person("str", "edit", "S", columns=50).end()
    assert (code, "--max-age 30d, --config\n    FILE or --interactive\n" in screen) == (2, True), screen
    one = person("str", "add", columns=50)
    one.answers("Stream Name", "a b\r")
    one.sees("none of")
    one.sees("or one of . * > \\ /")  # in the row below: it is not cut
    one.child.sendintr()
    assert one.end()[0] == 130


def test_questions_go_to_stderr_so_that_stdout_can_be_redirected(person: Run, natsctl: Run, tmp_path: Path) -> None:
    natsctl("str", "add", "ORDERS", "--subjects", "ORDERS.*")
    file = tmp_path / "out.json"
    one = person("-c", f"{sys.executable} -m natsctl str info -j > {file}", command="/bin/sh")
    one.answers("Select a Stream")
    assert one.end()[0] == 0
    assert file.read_text().startswith("{")


def test_a_terminal_is_not_driven_by_messages_or_names(person: Run, natsctl: Run) -> None:
    natsctl("str", "add", "S", "--subjects", "s", "--description", "[bold]d[/]\x1b[2J")
    natsctl("pub", "s", "a\x1b]0;title\x07b", "-q", "-J")
    one = person("str", "get", "S", "1")
    one.sees("a\\x1b]0;title\\x07b")
    assert one.end()[0] == 0
    one = person("str", "ls")
    one.sees("[bold]d[/]\\x1b[2J")
    assert one.end()[0] == 0
    natsctl("str", "edit", "S", "--description", "\x9b2J\x7f\u202e\U000e0001", "-f")
    one = person("str", "info", "S", "-j")
    one.sees("\\u009b2J\\u007f\\u202e\\udb40\\udc01")
    assert one.end()[0] == 0
    assert natsctl("str", "info", "S", "-j").json["config"]["description"] == "\x9b2J\x7f\u202e\U000e0001"


def test_a_backup_shows_a_bar_unless_told_not_to(person: Run, natsctl: Run, tmp_path: Path) -> None:
    natsctl("str", "add", "S", "--subjects", "s")
    natsctl("pub", "s", "x" * 1000, "--count", "200", "-q", "-J")
    status, screen = person("str", "backup", "S", str(tmp_path / "b")).end()
    assert (status, "100%" in screen) == (0, True)
    assert 'Starting backup of Stream "S"' in screen
    status, screen = person("str", "backup", "S", str(tmp_path / "c"), "--no-progress").end()
    assert (status, "%" in screen) == (0, False)
    natsctl("str", "rm", "S", "-f")
    status, screen = person("str", "restore", "S", str(tmp_path / "b")).end()
    assert (status, "100%" in screen, 'Restored stream "S" in' in screen) == (0, True, True)


pytest.importorskip("pexpect")

GIVEN = shlex.split(
    "--storage file --replicas 1 --retention limits --discard old --max-msgs=-1 --max-msgs-per-subject=-1 "
    "--max-bytes=-1 --max-age=-1 --max-msg-size=-1 --dupe-window 2m --no-allow-rollup --no-deny-delete"
    " --no-deny-purge --validate"
)


def document(screen: str) -> Any:
    return json.loads(screen[screen.index("{\n") :])


def test_a_mirror_is_adjusted_by_answers(person: Run) -> None:
    one = person("str", "add", "M", "--mirror", "ORDERS", *GIVEN)
    one.dialogue("""
        Configure a custom durable consumer | Adjust mirror start: y | Mirror Start Sequence
        Mirror Start Time (YYYY:MM:DD HH:MM:SS): 2026:01:31 12:00:00 | Adjust mirror filter and transform: y
        Filter mirror by subject (enter to finish): ORDERS.new | Subject transform destination
        Filter mirror by subject (enter to finish) | Import mirror from a different JetStream domain: y
        Foreign JetStream domain name: hub | Delivery prefix: deliver.hub
    """)
    status, screen = one.end()
    assert status == 0, screen
    assert document(screen)["mirror"] == {
        "name": "ORDERS",
        "opt_start_time": "2026-01-31T12:00:00Z",
        "filter_subject": "ORDERS.new",
        "external": {"api": "$JS.hub.API", "deliver": "deliver.hub"},
    }


def test_each_source_is_asked_about_by_name_unless_given_whole(person: Run) -> None:
    one = person("str", "add", "S", "--source", "A", "--source", '{"name": "B", "opt_start_seq": 7}', *GIVEN)
    one.dialogue("""
        Configure a custom durable consumer for source A | Adjust source A start: y | A Start Sequence: 5
        A Start Time | Adjust source A filter and transform: y | Filter A by subject: a.>
        Subject transform destination: b.> | Filter A by subject
        Import source A from a different JetStream domain | Import source A from a different account: y
        Foreign account API prefix: api.x | Foreign account delivery prefix: deliver.x
    """)
    status, screen = one.end()
    assert status == 0, screen
    assert document(screen)["sources"] == [
        {
            "name": "A",
            "opt_start_seq": 5,
            "subject_transforms": [{"src": "a.>", "dest": "b.>"}],
            "external": {"api": "api.x", "deliver": "deliver.x"},
        },
        {"name": "B", "opt_start_seq": 7},
    ]


def test_start_times_are_read_in_three_spellings() -> None:
    assert read_start_time("2026:01:31 12:00:00") == "2026-01-31T12:00:00Z"
    assert read_start_time("2026-01-31 12:00:00") == "2026-01-31T12:00:00Z"
    assert read_start_time("2026-01-31T12:00:00+01:00") == "2026-01-31T12:00:00+01:00"
    assert read_start_time("") == ""
    with pytest.raises(ValueError, match="expected a time"):
        read_start_time("yesterday")
    with pytest.raises(ValueError, match="not a day"):
        read_start_time("2026:02:31 12:00:00")


def test_subjects_and_names_of_origins_are_checked() -> None:
    assert (read_subject(""), read_subject("a.>"), read_name("A-b")) == ("", "a.>", "A-b")
    for read, wrong in ((read_subject, "a..b"), (read_subject, ">.a"), (read_name, "a.b")):
        with pytest.raises(ValueError, match=r".+"):
            read(wrong)


def test_a_message_to_show_is_asked_for_by_sequence_or_subject(person: Run, natsctl: Any) -> None:
    natsctl("str", "add", "S", "--subjects", "s.*")
    natsctl("pub", "s.a", "first", "-q", "-J")
    natsctl("pub", "s.b", "second", "-q", "-J")
    one = person("str", "get", "S")
    one.answers("Message Sequence to retrieve", "1\r")
    one.sees("first")
    assert one.end()[0] == 0
    one = person("str", "get", "S")
    one.answers("Message Sequence to retrieve")
    one.answers("Subject to retrieve last message for", "s.b\r")
    one.sees("second")
    assert one.end()[0] == 0
