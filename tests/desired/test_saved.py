"""A plan as a file: read back as it was, refused when it was touched, held against the account before it is done."""

import json
from typing import Any

import pytest

from natsctl.api.errors import UsageError
from natsctl.desired.assets import AssetKey
from natsctl.desired.live import LiveAsset, LiveState
from natsctl.desired.plan import (
    FORMAT,
    Action,
    Change,
    Difference,
    Plan,
    changed_since,
    decode_plan,
    encode_plan,
    is_saved_plan,
    saved_document,
)

BEFORE = {"name": "ORDERS", "subjects": ["ORDERS.>"], "max_age": 3600}


def update(before: dict[str, Any]) -> Change:
    wanted = {**before, "max_age": 7200}
    differences = [Difference(path="max_age", old=3600, new=7200)]
    return Change(
        action=Action.UPDATE, kind="Stream", stream="ORDERS", before=before, config=wanted, differences=differences
    )


def create(stream: str, consumer: str = "") -> Change:
    kind = "Consumer" if consumer else "Stream"
    return Change(action=Action.CREATE, kind=kind, stream=stream, consumer=consumer, config={"name": stream})


def plan(*changes: Change) -> Plan:
    return Plan(owner="team", created="2026-01-01T00:00:00Z", changes=list(changes), unchanged=3, notes=["ü"])


def live_state(*configs: dict[str, Any]) -> LiveState:
    lives = [LiveAsset(AssetKey(config["name"]), {"config": config}) for config in configs]
    return LiveState({live.key: live for live in lives})


def test_a_plan_is_read_back_as_it_was_saved() -> None:
    saved = plan(update(BEFORE), create("NEW"), create("NEW", "C"))
    assert decode_plan(encode_plan(saved), "p.json") == saved


def test_a_saved_plan_is_known_by_its_members_and_a_document_is_not() -> None:
    assert is_saved_plan(encode_plan(plan()))
    assert not is_saved_plan(b'{"name": "ORDERS", "subjects": ["ORDERS.>"]}')
    assert not is_saved_plan(b"streams:\n- name: A\n")
    assert not is_saved_plan(b'{"format": 1, "changes": [')


@pytest.mark.parametrize(
    "path", ["owner", "changes.0.config.max_age", "changes.0.before.max_age", "unchanged", "extra"]
)
def test_a_plan_that_was_edited_is_told(path: str) -> None:
    document = saved_document(plan(update(BEFORE)))
    at: Any = document
    *above, last = path.split(".")
    for name in above:
        at = at[int(name)] if name.isdigit() else at[name]
    at[last] = "other" if last == "owner" else 9
    with pytest.raises(UsageError, match="not as it was written"):
        decode_plan(json.dumps(document).encode(), "p.json")


def test_a_plan_that_was_only_laid_out_anew_is_read() -> None:
    saved = plan(update(BEFORE))
    text = json.dumps(saved_document(saved), sort_keys=True).encode()
    assert decode_plan(text, "p.json") == saved


def test_a_plan_of_a_later_format_is_refused_before_its_hash_is_looked_at() -> None:
    document = {**saved_document(plan()), "format": FORMAT + 1}
    with pytest.raises(UsageError, match=f"format {FORMAT + 1}") as caught:
        decode_plan(json.dumps(document).encode(), "p.json")
    assert "newer" in caught.value.hint


@pytest.mark.parametrize("text", [b"", b"streams: []", b"[]", b'{"format": 1}', b'{"format": 1, "changes": ['])
def test_what_is_no_plan_is_said_to_be_none(text: bytes) -> None:
    with pytest.raises(UsageError, match=r"p\.json is no saved plan"):
        decode_plan(text, "p.json")


def test_an_account_as_the_plan_found_it_has_not_changed() -> None:
    live = {**BEFORE, "metadata": {"_nats.ver": "2.12"}}
    assert changed_since(plan(update(BEFORE), create("NEW")), live_state(live)) == []


def test_what_has_come_and_what_has_gone_since_is_named() -> None:
    found = changed_since(plan(update(BEFORE), create("NEW")), live_state({"name": "NEW"}))
    assert found == ["Stream ORDERS does not exist any more", "Stream NEW exists now"]


def test_an_unchanged_asset_may_change_without_harm() -> None:
    kept = Change(action=Action.NONE, kind="Stream", stream="ORDERS", before=BEFORE)
    assert changed_since(plan(kept), live_state()) == []
