"""Terraform's resources as wanted assets: what the provider would have created, or what is unknown, by line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from natsctl.api.errors import UsageError
from natsctl.desired.assets import AssetKey, DocumentError, DocumentSet, Kind
from natsctl.desired.server_defaults import normalised
from natsctl.desired.terraform import read_terraform

SECOND = 1_000_000_000
Read = Callable[..., DocumentSet]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Reads a text of HCL."""

    def reading(text: str, environ: dict[str, str] | None = None, **given: Any) -> DocumentSet:
        (tmp_path / "main.tf").write_text(text)
        return read_terraform([str(tmp_path / "main.tf")], environ or {}, **given)

    return reading


@pytest.fixture
def faults(read: Read, tmp_path: Path) -> Callable[[str], list[str]]:
    """The faults of a text, without the folder."""

    def told(text: str) -> list[str]:
        with pytest.raises(DocumentError) as caught:
            read(text)
        return [str(fault).removeprefix(f"{tmp_path}/") for fault in caught.value.faults]

    return told


def stream(body: str, name: str = "S") -> str:
    return f'resource "jetstream_stream" "{name}" {{\n  name = "{name}"\n  subjects = ["{name}.>"]\n  {body}\n}}\n'


def consumer(body: str) -> str:
    return (
        'resource "jetstream_consumer" "C" {\n  stream_id = "JETSTREAM_STREAM_S"\n  durable_name = "C"\n'
        f"  {body}\n}}\n"
    )


def config_of(documents: DocumentSet, *key: str) -> dict[str, Any]:
    return documents.wanted[AssetKey(*key)].config


def test_defaults_are_those_of_the_provider(read: Read) -> None:
    made = normalised(AssetKey("S"), config_of(read(stream("")), "S"))
    assert (made["duplicate_window"], made["allow_direct"], made.get("no_ack", False)) == (
        120 * SECOND,
        True,
        False,
    )
    pull = config_of(read(consumer("deliver_all = true")), "S", "C")
    assert (pull["ack_policy"], pull["ack_wait"], pull["max_ack_pending"]) == ("explicit", 30 * SECOND, 20000)
    assert (pull["sample_freq"], pull["max_deliver"], pull["deliver_policy"]) == ("0%", -1, "all")
    buckets = read(
        'resource "jetstream_kv_bucket" "K" {\n name = "K"\n}\nresource "jetstream_obj_bucket" "O" {\n name = "O"\n}\n'
    )
    assert config_of(buckets, "KV_K")["max_msgs_per_subject"] == 5
    assert [one.kind for one in buckets.wanted.values()] == [Kind.KEY_VALUE, Kind.OBJECT_STORE]


