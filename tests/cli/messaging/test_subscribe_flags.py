"""`natsctl subscribe`: what a stream has, in every order; files, reports, answers with their requests."""

import asyncio
import base64
import itertools
import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.cli.messaging.conftest import until_stored
from tests.support.commands import Run


@pytest.fixture
def five(stored: Run) -> Run:
    """A stream S with 1, 2 on s.a, 3 on s.b, 4, 5 on s.a."""
    for number, subject in enumerate(("s.a", "s.a", "s.b", "s.a", "s.a"), 1):
        stored("pub", subject, str(number), "-q", "-J")
    return stored


@pytest.mark.parametrize("direct", [(), ("--direct",)])
@pytest.mark.parametrize(
    ("words", "bodies"),
    [
        (("s.*", "--all"), "12345"),
        (("s.a", "--all"), "1245"),
        (("s.a", "s.b", "--all"), "12345"),
        (("--stream", "S"), "12345"),
        (("s.*", "--last"), "5"),
        (("s.*", "--last-per-subject"), "35"),
        (("s.*", "--start-sequence", "3"), "345"),
        (("s.*", "--since", "1h"), "12345"),
        (("s.b",), "3"),
        (("s.b", "--new"), ""),
        (("s.*", "--all", "-I", "s.b"), "1245"),
    ],
)
def test_a_stream_is_read_from_where_it_is_asked_to_its_end(
    five: Run, words: tuple[str, ...], bodies: str, direct: tuple[str, ...]
) -> None:
    done = five("sub", *words, "-T", "--raw", *direct)
    assert (done.code, "".join(done.out.split())) == (0, bodies)
    assert five("con", "ls", "S", "-n").out == ""


def test_reading_on_shows_what_comes_later(five: Run, other: Any) -> None:
    async def once_read(connection: Any) -> None:
        names: list[str] | None = None
        while not names:  # the consumer that reads is where it begins from the start
            names = json.loads((await connection.request("$JS.API.CONSUMER.NAMES.S")).body)["consumers"]
        await connection.publish("s.a", b"6")

    async def again_and_again(connection: Any) -> None:
        for number in itertools.count(7):
            await asyncio.sleep(0.3)
            await connection.publish("s.a", b"%d" % number)

    other.does(once_read)
    assert five("sub", "s.*", "--last", "--count", "2", "--raw").out == "5\n6\n"
    other.does(again_and_again)
    first, second = map(int, five("sub", "s.*", "--direct", "--last", "--count", "2", "--raw").out.split())
    assert (first >= 6, second) == (True, first + 1)


def test_json_tells_where_a_message_stands_however_it_was_read(five: Run) -> None:
    plain = five("sub", "s.b", "--all", "-T", "-j").lines[0]
    direct = five("sub", "s.b", "--direct", "-T", "-j").lines[0]
    assert (plain["stream"], plain["stream_seq"], plain["deliveries"]) == ("S", 3, 1)
    assert (direct["stream"], direct["stream_seq"]) == ("S", 3)
    assert plain["time"] == direct["time"]
    assert "consumer" not in direct


def test_a_durable_is_made_read_on_with_and_kept(five: Run) -> None:
    assert five("sub", "s.a", "--durable", "D", "--count", "2", "--raw").out == "1\n2\n"
    assert five("sub", "s.a", "--durable", "D", "-T", "--raw").out == "4\n5\n"
    info = five("con", "info", "S", "D", "-j").json
    assert (info["num_pending"], info["num_ack_pending"], info["config"]["filter_subject"]) == (0, 0, "s.a")
    nothing = five("sub", "s.a", "--durable", "D", "-T", "--raw")
    assert (nothing.code, nothing.out) == (0, "")
    five("con", "add", "S", "P", "--target", "x")
    assert five("sub", "s.a", "--durable", "P", "-T", "--raw").out == "1\n2\n3\n4\n5\n"
    assert five("con", "info", "S", "P", "-j").json["num_ack_pending"] == 0
    assert five("sub", "s.a", "--durable", "P", "-T", "--raw").out == ""
    five("pub", "s.a", "6", "-q", "-J")
    assert five("sub", "s.a", "--durable", "P", "--count", "1", "--raw").out == "6\n"


def test_a_work_queue_is_looked_at_and_nothing_is_taken(natsctl: Run) -> None:
    natsctl("str", "add", "W", "--subjects", "w", "--retention", "work")
    natsctl("pub", "w", "job", "-q", "-J")
    assert natsctl("sub", "w", "--all", "-T", "--raw").out == "job\n"
    assert natsctl("str", "info", "W", "-j").json["state"]["messages"] == 1


