"""`natsctl export` and `convert`: documents of what a server or another tool has."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import Run


@pytest.fixture
def shop(natsctl: Run) -> None:
    """A stream with consumers, one of them for a while only, and a bucket."""
    natsctl("str", "add", "SHOP", "--subjects", "SHOP.>", "--max-age", "90d", "--description", "${HOME}", "--defaults")
    natsctl("con", "add", "SHOP", "PACK", "--pull", "--filter", "SHOP.packed", "--defaults")
    natsctl("con", "add", "SHOP", "PASS", "--ephemeral", "--inactive-threshold", "1h", "--pull", "--defaults")
    natsctl("kv", "add", "PRICES", "--history", "5", "--ttl", "1h")


def test_documents_are_configurations_in_words_and_nothing_else(natsctl: Run, shop: None) -> None:
    done = natsctl("export")
    assert (done.code, done.err) == (0, "")
    header, _, text = done.out.partition("\n")
    assert header.startswith("# natsctl export from server ")
    assert text == (
        "streams:\n"
        "- name: SHOP\n"
        "  description: $${HOME}\n"
        "  subjects:\n"
        "  - SHOP.>\n"
        "  max_age: 90d\n"
        "  consumers:\n"
        "  - name: PACK\n"
        "    ack_policy: explicit\n"
        "    filter_subject: SHOP.packed\n"
        "key_values:\n"
        "- bucket: PRICES\n"
        "  ttl: 1h\n"
        "  history: 5\n"
    )


def test_what_is_exported_is_no_drift(natsctl: Run, shop: None, tmp_path: Path) -> None:
    path = tmp_path / "account.yaml"
    path.write_text(natsctl("export", "--ephemeral").out)
    diff = natsctl("diff", "-f", str(path))
    assert diff.code == 0, diff.out
    assert natsctl("apply", "-f", str(path)).out.startswith("nothing to do: 4 assets")


def test_json_is_one_document(natsctl: Run, shop: None) -> None:
    document = natsctl("export", "-j").json
    assert [one["name"] for one in document["streams"]] == ["SHOP"]
    assert document["key_values"] == [{"bucket": "PRICES", "ttl": "1h", "history": 5}]
    split = natsctl("export", "-j", "--split").json
    assert [one["kind"] for one in split] == ["KeyValue", "Stream", "Consumer"]
    assert natsctl("export", "--format", "json").json == document


def test_streams_and_buckets_are_chosen_by_name_and_pattern(natsctl: Run, shop: None) -> None:
    assert list(natsctl("export", "S*", "-j").json) == ["streams"]
    assert natsctl("export", "PRICES", "-j").json == natsctl("export", "KV_PRICES", "-j").json
    absent = natsctl("export", "SHOPP")
    assert (absent.code, absent.out) == (3, "")
    assert 'did you mean "SHOP"?' in absent.err


def test_full_names_every_field_and_ephemeral_every_consumer(natsctl: Run, shop: None) -> None:
    (stream,) = natsctl("export", "SHOP", "-j", "--full", "--ephemeral").json["streams"]
    assert (stream["retention"], stream["max_msgs"], stream["duplicate_window"]) == ("limits", -1, "2m")
    ephemeral = next(one for one in stream["consumers"] if one["name"] == "PASS")
    assert ("durable_name" in ephemeral, ephemeral["inactive_threshold"]) == (False, "1h")
    assert not any(key.startswith(("_nats.", "natsctl.")) for key in stream.get("metadata", {}))


@pytest.mark.ours("documents on disk")
def test_header_names_the_server_and_the_time_on_request(natsctl: Run, shop: None) -> None:
    assert natsctl("export", "--no-header").out.startswith("streams:")
    first = natsctl("export", "SHOP", "--time").out.splitlines()[0]
    assert ": SHOP at 20" in first


def test_protection_and_owner_are_words_of_the_document(natsctl: Run, tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("owner: shop\nstreams: [{name: KEPT, protect: true}]\n")
    natsctl("apply", "-f", str(path))
    assert natsctl("export", "-j").json == {"owner": "shop", "streams": [{"name": "KEPT", "protect": True}]}


@pytest.mark.ours("documents on disk")
def test_a_folder_has_a_file_for_each_stream(natsctl: Run, shop: None, tmp_path: Path) -> None:
    folder = tmp_path / "streams"
    made = natsctl("export", "--output", str(folder))
    assert (made.code, made.out, made.err) == (0, "", f"Wrote 2 files to {folder}\n")
    assert sorted(path.name for path in folder.iterdir()) == ["KV_PRICES.yaml", "SHOP.yaml"]
    assert natsctl("diff", "-f", str(folder)).code == 0
    again = natsctl("export", "--output", str(folder))
    assert again.err == f"Wrote 0 files to {folder}, 2 were up to date\n"


@pytest.mark.ours("documents on disk")
def test_files_that_say_something_else_are_kept_unless_forced(natsctl: Run, shop: None, tmp_path: Path) -> None:
    natsctl("export", "-o", str(tmp_path / "out"))
    before = (tmp_path / "out" / "SHOP.yaml").read_text()
    natsctl("str", "edit", "SHOP", "--max-msgs", "7", "-f")
    refused = natsctl("export", "-o", str(tmp_path / "out"))
    assert refused.code == 2
    assert "SHOP.yaml: already exists" in refused.err
    assert "--force" in refused.err
    assert (tmp_path / "out" / "SHOP.yaml").read_text() == before
    assert natsctl("export", "-o", str(tmp_path / "out"), "--force").code == 0
    assert "max_msgs: 7" in (tmp_path / "out" / "SHOP.yaml").read_text()


@pytest.mark.ours("documents on disk")
def test_a_file_of_a_stream_that_is_gone_is_told_and_stays(natsctl: Run, shop: None, tmp_path: Path) -> None:
    natsctl("export", "-o", str(tmp_path))
    natsctl("kv", "rm", "PRICES", "--all", "-f")
    assert "stale" not in natsctl("export", "S*", "-o", str(tmp_path)).err
    done = natsctl("export", "-o", str(tmp_path), "-j").json
    assert done == {
        "written": [],
        "unchanged": [str(tmp_path / "SHOP.yaml")],
        "stale": [str(tmp_path / "KV_PRICES.yaml")],
    }
    assert "KV_PRICES.yaml: no exported stream belongs to it any more" in natsctl("export", "-o", str(tmp_path)).err
    assert (tmp_path / "KV_PRICES.yaml").exists()


@pytest.mark.ours("documents on disk")
def test_a_file_is_json_by_its_name_and_a_dry_run_writes_none(natsctl: Run, shop: None, tmp_path: Path) -> None:
    path = tmp_path / "account.json"
    dry = natsctl("export", "-o", str(path), "--dry-run", "-j")
    assert (dry.code, path.exists()) == (0, False)
    assert str(path) in dry.out
    natsctl("export", "-o", str(path))
    assert json.loads(path.read_text()) == natsctl("export", "-j").json


def test_an_empty_account_is_an_empty_document(natsctl: Run) -> None:
    assert natsctl("export", "--no-header").out == "streams: []\n"
    assert natsctl("export", "-j", "--split").json == []


def test_what_no_server_makes_again_is_told(natsctl: Run) -> None:
    natsctl("str", "add", "DONE", "--subjects", "done", "--defaults")
    natsctl("str", "seal", "DONE", "-f")
    done = natsctl("export")
    assert "sealed: true" in done.out
    assert "note: Stream DONE is sealed" in done.err


@pytest.mark.ours("nats-server has no stream templates any more")
def test_templates_are_told_to_be_left_out(natsctl: Run) -> None:
    natsctl("str", "template", "add", "ALL", "--subjects", "t.*", "--max-streams", "4")
    natsctl("pub", "t.a", "x", "--wait")
    done = natsctl("export")
    natsctl("str", "template", "rm", "ALL", "-f")
    assert "note: template ALL is left out" in done.err
    assert "was made by template ALL" in done.err


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


@pytest.mark.ours("documents on disk")
def test_what_cannot_be_converted_is_told_all_at_once(natsctl: Run, tmp_path: Path) -> None:
    path = tmp_path / "bad.tf"
    path.write_text('resource "jetstream_stream" "A" {\n  name = var.x\n  max_agee = 5\n}\n')
    done = natsctl("convert", "terraform", str(path))
    assert (done.code, done.out) == (2, "")
    assert f"{path}:2: jetstream_stream.A.name: there is no variable x" in done.err
    assert "did you mean max_age?" in done.err


@pytest.mark.ours("documents on disk")
def test_variables_are_given_on_the_command_line(natsctl: Run, tmp_path: Path) -> None:
    path = tmp_path / "v.tf"
    path.write_text('variable "n" {}\nresource "jetstream_stream" "A" {\n  name = var.n\n  subjects = ["a"]\n}\n')
    assert natsctl("convert", "terraform", str(path), "--var", "n=LIVE", "-j").json["streams"][0]["name"] == "LIVE"
    (tmp_path / "v.tfvars").write_text('n = "FILE"\n')
    done = natsctl("convert", "terraform", str(path), "--var-file", str(tmp_path / "v.tfvars"), "-j")
    assert done.json["streams"][0]["name"] == "FILE"


@pytest.mark.ours("documents on disk")
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
