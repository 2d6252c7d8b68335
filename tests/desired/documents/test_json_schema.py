"""The schema for editors: what it says of documents is what the loader says, as far as a schema can."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from natsctl.desired.documents import read_documents
from natsctl.desired.documents.json_schema import document_schema

SCHEMA = document_schema("documents")
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
HERE = Path(__file__).parent
EXAMPLES = HERE.parents[2] / "examples"
GOOD = [
    "owner: shop\nstreams:\n- {name: A, max_age: 1h30m, max_bytes: 10GiB, storage: Memory}\n",
    "streams: {A: {subjects: [a.>], consumers: {C: {ack_policy: explicit, backoff: [1s, 2s], max_deliver: 5}}}}\n"
    "consumers: [{stream: A, name: D}]\nkv: {CFG: {history: 5}}\nobject_stores: [{bucket: FILES}]\n",
    "streams:\n  A:\n  B: {max_msgs: -1}\nkv: {CFG: {history: 5, mirror: X}}\nobjects: [{bucket: F, compress: true}]\n",
    "kind: Stream\nname: A\nmax_age: 31536000000000000\nmetadata: {team: a}\nprotect: true\ncreate_only: false\n",
    "kind: stream\nspec: {name: A, placement: {tags: [x]}}\nowner: me\n",
    "kind: Consumer\nstream: A\nname: C\nopt_start_time: 2026-01-31T12:00:00Z\ndeliver_policy: by_start_time\n",
    "kind: KeyValue\nbucket: CFG\nttl: 1h\nmirror: {name: OTHER, external: {api: $JS.hub.API}}\n",
    "kind: ObjectStore\nname: FILES\nmax_bucket_size: 1TB\ncompression: s2\n",
    "bucket: CFG\nhistory: 3\nsources: [A, {name: B}]\n",
    "name: A\nmax_msgs: null\nsubjects:\n",
    "name: A\nmax_msgs: ${MAX:-100}\nmax_age: ${AGE:-1}h\nno_ack: ${NO_ACK:-false}\nstorage: ${STORAGE:-file}\n",
    "durable_name: C\nstream_name: A\nack_policy: all\n",
    "type: io.nats.jetstream.api.v1.stream_info_response\nconfig: {name: A, new_field: 5}\nstate: {messages: 1}\n",
    "type: io.nats.jetstream.api.v1.stream_list_response\ntotal: 1\noffset: 0\nlimit: 9\n"
    "streams: [{config: {name: A}, created: x}]\n",
    "stream_name: A\nname: C\nconfig: {durable_name: C, ack_policy: none}\ndelivered: {}\n",
    "bucket: CFG\nstream: KV_CFG\nstream_info: {config: {name: KV_CFG}}\n",
    "apiVersion: v1\nkind: ConfigMap\ndata: {a: b}\n",
    "apiVersion: v1\nkind: List\nitems: [{apiVersion: jetstream.nats.io/v1beta2, kind: Stream, spec: {name: A}}]\n",
    "apiVersion: jetstream.nats.io/v1beta2\nkind: Consumer\nmetadata: {name: x}\nspec: {streamName: A, durableName: C, "
    "deliverPolicy: lastPerSubject, filterSubject: a, optStartTime: '', servers: [x], preventDelete: true}\n",
    "apiVersion: jetstream.nats.io/v1beta2\nkind: Account\nspec: {name: a}\n",
    "- {name: A}\n- {kind: Stream, name: B}\n",
    "",
]
BAD = [
    "streams: 5\n",
    "streams: [{subjects: [a]}]\n",
    "streams: [A]\n",
    "streams: {A: 5}\n",
    "stream: [{name: A}]\nstreams: []\n",
    "name: A\nmax_agee: 1h\n",
    "name: A\nmax_age: soon\n",
    "name: A\nmax_age: [1h]\n",
    "name: A\nmax_bytes: 10 apples\n",
    "name: A\nmax_msg_size: 99999999999\n",
    "name: A\nfirst_seq: -1\n",
    "name: A\nmax_msgs: many\n",
    "name: A\nmax_msgs: 1.5\n",
    "name: A\nno_ack: maybe\n",
    "name: A\nstorage: disk\n",
    "name: A\nsubjects: a.>\n",
    "name: A\nsubjects: [5]\n",
    "name: A\nsubjects: [null]\n",
    "name: A\nsources: [null]\n",
    "apiVersion: jetstream.nats.io/v1beta2\nkind: Stream\nspec: {name: null}\n",
    "kind: KeyValue\nbucket: B\nmirror: {external: {api: x}}\n",
    "name: 5\n",
    "name: A\nmetadata: {a: 1}\n",
    "name: A\nplacement: {tag: [x]}\n",
    "name: A\nmirror: {nam: B}\n",
    "kind: Streem\nname: A\n",
    "kind: Stream\nspec: {name: A}\nsubjects: [a]\n",
    "kind: Stream\n",
    "kind: Consumer\nname: C\n",
    "kind: Consumer\nstream: A\n",
    "kind: KeyValue\nhistory: 5\n",
    "kind: ObjectStore\nbucket: F\nhistory: 5\n",
    "kind: KeyValue\nbucket: B\nreplicas: lots\n",
    "kind: Stream\nname: A\nprotect: maybe\n",
    "durable_name: C\nack_policy: explicit\n",
    "bucket: X\n",
    "owner: 5\n",
    "owner: ''\nstreams: []\n",
    "include: 5\n",
    "include: [a.yaml, 5]\n",
    "streams: [{name: A, consumers: [{ack_policy: explicit}]}]\n",
    "streams: [{name: A, consumers: [{name: C, ack_policy: maybe}]}]\n",
    "apiVersion: jetstream.nats.io/v1beta2\nkind: Streem\nspec: {name: A}\n",
    "apiVersion: jetstream.nats.io/v1beta2\nkind: Stream\n",
    "apiVersion: jetstream.nats.io/v1beta2\nkind: Stream\nspec: {subjects: [a]}\n",
    "apiVersion: jetstream.nats.io/v1beta2\nkind: Stream\nspec: {name: A, max_age: 1h}\n",
    "apiVersion: jetstream.nats.io/v1beta2\nkind: Stream\nspec: {name: A, maxAge: soon}\n",
    "apiVersion: jetstream.nats.io/v1beta2\nkind: Consumer\nspec: {streamName: A}\n",
    "apiVersion: jetstream.nats.io/v1beta2\nkind: Consumer\nspec: {streamName: A, durableName: C, ackPolicy: some}\n",
    "- 5\n",
    "config: {subjects: [a]}\nstate: {}\n",
    "just words\n",
]


def schema_says(text: str) -> bool:
    valid = VALIDATOR.is_valid
    return all(valid(json.loads(json.dumps(document))) for document in yaml.load_all(text, TextLoader))


class TextLoader(yaml.SafeLoader):
    """As editors read YAML: times are texts."""


TextLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in rules if not tag.endswith(":timestamp")]
    for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def loader_says(text: str, folder: Path) -> bool:
    (folder / "set.yaml").write_text(text)
    return not read_documents([str(folder / "set.yaml")], {})[1]


@pytest.mark.parametrize("text", GOOD)
def test_good_documents_are_good_for_both(text: str, tmp_path: Path) -> None:
    assert loader_says(text, tmp_path)
    assert schema_says(text)


@pytest.mark.parametrize("text", BAD)
def test_bad_documents_are_bad_for_both(text: str, tmp_path: Path) -> None:
    assert not loader_says(text, tmp_path)
    assert not schema_says(text)


@pytest.mark.parametrize(
    "path",
    [
        *sorted((HERE / "controller").glob("*.yml")),
        *sorted((EXAMPLES / "documents").rglob("*.yaml")),
        EXAMPLES / "configs/orders.yaml",
    ],
    ids=lambda path: path.name,
)
def test_examples_fit_the_schema(path: Path) -> None:
    assert schema_says(path.read_text())


def test_the_schema_is_one_and_says_what_every_field_means() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    for name in ("StreamConfig", "ConsumerConfig", "KeyValueWords", "ObjectStoreWords"):
        assert all(field["description"] for field in SCHEMA["$defs"][name]["properties"].values())
    assert len(json.dumps(SCHEMA)) < 128 * 1024


def test_editors_offer_keys_where_nothing_is_written() -> None:
    offered: dict[str, Any] = SCHEMA["properties"]
    assert {"streams", "consumers", "key_values", "object_stores", "owner", "include", "kind"} <= offered.keys()
