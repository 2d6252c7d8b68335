"""`natsctl plan` as a script runs it, on both servers: what it says, what it saves, how it ends."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]
ORDERS = str(Path(__file__).parents[3] / "examples" / "configs" / "orders.yaml")
A = {"name": "A", "subjects": ["A.>"]}


def test_a_plan_says_what_apply_would_do_and_changes_nothing(natsctl: Run, audit: Any) -> None:
    done = natsctl("plan", "-f", ORDERS)
    assert (done.code, done.err) == (10, "")
    assert done.out.startswith("+ Stream ORDERS\n    subjects: ORDERS.*, max_age: 1y0d0h0m0s, allow_direct: true\n")
    assert done.out.endswith("4 to create, 0 to update, 0 to replace, 0 to remove, 0 unchanged\n")
    assert audit.changes() == []


def test_an_update_shows_its_fields_and_what_goes(natsctl: Run, document: Run) -> None:
    natsctl("apply", "-f", document(A))
    natsctl("pub", "A.x", "hello", "--count", "5", "--wait")
    done = natsctl("plan", document({**A, "max_msgs": 3, "max_age": "1y"}))
    assert done.code == 10
    assert done.out.splitlines()[:4] == [
        "~ Stream A",
        "    max_msgs: unlimited → 3",
        "    max_age: unlimited → 1y0d0h0m0s",
        "    removes 2 of 5 messages, the oldest first: max_msgs becomes 3",
    ]


def test_a_replacement_is_shown_with_what_it_holds_and_how_to_allow_it(natsctl: Run, document: Run) -> None:
    natsctl("apply", "-f", document({**A, "consumers": [{"durable_name": "C", "ack_policy": "explicit"}]}))
    natsctl("pub", "A.x", "hello", "--count", "5", "--wait")
    path = document({**A, "storage": "memory"})
    refused = natsctl("plan", path)
    assert refused.code == 10
    assert "± Stream A\n    storage: file → memory\n    5 messages (" in refused.out
    assert "refused: stream configuration update can not change storage type" in refused.out
    assert "--allow-replace" in refused.out and "--keep-messages" in refused.out
    assert refused.out.endswith("0 to create, 0 to update, 1 to replace, 0 to remove, 0 unchanged; 1 refused\n")
    allowed = natsctl("plan", path, "--allow-replace")
    assert "refused" not in allowed.out
    assert "its consumers go with it: C" in allowed.out


def test_prune_shows_removals_and_without_it_they_are_noted(natsctl: Run, document: Run) -> None:
    natsctl("apply", "-f", document(A, {"name": "OLD", "subjects": ["OLD"]}), "--owner", "shop")
    natsctl("pub", "OLD", "hello", "--wait")
    kept = natsctl("plan", document(A), "--owner", "shop")
    assert kept.code == 0
    gone = natsctl("plan", document(A), "--owner", "shop", "--prune")
    assert gone.code == 10
    assert "- Stream OLD\n    1 message (" in gone.out and "goes" in gone.out
    assert natsctl("plan", document(A), "--owner", "other", "--prune").code == 0


def test_json_is_the_plan_and_the_same_as_what_is_saved(natsctl: Run, tmp_path: Path) -> None:
    path = tmp_path / "orders.plan.json"
    printed = natsctl("plan", ORDERS, "--out", str(path), "-j")
    assert (printed.code, printed.err) == (10, "")
    assert json.loads(path.read_text()) == printed.json
    assert [change["action"] for change in printed.json["changes"]] == ["create"] * 4
    assert printed.json["owner"] == "orders"
    assert printed.json["changes"][1]["needs"] == ["ORDERS"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_plan_that_cannot_be_saved_is_a_usage_error(natsctl: Run, tmp_path: Path) -> None:
    done = natsctl("plan", ORDERS, "--out", str(tmp_path / "no" / "folder.json"))
    assert done.code == 2
    assert "--out" in done.err and "No such file" in done.err


def test_another_owners_asset_is_refused_until_adopted(natsctl: Run, document: Run) -> None:
    natsctl("apply", "-f", document(A), "--owner", "them")
    path = document({**A, "max_msgs": 5})
    assert "refused: it belongs to them" in natsctl("plan", path, "--owner", "us").out
    adopted = natsctl("plan", path, "--owner", "us", "--adopt").out
    assert "metadata.natsctl.owner: them → us" in adopted
    assert "refused" not in adopted


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_no_line_is_wider_than_the_screen(
    natsctl: Run, document: Run, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    long = {**A, "description": "words and words " * 20, "subjects": [f"A.{number}.>" for number in range(30)]}
    natsctl("apply", "-f", document(A))
    done = natsctl(
        "plan",
        document(long, {"name": "M" * 90, "mirror": {"name": "A"}}, long | {"name": "Z" * 70, "subjects": ["z"]}),
    )
    assert done.code == 10
    assert max(map(len, done.out.splitlines())) <= columns
    assert max(map(len, natsctl("diff", document(long)).out.splitlines())) <= columns


def test_hostile_names_do_not_reach_the_terminal(natsctl: Run, document: Run) -> None:
    done = natsctl("plan", document({**A, "description": "a\x1b[31mb", "metadata": {"k\x07": "v"}}))
    assert done.code == 10
    assert "\x1b" not in done.out and "\x07" not in done.out


@pytest.mark.parametrize("path", ["-", "."])
def test_a_plan_is_saved_to_a_file_alone(natsctl: Run, document: Run, path: str) -> None:
    refused = natsctl("plan", "-f", document({"name": "A", "subjects": ["A.>"]}), "--out", path)
    assert (refused.code, refused.out) == (2, "")
    assert f"--out {path}: " in refused.err
