"""Manifests of the Kubernetes controller: its own examples, every field of its CRDs, and what is passed over."""

import json
from pathlib import Path
from typing import Any

import pytest

from natsctl.desired.assets import AssetKey
from natsctl.desired.documents import load_documents
from natsctl.desired.documents.controller import CONNECTION, KINDS, LIFE, SpecField

HERE = Path(__file__).parent / "controller"
EXAMPLES: dict[str, dict[str, Any]] = json.loads((HERE / "expected.json").read_text())
"""The configurations that the controller's own examples ask for, and one with every field."""


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


def names(fields: dict[str, SpecField], above: str = "") -> set[str]:
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
