"""What may change about an existing consumer, and that it takes effect."""

from typing import Any

import pytest

from natsctl.api.consumer import ConsumerConfig
from natsctl.api.consumer_config import check_update
from tests.support.jet import SECOND, Jet, texts


def update(jet: Jet, **config: Any) -> Any:
    config = {"durable_name": "C", "ack_policy": "explicit", **config}
    return jet.api("CONSUMER.DURABLE.CREATE.S.C", {"stream_name": "S", "config": config})


def test_ack_wait_takes_effect_on_what_is_pending(jet: Jet) -> None:
    jet.consumer(ack_wait=60 * SECOND)
    jet.publish("1")
    jet.pull()
    update(jet, ack_wait=2 * SECOND)
    jet.advance(2.1)
    assert texts(jet.pull({"batch": 1, "no_wait": True})) == ["1"]


@pytest.mark.parametrize(("told", "refused"), [("", True), ("x", True), ("2026-01-31T13:00:00+01:00", False)])
def test_start_times_are_compared_by_the_moment_they_mean_and_as_they_are_where_they_mean_none(
    told: str, refused: bool
) -> None:
    wanted = ConsumerConfig(opt_start_time="2026-01-31T12:00:00Z")
    assert (check_update(ConsumerConfig(opt_start_time=told), wanted, False) is not None) is refused
