"""Accounts as documents: what is written is read again as the same account, and nothing else is written."""

import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from natsctl.desired.assets import AssetKey, DocumentSet
from natsctl.desired.differ import created
from natsctl.desired.documents import load_documents
from natsctl.desired.documents.files import json_text, yaml_text
from natsctl.desired.export import Exporter, wanted_of
from natsctl.desired.live import LiveAsset, LiveState
from natsctl.desired.server_defaults import ConfigRefusedError, ServerContext, normalised, normalised_stream
from tests.desired.random_accounts import SECOND, Account, accounts, world_of
from tests.support import tiers

LAYOUTS = ("plain.yaml", "split.yaml", "plain.json", "split.json")


def read(*texts: tuple[str, str]) -> DocumentSet:
    with tempfile.TemporaryDirectory() as folder:
        for name, text in texts:
            Path(folder, name).write_bytes(text.encode())
        return load_documents([folder], {})


def text_of(exporter: Exporter, layout: str) -> str:
    documents: Any = exporter.typed() if layout.startswith("split") else exporter.plain()
    if layout.endswith(".json"):
        return json_text(documents)
    return yaml_text(documents if isinstance(documents, list) else [documents], ["header"])


def account_of(documents: DocumentSet) -> Account:
    streams = {}
    for key, one in documents.wanted.items():
        if not key.consumer:
            streams[key.stream] = normalised_stream(key, created(one).config, ServerContext(streams.get))
    return {
        key: normalised(key, created(one).config, ServerContext(streams.get)) for key, one in documents.wanted.items()
    }


def without_pauses(account: Account) -> Account:
    """An account in which nothing is paused: that is an operator's doing, and not written."""
    return {key: {name: one[name] for name in one if name != "pause_until"} for key, one in account.items()}


def exporter_of(*configs: dict[str, Any], full: bool = False, **infos: Any) -> Exporter:
    assets = {AssetKey(one["name"]): LiveAsset(AssetKey(one["name"]), {"config": one, **infos}) for one in configs}
    return Exporter(wanted_of(LiveState(assets)), full)


