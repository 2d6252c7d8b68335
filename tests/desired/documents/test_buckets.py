"""Buckets in their own words: lowered to the streams that the tools make, and raised from them again."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from natsctl.desired.assets import Kind
from natsctl.desired.documents.bucket_fields import BucketFieldError, bucket_words, stream_fields

HOUR = 3600 * 10**9
# What `nats kv add CFG --history 5 --ttl 1h --max-value-size 1024 --marker-ttl 1m` and `nats object add FILES --ttl 1h`
# made on nats-server 2.15.2, as `nats stream info -j` shows it.
MADE: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("made_buckets.json").read_text())


@pytest.mark.parametrize(
    ("stream", "words"),
    [
        (
            "KV_CFG",
            {
                "kind": "KeyValue",
                "bucket": "CFG",
                "history": 5,
                "ttl": HOUR,
                "max_value_size": 1024,
                "limit_marker_ttl": 60 * 10**9,
            },
        ),
        ("KV_MIR", {"kind": "KeyValue", "bucket": "MIR", "mirror": {"name": "CFG"}}),
        ("KV_SRC", {"kind": "KeyValue", "bucket": "SRC", "sources": [{"name": "CFG"}]}),
        ("OBJ_FILES", {"kind": "ObjectStore", "bucket": "FILES", "ttl": HOUR}),
    ],
)
def test_buckets_that_the_tool_made_are_raised_to_their_words(stream: str, words: dict[str, Any]) -> None:
    assert bucket_words(MADE[stream]) == words


@pytest.mark.parametrize(
    ("stream", "change"),
    [
        ("KV_CFG", {"subjects": ["$KV.CFG.>", "more"]}),
        ("KV_CFG", {"discard": "old"}),
        ("KV_CFG", {"max_msgs": 5}),
        ("KV_CFG", {"max_msgs_per_subject": 65}),
        ("KV_CFG", {"allow_direct": False}),
        ("KV_CFG", {"duplicate_window": 10**9}),
        ("KV_CFG", {"subject_delete_marker_ttl": 0}),
        ("KV_CFG", {"retention": "interest"}),
        ("KV_MIR", {"mirror_direct": False}),
        ("OBJ_FILES", {"max_msg_size": 5}),
        ("OBJ_FILES", {"mirror": {"name": "X"}}),
        ("OBJ_FILES", {"name": "OBJ_a.b"}),
        ("OBJ_FILES", {"name": "ORDERS"}),
    ],
)
def test_a_stream_that_is_no_plain_bucket_is_not_raised(stream: str, change: dict[str, Any]) -> None:
    assert bucket_words({**MADE[stream], **change}) is None


def test_labels_and_what_servers_write_make_no_difference() -> None:
    labels = {"natsctl.owner": "me", "natsctl.protect": "true", "_nats.ver": "2.15.2"}
    raised = bucket_words({**MADE["OBJ_FILES"], "metadata": {**labels, "team": "a"}})
    assert raised == {"kind": "ObjectStore", "bucket": "FILES", "ttl": HOUR, "metadata": {"team": "a"}}


COMMON = {
    "description": st.text(max_size=10),
    "ttl": st.integers(0, 10**15).map(lambda ns: ns + 10**8 if ns else 0),
    "max_bucket_size": st.sampled_from([-1, 1024, 2**40]),
    "storage": st.sampled_from(["file", "memory"]),
    "replicas": st.integers(1, 5),
    "placement": st.fixed_dictionaries({"cluster": st.just("c1")}, optional={"tags": st.just(["a", "b"])}),
    "compression": st.booleans(),
    "metadata": st.dictionaries(st.sampled_from(["team", "env"]), st.text(max_size=5)),
}
ORIGINS = st.sampled_from(["A", "B"]).map(lambda name: {"name": name}) | st.just(
    {"name": "FAR", "external": {"api": "$JS.hub.API", "deliver": ""}}
)
KEY_VALUE = {
    **COMMON,
    "history": st.integers(1, 64),
    "max_value_size": st.sampled_from([-1, 1, 2**20]),
    "limit_marker_ttl": st.sampled_from([0, 10**9, HOUR]),
    "republish": st.just({"src": ">", "dest": "copied.>"}),
}


SOURCES = st.lists(ORIGINS, min_size=1, max_size=3, unique_by=str).map(lambda found: {"sources": found})
DEFAULTS = {"max_bucket_size": -1, "max_value_size": -1, "storage": "file", "replicas": 1, "history": 1}


def said(words: dict[str, Any]) -> dict[str, Any]:
    """The words that are not what a bucket has anyway."""
    return {key: value for key, value in words.items() if value and DEFAULTS.get(key) != value}


@given(
    st.fixed_dictionaries({"bucket": st.just("CFG")}, optional=KEY_VALUE),
    st.sampled_from([{}, {"mirror": {"name": "A"}}]) | SOURCES,
)
def test_a_key_value_bucket_is_itself_again(words: dict[str, Any], origin: dict[str, Any]) -> None:
    if "mirror" in origin:
        words.pop("limit_marker_ttl", None)  # servers refuse markers on mirrors
    raised = bucket_words(stream_fields(Kind.KEY_VALUE, words | origin))
    assert raised == {"kind": "KeyValue", **said(words | origin)}


@given(st.fixed_dictionaries({"bucket": st.just("FILES")}, optional=COMMON))
def test_an_object_store_is_itself_again(words: dict[str, Any]) -> None:
    assert bucket_words(stream_fields(Kind.OBJECT_STORE, words)) == {"kind": "ObjectStore", **said(words)}


@pytest.mark.parametrize(
    ("kind", "words", "word"),
    [
        (Kind.KEY_VALUE, {"bucket": "B", "history": 0}, "history"),
        (Kind.KEY_VALUE, {"bucket": "a b"}, "bucket"),
        (Kind.OBJECT_STORE, {}, "bucket"),
        (Kind.KEY_VALUE, {"bucket": "B", "mirror": {"name": ""}}, "mirror"),
        (Kind.KEY_VALUE, {"bucket": "B", "mirror": {"external": {"api": "$JS.hub.API"}}}, "mirror"),
        (Kind.KEY_VALUE, {"bucket": "B", "sources": [{"name": "A"}, {}]}, "sources"),
        (Kind.KEY_VALUE, {"bucket": "B", "sources": [{"name": "a b"}]}, "sources"),
    ],
)
def test_what_no_bucket_can_have_is_told_by_its_word(kind: Kind, words: dict[str, Any], word: str) -> None:
    with pytest.raises(BucketFieldError) as caught:
        stream_fields(kind, words)
    assert caught.value.word == word
