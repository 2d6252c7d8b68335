"""What kinds of documents there are, and the assets that they describe."""

import json
from typing import Any

import pytest

from natsctl.desired.assets import AssetKey, Kind
from natsctl.desired.live import LiveAsset, LiveState
from natsctl.desired.plan import Action, Plan, encode_plan
from natsctl.desired.planner import make_plan

HOUR = 3600 * 10**9
PLAIN = """
owner: shop
streams:
  - name: ORDERS
    subjects: [ORDERS.*]
    max_age: 1y
    consumers:
      - name: NEW
        ack_policy: explicit
        ack_wait: 30s
consumers:
  - stream: OTHER
    durable_name: X
kv: [{bucket: CFG}]
object_stores: [{bucket: FILES}]
"""


def test_a_plain_document_lists_assets_by_kind(read) -> None:
    found = read(PLAIN)
    assert found.owner == "shop"
    assert [f"{one.kind} {key.name}" for key, one in found.wanted.items()] == [
        "Stream ORDERS",
        "Consumer ORDERS > NEW",
        "Consumer OTHER > X",
        "KeyValue CFG",
        "ObjectStore FILES",
    ]
    assert found.wanted[AssetKey("ORDERS")].config == {
        "name": "ORDERS",
        "subjects": ["ORDERS.*"],
        "max_age": 365 * 24 * HOUR,
    }
    assert found.wanted[AssetKey("ORDERS", "NEW")].place.line == 8


def test_assets_may_be_mapped_by_their_names(read, told) -> None:
    text = "streams:\n  A:\n    consumers:\n      C: {ack_policy: all}\n      D:\n  B:\nkv:\n  CFG:\n    history: 5\n"
    found = read(text)
    assert [key.name for key in found.wanted] == ["A", "A > C", "A > D", "B", "CFG"]
    assert found.wanted[AssetKey("A", "D")].config == {"name": "D", "durable_name": "D"}
    ((line, path, reason),) = told("streams:\n  A:\n    name: B\n")
    assert (line, path, reason) == (3, "$.streams.A.name", "expected A, as it stands below that name, got B")


def test_a_typed_document_is_one_asset_beside_its_kind_or_below_spec(read, told) -> None:
    assert read("kind: Stream\nname: A\n").wanted == read("kind: stream\nname: A\n").wanted
    found = read("kind: Consumer\nowner: me\nspec:\n  stream: A\n  name: C\n")
    assert found.owner == "me"
    assert found.wanted[AssetKey("A", "C")].kind is Kind.CONSUMER
    assert told("kind: Stream\nspec: {name: A}\nsubjects: [a]\n") == [
        (3, "$.subjects", "stands beside spec: put it below")
    ]
    ((line, path, reason),) = told("kind: Streams\nname: A\n")
    assert (line, path) == (1, "$.kind")
    assert reason.startswith("expected Stream, Consumer, KeyValue or ObjectStore")


@pytest.mark.parametrize(
    ("text", "config"),
    [
        ("name: C", {"name": "C", "durable_name": "C"}),
        ("durable_name: C", {"durable_name": "C"}),
        ("name: C\ninactive_threshold: 1h", {"name": "C", "inactive_threshold": HOUR}),
        (
            "durable_name: C\ninactive_threshold: 1h",
            {"durable_name": "C", "inactive_threshold": HOUR},
        ),
    ],
)
def test_a_consumer_is_durable_unless_it_ends_by_itself(read, text: str, config: dict[str, Any]) -> None:
    assert read(f"stream: A\n{text}\n").wanted[AssetKey("A", "C")].config == config


def test_switches_are_no_part_of_the_configuration(read) -> None:
    found = read("streams: [{name: A, protect: true, consumers: [{name: C, create_only: true}]}]\n")
    stream, consumer = found.wanted.values()
    assert (stream.protect, stream.create_only, stream.config) == (True, False, {"name": "A"})
    assert (consumer.protect, consumer.create_only) == (False, True)


