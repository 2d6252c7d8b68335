"""`publish`, `request` and `subscribe` as a script runs them: what is asked of a stream, batches, schedules."""

import base64
import itertools
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from natsctl.api.errors import ExitCode
from natsctl.client.messaging.messages import stream_headers
from natsctl.testing.process import Kind, ServerProcess
from tests.cli.messaging.conftest import until_stored
from tests.support.commands import Run
from tests.support.conf_server import ConfServer

pytestmark = pytest.mark.ours("what a client makes of words and stdin")


def test_publishing_tells_on_stderr_and_nothing_on_stdout(stored: Run) -> None:
    done = stored("pub", "s.a", "hello")
    assert (done.code, done.out) == (0, "")
    assert 'Published 5 bytes to "s.a"' in done.err
    assert stored("pub", "s.a", "hello", "-q").err == ""


@pytest.mark.both
@pytest.mark.parametrize("flag", ["-J", "--jetstream", "--wait", "-w"])
def test_publishing_with_an_ack_shows_it(stored: Run, flag: str) -> None:
    done = stored("pub", flag, "s.a", "hello")
    assert re.fullmatch(r"\d\d:\d\d:\d\d Stored in Stream: S Sequence: 1\n", done.out)
    assert stored("pub", flag, "s.a", "hello", "-j").json == {"stream": "S", "seq": 2}


def _id_is_understood(stored: Run, header: str) -> None:
    stored("pub", "s.a", "x", "-H", f"{header}:1", "-q")
    assert "Duplicate: true" in stored("pub", "-J", "s.a", "y", "-H", f"{header}:1").out
    assert f"{header}: 1" in stored("str", "get", "S", "1").out


@pytest.mark.both
def test_message_ids_are_kept_and_understood(stored: Run) -> None:
    _id_is_understood(stored, "Nats-Msg-Id")


def test_message_ids_in_the_documents_spelling_are_kept_and_understood(stored: Run) -> None:
    _id_is_understood(stored, "Msg-Id")


def test_a_body_is_the_words_as_they_are_and_else_stdin(stored: Run) -> None:
    bodies = {"@/etc/hostname": b"@/etc/hostname", "words": b"words", "": b"", "-": b""}
    for body in bodies:
        assert stored("pub", "s.a", body, "-q", "--force-stdin", "-J", stdin=b"not read").code == 0
    stored("pub", "s.a", "-q", "-J", stdin=b"\x00\xfffrom stdin")
    stored("pub", "s.a", "-q", "-J")
    stored("pub", "s.a", "given", "-q", "-J", "--send-on", "newline", stdin=b"a\nb\n")
    got = [base64.b64decode(stored("str", "get", "S", str(seq), "-j").json.get("data", "")) for seq in range(1, 8)]
    assert got == [*bodies.values(), b"\x00\xfffrom stdin", b"", b"given"]
    assert stored("str", "info", "S", "-j").json["state"]["messages"] == len(got)


@pytest.mark.both
def test_a_request_shows_the_answer_on_stdout(stored: Run) -> None:
    done = stored("req", "s.a", "hello")
    assert (done.code, json.loads(done.out)) == (0, {"stream": "S", "seq": 1})
    assert 'Sending request on "s.a"' in done.err
    assert "Received with rtt" in done.err
    document = stored("req", "s.a", "hello", "-j").json
    assert json.loads(document["text"])["seq"] == 2
    assert stored("req", "s.a", "hello", "--raw").out == '{"stream":"S","seq":3}\n\n\n'


def test_subscribing_shows_messages_and_ends_after_count(natsctl: Run, begun: Run) -> None:
    listener = begun("sub", "a.*", "b", "--count", "2")
    assert " on " in listener.stderr.readline()
    natsctl("pub", "a.x", "one", "-H", "K:V", "-q")
    natsctl("pub", "b", "two", "--reply", "r", "-q")
    out, _ = listener.communicate(timeout=60)
    assert listener.returncode == 0
    assert out == '[#1] Received on "a.x"\nK: V\n\none\n\n\n[#2] Received on "b" with reply "r"\ntwo\n\n\n'


def test_queue_groups_share(natsctl: Run, begun: Run) -> None:
    """Each of two listeners ends with its first message: they have different ones, or one would come to both."""
    listeners = [begun("sub", "q", "--queue", "g", "--count", "1") for _ in range(2)]
    for listener in listeners:
        assert " on " in listener.stderr.readline()
    numbers = itertools.count()
    while any(listener.poll() is None for listener in listeners):
        natsctl("pub", "q", str(next(numbers)), "-q")
    one, other = (listener.communicate()[0] for listener in listeners)
    assert one != other


