"""Consumer commands as a script runs them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from natsctl.testing.process import ServerProcess

Run = Callable[..., Any]

EXAMPLES = Path(__file__).parents[2] / "examples" / "configs"


@pytest.fixture
def orders(natsctl: Run) -> Run:
    """A server with the stream ORDERS."""
    assert natsctl("str", "add", "ORDERS", "--subjects", "ORDERS.*").code == 0
    return natsctl


def test_a_pull_consumer_takes_its_defaults(orders: Run) -> None:
    info = orders("con", "add", "ORDERS", "NEW", "--filter", "ORDERS.received", "--sample", "100", "-j").json
    config = info["config"]
    assert (config["durable_name"], config["ack_policy"], config["deliver_policy"]) == ("NEW", "explicit", "all")
    assert (config["filter_subject"], config["sample_freq"]) == ("ORDERS.received", "100")
    assert "deliver_subject" not in config


def test_a_push_consumer_takes_its_defaults(orders: Run) -> None:
    done = orders("con", "add", "ORDERS", "MONITOR", "--target", "monitor.ORDERS", "--filter", "", "--deliver", "last")
    assert done.code == 0
    assert "Delivery Subject: monitor.ORDERS" in done.out
    config = orders("con", "info", "ORDERS", "MONITOR", "-j").json["config"]
    assert (config["ack_policy"], config["deliver_policy"]) == ("none", "last")
    assert "filter_subject" not in config


@pytest.mark.parametrize("file", ["orders_new.json", "orders_dispatch.json", "monitor.json", "monitor.yaml"])
def test_a_file_makes_a_consumer_and_what_info_prints_makes_it_again(orders: Run, file: str, tmp_path: Path) -> None:
    done = orders("con", "add", "ORDERS", "--config", str(EXAMPLES / file), "-j")
    name = done.json["name"]
    assert name == done.json["config"]["durable_name"]
    saved = tmp_path / "info.json"
    saved.write_text(orders("con", "info", "ORDERS", name, "-j").out)
    assert orders("con", "add", "ORDERS", "--config", str(saved)).code == 0
    assert orders("con", "add", "--config", str(saved)).code == 0, "the file says which stream"
    renamed = orders("con", "add", "ORDERS", "OTHER", "--config", str(saved), "-j").json
    assert (renamed["name"], renamed["config"]["durable_name"]) == ("OTHER", "OTHER")


def test_a_consumer_that_does_not_exist_is_never_replaced_by_another(orders: Run) -> None:
    orders("con", "add", "ORDERS", "DISPATCH", "--pull")
    for words in (("info",), ("state",), ("rm", "-f"), ("next",), ("sub",), ("events",), ("edit", "--wait", "1s")):
        done = orders("con", words[0], "ORDERS", "DISPTCH", *words[1:])
        assert (done.code, done.out) == (3, ""), words
        assert 'did you mean "DISPATCH"?' in done.err
    assert 'did you mean "ORDERS"?' in orders("con", "ls", "ORDRES").err
    assert orders("con", "info", "ORDERS", "NONE", "-j").error["err_code"] == 10014


def test_next_shows_line_headers_body_and_ack_on_stdout(orders: Run) -> None:
    orders("con", "add", "ORDERS", "C", "--pull", "--ack", "explicit")
    orders("pub", "ORDERS.processed", "order 1", "-H", "K:v", "-q", "-J")
    done = orders("con", "next", "ORDERS", "C")
    head = "--- received on ORDERS.processed / tries: 1 / cons seq: 1 / str seq: 1 / pending: 0"
    assert done.out == f"{head}\n\nHeaders:\n\n  K: v\n\nData:\n\norder 1\n\nAcknowledged message\n\n"
    assert (done.code, done.err) == (0, "")
    info = orders("con", "info", "ORDERS", "C", "-j").json
    assert (info["num_ack_pending"], info["ack_floor"]["stream_seq"]) == (0, 1)


def test_next_can_leave_refuse_and_end_a_message(orders: Run) -> None:
    orders("con", "add", "ORDERS", "C", "--pull", "--wait", "1h")
    orders("pub", "ORDERS.a", "x", "-q")
    assert "Negative Acknowledged message" in orders("con", "next", "ORDERS", "C", "--nak").out
    again = orders("con", "next", "ORDERS", "C", "--no-ack", "-j").lines[0]
    assert (again["deliveries"], again["text"], again["stream_seq"]) == (2, "x", 1)
    assert orders("con", "info", "ORDERS", "C", "-j").json["num_ack_pending"] == 1
    orders("pub", "ORDERS.a", "y", "-q")
    assert "Terminated message" in orders("con", "next", "ORDERS", "C", "--term").out
    assert orders("con", "info", "ORDERS", "C", "-j").json["num_ack_pending"] == 1


def test_a_consumer_without_acks_is_read_without_one(orders: Run) -> None:
    orders("con", "add", "ORDERS", "ALL", "--pull", "--ack", "none")
    orders("pub", "ORDERS.a", "x", "-q", "-J")
    done = orders("con", "next", "ORDERS", "ALL")
    assert done.code == 0
    assert "No acknowledgment: the consumer asks for none" in done.out
    assert "Acknowledged" not in done.out
    assert "--nak" in orders("con", "next", "ORDERS", "ALL", "--nak").err


def test_a_push_consumer_is_not_pulled_from(orders: Run) -> None:
    orders("con", "add", "ORDERS", "P", "--target", "out")
    done = orders("con", "next", "ORDERS", "P")
    assert done.code == 2
    assert "con sub" in done.err


def test_an_ephemeral_consumer_needs_no_name(orders: Run) -> None:
    info = orders("con", "add", "ORDERS", "--ephemeral", "--pull", "-j").json
    assert info["name"]
    assert "durable_name" not in info["config"]


def test_an_ack_that_nobody_takes_is_a_failure(orders: Run, shared_server: ServerProcess) -> None:
    from natsctl.api.errors import UnreachableError
    from natsctl.cli.session import GlobalOptions, Session
    from natsctl.client.manager import Manager
    from natsctl.client.messaging.consumers import pull
    from natsctl.client.messaging.messages import acknowledge

    orders("con", "add", "ORDERS", "C", "--pull")
    orders("pub", "ORDERS.a", "x", "-q")

    async def work(manager: Manager) -> None:
        async for message in pull(manager, "ORDERS", "C", {"batch": 1, "expires": 10**9}):
            await manager.consumer_delete("ORDERS", "C")
            with pytest.raises(UnreachableError, match="the consumer was removed"):
                await acknowledge(manager, message)

    session = Session(GlobalOptions(server=shared_server.url))
    try:
        session.run(work)
    finally:
        session.close()
