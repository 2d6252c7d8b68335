"""`pub`, `req`, `sub` and `events` as a script runs them."""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest

Run = Callable[..., Any]


@pytest.fixture
def stored(natsctl: Run) -> Run:
    """A server with a stream that stores `s.*`."""
    assert natsctl("str", "add", "S", "--subjects", "s.*").code == 0
    return natsctl


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