def test_a_wait_without_messages_ends_well(natsctl: Run) -> None:
    done = natsctl("sub", "silence", "--wait", "100ms", "-j")
    assert (done.code, done.out, done.err) == (0, "", "")
    assert natsctl("sub", "silence", "--wait", "100ms", "--report-subjects", "-j").json == []


NOW_NS = 1_767_225_600_500_000_000  # 2026-01-01T00:00:00.5Z


def _headers(natsctl: Run, seq: int = 1) -> str:
    return base64.b64decode(natsctl("str", "get", "S", str(seq), "-j").json["hdrs"]).decode()


@pytest.mark.both
def test_headers_of_one_name_are_all_kept(stored: Run) -> None:
    stored("pub", "s.a", "x", "-H", "K:1", "-H", "K: 2", "-H", "k:3", "-q", "-J")
    assert _headers(stored) == "NATS/1.0\r\nK: 1\r\nK: 2\r\nk: 3\r\n\r\n"
    stored("con", "add", "S", "C", "--pull")
    assert stored("con", "next", "S", "C", "-j").json["headers"] == {"K": ["1", "2"], "k": ["3"]}


@pytest.mark.both
@pytest.mark.parametrize(
    ("flags", "header"),
    [
        (("--msg-id", "a1"), "Nats-Msg-Id: a1"),
        (("--expect-stream", "S"), "Nats-Expected-Stream: S"),
        (("--expect-last-seq", "0"), "Nats-Expected-Last-Sequence: 0"),
        (("--expect-last-subject-seq", "0"), "Nats-Expected-Last-Subject-Sequence: 0"),
    ],
)
def test_what_is_asked_of_a_stream_goes_with_the_message_and_waits_for_the_ack(
    stored: Run, flags: tuple[str, ...], header: str
) -> None:
    done = stored("pub", "s.a", "x", *flags, "-j")
    assert header in _headers(stored, done.json["seq"])


@pytest.mark.both
def test_expectations_that_fail_are_conflicts(stored: Run) -> None:
    stored("pub", "s.a", "x", "--msg-id", "1", "-q")
    assert stored("pub", "s.a", "x", "--expect-last-seq", "7").code == 4
    assert stored("pub", "s.a", "x", "--expect-last-subject-seq", "7").code == 4
    assert stored("pub", "s.a", "x", "--expect-last-msg-id", "7").code == 4
    assert stored("pub", "s.a", "x", "--expect-last-msg-id", "1").code == 0
    assert stored("pub", "s.a", "x", "--msg-id", "1", "-j").json["duplicate"] is True


@pytest.mark.both
def test_rollups_replace_what_was_there_and_ttls_expire(natsctl: Run) -> None:
    natsctl("str", "add", "S", "--subjects", "s.*", "--allow-rollup", "--allow-msg-ttl")
    natsctl("pub", "s.a", "x", "--count", "3", "-q")
    natsctl("pub", "s.b", "x", "-q")
    assert natsctl("pub", "s.a", "y", "--rollup", "subject", "-j").code == 0
    assert natsctl("str", "info", "S", "-j").json["state"]["messages"] == 2
    assert natsctl("pub", "s.a", "y", "--rollup", "all", "--ttl", "1h", "-j").code == 0
    assert natsctl("str", "info", "S", "-j").json["state"]["messages"] == 1
    assert "Nats-TTL: 1h0m0s" in _headers(natsctl, 6)


def test_lines_of_stdin_are_messages(stored: Run) -> None:
    done = stored("pub", "s.{{Count}}", "--count", "1", "--send-on", "newline", stdin=b"one\ntwo\r\n\nfour")
    assert (done.code, done.out) == (0, "")
    assert 'Published 4 messages to "s.{{Count}}"' in done.err
    until_stored(stored, 4)
    got = [stored("str", "get", "S", str(seq), "-j").json for seq in (1, 2, 3, 4)]
    assert [one["subject"] for one in got] == ["s.1", "s.1", "s.1", "s.1"]
    assert [base64.b64decode(one.get("data", "")) for one in got] == [b"one", b"two", b"", b"four"]


