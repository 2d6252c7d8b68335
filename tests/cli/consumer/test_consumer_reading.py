"""Messages read from consumers: next, fetch and sub."""

import asyncio
import signal
import time
from typing import Any

import pytest

from natsctl.client.messaging.consumers import pull
from natsctl.testing.process import ServerProcess
from tests.cli.conftest import eventually
from tests.support.commands import Run
from tests.support.servers import managing

WITHIN_S = 30.0


def texts(done: Any) -> list[str]:
    return [one["text"] for one in done.lines]


def test_fetch_takes_one_batch_and_what_is_there(fed: Run) -> None:
    fed("con", "add", "ORDERS", "C", "--pull")
    assert texts(fed("con", "fetch", "ORDERS", "C", "--batch", "2", "-j")) == ["1", "2"]
    assert texts(fed("con", "fetch", "ORDERS", "C", "--no-wait", "-j")) == ["3", "4", "5"]
    empty = fed("con", "fetch", "ORDERS", "C", "--no-wait")
    assert (empty.code, empty.out) == (7, "")
    assert fed("con", "fetch", "ORDERS", "C", "--no-wait", "--no-fail-empty").code == 0


def test_bytes_end_a_batch_and_a_message_that_is_too_large_says_so(fed: Run) -> None:
    fed("con", "add", "ORDERS", "C", "--pull")
    done = fed("con", "fetch", "ORDERS", "C", "--max-bytes", "150", "-j")
    assert (done.code, texts(done)) == (0, ["1", "2"])
    small = fed("con", "next", "ORDERS", "C", "--max-bytes", "10")
    assert (small.code, "--max-bytes" in small.err) == (1, True)
    assert fed("con", "info", "ORDERS", "C", "-j").json["num_ack_pending"] == 0


def test_next_keeps_to_the_limits_of_the_consumer(fed: Run) -> None:
    fed("con", "add", "ORDERS", "C", "--pull", "--max-pull-batch", "2", "--max-pull-expire", "1s")
    assert texts(fed("con", "next", "ORDERS", "C", "--count", "5", "--wait", "30s", "-j")) == ["1", "2", "3", "4", "5"]
    begin_s = time.monotonic()
    assert fed("con", "next", "ORDERS", "C", "--wait", "1200ms").code == 7
    assert time.monotonic() - begin_s > 1.1, "two requests of the longest that the consumer allows"


def test_a_refusal_may_wait_and_an_end_may_have_a_reason(fed: Run) -> None:
    fed("con", "add", "ORDERS", "C", "--pull", "--filter", "ORDERS.a")
    assert fed("con", "next", "ORDERS", "C", "--nak", "--delay", "1h").code == 0
    again = fed("con", "next", "ORDERS", "C", "--count", "5", "--no-wait", "--term", "--reason", "bad order", "-j")
    assert texts(again) == ["2", "3", "4", "5"], "the refused one rests"
    assert fed("con", "info", "ORDERS", "C", "-j").json["num_ack_pending"] == 1


def test_groups_are_known_or_asked_for(fed: Run) -> None:
    fed("con", "add", "ORDERS", "ONE", "--overflow-groups", "g")
    fed("con", "add", "ORDERS", "TWO", "--pinned-groups", "g,h")
    assert texts(fed("con", "next", "ORDERS", "ONE", "-j")) == ["1"]
    assert fed("con", "fetch", "ORDERS", "ONE", "--no-wait", "--min-pending", "100").code == 7
    missing = fed("con", "next", "ORDERS", "TWO")
    assert (missing.code, "--group" in missing.err, "g, h" in missing.err) == (2, True, True)
    read = fed("con", "next", "ORDERS", "TWO", "--group", "g", "--count", "3", "--batch", "1", "-j")
    assert texts(read) == ["1", "2", "3"]
    assert fed("con", "next", "ORDERS", "TWO", "--group", "x").code == 2
    fed("con", "add", "ORDERS", "NONE", "--pull")
    assert fed("con", "next", "ORDERS", "NONE", "--group", "g").code == 2


def test_a_dry_run_reads_nothing(fed: Run) -> None:
    fed("con", "add", "ORDERS", "C", "--pull")
    for verb in ("next", "fetch", "sub"):
        done = fed("con", verb, "ORDERS", "C", "--dry-run", "-j")
        assert done.json["requests"][0]["subject"] == "$JS.API.CONSUMER.MSG.NEXT.ORDERS.C"
        assert done.json["effect"] == {"each_message": "+ACK"}
    assert fed("con", "info", "ORDERS", "C", "-j").json["delivered"]["stream_seq"] == 0


