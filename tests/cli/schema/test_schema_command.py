"""`natsctl schema`: the documents of the API and of natsctl, and whether a document is one of them."""

import functools
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from natsctl.cli.framework.nouns import every_command
from natsctl.cli.schema import kinds, kinds_of, schema_of
from tests.support.commands import Run
from tests.support.natscli_page import NATS_SERVER_FLAGS, parameters

CONFIGURATION = "io.nats.jetstream.api.v1.stream_configuration"


@pytest.fixture
def schema(offline: Run) -> Run:
    return functools.partial(offline, "schema")


def test_every_command_with_json_says_what_it_prints() -> None:
    for path, row in every_command():
        if path == NATS_SERVER_FLAGS:
            continue
        has_json = any("--json" in getattr(one.declared, "spellings", ()) for one in parameters(row))
        assert has_json == bool(row.answer), path


@functools.cache
def _check(schema: str) -> None:
    jsonschema.Draft202012Validator.check_schema(json.loads(schema))


@pytest.mark.parametrize("id", kinds())
def test_every_schema_is_one(id: str) -> None:
    for document in (schema_of(id), schema_of(f"{id}[]")):
        # Most definitions stand in dozens of schemas.
        for part in ({**document, "$defs": {}}, *document.get("$defs", {}).values()):
            _check(json.dumps(part))
    assert schema_of(id)["$id"] == id


def test_ids_are_those_of_the_reference_for_its_documents() -> None:
    assert {
        CONFIGURATION,
        "io.nats.jetstream.api.v1.consumer_configuration",
        "io.nats.jetstream.api.v1.stream_create_request",
        "io.nats.jetstream.api.v1.stream_create_response",
        "io.nats.jetstream.api.v1.stream_msg_get_response",
        "io.nats.jetstream.api.v1.consumer_getnext_request",
        "io.nats.jetstream.api.v1.pub_ack_response",
        "io.nats.jetstream.advisory.v1.api_audit",
        "io.nats.jetstream.advisory.v1.consumer_action",
        "io.nats.jetstream.metric.v1.consumer_ack",
    } <= set(kinds())


def test_kinds_are_listed_with_the_commands_that_print_them(schema: Run) -> None:
    listed = {one["id"]: one for one in json.loads(schema("ls", "-j")[1])}
    assert set(listed) == set(kinds())
    assert "stream info" in listed["io.nats.jetstream.api.v1.stream_info_response"]["commands"]
    assert all(one["description"] for one in listed.values())
    printed = json.loads(schema("ls", "--commands", "-j")[1])
    assert {one["id"] for one in printed} == {id for _, row in every_command() for id, _ in kinds_of(row.answer)}
    assert CONFIGURATION in schema("search", "stream_conf", "-n")[1].split()
    assert "consumer add" in schema("ls", "consumer_create", "--commands")[1]


def test_a_schema_is_shown_by_its_id_or_the_end_of_it(schema: Run) -> None:
    whole = json.loads(schema("info", CONFIGURATION)[1])
    assert whole["$id"] == CONFIGURATION
    assert json.loads(schema("show", "stream_configuration", "-j")[1]) == whole
    fields = whole["$defs"]["StreamConfig"]["properties"]
    assert fields["max_age"]["description"] == "nanoseconds"
    assert json.loads(schema("info", "stream_info[]")[1])["type"] == "array"
    assert "$id: io.nats" in schema("info", "stream_configuration", "--yaml")[1]
    code, _, err = schema("info", "strem_configuration")
    assert (code, "stream_configuration" in err) == (3, True)


@pytest.mark.parametrize(
    ("document", "valid", "path", "reason"),
    [
        ({"name": "S", "max_age": 1}, True, "", ""),
        ({"name": "S", "max_age": "1y"}, False, "$.max_age", "int"),
        ({"name": "S", "storage": "tape"}, False, "$.storage", "tape"),
        ({"name": "S", "sources": [{"name": 5}]}, False, "$.sources[0].name", "str"),
        ([], False, "$", "object"),
    ],
)
def test_a_document_is_judged_with_path_and_reason(
    schema: Run, tmp_path: Path, document: Any, valid: bool, path: str, reason: str
) -> None:
    (tmp_path / "file.json").write_text(json.dumps(document))
    code, out, _ = schema("validate", CONFIGURATION, str(tmp_path / "file.json"), "-j")
    verdict = json.loads(out)
    assert (code, verdict["valid"], verdict["path"]) == (int(not valid), valid, path)
    assert reason in verdict["reason"]
    assert schema("check", CONFIGURATION, "-", stdin=json.dumps(document).encode())[0] == int(not valid)
    try:
        jsonschema.validate(document, schema_of(CONFIGURATION))
    except jsonschema.ValidationError:
        assert not valid


def test_keys_that_a_kind_has_not_are_told_and_wrong_where_asked(schema: Run) -> None:
    document = b'{"name": "S", "max_agee": 1, "sources": [{"name": "x", "nmae": 1}]}'
    code, out, err = schema("validate", "stream_configuration", "-", stdin=document)
    assert (code, "is a valid" in out) == (0, True)
    assert "$.max_agee, $.sources[0].nmae" in err
    assert schema("validate", "stream_configuration", "-", "--strict", stdin=document)[0] == 1
    assert schema("validate", "stream_configuration", "-", stdin=b"{")[0] == 2
    assert schema("validate", "stream_configuration", "/nonexistent")[0] == 2


def test_an_answer_is_judged_by_what_it_says_it_is(natsctl: Run) -> None:
    done = natsctl("schema", "request", "$JS.API.INFO", "-j")
    assert (done.code, done.json["valid"]) == (0, True)
    assert done.json["id"] == "io.nats.jetstream.api.v1.account_info_response"
    shown = natsctl("schema", "request", "$JS.API.STREAM.NAMES", "", "--show", "--schema", "stream_names_response")
    assert (shown.code, "stream_names_response" in shown.err) == (0, True)
    wrong = natsctl("schema", "request", "$JS.API.INFO", "--schema", "stream_list_response", "-j")
    assert (wrong.code, wrong.json["valid"]) == (1, False)
    silent = natsctl("schema", "request", "no.such.subject")
    assert (silent.code, "no responders on no.such.subject" in silent.err) == (5, True)
    dry = natsctl("schema", "request", "$JS.API.INFO", "--dry-run", "-j")
    assert dry.json["requests"][0]["subject"] == "$JS.API.INFO"


def test_ids_stay_when_types_move_to_other_modules() -> None:
    moved = "export.v1.exported rtt.v1.trips saved.v1.saved_plan shapes.v1.spark_server shapes.v1.warm_start"
    assert {f"io.natsctl.{name}" for name in moved.split()} <= kinds().keys()
