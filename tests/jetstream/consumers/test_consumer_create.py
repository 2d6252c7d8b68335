"""The endpoints that make, find and delete consumers."""

from __future__ import annotations

from typing import Any

import pytest

from natsctl.testing.jet import SECOND, Jet, numbers, texts


@pytest.fixture
def jet() -> Jet:
    jet = Jet()
    jet.stream()
    return jet


def create(jet: Jet, tail: str, config: dict[str, Any] | None = None, **more: Any) -> Any:
    """Return the answer of CONSUMER.<tail>."""
    return jet.api(f"CONSUMER.{tail}", {"stream_name": "S", "config": config or {}, **more})


def err(answer: Any) -> int:
    """Return the err_code of an answer that must be an error."""
    code: int = answer["error"]["err_code"]
    return code


def test_durable_create_shows_both_names_and_all_defaults(jet: Jet) -> None:
    info = create(jet, "DURABLE.CREATE.S.C", {"durable_name": "C", "ack_policy": "explicit"})
    assert list(info) == [
        "type", "stream_name", "name", "created", "config", "delivered", "ack_floor", "num_ack_pending",
        "num_redelivered", "num_waiting", "num_pending", "ts",
    ]  # fmt: skip
    assert info["type"] == "io.nats.jetstream.api.v1.consumer_create_response"
    assert list(info["config"].items()) == [
        ("durable_name", "C"),
        ("name", "C"),
        ("deliver_policy", "all"),
        ("ack_policy", "explicit"),
        ("ack_wait", 30 * SECOND),
        ("max_deliver", -1),
        ("replay_policy", "instant"),
        ("max_waiting", 512),
        ("max_ack_pending", 1000),
        ("num_replicas", 0),
        ("metadata", {"_nats.level": "5", "_nats.req.level": "0", "_nats.ver": "2.15.2"}),
    ]


def test_the_bare_form_makes_an_ephemeral_with_a_name_of_its_own(jet: Jet) -> None:
    info = create(jet, "CREATE.S")
    assert len(info["name"]) == 8
    assert info["name"].isalnum()
    assert "name" not in info["config"]
    assert "durable_name" not in info["config"]
    assert info["config"]["inactive_threshold"] == 5 * SECOND
    assert create(jet, "CREATE.S")["name"] != info["name"]


def test_a_name_in_the_config_names_the_ephemeral_of_the_bare_form(jet: Jet) -> None:
    info = create(jet, "CREATE.S", {"name": "mine"})
    assert (info["name"], info["config"]["name"]) == ("mine", "mine")


def test_the_named_form_takes_its_name_from_the_subject(jet: Jet) -> None:
    info = create(jet, "CREATE.S.C", {"name": "other"})
    assert (info["name"], info["config"]["name"]) == ("C", "C")
    assert "durable_name" not in info["config"]
    durable = create(jet, "CREATE.S.D", {"durable_name": "D"})
    assert (durable["config"]["durable_name"], durable["config"]["name"]) == ("D", "D")
    assert "inactive_threshold" not in durable["config"]


def test_the_filtered_form_takes_one_filter(jet: Jet) -> None:
    info = create(jet, "CREATE.S.C.s.orders.*", {"filter_subject": "s.orders.*"})
    assert info["config"]["filter_subject"] == "s.orders.*"
    assert err(create(jet, "CREATE.S.D.s.orders.*", {"filter_subject": "s.other"})) == 10131
    assert err(create(jet, "CREATE.S.D.s.orders.*")) == 10131
    assert err(create(jet, "CREATE.S.D.s.orders.*", {"filter_subjects": ["s.orders.*", "s.b"]})) == 10137


def test_a_body_without_config_is_all_defaults(jet: Jet) -> None:
    info = jet.api("CONSUMER.CREATE.S.C", {"stream_name": "S"})
    assert (info["config"]["ack_policy"], info["config"]["deliver_policy"]) == ("none", "all")


