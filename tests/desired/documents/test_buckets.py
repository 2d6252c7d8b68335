"""Buckets in their own words: lowered to the streams that the tools make, and raised from them again."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from natsctl.desired.assets import Kind
from natsctl.desired.documents.bucket_fields import BucketFieldError, bucket_words, stream_fields

HOUR = 3600 * 10**9
# What `nats kv add CFG --history 5 --ttl 1h --max-value-size 1024 --marker-ttl 1m` and `nats object add FILES --ttl 1h`
# made on nats-server 2.15.2, as `nats stream info -j` shows it.
WORDS = yaml.safe_load(Path(__file__).with_name("bucket_words.yaml").read_text())
MADE: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("made_buckets.json").read_text())


@pytest.mark.parametrize(("stream", "words"), WORDS["raised"])
def test_buckets_that_the_tool_made_are_raised_to_their_words(stream: str, words: dict[str, Any]) -> None:
    assert bucket_words(MADE[stream]) == words


@pytest.mark.parametrize(("stream", "change"), WORDS["not_raised"])
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


@pytest.mark.parametrize(("kind", "words", "word"), WORDS["refused"])
def test_what_no_bucket_can_have_is_told_by_its_word(kind: str, words: dict[str, Any], word: str) -> None:
    with pytest.raises(BucketFieldError) as caught:
        stream_fields(Kind(kind), words)
    assert caught.value.word == word