def test_labels_are_what_they_mean_and_no_metadata(read) -> None:
    text = "name: A\nmetadata: {natsctl.owner: x, natsctl.protect: 'true', _nats.ver: 2.12.0, team: a}\n"
    one = read(text).wanted[AssetKey("A")]
    assert one.protect
    assert one.config == {"name": "A", "metadata": {"team": "a"}}
    assert not read(text + "protect: false\n").wanted[AssetKey("A")].protect


STREAM_INFO = {
    "type": "io.nats.jetstream.api.v1.stream_info_response",
    "config": {"name": "A", "subjects": ["a"], "from_the_future": {"x": 1}, "metadata": {"_nats.ver": "2.15.2"}},
    "created": "2026-01-01T00:00:00Z",
    "state": {"messages": 1},
}
CONSUMER_INFO = {
    "stream_name": "A",
    "name": "C",
    "config": {"durable_name": "C", "name": "C", "ack_policy": "explicit", "pause_until": "0001-01-01T00:00:00Z"},
    "delivered": {"consumer_seq": 0},
}
BUCKET_INFO = {
    "bucket": "CFG",
    "stream": "KV_CFG",
    "ttl": 0,
    "stream_info": {"config": {"name": "KV_CFG", "max_msgs_per_subject": 5}, "state": {}},
}
STORE_INFO = {"bucket": "F", "stream": "OBJ_F", "stream_info": {"config": {"name": "OBJ_F"}, "state": {}}}


@pytest.mark.parametrize(
    ("document", "keys"),
    [
        (STREAM_INFO, ["Stream A"]),
        (CONSUMER_INFO, ["Consumer A > C"]),
        (BUCKET_INFO, ["KeyValue CFG"]),
        (STORE_INFO, ["ObjectStore F"]),
        ([STREAM_INFO, CONSUMER_INFO], ["Stream A", "Consumer A > C"]),
        ([BUCKET_INFO, STORE_INFO], ["KeyValue CFG", "ObjectStore F"]),
        ({"type": "io.nats.jetstream.api.v1.stream_list_response", "total": 1, "streams": [STREAM_INFO]}, ["Stream A"]),
        (
            {"type": "io.nats.jetstream.api.v1.consumer_list_response", "offset": 0, "consumers": [CONSUMER_INFO]},
            ["Consumer A > C"],
        ),
        ({"streams": [{**STREAM_INFO, "consumers": [CONSUMER_INFO]}]}, ["Stream A", "Consumer A > C"]),
        ({"name": "A", "consumers": [{"name": "C"}]}, ["Stream A", "Consumer A > C"]),
        ([], []),
    ],
)
def test_what_info_and_ls_print_are_documents(read, document: Any, keys: list[str]) -> None:
    found = read(json.dumps(document), "set.json")
    assert [str(key) for key in found.wanted] == keys


def test_an_old_server_says_the_name_beside_the_configuration(read) -> None:
    said = {"stream_name": "A", "name": "x7Kd", "config": {"ack_policy": "none"}, "delivered": {}}
    found = read(json.dumps(said), "set.json").wanted
    assert {key: one.config for key, one in found.items()} == {AssetKey("A", "x7Kd"): {"ack_policy": "none"}}


def test_one_mapping_may_stand_for_several_assets(read) -> None:
    found = read("streams:\n  A: &base\n    max_msgs: 5\n  B: *base\n")
    assert {key.name: one.config for key, one in found.wanted.items()} == {
        "A": {"name": "A", "max_msgs": 5},
        "B": {"name": "B", "max_msgs": 5},
    }