@pytest.mark.parametrize(
    ("tail", "config", "code"),
    [
        ("CREATE.S", {"durable_name": "C"}, 10020),
        ("CREATE.S.C", {"durable_name": "D"}, 10017),
        ("DURABLE.CREATE.S.C", {}, 10018),
        ("DURABLE.CREATE.S.C", {"durable_name": "D"}, 10017),
        ("CREATE.S.a/b", {}, 10127),
        ("CREATE.S.a\\b", {}, 10127),
        ("CREATE.S", {"name": "a.b"}, 10052),
    ],
)
def test_names_that_do_not_fit_their_endpoint_are_refused(
    jet: Jet, tail: str, config: dict[str, Any], code: int
) -> None:
    assert err(create(jet, tail, config)) == code
    assert jet.api("CONSUMER.NAMES.S")["total"] == 0


def test_stream_name_must_equal_the_subjects_and_exist(jet: Jet) -> None:
    assert err(jet.api("CONSUMER.CREATE.S", {"stream_name": "T", "config": {}})) == 10056
    assert err(jet.api("CONSUMER.CREATE.S", b"")) == 10056
    assert err(jet.api("CONSUMER.CREATE.T", {"stream_name": "T", "config": {}})) == 10059


def test_unknown_keys_are_refused(jet: Jet) -> None:
    answer = create(jet, "CREATE.S", {"colour": "red"})
    assert err(answer) == 10025
    assert answer["error"]["description"] == 'invalid JSON: json: unknown field "colour"'


def test_creating_the_same_again_succeeds_and_keeps_the_position(jet: Jet) -> None:
    jet.consumer()
    jet.publish("1", "2")
    jet.pull()
    assert jet.consumer()["delivered"]["consumer_seq"] == 1


def test_action_create_refuses_another_configuration_and_takes_the_same(jet: Jet) -> None:
    config = {"durable_name": "C", "ack_policy": "explicit"}
    create(jet, "CREATE.S.C", config, action="create")
    assert create(jet, "CREATE.S.C", config, action="create")["name"] == "C"
    assert err(create(jet, "CREATE.S.C", {**config, "description": "x"}, action="create")) == 10148


def test_action_update_needs_the_consumer(jet: Jet) -> None:
    assert err(create(jet, "CREATE.S.C", {"durable_name": "C"}, action="update")) == 10149
    jet.consumer()
    config = {"durable_name": "C", "ack_policy": "explicit", "description": "x"}
    assert create(jet, "CREATE.S.C", config, action="update")["config"]["description"] == "x"


def test_max_consumers_of_the_stream() -> None:
    jet = Jet()
    jet.stream(max_consumers=1)
    jet.consumer("A")
    assert err(create(jet, "CREATE.S.B")) == 10026
    jet.consumer("A")


def test_names_and_list_are_sorted_and_paged(jet: Jet) -> None:
    for name in "BCA":
        jet.consumer(name)
    names = jet.api("CONSUMER.NAMES.S")
    assert names == {
        "type": "io.nats.jetstream.api.v1.consumer_names_response",
        "total": 3,
        "offset": 0,
        "limit": 1024,
        "consumers": ["A", "B", "C"],
    }
    listed = jet.api("CONSUMER.LIST.S", {"offset": 1})
    assert (listed["total"], listed["offset"], listed["limit"]) == (3, 1, 256)
    assert [info["name"] for info in listed["consumers"]] == ["B", "C"]
    assert jet.api("CONSUMER.NAMES.S", {"offset": 9}) | {"offset": 3, "consumers": []} == jet.api(
        "CONSUMER.NAMES.S", {"offset": 9}
    )
    assert jet.api("STREAM.INFO.S")["state"]["consumer_count"] == 3


def test_lists_of_a_missing_stream(jet: Jet) -> None:
    answer = jet.api("CONSUMER.NAMES.T")
    assert err(answer) == 10059
    assert answer["consumers"] == []


def test_info_and_delete_of_what_is_missing(jet: Jet) -> None:
    assert err(jet.api("CONSUMER.INFO.T.C")) == 10059
    assert err(jet.api("CONSUMER.INFO.S.C")) == 10014
    assert err(jet.api("CONSUMER.DELETE.S.C")) == 10014


