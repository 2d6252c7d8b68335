"""Template commands as a script runs them: what the specification shows, exit codes, `-j`."""

from collections.abc import Iterator

import pytest

from tests.support.commands import Run

pytestmark = pytest.mark.ours("nats-server has had no stream templates since 2.14")


@pytest.fixture(autouse=True)
def none_left(natsctl: Run) -> Iterator[None]:
    """Remove the templates that a test made: the server goes on to the next one."""
    yield
    natsctl("str", "template", "rm", "CLIENTS", "-f")


ADD = ("str", "template", "add", "CLIENTS", "--subjects", "CLIENT.*", "--max-streams", "1024")


def test_a_template_is_made_as_the_specification_shows(natsctl: Run) -> None:
    done = natsctl(
        *ADD, "--ack", "--max-msgs=-1", "--max-bytes=-1", "--max-age=1y", "--storage", "file", "--retention", "limits",
        "--max-msg-size", "2048", "--discard", "old",
    )  # fmt: skip
    assert (done.code, done.err) == (0, "Stream Template CLIENTS was created\n")
    assert "Information for Stream Template CLIENTS" in done.out
    assert "Maximum Streams: 1,024" in done.out
    assert "This template has created no Streams yet" in done.out
    assert natsctl("pub", "CLIENT.acme", "hello").code == 0
    assert natsctl("str", "ls", "-n").out == "CLIENTS_acme\n"
    assert "CLIENTS_acme" in natsctl("str", "template", "info", "CLIENTS").out
    assert natsctl("str", "template", "ls", "-n").out == "CLIENTS\n"
    listed = natsctl("str", "template", "ls", "-j").json
    assert [(one["config"]["name"], one["streams"]) for one in listed] == [("CLIENTS", ["CLIENTS_acme"])]
    planned = natsctl("str", "template", "rm", "CLIENTS", "--dry-run", "-j").json
    assert planned["effect"] == {"streams": ["CLIENTS_acme"]}
    assert natsctl("str", "template", "rm", "CLIENTS", "-f").err == "Stream Template CLIENTS was removed\n"
    assert natsctl("str", "ls", "-n").out == ""


def test_a_template_that_is_missing_is_not_found_with_a_suggestion(natsctl: Run) -> None:
    natsctl(*ADD)
    done = natsctl("str", "template", "info", "CLIENT")
    assert (done.code, done.out) == (3, "")
    assert "CLIENTS" in done.err
    assert natsctl("str", "template", "rm", "X", "-f", "-j").error["err_code"] == 10068


def test_no_templates_are_told_on_stdout(natsctl: Run) -> None:
    assert natsctl("str", "template", "ls").out == "No Stream Templates defined\n"
    assert natsctl("str", "template", "ls", "-j").json == []


def test_what_is_there_or_gone_already_is_done_where_that_is_said(natsctl: Run) -> None:
    natsctl(*ADD)
    again = natsctl(*ADD[:-1], "7", "--if-not-exists", "-j")
    assert (again.code, again.json["config"]["max_streams"]) == (0, 1024)
    assert natsctl("str", "template", "rm", "CLIENTS", "-f").code == 0
    assert natsctl("str", "template", "rm", "CLIENTS", "-f").code == 3
    gone = natsctl("str", "template", "rm", "CLIENTS", "-f", "--missing-ok", "-j")
    assert (gone.code, gone.json) == (0, {"success": True})
