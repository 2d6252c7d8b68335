"""The endpoints that make, find and delete consumers."""

from typing import Any

import pytest

from natsctl.api import consumer_config
from tests.support.jet import SECOND, Jet, texts


def create(jet: Jet, tail: str, config: dict[str, Any] | None = None, **more: Any) -> Any:
    return jet.api(f"CONSUMER.{tail}", {"stream_name": "S", "config": config or {}, **more})


def err(answer: Any) -> int:
    code: int = answer["error"]["err_code"]
    return code


def test_the_bare_form_makes_an_ephemeral_with_a_name_of_its_own(jet: Jet) -> None:
    info = create(jet, "CREATE.S")
    assert len(info["name"]) == 8
    assert info["name"].isalnum()
    assert "name" not in info["config"]
    assert "durable_name" not in info["config"]
    assert info["config"]["inactive_threshold"] == 5 * SECOND
    assert create(jet, "CREATE.S")["name"] != info["name"]


def test_create_is_answered_only_when_durable(jet: Jet) -> None:
    jet.machine.hold_commits = True
    sid = jet.listen("in.1")
    body = b'{"stream_name":"S","config":{"durable_name":"C"}}'
    jet.wire.publish("$JS.API.CONSUMER.DURABLE.CREATE.S.C", body, "in.1")
    assert jet.heard(sid) == []
    jet.machine.release_commits()
    assert jet.heard(sid)[0].json()["name"] == "C"


# Where a consumer starts


def test_num_pending_is_exact_where_messages_go_before_they_are_durable() -> None:
    jet = Jet()
    jet.stream(max_msgs_per_subject=1)
    jet.consumer(max_ack_pending=-1)
    jet.machine.hold_commits = True
    jet.publish_many(5)
    jet.machine.release_commits()
    assert jet.counts()["pending"] == 1
    assert texts(jet.pull({"batch": 9, "no_wait": True}))[:-1] == ["5"]


def test_an_unused_pull_ephemeral_ends_and_requests_keep_it(jet: Jet) -> None:
    info = jet.ephemeral()
    sid = jet.listen("in.1")
    jet.wire.publish(f"$JS.API.CONSUMER.MSG.NEXT.S.{info['name']}", b'{"expires":60000000000}', "in.1")
    jet.advance(30)
    jet.info(info["name"])
    jet.wire.unsubscribe(sid)
    jet.info(info["name"])
    jet.advance(6)
    assert err(jet.api(f"CONSUMER.INFO.S.{info['name']}")) == 10014


def test_a_request_that_nobody_listens_to_does_not_keep_an_ephemeral(jet: Jet) -> None:
    info = jet.ephemeral()
    sid = jet.listen("in.1")
    jet.wire.publish(f"$JS.API.CONSUMER.MSG.NEXT.S.{info['name']}", b"1", "in.1")
    jet.advance(60)
    jet.wire.unsubscribe(sid)
    jet.advance(12)
    assert err(jet.api(f"CONSUMER.INFO.S.{info['name']}")) == 10014


def test_a_thousand_filters_are_not_compared_with_each_other(jet: Jet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer_config, "is_subset", lambda *subjects: pytest.fail("compared"))
    filters = [f"s.{number}" for number in range(1000)]
    assert len(jet.consumer(filter_subjects=filters)["config"]["filter_subjects"]) == 1000