def test_delete_ends_the_consumer(jet: Jet) -> None:
    jet.consumer()
    assert jet.api("CONSUMER.DELETE.S.C") == {
        "type": "io.nats.jetstream.api.v1.consumer_delete_response",
        "success": True,
    }
    assert err(jet.api("CONSUMER.INFO.S.C")) == 10014


def test_create_is_answered_only_when_durable(jet: Jet) -> None:
    jet.machine.hold_commits = True
    sid = jet.listen("in.1")
    body = b'{"stream_name":"S","config":{"durable_name":"C"}}'
    jet.wire.publish("$JS.API.CONSUMER.DURABLE.CREATE.S.C", body, "in.1")
    assert jet.heard(sid) == []
    jet.machine.hold_commits = False
    jet.machine.settle()
    assert jet.heard(sid)[0].json()["name"] == "C"


# Where a consumer starts


def start(jet: Jet, **config: Any) -> tuple[list[str], tuple[int, int], int]:
    """Return what a new consumer delivers, where it stood before, and its num_pending then."""
    info = jet.ephemeral(**config)
    position = info["delivered"]["consumer_seq"], info["delivered"]["stream_seq"]
    payloads = texts(jet.pull({"batch": 50, "no_wait": True}, name=info["name"]))[:-1]
    return payloads, position, info["num_pending"]


def test_deliver_policies_start_where_they_say(jet: Jet) -> None:
    for index in range(1, 6):
        jet.publish(str(index), subject="s.a" if index % 2 else "s.b")
        jet.advance(1)
    assert start(jet) == (["1", "2", "3", "4", "5"], (0, 0), 5)
    assert start(jet, deliver_policy="last") == (["5"], (0, 4), 1)
    assert start(jet, deliver_policy="last", filter_subject="s.b") == (["4"], (0, 3), 1)
    assert start(jet, deliver_policy="new") == ([], (0, 5), 0)
    assert start(jet, deliver_policy="by_start_sequence", opt_start_seq=4) == (["4", "5"], (0, 3), 2)
    by_time = {"deliver_policy": "by_start_time", "opt_start_time": "2026-01-01T00:00:02.5Z"}
    assert start(jet, **by_time) == (["4", "5"], (0, 3), 2)
    zero_time = {"deliver_policy": "by_start_time", "opt_start_time": "0001-01-01T00:00:00Z"}
    assert start(jet, **zero_time) == (["1", "2", "3", "4", "5"], (0, 0), 5)
    per_subject = {"deliver_policy": "last_per_subject", "filter_subject": "s.*"}
    assert start(jet, **per_subject) == (["4", "5"], (0, 3), 2)


def test_a_start_beyond_the_end_is_kept(jet: Jet) -> None:
    jet.publish("1")
    info = jet.consumer(deliver_policy="by_start_sequence", opt_start_seq=4)
    assert info["delivered"]["stream_seq"] == 3
    jet.publish("2", "3", "4", "5")
    assert texts(jet.pull({"batch": 9, "no_wait": True}))[:-1] == ["4", "5"]


def test_a_start_before_the_first_message_moves_up_to_it(jet: Jet) -> None:
    jet.publish("1", "2", "3")
    jet.api("STREAM.PURGE.S", {"seq": 3})
    assert jet.consumer(deliver_policy="by_start_sequence", opt_start_seq=1)["delivered"]["stream_seq"] == 2


def test_last_per_subject_is_a_snapshot_and_then_everything(jet: Jet) -> None:
    for round_ in "12":
        for key in "abc":
            jet.publish(key + round_, subject=f"s.{key}")
    info = jet.consumer(deliver_policy="last_per_subject", filter_subject="s.>")
    assert info["num_pending"] == 3
    jet.publish("a3", subject="s.a")
    messages = jet.pull({"batch": 9, "no_wait": True})[:-1]
    assert texts(messages) == ["a2", "b2", "c2", "a3"]
    assert [numbers(m)[3] for m in messages] == [3, 2, 1, 0]


