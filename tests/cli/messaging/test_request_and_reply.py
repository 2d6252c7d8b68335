"""`natsctl request` and `natsctl reply`: answers, services that fail, programs that answer."""

from __future__ import annotations

import json
import shlex
import signal
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from natsctl.client.connection import Connection
from tests.cli.conftest import eventually
from tests.support.commands import Run

pytestmark = pytest.mark.ours("what a client makes of messages")

if TYPE_CHECKING:
    from natsctl.client.message import Message


def _says(*bodies: bytes, **more: Any) -> Callable[[Message], list[dict[str, Any]]]:
    return lambda _: [{"body": body, **more} for body in bodies]


@pytest.mark.both
def test_several_answers_come_one_document_a_line(natsctl: Run, other: Any) -> None:
    other.listens("many", _says(b"1", b"2", b"3"))
    assert [one["text"] for one in natsctl("req", "many", "x", "--replies", "2", "-j").lines] == ["1", "2"]
    assert [one["text"] for one in natsctl("req", "many", "x", "--replies", "0", "-j").lines] == ["1", "2", "3"]
    assert (
        natsctl("req", "many", "x", "--replies", "0", "--reply-timeout", "50ms", "--raw").out == "1\n\n\n2\n\n\n3\n\n\n"
    )


def test_an_empty_answer_ends_a_series(natsctl: Run, other: Any) -> None:
    other.listens("series", _says(b"a", b"b", b"", b"c"))
    assert natsctl("req", "series", "", "--wait-for-empty", "--raw").out == "a\n\n\nb\n\n\nnil body\n\n\n"


def test_a_services_error_is_a_failure_with_its_text(natsctl: Run, other: Any) -> None:
    headers = {"Nats-Service-Error": "out of stock", "Nats-Service-Error-Code": "409"}
    other.listens("shop", _says(b"sorry", headers=headers))
    done = natsctl("req", "shop", "x", "-j")
    assert done.code == 1
    assert done.json["text"] == "sorry"
    assert done.error["description"] == "out of stock (409)"
    assert done.error["subject"] == "shop"


@pytest.mark.parametrize(("flag", "code"), [("State", 1), ("State:bad", 1), ("State:good", 0), ("Other", 0)])
def test_a_header_that_was_named_is_a_failure(natsctl: Run, other: Any, flag: str, code: int) -> None:
    other.listens("health", _says(b"x", headers=[("State", "fine"), ("State", "bad")]))
    assert natsctl("req", "health", "", "--fail-on-header", flag).code == code


@pytest.mark.both
def test_nobody_there_and_nobody_answering_have_a_hint(natsctl: Run, other: Any) -> None:
    absent = natsctl("req", "nobody.there", "x", "-j")
    assert (absent.code, absent.error["subject"]) == (5, "nobody.there")
    assert "no subscriber" in absent.error["hint"]
    other.listens("mute")
    silent = natsctl("req", "mute", "x", "-j", "--timeout", "1s")
    assert (silent.code, silent.out) == (5, "")
    assert "--timeout" in silent.error["hint"]
    assert _arrived(other.heard, 1)[-1].body == b"x"


def test_requests_carry_headers_templates_and_lines(natsctl: Run, other: Any) -> None:
    other.listens("in.*", _says(b"ok"))
    natsctl("req", "in.{{Count}}", "{{Count}}", "--count", "2", "-H", "K:1", "-H", "K:2", "--raw")
    assert [(one.subject, one.body) for one in other.heard] == [("in.1", b"1"), ("in.2", b"2")]
    assert other.heard[0].headers.pairs == (("K", "1"), ("K", "2"))
    natsctl("req", "in.x", "--send-on", "newline", "--raw", stdin=b"a\nb\n")
    assert [one.body for one in other.heard[2:]] == [b"a", b"b"]


def test_an_answer_is_translated_by_a_program(natsctl: Run, other: Any) -> None:
    other.listens("low", _says(b"abc"))
    upper = f"{shlex.quote(sys.executable)} -c 'import sys; print(sys.stdin.read().upper())'"
    assert natsctl("req", "low", "", "--translate", upper, "--raw").out == "ABC\n\n"
    failed = natsctl("req", "low", "", "--translate", "false", "--raw")
    assert failed.code == 1
    assert "exit status 1" in failed.err


def test_a_dry_run_asks_nobody(natsctl: Run, other: Any) -> None:
    other.listens("asked", _says(b"x"))
    assert natsctl("--dry-run", "req", "asked", "body", "-H", "K:v").out == "asked\nK: v\nbody\n"
    assert other.heard == []


