"""`natsctl convert`: Terraform and other tools' documents, written in natsctl's form and applied."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

Run = Callable[..., Any]
EXAMPLES = Path(__file__).parents[3] / "examples"
TERRAFORM = str(EXAMPLES / "terraform" / "orders.tf")
YEAR_NS = 365 * 24 * 3600 * 1_000_000_000
BY_TERRAFORM = {"allow_direct", "max_ack_pending", "sample_freq", "ack_wait"}
"""Fields that the provider gives values of its own."""


def live_state(natsctl: Run) -> dict[str, dict[str, Any]]:
    """The configurations of ORDERS and its consumers, without what servers and plans write into them."""
    found = {"ORDERS": natsctl("str", "info", "ORDERS", "-j").json["config"]}
    for name in natsctl("con", "ls", "ORDERS", "-n").out.split():
        found[name] = natsctl("con", "info", "ORDERS", name, "-j").json["config"]
    return {name: {key: value for key, value in one.items() if key != "metadata"} for name, one in found.items()}


def test_the_orders_world_of_terraform_is_that_of_the_examples(natsctl: Run, tmp_path: Path) -> None:
    path = tmp_path / "orders.yaml"
    converted = natsctl("convert", "terraform", TERRAFORM, "-o", str(path))
    assert converted.code == 0
    assert "provider jetstream is passed over" in converted.err
    assert natsctl("apply", "-f", str(path)).code == 0
    ours = live_state(natsctl)
    assert ours["ORDERS"]["max_age"] == YEAR_NS
    assert (ours["ORDERS"]["allow_direct"], ours["NEW"]["max_ack_pending"]) == (True, 20000)
    assert ours["MONITOR"]["deliver_subject"] == "monitor.ORDERS"
    natsctl("str", "rm", "ORDERS", "-f")
    natsctl("apply", "-f", str(EXAMPLES / "configs" / "orders.yaml"))
    theirs = live_state(natsctl)
    assert ours.keys() == theirs.keys() == {"ORDERS", "NEW", "DISPATCH", "MONITOR"}
    differing = {
        key
        for name in ours
        for key in ours[name].keys() | theirs[name].keys()
        if ours[name].get(key) != theirs[name].get(key)
    }
    assert differing <= BY_TERRAFORM | {"max_deliver"}


def test_documents_of_terraform_go_straight_into_a_plan(natsctl: Run) -> None:
    text = natsctl("convert", "tf", TERRAFORM).out
    assert natsctl("apply", "-f", "-", stdin=text.encode()).code == 0
    assert natsctl("plan", "-f", "-", stdin=text.encode()).code == 0


def test_json_is_one_document(natsctl: Run) -> None:
    (stream,) = natsctl("convert", "terraform", TERRAFORM, "-j").json["streams"]
    assert [one["name"] for one in stream["consumers"]] == ["DISPATCH", "MONITOR", "NEW"]
    split = natsctl("convert", "terraform", TERRAFORM, "-j", "--split").json
    assert [one["kind"] for one in split] == ["Stream", "Consumer", "Consumer", "Consumer"]


def test_what_cannot_be_converted_is_told_all_at_once(natsctl: Run, tmp_path: Path) -> None:
    path = tmp_path / "bad.tf"
    path.write_text('resource "jetstream_stream" "A" {\n  name = var.x\n  max_agee = 5\n}\n')
    done = natsctl("convert", "terraform", str(path))
    assert (done.code, done.out) == (2, "")
    assert f"{path}:2: jetstream_stream.A.name: there is no variable x" in done.err
    assert "did you mean max_age?" in done.err


def test_variables_are_given_on_the_command_line(natsctl: Run, tmp_path: Path) -> None:
    path = tmp_path / "v.tf"
    path.write_text('variable "n" {}\nresource "jetstream_stream" "A" {\n  name = var.n\n  subjects = ["a"]\n}\n')
    assert natsctl("convert", "terraform", str(path), "--var", "n=LIVE", "-j").json["streams"][0]["name"] == "LIVE"
    (tmp_path / "v.tfvars").write_text('n = "FILE"\n')
    done = natsctl("convert", "terraform", str(path), "--var-file", str(tmp_path / "v.tfvars"), "-j")
    assert done.json["streams"][0]["name"] == "FILE"


def test_manifests_of_the_controller_become_documents(natsctl: Run, tmp_path: Path) -> None:
    manifest = tmp_path / "stream.yml"
    manifest.write_text(
        "apiVersion: jetstream.nats.io/v1beta2\nkind: Stream\nmetadata: {name: pay}\n"
        "spec: {name: PAY, subjects: [pay.>], storage: file, maxAge: 720h, maxBytes: 1048576}\n"
    )
    done = natsctl("convert", "documents", str(manifest))
    assert (
        done.out
        == "streams:\n- name: PAY\n  subjects:\n  - pay.>\n  max_bytes: 1MiB\n  max_age: 30d\n  allow_direct: false\n"
    )


def test_info_of_a_bucket_becomes_a_bucket(natsctl: Run) -> None:
    natsctl("kv", "add", "CFG", "--history", "3")
    info = natsctl("kv", "info", "CFG", "-j").out
    assert natsctl("convert", "documents", "-", "-j", stdin=info.encode()).json == {
        "key_values": [{"bucket": "CFG", "history": 3}]
    }