def test_seconds_become_nanoseconds_in_every_field_that_has_them(read: Read) -> None:
    made = config_of(
        read(
            stream(
                "max_age = 60 * 60 * 24 * 365\n duplicate_window = 5\n inactive_threshold = 7\n"
                "subject_delete_marker_ttl = 9\n max_ack_pending = 3"
            )
        ),
        "S",
    )
    assert (made["max_age"], made["duplicate_window"]) == (365 * 86400 * SECOND, 5 * SECOND)
    assert made["consumer_limits"] == {"inactive_threshold": 7 * SECOND, "max_ack_pending": 3}
    assert made["subject_delete_marker_ttl"] == 9 * SECOND
    push = config_of(
        read(
            consumer(
                'deliver_new = true\n delivery_subject = "d"\n ack_wait = 2\n heartbeat = 3\n inactive_threshold = 5\n'
                "backoff = [2, 4]\n max_expires = 6\n priority_timeout = 8"
            )
        ),
        "S",
        "C",
    )
    assert [push[name] // SECOND for name in ("ack_wait", "idle_heartbeat", "inactive_threshold")] == [2, 3, 5]
    assert (push["backoff"], push["max_expires"] // SECOND) == ([2 * SECOND, 4 * SECOND], 6)
    assert push["priority_timeout"] == 8 * SECOND
    bucket = config_of(
        read('resource "jetstream_kv_bucket" "K" {\n name = "K"\n ttl = 60\n limit_marker_ttl = 5\n}'), "KV_K"
    )
    assert (bucket["max_age"], bucket["subject_delete_marker_ttl"]) == (60 * SECOND, 5 * SECOND)


def test_origins_placement_and_mappings_become_objects(read: Read) -> None:
    made = config_of(
        read(
            stream(
                """
  placement_cluster = "east"
  placement_tags    = ["ssd"]
  republish_source      = "S.a"
  republish_destination = "r.a"
  subject_transform {
    source      = "S.a"
    destination = "S.b"
  }
  source {
    name       = "ONE"
    start_seq  = 7
    subject_transform {
      source      = "x"
      destination = "y"
    }
    external {
      api     = "$JS.hub.API"
      deliver = "hub"
    }
  }
  source {
    name       = "TWO"
    start_time = "2024-01-01T00:00:00Z"
    consumer {
      name            = "feed"
      deliver_subject = "feed.two"
    }
  }
"""
            )
        ),
        "S",
    )
    assert made["placement"] == {"cluster": "east", "tags": ["ssd"]}
    assert made["republish"] == {"src": "S.a", "dest": "r.a"}
    assert made["subject_transform"] == {"src": "S.a", "dest": "S.b"}
    assert made["sources"] == [
        {
            "name": "ONE",
            "opt_start_seq": 7,
            "subject_transforms": [{"src": "x", "dest": "y"}],
            "external": {"api": "$JS.hub.API", "deliver": "hub"},
        },
        {
            "name": "TWO",
            "opt_start_time": "2024-01-01T00:00:00Z",
            "consumer": {"name": "feed", "deliver_subject": "feed.two"},
        },
    ]


def test_a_mirror_has_no_subjects_and_may_be_read_directly(read: Read) -> None:
    text = 'resource "jetstream_stream" "M" {\n name = "M"\n mirror_direct = true\n mirror {\n name = "S"\n }\n}\n'
    made = config_of(read(text), "M")
    assert (made["mirror"], made["mirror_direct"], "subjects" in made) == ({"name": "S"}, True, False)


@pytest.mark.parametrize(
    ("said", "policy"),
    [
        ("deliver_last = true", {"deliver_policy": "last"}),
        ("deliver_last_per_subject = true", {"deliver_policy": "last_per_subject"}),
        ("stream_sequence = 10", {"deliver_policy": "by_start_sequence", "opt_start_seq": 10}),
        (
            'start_time = "2024-01-01T00:00:00.500Z"',
            {"deliver_policy": "by_start_time", "opt_start_time": "2024-01-01T00:00:00.5Z"},
        ),
    ],
)
def test_where_a_consumer_starts(read: Read, said: str, policy: dict[str, Any]) -> None:
    made = config_of(read(consumer(said)), "S", "C")
    assert {name: made[name] for name in policy} == policy


def test_a_default_that_servers_refuse_for_the_ack_policy_is_left_out(read: Read) -> None:
    said = 'deliver_all = true\n delivery_subject = "d"\n ack_policy = '
    assert "max_ack_pending" not in config_of(read(consumer(said + '"none"')), "S", "C")
    assert "ack_wait" not in config_of(read(consumer(said + '"flow_control"')), "S", "C")
    assert config_of(read(consumer(said + '"none"\n max_ack_pending = 5')), "S", "C")["max_ack_pending"] == 5


def test_one_filter_in_a_list_is_a_plain_filter(read: Read) -> None:
    assert (
        config_of(read(consumer('deliver_all = true\n filter_subjects = ["S.a"]')), "S", "C")["filter_subject"] == "S.a"
    )


def test_expressions_references_and_loops_are_worked_out(read: Read) -> None:
    documents = read(
        """
variable "env" { default = "test" }
variable "size" { type = number }
locals {
  kinds = { new = 1, old = 2 }
  first = [for kind, days in local.kinds : upper(kind) if days < 2]
  text  = <<-END
    for ${var.env}:
      $${literal}
  END
}
resource "jetstream_stream" "S" {
  for_each    = local.kinds
  name        = "${var.env}-${each.key}"
  subjects    = ["${each.key}.>"]
  description = local.text
  max_age     = each.value * 24 * 60 * 60
  max_bytes   = var.size > 1 ? pow(2, 20) : -1
  metadata    = { for name, days in local.kinds : name => "${days}d" }
  dynamic "source" {
    for_each = local.first
    content { name = source.value }
  }
  lifecycle { prevent_destroy = true }
}
resource "jetstream_consumer" "C" {
  count          = length(local.kinds)
  stream_id      = jetstream_stream.S["new"].id
  durable_name   = format("worker-%02d", count.index)
  deliver_all    = !false && 7 % 4 == 3
  filter_subject = jetstream_stream.S["new"].subjects[0]
}
""",
        {"TF_VAR_size": "2"},
        variables=["env=live"],
    )
    assert list(documents.wanted) == [
        AssetKey("live-new"),
        AssetKey("live-old"),
        AssetKey("live-new", "worker-00"),
        AssetKey("live-new", "worker-01"),
    ]
    made = config_of(documents, "live-old")
    assert made["description"] == "for live:\n  ${literal}\n"
    assert (made["max_age"], made["max_bytes"]) == (2 * 86400 * SECOND, 2**20)
    assert (made["metadata"], made["sources"]) == ({"new": "1d", "old": "2d"}, [{"name": "NEW"}])
    assert documents.wanted[AssetKey("live-old")].protect
    assert config_of(documents, "live-new", "worker-00")["filter_subject"] == "new.>"


def test_all_that_cannot_be_worked_out_is_told_with_its_line(faults: Callable[[str], list[str]]) -> None:
    unknown = "data is not known here: only variables, locals and the resources of these files are"
    assert faults(
        """locals { loop = local.loop }
resource "jetstream_stream" "A" {
  name     = var.missing
  subjects = [data.aws_thing.x.name, "b"]
  max_age  = file("age.txt")
  max_msgs = 1 / 0
  storage  = "disk"
  max_byte = 5
  replicas = "three"
  sources { name = "B" }
}
resource "jetstream_stream" "B" {
  count = length(local.loop)
  name  = "B"
}
resource "jetstream_consumer" "C" {
  stream_id    = jetstream_stream.A.subjects
  durable_name = "C"
  deliver_all  = true
  deliver_new  = true
}
"""
    ) == [
        "main.tf:1: jetstream_stream.B: local.loop refers to itself",
        "main.tf:3: jetstream_stream.A.name: there is no variable missing",
        f"main.tf:4: jetstream_stream.A.subjects: {unknown}",
        f"main.tf:4: jetstream_consumer.C.stream_id: {unknown}",
        "main.tf:5: jetstream_stream.A.max_age: the function file cannot be worked out here: write its value instead",
        "main.tf:6: jetstream_stream.A.max_msgs: division by zero",
        "main.tf:7: jetstream_stream.A.storage: expected one of file, memory, got 'disk'",
        "main.tf:8: jetstream_stream.A.max_byte: unknown attribute max_byte, did you mean max_bytes?",
        "main.tf:9: jetstream_stream.A.replicas: expected a number, got 'three'",
        "main.tf:10: jetstream_stream.A.sources: unknown block sources, did you mean source?",
        "main.tf:20: jetstream_consumer.C.deliver_new: only one of deliver_all, deliver_new can be given",
    ]


def test_what_is_no_hcl_is_told_by_line(faults: Callable[[str], list[str]]) -> None:
    assert faults('resource "jetstream_stream" "A" {\n  name = \n}\n')[0].startswith("main.tf:")
    assert faults("a = 1\n") == ["main.tf:1: $.a: a = … stands outside of any block"]


def test_a_variable_without_a_value_says_how_to_give_one(faults: Callable[[str], list[str]]) -> None:
    text = 'variable "env" {\n  type = string\n}\n' + stream("description = var.env")
    assert "give it with --var env=VALUE" in faults(text)[0]


def test_variables_come_from_files_and_the_command_line_wins(read: Read, tmp_path: Path) -> None:
    text = 'variable "a" {}\nvariable "b" {}\nvariable "l" { type = list(string) }\n' + stream(
        'description = "${var.a} ${var.b} ${join("-", var.l)}"'
    )
    (tmp_path / "terraform.tfvars").write_text('a = "file"\nb = "file"\n')
    (tmp_path / "more.tfvars").write_text('b = "more"\n')
    made = read(text, {"TF_VAR_a": "env"}, variables=['l=["x", "y"]'], variable_files=[str(tmp_path / "more.tfvars")])
    assert config_of(made, "S")["description"] == "file more x-y"
    with pytest.raises(UsageError, match="no such variable"):
        read(text, variables=["c=1"])


def test_folders_are_modules_of_their_own(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "names.tf").write_text(f'locals {{ name = "{name}" }}\n')
        (tmp_path / name / "streams.tf").write_text(
            'resource "jetstream_stream" "S" {\n name = local.name\n subjects = [local.name]\n}\n'
        )
    made = read_terraform([str(tmp_path / "a"), str(tmp_path / "b")], {})
    assert list(made.wanted) == [AssetKey("a"), AssetKey("b")]


def test_what_documents_do_not_hold_is_told_with_what_to_do(read: Read) -> None:
    documents = read(
        'terraform {\n required_version = ">= 1"\n}\nprovider "jetstream" {\n servers = "x"\n}\n'
        'resource "jetstream_kv_entry" "E" {\n bucket = "B"\n key = "k"\n value = "v"\n}\n'
        'resource "aws_s3_bucket" "B" {\n bucket = "b"\n}\noutput "o" {\n value = 1\n}\n' + stream("")
    )
    texts = [text.partition(": ")[2] for text in documents.notes]
    assert [text.partition(" is passed over")[0] for text in texts] == [
        "terraform",
        "provider jetstream",
        "jetstream_kv_entry.E",
        "aws_s3_bucket.B",
        "output o",
    ]
    assert "natsctl kv put" in texts[2]


def test_states_have_every_value(tmp_path: Path) -> None:
    values = {
        "id": "JETSTREAM_STREAM_S",
        "name": "S",
        "subjects": ["S.>"],
        "max_age": 60,
        "ack": True,
        "allow_direct": False,
        "duplicate_window": 60,
        "inactive_threshold": 5 * SECOND,
        "mirror": [],
        "source": [
            {"name": "O", "start_seq": 0, "start_time": "", "external": [], "consumer": [], "subject_transform": []}
        ],
        "description": "",
        "placement_tags": None,
    }
    shown = {
        "terraform_version": "1.9.0",
        "values": {
            "root_module": {
                "resources": [],
                "child_modules": [
                    {
                        "resources": [
                            {
                                "address": 'module.m.jetstream_stream.S["a"]',
                                "mode": "managed",
                                "type": "jetstream_stream",
                                "values": values,
                            }
                        ]
                    }
                ],
            }
        },
    }
    stored = {
        "version": 4,
        "terraform_version": "1.9.0",
        "resources": [
            {
                "mode": "managed",
                "type": "jetstream_stream",
                "name": "S",
                "instances": [{"index_key": "a", "attributes": values}],
            },
            {"mode": "managed", "type": "random_id", "name": "S", "instances": [{"attributes": {}}]},
        ],
    }
    for name, document in (("show.json", shown), ("terraform.tfstate", stored)):
        (tmp_path / name).write_text(json.dumps(document))
        made = config_of(read_terraform([str(tmp_path / name)], {}), "S")
        assert (made["max_age"], made["consumer_limits"]) == (60 * SECOND, {"inactive_threshold": 5 * SECOND})
        assert made["sources"] == [{"name": "O"}]
        assert "allow_direct" not in made


def test_the_same_asset_twice_is_a_fault(faults: Callable[[str], list[str]]) -> None:
    (fault,) = faults(stream("") + stream("").replace('" "S" {', '" "T" {'))
    assert "Stream S stands twice, first at" in fault