@tiers.examples(100, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(accounts(), st.sampled_from(LAYOUTS), st.booleans(), st.data())
def test_what_is_exported_is_read_as_the_same_account(account: Account, layout: str, full: bool, data: Any) -> None:
    protected = data.draw(st.frozensets(st.sampled_from(sorted(account))) if account else st.just(frozenset()))
    live_state = world_of(account, owner="shop", protected=protected)
    exporter = Exporter(wanted_of(live_state, ephemeral=True), full)
    if not account:
        assert exporter.plain() == {"streams": []}
        return
    again = read((layout, text_of(exporter, layout)))
    assert account_of(again) == without_pauses(account)
    assert again.owner == "shop"
    assert {key for key, one in again.wanted.items() if one.protect} == protected


@tiers.examples(30, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(accounts())
def test_no_field_is_written_that_a_server_fills_in_again(account: Account) -> None:
    streams = {
        key.stream: normalised_stream(key, one, ServerContext()) for key, one in account.items() if not key.consumer
    }
    around = ServerContext(streams.get)
    documents = wanted_of(world_of(account))
    for one in Exporter(documents).written():
        if one.kind not in ("Stream", "Consumer"):
            continue
        asset = documents.wanted[one.key]
        written = {name: asset.config[name] for name in asset.config if name in one.words}
        aim = normalised(one.key, asset.config, around)
        for name in written.keys() - {"name", "durable_name", "ack_policy"}:
            less = created(replace(asset, config={key: value for key, value in written.items() if key != name})).config
            try:
                assert normalised(one.key, less, around) != aim, (one.words, name)
            except ConfigRefusedError:
                continue


@tiers.examples(30, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(accounts(), st.randoms())
def test_order_in_which_a_server_lists_does_not_matter(account: Account, random: Any) -> None:
    shuffled = list(account.items())
    random.shuffle(shuffled)
    shuffled = [(key, dict(sorted(config.items(), reverse=True))) for key, config in shuffled]
    assert text_of(Exporter(wanted_of(world_of(dict(shuffled)))), "plain.yaml") == text_of(
        Exporter(wanted_of(world_of(account))), "plain.yaml"
    )


def test_consumers_without_a_durable_name_are_exported_on_request_and_internal_ones_never() -> None:
    stream = AssetKey("S")
    infos = {
        stream: {"config": normalised(stream, {"name": "S"})},
        AssetKey("S", "D"): {"config": {"durable_name": "D", "name": "D"}},
        AssetKey("S", "E"): {"config": {"name": "E", "inactive_threshold": 5 * SECOND}},
        AssetKey("S", "M"): {"config": {"name": "M", "direct": True, "deliver_subject": "x", "sourcing": True}},
        AssetKey("S", "N"): {"config": {"name": "N", "durable_name": "N", "sourcing": True}},
    }
    live_state = LiveState({key: LiveAsset(key, info) for key, info in infos.items()})
    assert [key.consumer for key in wanted_of(live_state).wanted] == ["", "D"]
    assert [key.consumer for key in wanted_of(live_state, ephemeral=True).wanted] == ["", "D", "E"]
    again = read(("a.yaml", text_of(Exporter(wanted_of(live_state, ephemeral=True)), "plain.yaml")))
    assert "durable_name" not in again.wanted[AssetKey("S", "E")].config


def test_fields_of_a_newer_server_are_carried_along() -> None:
    config = {
        "name": "KV_NEW",
        "mirror": {"name": "M", "deeper": [1, {"${x}": "${y}"}]},
        "sources_of_light": {"a": 1.5, "b": None},
        "max_age": SECOND,
    }
    plain = {"name": "S", "sources": [{"name": "A"}, {"name": "B", "colour": "red"}], "tint": True}
    consumer = AssetKey("S", "C")
    live_state = world_of(
        {AssetKey("KV_NEW"): config, AssetKey("S"): plain, consumer: {"durable_name": "C", "wings": 2}}
    )
    again = read(("a.yaml", text_of(Exporter(wanted_of(live_state)), "plain.yaml")))
    kept = again.wanted[AssetKey("S")].config
    assert (kept["sources"], kept["tint"]) == ([{"name": "A"}, {"name": "B", "colour": "red"}], True)
    assert again.wanted[consumer].config["wings"] == 2
    mirror = again.wanted[AssetKey("KV_NEW")].config
    assert mirror["mirror"] == config["mirror"]
    assert mirror["sources_of_light"] == {"a": 1.5}


def test_a_bucket_with_a_field_that_its_words_do_not_know_is_written_as_a_stream() -> None:
    from natsctl.client.asset_config import new_kv_bucket

    usual, newer, odd = new_kv_bucket("A"), new_kv_bucket("B") | {"tint": 1}, new_kv_bucket("C") | {"discard": "old"}
    document = exporter_of(usual, newer, odd).plain()
    assert [one["bucket"] for one in document["key_values"]] == ["A"]
    assert [one["name"] for one in document["streams"]] == ["KV_B", "KV_C"]
    assert document["streams"][0]["extra"] == {"tint": 1}


def test_streams_that_are_alike_are_written_as_each_alone() -> None:
    subjects = [["A"], ["b.>"], ["C"], ["d", "e"], ["d", "f"]]
    configs = [{"name": f"{chr(65 + at)}", "subjects": each, "max_age": 5 * SECOND} for at, each in enumerate(subjects)]
    configs += [{**configs[1], "name": "SHORT", "subjects": ["s"], "max_age": SECOND, "duplicate_window": SECOND}]
    alone = [words for config in configs for words in exporter_of(config).plain()["streams"]]
    assert exporter_of(*configs).plain()["streams"] == alone
    assert ["subjects" in words for words in alone] == [False, True, False, True, True, True]


def test_a_configuration_that_servers_would_refuse_is_written_whole() -> None:
    refused = {"name": "S", "subjects": ["a"], "max_age": 1, "duplicate_window": 2, "num_replicas": 3, "no_ack": False}
    (written,) = exporter_of(refused).written()
    assert written.words == {
        "name": "S",
        "subjects": ["a"],
        "max_age": "1ns",
        "num_replicas": 3,
        "duplicate_window": "2ns",
        "allow_direct": False,
    }


def test_what_a_server_filled_in_and_would_refuse_is_left_out() -> None:
    counting = {"name": "S", "allow_direct": True, "allow_msg_counter": True, "subject_delete_marker_ttl": SECOND}
    (written,) = exporter_of(normalised(AssetKey("S"), counting)).written()
    assert written.words == {"name": "S", "allow_msg_counter": True, "subject_delete_marker_ttl": "1s"}


def test_owner_is_written_where_all_share_one() -> None:
    one, other = (
        {"name": name, "allow_direct": True, "metadata": {"natsctl.owner": owner}} for name, owner in ("Ax", "By")
    )
    assert exporter_of(one).plain()["owner"] == "x"
    assert exporter_of(one).typed()[0] == {"kind": "Stream", "owner": "x", "name": "A"}
    assert "owner" not in exporter_of(one, other).plain()
    assert "owner" not in exporter_of({"name": "A", "metadata": {"natsctl.owner": "default"}}).plain()


def test_documents_are_json_that_schemas_know() -> None:
    document = json.loads(json_text(exporter_of({"name": "A", "allow_direct": True, "max_age": 60 * SECOND}).plain()))
    assert document == {"streams": [{"name": "A", "max_age": "1m"}]}
