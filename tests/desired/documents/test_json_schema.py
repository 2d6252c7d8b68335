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
DOCUMENTS: dict[str, list[str]] = json.loads((HERE / "documents.json").read_text())
"""Texts that loader and schema take, and texts that neither does."""


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


@pytest.mark.parametrize(
    ("text", "is_good"), [(text, kind == "good") for kind, texts in DOCUMENTS.items() for text in texts]
)
def test_loader_and_schema_agree_on_a_document(text: str, is_good: bool, tmp_path: Path) -> None:
    assert loader_says(text, tmp_path) is schema_says(text) is is_good


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