def test_a_snapshot_entry_that_was_replaced_meanwhile_is_not_delivered() -> None:
    jet = Jet()
    jet.stream(max_msgs_per_subject=1)
    jet.publish("a1", subject="s.a")
    jet.publish("b1", subject="s.b")
    jet.consumer(deliver_policy="last_per_subject", filter_subject="s.>")
    jet.publish("a2", subject="s.a")
    assert jet.counts()["pending"] == 2
    assert texts(jet.pull({"batch": 9, "no_wait": True}))[:-1] == ["b1", "a2"]
    assert jet.counts()["pending"] == 0


def test_num_pending_follows_publishes_deletes_and_purges(jet: Jet) -> None:
    jet.consumer(filter_subject="s.a")
    jet.publish("1", "2", "3")
    jet.publish("x", subject="s.b")
    assert jet.counts()["pending"] == 3
    jet.api("STREAM.MSG.DELETE.S", {"seq": 2})
    jet.api("STREAM.MSG.DELETE.S", {"seq": 4})
    assert jet.counts()["pending"] == 2
    jet.api("STREAM.PURGE.S", {"filter": "s.a", "keep": 1})
    assert jet.counts()["pending"] == 1
    assert texts(jet.pull()) == ["3"]
    assert jet.counts()["pending"] == 0


def test_num_pending_is_exact_where_messages_go_before_they_are_durable() -> None:
    jet = Jet()
    jet.stream(max_msgs_per_subject=1)
    jet.consumer(max_ack_pending=-1)
    jet.machine.hold_commits = True
    jet.publish_many(5)
    jet.machine.hold_commits = False
    jet.machine.settle()
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


def test_a_durable_with_a_threshold_ends_too(jet: Jet) -> None:
    jet.consumer(inactive_threshold=2 * SECOND)
    jet.advance(1.9)
    jet.info()
    jet.advance(1.2)
    assert err(jet.api("CONSUMER.INFO.S.C")) == 10014


def test_pause_answers_and_resumes(jet: Jet) -> None:
    jet.consumer()
    heard = jet.listen("$JS.EVENT.ADVISORY.CONSUMER.PAUSE.S.C")
    answer = jet.api("CONSUMER.PAUSE.S.C", {"pause_until": "2026-01-01T00:00:05Z"})
    assert answer == {
        "type": "io.nats.jetstream.api.v1.consumer_pause_response",
        "paused": True,
        "pause_until": "2026-01-01T00:00:05Z",
        "pause_remaining": 5 * SECOND,
    }
    assert jet.api("CONSUMER.PAUSE.S.C") | {"paused": False, "pause_until": "0001-01-01T00:00:00Z"} == {
        "type": "io.nats.jetstream.api.v1.consumer_pause_response",
        "paused": False,
        "pause_until": "0001-01-01T00:00:00Z",
    }
    assert [m.json()["paused"] for m in jet.heard(heard)] == [True, False]


def test_reset_starts_over_at_a_sequence(jet: Jet) -> None:
    jet.consumer()
    jet.publish("1", "2", "3")
    jet.pull(b"3")
    answer = jet.api("CONSUMER.RESET.S.C", {"seq": 2})
    assert answer["reset_seq"] == 2
    assert [numbers(m)[:3] for m in jet.pull(b"2")] == [(1, 2, 1), (1, 3, 2)]


def test_reset_without_a_sequence_returns_to_the_floor(jet: Jet) -> None:
    jet.consumer()
    jet.publish("1", "2", "3")
    jet.ack(jet.pull(b"3")[0])
    assert jet.api("CONSUMER.RESET.S.C")["reset_seq"] == 2
    assert texts(jet.pull(b"2")) == ["2", "3"]


def test_reset_is_refused_where_the_policy_has_no_sequences(jet: Jet) -> None:
    jet.consumer(deliver_policy="new")
    assert err(jet.api("CONSUMER.RESET.S.C", {"seq": 2})) == 10204


def test_unpin_needs_a_group_that_exists(jet: Jet) -> None:
    jet.consumer()
    assert err(jet.api("CONSUMER.UNPIN.S.C", {"group": "A"})) == 10160
    answer = jet.api("CONSUMER.UNPIN.S.C", {})
    assert answer["error"]["description"] == "invalid JSON: consumer group not specified"
