"""`stream add`, `edit` and `copy` beyond the everyday: merges, replacements, editors, dry runs, older servers."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from natsctl.api.errors import NatsctlError
from natsctl.client.asset_config import settled
from natsctl.client.manager import CONSUMER_LEVELS, STREAM_LEVELS, check_level, required_level_of

Run = Callable[..., Any]

RICH = shlex.split(
    "str add S --subjects s.* --no-ack --compression s2 --max-msgs 7 --no-allow-direct --metadata a=b"
    " --metadata team.name=x --republish-source s.* --republish-destination r.{{wildcard(1)}} --description d"
    " --allow-rollup --max-bytes 5000000000"
)


def config(natsctl: Run, stream: str = "S") -> dict[str, Any]:
    found: dict[str, Any] = natsctl("str", "info", stream, "-j").json["config"]
    return found


def test_an_edit_touches_neither_acks_nor_compression_nor_sizes(natsctl: Run) -> None:
    natsctl(*RICH)
    before = config(natsctl)
    assert (before["no_ack"], before["compression"], before["max_bytes"]) == (True, "s2", 5_000_000_000)
    natsctl("str", "edit", "S", "--description", "other", "-f")
    assert config(natsctl) == {**before, "description": "other"}


def test_fields_are_taken_away_by_name_flag_and_path(natsctl: Run) -> None:
    natsctl(*RICH)
    done = natsctl("str", "edit", "S", "--unset", "description,max-msgs", "--unset", "metadata.team.name", "-f")
    assert "  Maximum Messages (max_msgs): 7 → unlimited\n" in done.err
    after = config(natsctl)
    assert (after.get("description"), after["max_msgs"]) == (None, -1)
    assert {key for key in after["metadata"] if not key.startswith("_nats.")} == {"a"}
    wrong = natsctl("str", "edit", "S", "--unset", "max_massages", "-f")
    assert (wrong.code, "max_msgs" in wrong.err) == (2, True)


def test_republishing_ends_and_an_explicit_zero_is_no_limit(natsctl: Run) -> None:
    natsctl(*RICH)
    assert natsctl("str", "edit", "S", "--no-republish", "--max-msgs", "0", "-f").code == 0
    after = config(natsctl)
    assert "republish" not in after
    assert after["max_msgs"] == -1


def test_a_file_is_merged_or_replaces_everything_it_leaves_out(natsctl: Run, tmp_path: Path) -> None:
    natsctl(*RICH)
    before = config(natsctl)
    patch = tmp_path / "patch.yaml"
    patch.write_text("max_age: 1d  # for people\nmax_bytes: 5GiB\n")
    natsctl("str", "edit", "S", "--config", str(patch), "-f")
    assert config(natsctl) == {**before, "max_age": 86400 * 10**9, "max_bytes": 5 * 2**30}
    patch.write_text("subjects: [s.*]\ndescription: whole\n")
    done = natsctl("str", "edit", "S", "--config", str(patch), "--replace", "-f")
    assert '  Description (description): "' in done.err
    assert '" → "whole"\n' in done.err
    changed = {line.strip().partition(":")[0] for line in done.err.splitlines() if " → " in line}
    changed = {name.partition("(")[2].rstrip(")") or name for name in changed}
    assert changed == {
        *("description", "max_msgs", "max_bytes", "max_age", "no_ack", "compression", "republish.src"),
        *("republish.dest", "allow_rollup_hdrs", "metadata.a", "metadata.team.name"),
    }
    again = natsctl("str", "edit", "S", "--config", str(patch), "--replace", "--dry-run")
    assert (again.code, again.out) == (0, "No difference in configuration\n")


def test_what_info_prints_replaces_a_stream_without_difference(natsctl: Run, tmp_path: Path) -> None:
    natsctl(*RICH)
    natsctl("str", "add", "T", "--source", "S")
    natsctl("str", "add", "M", "--mirror", "S")
    for name in ("S", "T", "M"):
        saved = tmp_path / f"{name}.json"
        saved.write_text(natsctl("str", "info", name, "-j").out)
        assert natsctl("str", "edit", name, "--config", str(saved), "--replace", "--dry-run").code == 0, name
        assert natsctl("str", "edit", name, "--dry-run").code == 0, name


def test_an_editor_changes_what_it_changed_and_nothing_else(natsctl: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    natsctl(*RICH)
    before = config(natsctl)
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", "sed -i -e 's/^duplicate_window:.*/duplicate_window: 30s/'")
    assert natsctl("str", "edit", "S", "-i", "-f").code == 0
    assert config(natsctl) == {**before, "duplicate_window": 30 * 10**9}


def test_sources_are_changed_by_name_and_keep_their_filters(natsctl: Run) -> None:
    for name in ("A", "B"):
        natsctl("str", "add", name, "--subjects", f"{name}.*")
    natsctl("str", "add", "T", "--source", '{"name": "A", "filter_subject": "A.x"}')
    assert natsctl("str", "edit", "T", "--source", "A", "--source", "B", "-f").code == 0
    assert config(natsctl, "T")["sources"] == [{"name": "A", "filter_subject": "A.x"}, {"name": "B"}]


def test_a_mirror_becomes_a_stream_of_its_own(natsctl: Run) -> None:
    natsctl("str", "add", "A", "--subjects", "a")
    natsctl("str", "add", "M", "--mirror", "A")
    assert natsctl("str", "edit", "M", "--no-mirror", "--subjects", "m", "-f").code == 0
    assert "mirror" not in config(natsctl, "M")


def test_adding_what_exists_is_fine_where_that_was_said(natsctl: Run) -> None:
    first = natsctl("str", "add", "S", "--subjects", "s", "--if-not-exists", "-j")
    assert first.code == 0
    again = natsctl("str", "add", "S", "--subjects", "other", "--max-msgs", "1", "--if-not-exists")
    assert (again.code, "exists already" in again.err) == (0, True)
    assert config(natsctl)["subjects"] == ["s"]
    same = natsctl("str", "add", "S", "--subjects", "s")
    assert same.code == 0
    assert natsctl("str", "cp", "S", "S2", "--subjects", "t", "--if-not-exists").code == 0


def test_streams_of_buckets_are_changed_with_a_warning(natsctl: Run) -> None:
    natsctl("str", "add", "KV_b", "--subjects", "$KV.b.>")
    done = natsctl("str", "edit", "KV_b", "--max-msgs", "5", "-f")
    assert (done.code, "belongs to the key-value bucket b" in done.err) == (0, True)
    assert natsctl("str", "edit", "KV_b", "--max-msgs", "6", "-f", "-j").err == ""


def test_a_copy_never_begins_sealed_and_keeps_acks_off(natsctl: Run) -> None:
    natsctl("str", "add", "S", "--subjects", "s", "--no-ack")
    natsctl("str", "seal", "S", "-f")
    assert natsctl("str", "cp", "S", "T", "--subjects", "t").code == 0
    assert (config(natsctl, "T")["sealed"], config(natsctl, "T")["no_ack"]) == (False, True)


def test_a_written_configuration_is_for_its_owner_only(natsctl: Run, tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    assert natsctl("str", "add", "S", "--subjects", "s", "--output", str(path)).code == 0
    assert path.stat().st_mode & 0o777 == 0o600
    assert json.loads(path.read_text())["name"] == "S"
    assert natsctl("str", "add", "S", "--subjects", "s", "--output", "-").json["subjects"] == ["s"]
    assert natsctl("str", "add", "S", "--subjects", "s", "--validate").json["name"] == "S"
    assert natsctl("str", "info", "S").code == 3


def test_fields_of_a_newer_level_are_sent_with_it(natsctl: Run) -> None:
    done = natsctl("str", "add", "S", "--subjects", "s", "--allow-batch", "--dry-run", "-j")
    assert done.json["requests"][0]["headers"] == {"Nats-Required-Api-Level": ["2"]}
    assert natsctl("str", "add", "S", "--subjects", "s", "--allow-batch", "--allow-fast", "--allow-msg-ttl").code == 0


class OldServer:
    """A manager of a server with JetStream API level 1."""

    def __init__(self) -> None:
        self.connection = self
        self.info = {"version": "2.11.0"}

    async def account_info(self) -> Any:
        class Value:
            value = type("Info", (), {"api": type("Api", (), {"level": 1})})

        return Value


async def test_an_older_server_is_named_with_the_field_that_it_lacks() -> None:
    manager: Any = OldServer()
    assert await check_level(manager, {"allow_msg_ttl": True}, STREAM_LEVELS, "Stream S") == {
        "Nats-Required-Api-Level": "1"
    }
    assert await check_level(manager, {"allow_atomic": False}, STREAM_LEVELS, "Stream S") is None
    with pytest.raises(NatsctlError, match=r"allow_batched needs JetStream API level 3, the server 2\.11\.0 has 1"):
        await check_level(manager, {"allow_batched": True}, STREAM_LEVELS, "Stream S")


def test_levels_are_found_in_lists_too() -> None:
    assert (
        required_level_of({"sources": [{"name": "A"}, {"name": "B", "consumer": {"name": "c"}}]}, STREAM_LEVELS).level
        == 4
    )
    assert required_level_of({"persist_mode": "default"}, STREAM_LEVELS).level == 0
    assert required_level_of({"priority_groups": ["a"]}, CONSUMER_LEVELS) == (1, "priority_groups")


def test_what_a_server_fills_in_is_no_change() -> None:
    live = {"name": "S", "max_msgs": -1, "duplicate_window": 5, "unknown": 1}
    assert settled(live, dict(live)) == live
    assert settled(live, {"name": "S", "unknown": 1})["duplicate_window"] == 120 * 10**9
    assert settled(live, {**live, "max_msgs": 0})["max_msgs"] == -1