def test_sub_reads_a_queue_group_with_heartbeats_and_flow_control(fed: Run) -> None:
    fed("con", "add", "ORDERS", "P", "--target", "out", "--deliver-group", "g", "--ack", "explicit")
    done = fed("con", "sub", "ORDERS", "P", "--count", "5", "--deliver-group", "g", "-j")
    assert texts(done) == ["1", "2", "3", "4", "5"]
    assert fed("con", "info", "ORDERS", "P", "-j").json["num_ack_pending"] == 0
    assert fed("con", "sub", "ORDERS", "P", "--deliver-group", "other").code == 2
    fed("con", "add", "ORDERS", "F", "--target", "flow", "--heartbeat", "1s", "--flow-control")
    idle = fed("con", "sub", "ORDERS", "F", "--wait", "1500ms", "-j")
    assert (idle.code, texts(idle)) == (0, ["1", "2", "3", "4", "5"]), "heartbeats are no messages and end no wait"


def test_sub_ends_when_a_pull_consumer_rests_and_gives_back_what_is_not_wanted(fed: Run) -> None:
    fed("con", "add", "ORDERS", "C", "--pull", "--wait", "1h")
    done = fed("con", "sub", "ORDERS", "C", "--wait", "1s", "-j")
    assert (done.code, texts(done)) == (0, ["1", "2", "3", "4", "5"])
    assert fed("con", "sub", "ORDERS", "C", "--wait", "100ms").code == 7
    info = fed("con", "info", "ORDERS", "C", "-j").json
    assert (info["num_waiting"], info["num_ack_pending"]) == (0, 0)


@pytest.mark.ours("signals do not reach a server")
@pytest.mark.parametrize("verb", ["next", "sub"])
def test_ctrl_c_leaves_no_request_behind(fed: Run, begun: Run, verb: str) -> None:
    fed("con", "add", "ORDERS", "C", "--pull", "--deliver", "new")
    process = begun("con", verb, "ORDERS", "C", "--wait", "10m")
    eventually(lambda: fed("con", "info", "ORDERS", "C", "-j").json["num_waiting"])
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=WITHIN_S)
    assert (process.returncode, out, "Traceback" in err) == (130, "", False)
    assert fed("con", "info", "ORDERS", "C", "-j").json["num_waiting"] == 0


def test_an_ack_of_a_reader_that_stops_is_not_waited_for_by_others(fed: Run, shared_server: ServerProcess) -> None:
    fed("con", "add", "ORDERS", "C", "--pull", "--wait", "1h")

    async def stop_after_one() -> None:
        async with managing(shared_server.url) as manager:
            messages = pull(manager, "ORDERS", "C", {"batch": 5, "expires": 5 * 10**9})
            await anext(messages)
            while (await manager.consumer_info("ORDERS", "C")).value.num_ack_pending < 5:
                pass
            await asyncio.sleep(0.1)
            await messages.aclose()

    asyncio.run(stop_after_one())
    again = fed("con", "fetch", "ORDERS", "C", "--batch", "4", "--wait", "30s", "-j")
    assert sorted(texts(again)) == ["2", "3", "4", "5"]
    assert {one["deliveries"] for one in again.lines} == {2}


@pytest.mark.parametrize(
    ("flags", "wanted"),
    (
        ("", ["1", "2", "3", "4", "5"]),
        ("--start-sequence 4", ["4", "5"]),
        ("--last", ["5"]),
        ("--last-per-subject", ["5"]),
        ("--since 1h", ["1", "2", "3", "4", "5"]),
        ("--subject ORDERS.a,ORDERS.b --start-sequence 5", ["5"]),
    ),
)
def test_sub_reads_a_stream_in_order_and_leaves_no_consumer(fed: Run, flags: str, wanted: list[str]) -> None:
    done = fed("con", "sub", "ORDERS", "--ordered", *flags.split(), "--count", str(len(wanted)), "-j")
    assert (done.code, texts(done)) == (0, wanted)
    assert fed("con", "ls", "ORDERS", "-n").out == ""


def test_ordered_reading_waits_for_what_comes_and_ends_idle(fed: Run) -> None:
    idle = fed("con", "sub", "ORDERS", "--ordered", "--new", "--wait", "200ms", "-j")
    assert (idle.code, idle.out) == (7, "")
    shown = fed("con", "sub", "ORDERS", "--ordered", "--wait", "1s", "--raw")
    assert (shown.code, shown.out) == (0, "1\n2\n3\n4\n5\n")
