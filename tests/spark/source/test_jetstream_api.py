"""What the source asks JetStream, on both servers."""

from dataclasses import replace
from typing import Any

import pytest

from natsctl.spark.source.errors import ApiRefusedError, ServerUnreachableError, SourceConnectionLostError
from natsctl.spark.source.jetstream_api import ONE_SHOT, JetStreamApi, StoredPosition, object_in
from natsctl.spark.source.link import Link
from tests.spark.source.reads import consumers
from tests.spark.source.streams import delete, make
from tests.support.lying_server import DEEP
from tests.support.relay import Relay

pytestmark = pytest.mark.both


def test_moments_and_counts_are_found_without_a_trace(api: JetStreamApi) -> None:
    for direct in (True, False):
        make(api, number=20, allow_direct=direct)
        middle = api.message("ORDERS", {"seq": 20})
        assert api.link.request("ORDERS.1", b"x").status == 0
        last = api.message("ORDERS", {"seq": 21})
        assert middle is not None
        assert api.sequence_at("ORDERS", last.time_ns) == 21
        assert api.sequence_at("ORDERS", middle.time_ns + 1) == 21
        assert api.sequence_at("ORDERS", middle.time_ns + 1, ("ORDERS.1", "ORDERS.3")) == 21
        assert api.sequence_at("ORDERS", last.time_ns + 1) == 22
        assert api.sequence_at("ORDERS", 0, ("ORDERS.3", "ORDERS.2")) == 3
        assert [api.pending("ORDERS", first) for first in (0, 1, 12, 22)] == [21, 21, 10, 0]
        assert api.pending("ORDERS", 12, ("ORDERS.1", "ORDERS.2")) == 5
        assert consumers(api) == 0
        api.ask("STREAM.DELETE.ORDERS")


@pytest.mark.parametrize("body", [DEEP, b"", b"[]", b"null", b"\xff", b'{"error": 7}', b'{"error": [1]}'])
def test_an_answer_of_another_form_is_refused(body: bytes) -> None:
    with pytest.raises(ApiRefusedError, match="not understood"):
        object_in(body, "STREAM.INFO.S")


def test_old_servers_find_moments_by_halves(api: JetStreamApi, monkeypatch: pytest.MonkeyPatch) -> None:
    make(api, number=50)
    delete(api, 30, 31)
    wanted = {seq: found.time_ns for seq in (1, 2, 29, 32, 50) if (found := api.message("ORDERS", {"seq": seq}))}
    ask = api.message

    def old(stream: str, wanted: dict[str, Any]) -> StoredPosition | None:
        return ask(stream, {"seq": 1, **{name: value for name, value in wanted.items() if name != "start_time"}})

    monkeypatch.setattr(api, "message", old)
    for time_ns in wanted.values():
        exact = min(seq for seq, at in wanted.items() if at >= time_ns)
        found = old("ORDERS", {"seq": api.sequence_at("ORDERS", time_ns)})
        assert found.time_ns >= time_ns
        assert found.seq <= exact
    assert api.sequence_at("ORDERS", wanted[50] + 1) == 51


def test_subjects_and_names_come_in_pages_and_whole(api: JetStreamApi) -> None:
    make(api, number=8)
    make(api, "OTHER", 0)
    assert api.stream_names() == ["ORDERS", "OTHER"]
    assert api.stream_names("OTHER.x") == ["OTHER"]
    filters = {"filter_subjects": ["ORDERS.1", "ORDERS.2"]}
    assert api.create_consumer("ORDERS", "c", {**ONE_SHOT, **filters})["num_pending"] == 4
    assert [api.delete_consumer(name, "c") for name in ("ORDERS", "ORDERS", "NOTHING")] == [True, False, False]
    subjects = api.stream_info("ORDERS", subjects_filter="ORDERS.*")["state"]["subjects"]
    assert subjects == {f"ORDERS.{at}": 2 for at in range(4)}


def test_questions_outlive_a_connection(api: JetStreamApi) -> None:
    make(api, number=8)
    with Relay(api.link.settings.urls[0]) as proxy:
        beside = replace(api.link.settings, urls=(proxy.url,))
        with Link.open(beside) as link:
            asked = JetStreamApi(link, beside)
            proxy.cut()
            assert asked.stream_info("ORDERS")["state"]["messages"] == 8
            proxy.close()
            with pytest.raises((SourceConnectionLostError, ServerUnreachableError)):
                asked.stream_info("ORDERS")