@pytest.mark.both
def test_a_batch_is_stored_as_a_whole_with_one_ack(natsctl: Run) -> None:
    assert natsctl("str", "add", "S", "--subjects", "s.*", "--allow-batch").code == 0
    done = natsctl("pub", "s.a", "--atomic", "--send-on", "newline", "-j", stdin=b"one\ntwo\nthree\n")
    assert (done.json["seq"], done.json["count"]) == (3, 3)
    assert natsctl("pub", "s.a", "x", "--atomic", "--count", "2").out.endswith("Sequence: 5 Batch: 2 messages\n")
    refused = natsctl("pub", "s.a", "--atomic", "--send-on", "newline", "--expect-last-seq", "1", stdin=b"a\nb\n")
    assert refused.code != 0
    assert natsctl("str", "info", "S", "-j").json["state"]["messages"] == 5


@pytest.mark.both
def test_a_batch_where_none_are_taken_stores_nothing(stored: Run) -> None:
    done = stored("pub", "s.a", "x", "--atomic", "--count", "3", "-j")
    assert (done.code, done.out) == (1, "")
    assert done.error["err_code"] == 10174
    assert stored("str", "info", "S", "-j").json["state"]["messages"] == 0


@pytest.mark.both
def test_a_scheduled_message_comes_when_it_is_time(natsctl: Run) -> None:
    natsctl("str", "add", "S", "--subjects", "s.*", "--allow-schedules", "--allow-msg-ttl")
    asked = natsctl("pub", "s.much", "much later", "--schedule-after", "1h", "--schedule-dest", "s.out", "-j")
    assert asked.json["seq"] == 1  # it goes when it has come: that of another time is looked at
    headers = _headers(natsctl)
    assert "Nats-Schedule: @at 20" in headers
    assert "Nats-Schedule-Target: s.out" in headers
    assert natsctl("pub", "s.plan", "later", "--schedule-after", "1s", "--schedule-dest", "s.out", "-j").code == 0
    assert natsctl("sub", "s.out", "--all", "--count", "1", "--raw", "--wait", "30s").out == "later\n"


@pytest.mark.both
def test_flags_win_over_headers_of_the_same_name(natsctl: Run) -> None:
    natsctl("str", "add", "S", "--subjects", "s.*", "--allow-schedules")
    done = natsctl(
        "pub", "s.a", "x", "--schedule-dest", "s.b", "--schedule-cron", "@hourly", "-H", "nats-schedule-target:c", "-j"
    )
    assert done.code == 0, done.err
    assert _headers(natsctl).count("Nats-Schedule-Target") == 1
    assert "nats-schedule-target" not in _headers(natsctl)


@pytest.mark.both
def test_a_destination_alone_is_sent_and_stored(stored: Run) -> None:
    assert stored("pub", "s.a", "x", "--schedule-dest", "elsewhere", "-j").json["seq"] == 1


def test_an_empty_batch_is_refused_and_pauses_may_be_random(stored: Run) -> None:
    done = stored("pub", "s.a", "--atomic", "--send-on", "newline", stdin=b"")
    assert (done.code, "no messages to publish" in done.err) == (2, True)
    assert stored("pub", "s.a", "x", "--count", "3", "--jitter", "2ms", "-q").code == 0


@pytest.mark.parametrize(
    ("asked", "pairs"),
    [
        ({"schedule_after": "90s"}, "@at 2026-01-01T00:01:31Z"),
        ({"schedule_at": "2026-02-01T12:00:00+02:00"}, "@at 2026-02-01T10:00:00Z"),
        ({"schedule_every": "5m"}, "@every 5m0s"),
        ({"schedule_cron": "0 30 14 * * *"}, "0 30 14 * * *"),
    ],
)
def test_schedules_are_written_as_servers_read_them(asked: dict[str, str], pairs: str) -> None:
    more = {"schedule_dest": "d", "schedule_source": "f", "schedule_ttl": "1m"}
    assert stream_headers({**asked, **more}, NOW_NS) == (
        ("Nats-Schedule", pairs),
        ("Nats-Schedule-Target", "d"),
        ("Nats-Schedule-Source", "f"),
        ("Nats-Schedule-TTL", "1m0s"),
    )


def test_a_dry_run_shows_subject_headers_and_body_and_sends_nothing(stored: Run) -> None:
    done = stored("--dry-run", "pub", "s.a", "hello", "-H", "K:1", "-H", "K:2", "--ttl", "1m")
    assert done.out == "s.a\nK: 1\nK: 2\nNats-TTL: 1m0s\nhello\nmessages: 1\nacknowledged: true\n"
    planned = stored("--dry-run", "pub", "s.{{Count}}", "x", "--count", "200", "-j").json
    assert [one["subject"] for one in planned["requests"][:2]] == ["s.1", "s.2"]
    assert planned["effect"]["messages"] == 200
    assert stored("--dry-run", "pub", "s.a", "x", "--atomic", "--count", "2").out.count("Nats-Batch-Id") == 2
    assert stored("str", "info", "S", "-j").json["state"]["messages"] == 0