def test_an_interrupted_reader_leaves_no_consumer(five: Run, begun: Run) -> None:
    reader = begun("sub", "s.*", "--all", "--raw")
    assert reader.stdout.readline() == "1\n"
    reader.send_signal(signal.SIGINT)
    reader.communicate(timeout=60)
    assert reader.returncode == 130
    assert five("con", "ls", "S", "-n").out == ""


@pytest.mark.parametrize("way", [(), ("--direct",), ("--durable", "READER")])
def test_what_is_read_becomes_a_backup_of_the_stream(five: Run, tmp_path: Path, way: tuple[str, ...]) -> None:
    five("pub", "s.c", "with headers", "-H", "K:1", "-H", "K:2", "-H", "Nats-Sequence:7", "-q", "-J")
    five("str", "rmm", "S", "2", "-f")
    target = str(tmp_path / "CAPTURED")
    done = five("sub", "s.*", "--all", "-T", "--backup", target, "--quiet", *way)
    assert (done.code, done.out, "Backup of 5 messages (" in done.err) == (0, "", True), done
    info = five("backup", "info", target, "-j").json
    assert (info["config"]["name"], info["source"]["stream"], info["source"]["subjects"]) == ("S", "S", ["s.*"])
    saved = five("backup", "cat", target, "-j").lines
    assert [one["seq"] for one in saved] == [1, 3, 4, 5, 6]
    stored = [five("str", "get", "S", str(one["seq"]), "-j").json for one in saved]
    assert stored == [{name: value for name, value in one.items() if value != ""} for one in saved]
    assert five("str", "rm", "S", "-f").code == 0
    assert five("backup", "restore", "stream", target).code == 0
    assert five("str", "info", "S", "-j").json["state"]["last_seq"] == 6


@pytest.mark.ours("how messages are shown")
def test_of_several_starts_one_is_taken_and_named(five: Run) -> None:
    done = five("sub", "s.*", "--last", "--start-sequence", "4", "--new", "-T", "--raw")
    assert (done.code, done.out) == (0, "4\n5\n")
    assert "warning: ignored with --start-sequence: --last, --new\n" in done.err


@pytest.mark.ours("how messages are shown")
def test_messages_are_dumped_as_the_nats_tool_writes_them(five: Run, tmp_path: Path) -> None:
    five("pub", "s.c", b"\xff".decode("latin1"), "-H", "K:1", "-H", "K:2", "-q", "-J")
    five("sub", "s.b", "--all", "-T", "--dump", str(tmp_path / "b"))
    (place,) = (one["stream_seq"] for one in five("sub", "s.b", "--all", "-T", "-j").lines)
    assert [path.name for path in (tmp_path / "b").iterdir()] == [f"{place}.json"]
    assert five("sub", "s.*", "--all", "-T", "--dump", str(tmp_path / "d")).out == ""
    assert sorted(path.name for path in (tmp_path / "d").iterdir()) == [f"{number}.json" for number in range(1, 7)]
    last = json.loads((tmp_path / "d" / "6.json").read_text())
    assert (last["Subject"], last["Header"]) == ("s.c", {"K": ["1", "2"]})
    assert base64.b64decode(last["Data"]) == "ÿ".encode()
    assert five("sub", "s.b", "--all", "-T", "--dump", "/proc/none").code == 1
    parts = five("sub", "s.b", "--all", "-T", "--dump", "-").out.split("\0")
    assert [json.loads(part)["Subject"] for part in parts if part] == ["s.b"]


@pytest.mark.ours("how messages are shown")
def test_subjects_headers_and_times_only(five: Run) -> None:
    only = five("sub", "s.b", "--all", "-T", "--subjects-only").out
    place = r"stream: S seq: \d+ / pending: 0 / subject: s\.b / time: [^\n]+\n"
    assert re.fullmatch(rf"\[#1\] Received JetStream message: {place}", only)
    five("pub", "s.h", "body", "-H", "K:v", "-q", "-J")
    shown = five("sub", "s.h", "--all", "-T", "--headers-only").out
    assert re.sub(" / time: .+", "", shown) == (
        "[#1] Received JetStream message: stream: S seq: 6 / pending: 0 / subject: s.h\nK: v\nNats-Msg-Size: 4\n\n"
    )
    assert re.match(r"\[#1\] @ \d+(\.\d+)?(µs|ms|s) Received", five("sub", "s.b", "--all", "-T", "-d").out)
    stamped = re.match(
        r"\[#1\] @ \w{3} [\d ]\d [\d:]{8}(\.\d{6}) Received", five("sub", "s.b", "--all", "-T", "-t").out
    )
    assert stamped and stamped[1] in five("str", "get", "S", "--last-for", "s.b", "-j").json["time"], (
        "when it was stored"
    )