def _asks(other: Any, subject: str, *bodies: bytes, headers: Any = None) -> list[Message]:
    """Ask as soon as somebody listens; the answers, filled in later."""
    answers: list[Message] = []

    async def work(connection: Connection) -> None:
        for body in bodies:
            while (answer := await connection.request(subject, body, headers=headers)).status == 503:
                pass
            answers.append(answer)

    other.does(work)
    return answers


@pytest.mark.both
def test_a_fixed_answer_ends_after_count_with_success(natsctl: Run, other: Any) -> None:
    answers = _asks(other, "q", b"one", b"two")
    done = natsctl("reply", "q", "pong {{Count}} {{Request}}", "-H", "K:v{{Count}}", "--count", "2")
    assert done.code == 0
    assert done.out == "\none\n\ntwo\n"
    assert '[#0] Received on subject "q":' in done.err
    assert [one.body for one in _arrived(answers, 2)] == [b"pong 0 one", b"pong 1 two"]
    assert [one.headers for one in answers] == [{"K": "v0"}, {"K": "v1"}]


def _arrived(got: list[Any], number: int) -> list[Any]:
    """What the other client got, once it has read so much: `reply` may have ended before."""
    return eventually(lambda: got, lambda found: len(found) >= number)


def test_an_echo_has_the_requests_body_and_headers(natsctl: Run, other: Any) -> None:
    answers = _asks(other, "echo.x", b"\x00same", headers=[("A", "1"), ("A", "2")])
    done = natsctl("reply", "echo.*", "--count", "1", "-j")
    _arrived(answers, 1)
    pairs = (("A", "1"), ("A", "2"), ("NATS-Reply-Counter", "0"))
    assert (answers[0].body, answers[0].headers.pairs) == (b"\x00same", pairs)
    assert (done.json["subject"], done.json["answered"]) == ("echo.x", True)


def test_a_program_answers_with_subject_and_body_and_no_shell(natsctl: Run, other: Any) -> None:
    script = "import os,sys; print(sys.argv[1:], os.environ['NATS_REQUEST_SUBJECT'], os.environ['NATS_REQUEST_BODY'])"
    command = f"{shlex.quote(sys.executable)} -c {shlex.quote(script)} {{{{1}}}} {{{{ .Request }}}}"
    answers = _asks(other, "w.$(id).x", b"; echo --evil")
    assert natsctl("reply", "w.>", "--command", command, "--count", "1").code == 0
    assert _arrived(answers, 1)[0].body.decode() == "['$(id)', '; echo --evil'] w.$(id).x ; echo --evil\n"


def test_a_program_that_fails_leaves_the_request_without_an_answer(natsctl: Run, other: Any) -> None:
    async def publish(connection: Connection) -> None:
        while True:
            await connection.publish("bad", b"x", reply="somewhere")
            await connection.flush()

    other.listens("somewhere")
    other.does(publish)
    done = natsctl("reply", "bad", "--command", "false", "--count", "1", "-j")
    assert done.code == 0
    assert (done.json["answered"], done.json["failure"]) == (False, "false ended with exit status 1")
    assert [one for one in other.heard if not one.status] == []


@pytest.mark.parametrize(
    "words",
    [
        ("q", "x", "--echo"),
        ("q", "--echo", "--command", "true"),
        ("q", "--command", "'"),
        ("q", "x", "-H", "K:{{x}}"),
        ("q", "{{block `x` .}}{{end}}"),
    ],
)
def test_an_answer_that_cannot_be_made_is_a_usage_error(natsctl: Run, other: Any, words: tuple[str, ...]) -> None:
    _asks(other, "q", b"x")
    assert natsctl("reply", *words, "--count", "1").code == 2


@pytest.mark.both
def test_a_request_is_answered_by_reply_in_its_group(natsctl: Run, other: Any) -> None:
    got: list[Any] = []

    async def ask(connection: Connection) -> None:
        while (answer := await connection.request("grouped", b"q")).status == 503:
            pass
        got.append(answer.body)

    other.does(ask)
    assert 'in group "G"' in natsctl("reply", "grouped", json.dumps({"a": 1}), "-q", "G", "--count", "1").err
    assert _arrived(got, 1) == [b'{"a": 1}']


def test_ctrl_c_ends_answering_with_130(natsctl: Run, begun: Run) -> None:
    answering = begun("reply", "q", "x")
    assert 'Listening on "q" in group "NATS-RPLY-22"' in answering.stderr.readline()
    answering.send_signal(signal.SIGINT)
    assert answering.communicate(timeout=60)[1] == ""
    assert answering.returncode == 130