def test_json_says_what_went_out_where_no_stream_answers(natsctl: Run) -> None:
    assert natsctl("pub", "a.b", "hello", "--count", "3", "-j").json == {"subject": "a.b", "published": 3, "bytes": 15}


def test_a_template_is_executed_unless_it_is_none_or_turned_off(stored: Run) -> None:
    bodies = (
        '{"a": "{{Count}}", "b": {"c": {}}}',
        '{"a": {{Nope}}}',
        "{{Random(1, 2)}}",
        "{{ .Count }",
        "}} x",
    )
    for body in bodies:
        assert stored("pub", "s.a", body, "-q", "-J").code == 0
    stored("pub", "s.{{", bodies[0], "-q", "-J", "--no-templates", "-H", "N:{{Count}}")
    got = [stored("str", "get", "S", str(seq), "--raw").out for seq in range(1, 7)]
    assert got == ['{"a": "1", "b": {"c": {}}}', *bodies[1:5], bodies[0]]
    assert stored("str", "get", "S", "6", "-j").json["subject"] == "s.{{"
    assert "N: 1" in _headers(stored, 6)
    named = stored("pub", "s.a", "{{Nope}}", "-q", "-J")
    assert "{{Nope}} is not a function" in named.err
    unsupported = stored("pub", "s.a", '{{define "x"}}{{end}}', "-q", "-J")
    assert (unsupported.code, "define" in unsupported.err) == (2, True)


@pytest.mark.parametrize("stdin", ["null", "closed"])
def test_a_stdin_without_input_is_an_empty_body(stored: Run, shared_server: ServerProcess, stdin: str) -> None:
    command = [sys.executable, "-m", "natsctl", "-s", shared_server.url, "pub", "s.a", "-J", "-j"]
    if stdin == "closed":
        command = ["sh", "-c", 'exec "$@" <&-', "sh", *command]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=True)
    assert b'"seq": 1' in done.stdout
    assert stored("str", "get", "S", "1", "--raw").out == ""


def test_a_person_at_a_terminal_types_the_body(stored: Run, person: Run) -> None:
    typing = person("pub", "s.a", "-J")
    typing.sees("end it with Ctrl-D")
    typing.child.send("typed\r\x04")
    assert typing.end()[0] == 0
    assert base64.b64decode(stored("str", "get", "S", "1", "-j").json["data"]) == b"typed\n"


def test_lines_go_out_as_they_come(stored: Run, begun: Run) -> None:
    publisher = begun("pub", "s.a", "--send-on", "newline", "-J", stdin=subprocess.PIPE, bufsize=1)
    for number in (1, 2):
        publisher.stdin.write(f"line {number}\n")
        assert publisher.stdout.readline().endswith(f" Stored in Stream: S Sequence: {number}\n")
    publisher.send_signal(2)
    assert publisher.wait(60) == 130
    assert "Traceback" not in publisher.stderr.read()


@pytest.mark.parametrize("kind", ["natsctl", pytest.param("reference", marks=pytest.mark.reference)])
def test_a_refusal_midway_repeats_no_message(kind: Kind, command: Run, tmp_path: Path) -> None:
    """The first connection stores a message, and leaves the refusal of the second to the other one."""
    rights = '{ publish: { allow: ["$JS.API.>", "s.1"] } }'
    text = f"jetstream {{ store_dir: {json.dumps(str(tmp_path / 'js'))} }}\n"
    text += f"authorization {{ users: [{{ user: ann, password: x, permissions: {rights} }}] }}\n"
    with ConfServer(tmp_path / "server", kind, text) as server:
        natsctl = command(server.url.replace("nats://", "nats://ann:x@"))
        assert natsctl("str", "add", "S", "--subjects", "s.*", "--defaults").code == 0
        done = natsctl("pub", "s.{{Count}}", "x", "--count", "3", "--jetstream")
        assert (done.code, done.out.count("Stored in Stream"), "s.2" in done.err) == (ExitCode.NOT_AUTHORISED, 1, True)
        assert natsctl("str", "info", "S", "-j").json["state"]["messages"] == 1