@pytest.mark.ours("how messages are shown")
def test_a_report_counts_by_subject_and_by_subscription(five: Run) -> None:
    report = five("sub", "s.*", "--all", "-T", "--report-subjects", "--report-top", "1", "-j").json
    assert report == [{"subject": "s.a", "messages": 4, "bytes": 4}]
    by_pattern = five("sub", "s.b", "s.*", "--all", "-T", "--report-subscriptions", "-j").json
    assert {one["subject"]: one["messages"] for one in by_pattern} == {"s.*": 4, "s.b": 1}
    table = five("sub", "s.*", "--all", "-T", "--report-subjects").out
    assert re.search(r"│ s\.a +│ +4 │ +4 B │\n│ s\.b +│ +1 │ +1 B │", table)
    assert "5 messages" in five("sub", "s.*", "--all", "-T", "--graph").out


@pytest.mark.ours("how messages are shown")
def test_answers_are_shown_with_their_requests(natsctl: Run, other: Any) -> None:
    other.listens("ask", lambda _: [{"body": b"answer"}])

    async def asks(connection: Any) -> None:
        while True:
            await connection.request("ask", b"question")

    other.does(asks)
    done = natsctl("sub", "ask", "--match-replies", "--count", "2", "--wait", "10s")
    assert 'Received on "ask" with reply "_INBOX.' in done.out
    assert done.out.count('[#1] Received on "ask"') == 1
    assert re.search(r'\[#2\] Matched reply on "_INBOX\.\S+"\nanswer\n', done.out)
    assert done.out.endswith("answer\n\n\n")


@pytest.mark.ours("how messages are shown")
def test_an_inbox_is_told_and_listened_on(natsctl: Run, begun: Run, other: Any) -> None:
    one = begun("sub", "--inbox", "--count", "1", "--raw")
    other.sends_once_heard(one.stderr.readline().split("Inbox: ")[1].strip(), b"for you")
    out, _ = one.communicate(timeout=60)
    assert (one.returncode, out) == (0, "for you\n")


def test_acks_go_to_the_consumer_when_asked_for(five: Run) -> None:
    five("con", "add", "S", "P", "--target", "out", "--ack", "explicit", "--deliver", "all", "--wait", "1m")
    assert five("sub", "out", "--ack", "--count", "5", "--raw").code == 0
    assert five("con", "info", "S", "P", "-j").json["num_ack_pending"] == 0


@pytest.mark.ours("how messages are shown")
def test_a_report_at_a_terminal_is_redrawn_and_stays_below(five: Run, person: Run) -> None:
    one = person("sub", "s.*", "--all", "--report-subjects")
    one.sees("5 messages")
    one.child.sendintr()
    code, screen = one.end()
    assert code == 130
    assert screen.rstrip().endswith("╯")
    assert "Traceback" not in screen


@pytest.mark.ours("what the client does with many messages at once")
def test_a_burst_is_shown_whole_and_in_order(natsctl: Run, other: Any) -> None:
    count = 20_000
    other.sends_once_heard("burst", *(b"%d" % number for number in range(count)))
    done = natsctl("sub", "burst", "--raw", "--count", str(count), "--wait", "20s")
    assert done.code == 0
    assert done.out.split() == [str(number) for number in range(count)]


@pytest.mark.ours("how messages are shown")
def test_messages_that_are_not_shown_do_not_keep_a_wait_from_ending(natsctl: Run, other: Any) -> None:
    async def chatter(connection: Any) -> None:
        while True:
            await connection.publish("noise.x", b"")
            await asyncio.sleep(0.005)

    other.does(chatter)
    assert natsctl("sub", "noise.*", "-I", "noise.x", "--wait", "100ms").code == 0


def test_many_stored_messages_are_read_whole_and_in_order(stored: Run) -> None:
    lines = "".join(f"{number}\n" for number in range(3000)).encode()
    assert stored("pub", "s.a", "--send-on", "newline", "-q", stdin=lines).code == 0
    until_stored(stored, 3000)
    for more in ((), ("--direct",)):
        done = stored("sub", "s.a", "--all", "-T", "--raw", *more)
        assert done.out.encode() == lines
