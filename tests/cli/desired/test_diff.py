"""`natsctl diff`: how an account differs from documents, field by field, on both servers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

Run = Callable[..., Any]
ORDERS = str(Path(__file__).parents[3] / "examples" / "configs" / "orders.yaml")
A = {"name": "A", "subjects": ["A.>"]}


def test_one_field_that_was_changed_on_the_server_is_named_alone(natsctl: Run, audit: Any) -> None:
    natsctl("apply", "-f", ORDERS)
    natsctl("con", "edit", "ORDERS", "NEW", "--max-deliver", "3", "-f")
    audit.changes()
    done = natsctl("diff", "-f", ORDERS)
    assert (done.code, done.err) == (10, "")
    assert done.out == (
        "~ Consumer ORDERS > NEW\n    max_deliver: 3 → 20\n\n"
        "1 different, 0 not on the server, 0 not in any document, 3 equal\n"
    )
    assert audit.changes() == []


def test_missing_and_extra_assets_are_listed(natsctl: Run, document: Run) -> None:
    natsctl("apply", "-f", document(A, {"name": "OLD", "subjects": ["OLD"]}, owner="team"))
    natsctl("str", "add", "HAND", "--subjects", "hand", "--defaults")
    path = document(A, {"name": "NEW", "subjects": ["NEW"]}, owner="team")
    assert "OLD" not in natsctl("diff", "-f", path).out
    done = natsctl("diff", "-f", path, "--prune")
    assert done.code == 10
    assert done.out.split("\n\n") == [
        "+ Stream NEW: not on the server",
        "- Stream OLD: not in any document",
        "0 different, 1 not on the server, 1 not in any document, 1 equal\n",
    ]


def test_a_consumer_of_a_stream_that_is_to_be_replaced_is_compared_all_the_same(natsctl: Run, document: Run) -> None:
    consumers = [{"durable_name": name, "ack_policy": "explicit"} for name in ("C", "D")]
    natsctl("apply", "-f", document({**A, "consumers": consumers}))
    consumers[0]["max_deliver"] = 5  # type: ignore[assignment]  # a number among texts
    done = natsctl("diff", "-f", document({**A, "storage": "memory", "consumers": consumers}), "-j")
    assert done.code == 10
    assert [(one["consumer"], [each["path"] for each in one["differences"]]) for one in done.json["different"]] == [
        ("", ["storage"]),
        ("C", ["max_deliver"]),
    ]
    assert (done.json["missing"], done.json["extra"], done.json["equal"]) == ([], [], 1)


def test_json_has_values_of_the_wire(natsctl: Run, document: Run) -> None:
    natsctl("apply", "-f", document(A))
    natsctl("str", "edit", "A", "--max-age", "1h", "-f")
    done = natsctl("diff", "-f", document({**A, "max_age": "2h"}), "-j")
    (stream,) = done.json["different"]
    assert stream["differences"] == [{"path": "max_age", "old": 3_600_000_000_000, "new": 7_200_000_000_000}]


def test_buckets_are_compared_by_their_streams(natsctl: Run, tmp_path: Path) -> None:
    path = tmp_path / "kv.yaml"
    path.write_text("kind: KeyValue\nbucket: CFG\nhistory: 5\n")
    natsctl("apply", "-f", str(path))
    assert natsctl("diff", str(path)).code == 0
    natsctl("kv", "edit", "CFG", "--history", "9", "-f")
    done = natsctl("diff", str(path))
    assert done.code == 10
    assert "~ KeyValue CFG\n    max_msgs_per_subject: 9 → 5\n" in done.out


def test_a_pause_is_a_field_like_others_and_apply_mends_it(natsctl: Run, document: Run) -> None:
    consumer = {"durable_name": "C", "ack_policy": "explicit", "pause_until": "2099-01-01T00:00:00Z"}
    paused, going = document({**A, "consumers": [consumer]}), {**consumer, "pause_until": "2020-01-01T00:00:00Z"}
    natsctl("apply", "-f", paused)
    assert natsctl("diff", "-f", paused).code == 0
    natsctl("con", "resume", "A", "C", "-f")
    assert "    pause_until: (none) → 2099-01-01T00:00:00Z\n" in natsctl("diff", "-f", paused).out
    assert natsctl("apply", "-f", paused).code == 0
    assert natsctl("diff", "-f", paused).code == 0
    over = document({**A, "consumers": [going]}, name="going.json")
    assert "    pause_until: 2099-01-01T00:00:00Z → (none)\n" in natsctl("diff", "-f", over).out
    assert natsctl("apply", "-f", over).code == 0
    assert natsctl("diff", "-f", over).code == 0
    assert not natsctl("con", "info", "A", "C", "-j").json.get("paused")
