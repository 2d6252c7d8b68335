"""`pub`, `req`, `sub` and `events` as a script runs them."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from natsctl.testing.process import ServerProcess

Run = Callable[..., Any]


@pytest.fixture
def stored(natsctl: Run) -> Run:
    """A server with a stream that stores `s.*`."""
    assert natsctl("str", "add", "S", "--subjects", "s.*").code == 0
    return natsctl


class Background:
    """A command in a process of its own; `ready` ones are known to be listening."""

    def __init__(self, url: str, *words: str, ready: bool = True) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "natsctl", *words],
            env={**os.environ, "NATS_URL": url},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stderr is not None
        assert not ready or " on " in self.process.stderr.readline()

    def end(self) -> tuple[int, str]:
        """The exit status and stdout once it has ended."""
        out, _ = self.process.communicate(timeout=30)
        return self.process.returncode, out


@pytest.fixture
def background(shared_server: ServerProcess) -> Iterator[Callable[..., Background]]:
    started: list[Background] = []

    def start(*words: str, ready: bool = True) -> Background:
        started.append(Background(shared_server.url, *words, ready=ready))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
        one.process.communicate()


def test_publishing_tells_on_stderr_and_nothing_on_stdout(stored: Run) -> None:
    done = stored("pub", "s.a", "hello")
    assert (done.code, done.out) == (0, "")
    assert 'Published 5 bytes to "s.a"' in done.err
    assert stored("pub", "s.a", "hello", "-q").err == ""


@pytest.mark.parametrize("flag", ["-J", "--jetstream", "--wait", "-w"])
def test_publishing_with_an_ack_shows_it(stored: Run, flag: str) -> None:
    done = stored("pub", flag, "s.a", "hello")
    assert done.out == "Stored in Stream: S Sequence: 1\n"
    assert stored("pub", flag, "s.a", "hello", "-j").json == {"stream": "S", "seq": 2}


def test_an_ack_that_does_not_come_is_a_failure(stored: Run) -> None:
    done = stored("pub", "-J", "nowhere", "x", "-j")
    assert (done.code, done.out) == (5, "")
    assert "no responders" in done.error["description"]


def test_an_expectation_that_fails_is_a_conflict(stored: Run) -> None:
    done = stored("pub", "-J", "s.a", "x", "-H", "Nats-Expected-Last-Sequence:7", "-j")
    assert (done.code, done.error["err_code"]) == (4, 10071)


def _id_is_understood(stored: Run, header: str) -> None:
    stored("pub", "s.a", "x", "-H", f"{header}:1", "-q")
    assert "Duplicate: true" in stored("pub", "-J", "s.a", "y", "-H", f"{header}:1").out
    assert f"{header}: 1" in stored("str", "get", "S", "1").out


def test_message_ids_are_kept_and_understood(stored: Run) -> None:
    _id_is_understood(stored, "Nats-Msg-Id")


@pytest.mark.ours("servers of today do not know the header that the specification's document shows")
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


def test_a_pipe_is_read_only_without_a_body(stored: Run, shared_server: ServerProcess) -> None:
    command = [sys.executable, "-m", "natsctl", "-s", shared_server.url, "pub", "s.a", "-q", "-J"]
    subprocess.run(command, input=b"piped", check=True, timeout=30)
    assert stored("str", "get", "S", "1", "--raw").out == "piped"
    reader, writer = os.pipe()
    try:
        subprocess.run([*command, "given"], stdin=reader, check=True, timeout=30)
    finally:
        os.close(reader)
        os.close(writer)
    assert stored("str", "get", "S", "2", "--raw").out == "given"


def test_many_messages_are_numbered_by_templates(stored: Run) -> None:
    stored("pub", "s.{{Count}}", "{{Cnt}} {{Random 3 3}}", "--count", "3", "-q", "-J")
    message = stored("str", "get", "S", "3", "-j").json
    assert message["subject"] == "s.3"
    assert len(stored("str", "get", "S", "3", "--raw").out) == len("3 abc")
    assert stored("pub", "s.a", "x", "-H", "K:{{Nope}}").code == 2
    lines = stored("pub", "-J", "s.a", "x", "--count", "2", "-j").lines
    assert [line["seq"] for line in lines] == [4, 5]


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("pub", "s.a", "x", "-H", "nocolon"), "--header"),
        (("pub", "s a", "x"), "subject"),
        (("pub",), "SUBJECT"),
        (("pub", "s.a", "x", "--count", "0"), "0"),
        (("pub", "s.a", "x", "-J", "--reply", "r"), "--reply"),
        (("req", "s.a", "x", "--reply-timeout", "x"), "--"),
        (("sub",), "SUBJECT"),
    ],
)
def test_wrong_words_are_usage_errors(natsctl: Run, words: tuple[str, ...], named: str) -> None:
    done = natsctl(*words)
    assert done.code == 2
    assert named in done.err


def test_a_request_shows_the_answer_on_stdout(stored: Run) -> None:
    done = stored("req", "s.a", "hello")
    assert (done.code, json.loads(done.out)) == (0, {"stream": "S", "seq": 1})
    assert 'Sending request on "s.a"' in done.err
    assert "Received with rtt" in done.err
    document = stored("req", "s.a", "hello", "-j").json
    assert json.loads(document["text"])["seq"] == 2
    assert stored("req", "s.a", "hello", "--raw").out == '{"stream":"S","seq":3}\n\n\n'


def test_a_request_that_nobody_answers_fails(natsctl: Run) -> None:
    done = natsctl("req", "nobody.there", "x", "-j")
    assert (done.code, done.out) == (5, "")
    assert "no responders" in done.error["description"]


def test_a_request_that_is_heard_but_not_answered_fails(natsctl: Run, background: Callable[..., Background]) -> None:
    heard = background("sub", "quiet", "--count", "1")
    assert natsctl("req", "quiet", "x", "--timeout", "2s").code == 5
    assert heard.end()[0] == 0


def test_a_pull_request_is_answered_with_the_stored_message(stored: Run) -> None:
    stored("con", "add", "S", "C", "--pull")
    stored("pub", "s.a", "order", "-q", "-J")
    assert stored("req", "$JS.API.CONSUMER.MSG.NEXT.S.C", "").out == "order\n\n\n"


def test_subscribing_shows_messages_and_ends_after_count(natsctl: Run, background: Callable[..., Background]) -> None:
    listener = background("sub", "a.*", "b", "--count", "2")
    natsctl("pub", "a.x", "one", "-H", "K:V", "-q")
    natsctl("pub", "b", "two", "--reply", "r", "-q")
    code, out = listener.end()
    assert code == 0
    assert out == '[#1] Received on "a.x"\nK: V\n\none\n\n\n[#2] Received on "b" with reply "r"\ntwo\n\n\n'


def test_queue_groups_share(natsctl: Run, background: Callable[..., Background]) -> None:
    listeners = [background("sub", "q", "--queue", "g", "--wait", "6s") for _ in range(2)]
    for _ in range(6):
        natsctl("pub", "q", "x", "-q")
    outs = [listener.end()[1] for listener in listeners]
    assert sum(out.count("Received on") for out in outs) == 6


def test_stored_messages_tell_their_place_and_raw_ones_nothing(stored: Run) -> None:
    stored("con", "add", "S", "P", "--target", "out", "--deliver", "all")
    stored("pub", "s.a", "x", "-q", "-J")
    done = stored("sub", "out", "--count", "1")
    assert "[#1] Received JetStream message: stream: S seq: 1 / pending: 0 / subject: s.a / time: 2" in done.out
    stored("con", "add", "S", "Q", "--target", "out2", "--deliver", "all")
    assert stored("sub", "out2", "--count", "1", "--raw").out == "x\n"
    stored("con", "add", "S", "R", "--target", "out3", "--deliver", "all")
    line = stored("sub", "out3", "--count", "1", "-j").lines[0]
    assert (line["subject"], line["stream"], line["text"]) == ("s.a", "S", "x")
    stored("con", "add", "S", "T", "--target", "out4", "--deliver", "all")
    assert "[#1] @ " in stored("sub", "-t", "out4", "--count", "1").out


def test_a_wait_without_messages_ends_well(natsctl: Run) -> None:
    done = natsctl("sub", "silence", "--wait", "100ms", "-j")
    assert (done.code, done.out, done.err) == (0, "", "")
    assert natsctl("sub", "silence", "--wait", "100ms", "--report-subjects", "-j").json == []


def test_events_tell_what_happens(natsctl: Run, background: Callable[..., Background]) -> None:
    listener = background(
        "events", "--no-js-metric", "--count", "1", "--subjects", "$JS.EVENT.ADVISORY.STREAM.CREATED.>"
    )
    natsctl("str", "add", "EV", "--subjects", "ev")
    code, out = listener.end()
    assert code == 0
    assert "Stream Create Action" in out
    assert "Stream: EV" in out


def test_consumer_events_as_json_are_what_the_server_sent(stored: Run, background: Callable[..., Background]) -> None:
    stored("con", "add", "S", "C", "--pull", "--sample", "100")
    listener = background("con", "events", "S", "C", "--json", "--count", "1", "--wait", "20s", ready=False)
    while listener.process.poll() is None:
        stored("pub", "s.a", "x", "-q")
        stored("con", "next", "S", "C")
    code, out = listener.end()
    event = json.loads(out)
    assert code == 0
    assert (event["stream"], event["consumer"], event["deliveries"]) == ("S", "C", 1)


def test_interrupting_a_subscription_exits_130(background: Callable[..., Background]) -> None:
    listener = background("sub", "x")
    listener.process.send_signal(2)
    threading.Event().wait(0.1)
    assert listener.end()[0] == 130
