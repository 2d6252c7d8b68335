"""The API level that requests and configurations need, where it is stored and where it is shown."""

import pytest

from natsctl.api.stream import StreamConfig
from natsctl.api.versions import is_level_met
from natsctl.jetstream.streams.stream import StreamMeta
from tests.support.jet import Jet


@pytest.mark.parametrize("verb", ["CONSUMER.MSG.NEXT.S.C", "DIRECT.GET.S"])
def test_a_level_above_ours_is_refused_with_a_status(jet: Jet, verb: str) -> None:
    jet.stream(allow_direct=True)
    jet.consumer()
    sid = jet.listen("in")
    jet.wire.publish(f"$JS.API.{verb}", b'{"seq":1}', "in", b"NATS/1.0\r\nNats-Required-Api-Level: 6\r\n\r\n")
    assert [m.header for m in jet.heard(sid)] == [b"NATS/1.0 412 Required Api Level\r\n\r\n"]


def test_a_level_is_a_whole_number() -> None:
    assert is_level_met("5") and is_level_met(b"-3") and not is_level_met("") and not is_level_met("1_0")


def test_a_stored_stream_of_a_later_level_is_offline_and_says_why(jet: Jet) -> None:
    jet.stream()
    config = StreamConfig(name="S", subjects=["s.>"], metadata={"_nats.req.level": "6"})
    jet.machine.streams["S"].store.set_meta(StreamMeta(1, config).encode())
    jet.machine.settle()
    again = Jet(jet.machine.restarted())
    refusal = again.api("STREAM.INFO.S")["error"]
    why = "unsupported - required API level: 6, current API level: 5"
    assert (refusal["err_code"], refusal["description"]) == (10194, f"stream is offline: {why}")