def test_fields_of_a_newer_server_are_kept_where_it_said_them(read, told) -> None:
    config = read(json.dumps(STREAM_INFO), "set.json").wanted[AssetKey("A")].config
    assert config == {"name": "A", "subjects": ["a"], "from_the_future": {"x": 1}}
    assert told("name: A\nfrom_the_future: 1\n") == [(2, "$.from_the_future", "unknown key")]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("durable_name: C\nack_policy: explicit\n", "a consumer needs its stream: add stream: NAME"),
        ("bucket: B\n", "a bucket of which kind? Add kind: KeyValue or kind: ObjectStore"),
        ("subjects: [a]\n", "a stream needs a name"),
        ("stream: A\nack_policy: all\n", "a consumer needs a name or durable_name"),
        ("name: ''\nsubjects: [a]\n", "a stream needs a name"),
        ("stream: A\nname: ''\n", "a consumer needs a name or durable_name"),
        ("stream: ''\nname: C\n", "expected the name of a stream"),
        ("kind: KeyValue\nbucket: ''\n", "a bucket needs its name"),
        ("name: A\nextra: 0\n", "expected an object"),
        ("kind: KeyValue\nttl: 1h\n", "a bucket needs its name: add bucket: NAME"),
        ('["ORDERS"]', "expected a document: streams:, consumers: …, kind:, or a configuration (a name alone says"),
        ("streams: [A]\n", "expected an object"),
        ("streams:\n  A: 5\n", "expected an object"),
        ("consumers: 5\n", "expected a list, or a mapping by name"),
        ("stream: [{name: A}]\nstreams: []\n", "unknown key, did you mean streams?"),
        ("streams: [{name: A, consumers: [{name: C, stream: B}]}]\n", "expected A, as it stands below that stream"),
        ("streams: [{name: A}, {name: A}]\n", "Stream A stands twice, first at"),
        ("kv: [{bucket: A}]\nstreams: [{name: KV_A}]\n", "KeyValue A stands twice, first at"),
        ("name: A\nprotect: maybe\n", "expected true or false"),
        ("owner: [a]\n", "expected the name of an owner"),
    ],
)
def test_what_is_missing_or_misplaced_is_told(told, text: str, reason: str) -> None:
    ((_, _, why),) = told(text)
    assert why.startswith(reason)


def test_all_faults_of_a_document_are_told_with_their_lines(told) -> None:
    text = "streams:\n- name: A\n  max_agee: 1\n- name: B\n  storage: disk\n  storage: file\n  subjects: [1, b, {}]\n"
    assert told(text) == [
        (3, "$.streams[0].max_agee", "unknown key, did you mean max_age?"),
        (5, "$.streams[1].storage", 'expected one of file, memory, got "disk"'),
        (6, "$.streams[1].storage", "storage stands here twice, first on line 5"),
        (7, "$.streams[1].subjects[0]", "expected a text, got 1: put it in quotes"),
        (7, "$.streams[1].subjects[2]", "expected a text, got an object"),
    ]


def test_a_saved_plan_is_told_as_what_it_is(told) -> None:
    saved = encode_plan(Plan(owner="shop")).decode()
    assert told(saved) == [(1, "$", "this is a saved plan, natsctl apply --plan FILE carries it out")]


def test_notes_that_say_the_same_are_one(read) -> None:
    one = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: x}\n"
    found = read(f"{one}---\n{one}---\n{one}")
    (note,) = found.notes
    assert note.endswith(
        "set.yaml:1: $: apps/v1 Deployment is passed over: it is none of jetstream.nats.io/* (and 2 more like it)"
    )


def test_what_is_made_only_is_left_as_it_is(read) -> None:
    text = "streams:\n- {name: A, max_msgs: 5, create_only: true}\n- {name: B, max_msgs: 5, create_only: true}\n"
    live = LiveAsset(AssetKey("A"), {"config": {"name": "A", "subjects": ["A"], "max_msgs": 7, "num_replicas": 1}})
    plan = make_plan(read(text), LiveState({live.key: live}))
    assert [(change.action, change.stream) for change in plan.changes] == [(Action.CREATE, "B")]
    assert plan.unchanged == 1
    plain = make_plan(read(text.replace(", create_only: true", "")), LiveState({live.key: live}))
    assert [(change.action, change.stream) for change in plain.changes] == [(Action.UPDATE, "A"), (Action.CREATE, "B")]
