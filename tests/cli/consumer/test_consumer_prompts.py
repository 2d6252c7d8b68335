"""Questions about consumers, at a pseudo-terminal."""

import shlex

import pytest

from tests.support.commands import Run

pytest.importorskip("pexpect")
pytestmark = pytest.mark.ours("questions are asked before a request, whatever the server is")


def test_a_removal_shows_what_vanishes_and_wants_the_name(person: Run, fed: Run) -> None:
    fed("con", "add", "ORDERS", "C", "--pull")
    fed("con", "next", "ORDERS", "C", "--no-ack", "-r")
    one = person("con", "rm", "ORDERS")
    one.answers("Select a Consumer")
    one.sees("Consumer C: 1 outstanding ack, 4 unprocessed messages, ack floor at 0")
    one.answers("type C to do it", "c\r")
    one.sees("c is not C")
    one.child.send("\x7fC\r")
    status, screen = one.end()
    assert (status, "was removed" in screen) == (0, True)
    assert fed("con", "ls", "ORDERS", "-n").out == ""


def test_a_pause_is_asked_for_with_its_default(person: Run, orders: Run) -> None:
    orders("con", "add", "ORDERS", "C", "--pull")
    one = person("con", "pause", "ORDERS", "C")
    one.answers("Pause until (time or duration)", "?\r")
    one.sees("Settable as the third argument")
    one.answers("Pause until (time or duration)", "2001-01-01\r")
    one.sees("that is in the past")
    one.child.send("\x15\r")
    assert one.end()[0] == 0
    info = orders("con", "info", "ORDERS", "C", "-j").json
    assert 3500 * 10**9 < info["pause_remaining"] < 3601 * 10**9


def test_flow_control_asks_for_the_heartbeat_that_it_needs(person: Run, orders: Run) -> None:
    words = "--target out --deliver-group= --deliver all --ack none --replay instant --filter= --no-headers-only"
    one = person("con", "add", "ORDERS", "C", *shlex.split(words))
    one.answers("Idle Heartbeat", "\r")
    one.answers("Enable Flow Control", "y\r")
    one.answers("Idle Heartbeat, which Flow Control needs")
    assert one.end()[0] == 0
    config = orders("con", "info", "ORDERS", "C", "-j").json["config"]
    assert (config["flow_control"], config["idle_heartbeat"]) == (True, 5 * 10**9)


def test_a_watched_report_is_drawn_again_and_leaves_the_terminal(person: Run, fed: Run) -> None:
    fed("con", "add", "ORDERS", "C", "--pull")
    one = person("con", "report", "ORDERS", "--watch", "200ms")
    one.sees("5 / 100%")
    fed("con", "next", "ORDERS", "C", "-r")
    one.sees("4 / 80%")
    one.child.sendintr()
    status, screen = one.end()
    assert (status, "Traceback" in screen) == (130, False)
    assert "\x1b[?1049l" in one.seen, "what was on the screen before is there again"
