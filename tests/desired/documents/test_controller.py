"""Manifests of the Kubernetes controller: its own examples, every field of its CRDs, and what is passed over."""

import json
from pathlib import Path
from typing import Any

import pytest

from natsctl.desired.assets import AssetKey
from natsctl.desired.documents import load_documents
from natsctl.desired.documents.controller import CONNECTION, KINDS, LIFE, Field

HERE = Path(__file__).parent / "controller"
HOUR = 3600 * 10**9
EXAMPLES: dict[str, dict[str, Any]] = json.loads((HERE / "expected.json").read_text())
"""The configurations that the controller's own examples ask for, and one with every field."""


def manifest(kind: str, spec: str, version: str = "v1beta2") -> str:
    return f"apiVersion: jetstream.nats.io/{version}\nkind: {kind}\nmetadata:\n  name: x\nspec:\n{spec}"


def test_every_example_is_here() -> None:
    assert {path.name for path in HERE.glob("*.yml")} == set(EXAMPLES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_what_the_controller_would_make(name: str) -> None:
    found = load_documents([str(HERE / name)], {})
    ((key, one),) = found.wanted.items()
    direct = {"allow_direct": False} if one.kind == "Stream" else {}
    assert one.config == {**direct, **EXAMPLES[name]}
    assert (one.protect, one.create_only) == ((True, True) if name == "every_field.yml" else (False, False))
    assert key == (AssetKey("mystream", one.config["durable_name"]) if "consumer" in name else (one.config["name"], ""))


def test_connections_are_passed_over_with_a_note() -> None:
    found = load_documents([str(HERE / "stream_servers.yml")], {})
    assert [note.partition("$.spec: ")[2] for note in found.notes] == [
        "creds, servers, tls passed over: natsctl connects as its flags or its context say",
        "no storage is given: memory, the controller's default",
    ]


def names(fields: dict[str, Field], above: str = "") -> set[str]:
    found = {above + name for name in fields}
    for name, field in fields.items():
        found |= names(field.below or {}, f"{above}{name}.")
    return found


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_field_of_the_crds_is_in_the_table(version: str, kind: str) -> None:
    fields = json.loads((HERE / "crds.json").read_text())[version].get(kind, [])
    known = names(KINDS[kind][2])
    unknown = [name for name in fields if name not in known and name.partition(".")[0] not in (*CONNECTION, *LIFE)]
    assert unknown == []
    assert fields or version == "v1beta1"


def test_what_the_controller_takes_for_absent_is_absent(read) -> None:
    spec = '  name: A\n  maxAge: ""\n  maxMsgsPerSubject: 0\n  compression: ""\n  storage: file\n  persistMode: ""\n'
    spec += "  servers: []\n  preventDelete: false\n  sealed: false\n  description:\n"
    found = read(manifest("Stream", spec))
    assert found.wanted[AssetKey("A")].config == {
        "name": "A", "storage": "file", "sealed": False, "allow_direct": False,
    }  # fmt: skip
    assert found.notes == ()


def test_deliver_policies_are_spelled_as_the_controller_spells_them(read) -> None:
    spec = (
        "  streamName: A\n  durableName: C\n  deliverPolicy: byStartSequence\n  optStartSeq: 5\n  backoff: [1s, 5m]\n"
    )
    ((_, one),) = read(manifest("Consumer", spec)).wanted.items()
    assert one.config["deliver_policy"] == "by_start_sequence"
    assert one.config["backoff"] == [10**9, 300 * 10**9]


def test_buckets_are_those_of_the_controller(read) -> None:
    spec = "  bucket: my-key-value\n  history: 20\n  storage: file\n  maxBytes: 2048\n  compression: true\n"
    spec += "  limitMarkerTtl: 60000000000\n  mirror: {name: OTHER}\n  maxValueSize: 0\n"
    spec = spec.replace("  limitMarkerTtl: 60000000000\n", "")
    ((key, one),) = read(manifest("KeyValue", spec)).wanted.items()
    assert key == AssetKey("KV_my-key-value")
    assert one.config["max_msgs_per_subject"] == 20
    assert (one.config["max_bytes"], one.config["max_msg_size"]) == (2048, -1)
    assert one.config["compression"] == "s2"
    assert one.config["mirror"] == {"name": "KV_OTHER"}
    spec = "  bucket: files\n  maxBytes: 536870912\n  ttl: 1h\n  replicas: 1\n  metadata: {a: b}\n"
    ((key, one),) = read(manifest("ObjectStore", spec)).wanted.items()
    assert (key.stream, one.config["max_age"], one.config["metadata"]) == ("OBJ_files", HOUR, {"a": "b"})


def test_other_resources_are_passed_over(read) -> None:
    text = "apiVersion: v1\nkind: ConfigMap\n---\n" + manifest("Account", "  name: a\n") + "---\n"
    text += (
        manifest("StreamTemplate", "  name: t\n", "v1beta1") + "---\n" + manifest("Stream", "  name: A\n", "v1beta1")
    )
    found = read(text)
    assert list(found.wanted) == [AssetKey("A")]
    assert [note.split(": ")[-2:-1] for note in found.notes[:1]] == [["v1 ConfigMap is passed over"]]
    assert "Account is passed over" in found.notes[1]
    assert "StreamTemplate is passed over" in found.notes[2]


def test_a_list_of_resources_is_its_items(read, told) -> None:
    items = '{"apiVersion": "jetstream.nats.io/v1beta2", "kind": "Stream", "spec": {"name": "A", "status": 1}}'
    text = f'{{"apiVersion": "v1", "kind": "List", "items": [\n{items}]}}'
    assert told(text, "set.json") == [(2, "$.items[0].spec.status", "unknown key")]
    assert list(read(text.replace(', "status": 1', ""), "set.json").wanted) == [AssetKey("A")]


@pytest.mark.parametrize(
    ("text", "line", "path", "reason"),
    [
        (manifest("Strem", "  name: A\n"), 2, "$.kind", "expected Stream, Consumer, KeyValue, ObjectStore, got Strem"),
        (manifest("Stream", "  subjects: [a]\n"), 5, "$.spec", "a Stream needs its name"),
        (manifest("Consumer", "  streamName: A\n"), 5, "$.spec", "a Consumer needs its durableName"),
        (manifest("Consumer", "  durableName: A\n"), 5, "$.spec", "a consumer needs its stream"),
        (manifest("Stream", "  name: A\n  maxage: 1h\n"), 7, "$.spec.maxage", "unknown key, did you mean maxAge?"),
        (manifest("Stream", "  name: A\n  maxAge: soon\n"), 7, "$.spec.maxAge", "expected a duration"),
        (manifest("Stream", "  name: A\n  maxAge: 1ms\n"), 7, "$.spec.maxAge", "max age needs to be >= 100ms"),
        (manifest("Stream", "  name: A\n  maxMsgs: lots\n"), 7, "$.spec.maxMsgs", "expected a whole number"),
        (
            manifest("Stream", "  name: A\n  mirror:\n    name: B\n    externalApiPrefix: 5\n"),
            9,
            "$.spec.mirror.externalApiPrefix",
            "expected a text, got 5",
        ),
        (
            manifest("Stream", "  name: A\n  sources:\n  - name: B\n    optStartTime: now\n"),
            9,
            "$.spec.sources[0].optStartTime",
            "expected a time",
        ),
        (
            manifest("Stream", "  name: A\n  preventDelete: maybe\n"),
            7,
            "$.spec.preventDelete",
            "expected true or false",
        ),
        (manifest("KeyValue", "  bucket: A\n  history: 65\n"), 7, "$.spec.history", "1 to 64"),
        (manifest("Stream", "  - name\n"), 5, "$.spec", "expected an object"),
    ],
)
def test_a_fault_is_told_in_the_controllers_words(told, text: str, line: int, path: str, reason: str) -> None:
    ((at, where, why),) = told(text)
    assert (at, where) == (line, path)
    assert why.startswith(reason) or reason in why
