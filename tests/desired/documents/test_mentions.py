"""What a document mentions: nulls and ignored fields, and the fields that a bucket's words stand for."""

from typing import Any

from natsctl.client.asset_config import new_kv_bucket
from natsctl.desired.assets import DesiredAsset, DocumentSet
from natsctl.desired.differ import as_created
from natsctl.desired.documents import read_text_documents
from natsctl.desired.export import Exporter
from natsctl.desired.live import LiveAsset, LiveState
from natsctl.desired.planner import make_plan
from tests.desired.sets import NOW_NS, SERVER, account, change_of, key_of, paths

MINUTE = 60 * 10**9


def read(text: str) -> DocumentSet:
    documents, faults = read_text_documents(text, "f.yaml", {})
    assert faults == []
    return documents


def one_of(text: str) -> DesiredAsset:
    (one,) = read(text).wanted.values()
    return one


def bucket(**fields: Any) -> LiveState:
    """An account with the bucket B that was made with fields of its own."""
    config = {**new_kv_bucket("B"), **fields}
    return LiveState(
        {key_of("KV_B"): LiveAsset(key_of("KV_B"), {"config": config, "state": {}})}, SERVER, now_ns=NOW_NS
    )


def test_nulls_are_kept_by_name_and_by_the_key_of_metadata() -> None:
    one = one_of("streams: {A: {max_msgs: null, description: ~, max_age: 1m, metadata: {team: null, cost: x}}}")
    assert one.nulls == {"max_msgs", "description", "metadata.team"}
    assert one.config == {"name": "A", "max_age": MINUTE, "metadata": {"cost": "x"}}
    assert one_of("{kind: Consumer, stream: A, name: c, max_deliver: null}").nulls == {"max_deliver"}


def test_ignored_fields_of_an_asset_and_of_its_document_are_for_the_creation_alone() -> None:
    text = "ignore: [max_bytes, metadata.team]\nstreams: {A: {max_bytes: 1MB, max_msgs: 5, ignore: [max_msgs]}, B: {}}"
    wanted = read(text).wanted
    assert wanted[key_of("A")].at_creation == {"max_bytes", "max_msgs", "metadata.team"}
    assert wanted[key_of("B")].at_creation == {"max_bytes", "metadata.team"}
    plan = make_plan(read(text), account({"A": {"max_bytes": 7, "max_msgs": 7}}, owner="default"))
    assert [(str(change.action), change.stream) for change in plan.changes] == [("create", "B")]
    created = change_of(make_plan(read(text), LiveState()), "A").config or {}
    assert (created["max_bytes"], created["max_msgs"]) == (2**20, 5)


def test_a_list_of_a_document_ends_with_the_document() -> None:
    wanted = read("ignore: [max_msgs]\nstreams: {A: {max_msgs: 5}}\n---\nstreams: {B: {max_msgs: 5}}").wanted
    assert [sorted(one.at_creation) for one in wanted.values()] == [["max_msgs"], []]


def test_an_operators_pause_and_what_servers_write_are_no_difference() -> None:
    consumer = {"durable_name": "c", "ack_policy": "explicit"}
    live_state = account({"A": {"subjects": ["a"]}, "A > c": consumer}, owner="default")
    live = live_state.assets[key_of("A > c")].info["config"]
    live |= {"pause_until": "2999-01-01T00:00:00Z"}
    live["metadata"] = {**live["metadata"], "_nats.req.level": "0", "_nats.level": "9"}
    text = "streams: {A: {subjects: [a], consumers: {c: {durable_name: c, ack_policy: explicit%s}}}}"
    assert make_plan(read(text % ""), live_state).changes == []
    assert make_plan(read(text % ", metadata: {_nats.level: '1'}"), live_state).changes == []
    assert (
        make_plan(read(text % ", pause_until: '2998-01-01T00:00:00Z', ignore: [pause_until]"), live_state).changes == []
    )
    ended = change_of(make_plan(read(text % ", pause_until: null"), live_state), "A > c")
    assert paths(ended) == ["pause_until"]
    assert "pause_until" not in (ended.config or {})


def test_a_bucket_mentions_what_its_words_stand_for_and_what_makes_it_one() -> None:
    few = read("key_values: {B: {}}")
    changed = bucket(max_msgs_per_subject=9, max_age=MINUTE, duplicate_window=MINUTE, storage="memory", max_bytes=77)
    assert make_plan(few, changed).changes == []
    broken = change_of(make_plan(few, bucket(deny_delete=False, discard="old")), "KV_B")
    assert paths(broken) == ["discard", "deny_delete"]
    words = read("key_values: {B: {history: 3, ttl: 30s, description: null, max_bucket_size: null}}")
    change = change_of(make_plan(words, bucket(description="x", max_bytes=5, max_age=MINUTE * 60)), "KV_B")
    assert sorted(paths(change)) == [
        "description", "duplicate_window", "max_age", "max_bytes", "max_msgs_per_subject",
    ]  # fmt: skip
    assert make_plan(read("key_values: {B: {history: 3, ignore: [history]}}"), changed).changes == []


def test_a_mirrored_bucket_has_no_difference_by_what_a_server_fills_in() -> None:
    mirror = {"mirror": {"name": "KV_A"}, "mirror_direct": True, "subjects": None}
    for window in (0, 2 * MINUTE):
        live_state = bucket(**mirror, duplicate_window=window)
        assert make_plan(read("key_values: {B: {mirror: A}}"), live_state).changes == []
        assert make_plan(read("key_values: {B: {}}"), live_state).changes == []
    promoted = change_of(make_plan(read("key_values: {B: {mirror: null}}"), bucket(**mirror)), "KV_B")
    assert sorted(paths(promoted)) == ["mirror", "mirror_direct", "subjects"]


def test_nulls_and_ignored_fields_are_written_again() -> None:
    documents = as_created(read("streams: {A: {max_msgs: 5, max_age: null, ignore: [max_msgs]}}"))
    assert Exporter(documents).plain()["streams"] == [
        {"name": "A", "max_msgs": 5, "max_age": None, "ignore": ["max_msgs"]}
    ]
