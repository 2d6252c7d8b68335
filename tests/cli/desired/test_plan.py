"""`natsctl plan`, `diff` and `destroy` as a script and as a person run them."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import Run

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


TAKEN = (
    ("Stream A", "no owner", ("stream", "info", "A")),
    ("Consumer A > C", "no owner", ("consumer", "info", "A", "C")),
    ("KeyValue K", "no owner", ("kv", "info", "K")),
    ("ObjectStore O", "no owner", ("object", "info", "O")),
    ("Stream T", "owner them", ("stream", "info", "T")),
)


def test_what_the_documents_did_not_create_is_taken_over_by_adopt_and_destroyed_by_name(
    natsctl: Run, document: Run
) -> None:
    natsctl("stream", "add", "A", "--subjects", "A.*", "--defaults")
    natsctl("consumer", "add", "A", "C", "--pull", "--defaults")
    natsctl("kv", "add", "K")
    natsctl("object", "add", "O")
    natsctl("apply", "-f", document({"name": "T", "subjects": ["T"]}), "--owner", "them")
    more = {"key_values": {"K": {"history": 5}}, "object_stores": {"O": {"ttl": "1h"}}}
    consumer = {"name": "C", "max_deliver": 5}
    streams = ({**A, "max_msgs": 5, "consumers": [consumer]}, {"name": "T", "subjects": ["T"], "max_msgs": 5})
    path = document(*streams, **more, owner="us")
    planned = natsctl("plan", path)
    assert planned.out.count("refused:") == 5
    takes = [one["takes_over"] for one in natsctl("plan", path, "-j").json["changes"]]
    assert sorted(takes) == ["", "", "", "", "them"]
    assert natsctl("apply", path).code == 4
    adopted = natsctl("plan", path, "--adopt").out
    for name, owner, _ in TAKEN:
        assert f"takes over {name} ({owner})" in planned.out and f"takes over {name} ({owner})" in adopted
    assert "refused" not in adopted and "metadata.natsctl.owner: them → us" in adopted
    assert natsctl("apply", path, "--adopt").code == 0
    kept = natsctl("destroy", path, "--yes", "--adopt")
    assert kept.code == 0 and kept.out == "nothing to do\n"
    for name, _, info in TAKEN:
        assert f'--remove "{name}" removes it' in kept.err and natsctl(*info).code == 0
    assert natsctl("destroy", path, "--yes", "--remove", "B").code == 2
    removed = natsctl("destroy", path, "--yes", "--remove", "A", "--remove", "KeyValue K", "--remove", "OBJ_O")
    assert removed.code == 0, removed.err
    assert [natsctl(*info).code for _, _, info in TAKEN] == [3, 3, 3, 3, 0]


@pytest.mark.ours("how a plan is shown")
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


@pytest.mark.ours("how a plan is shown")
@pytest.mark.parametrize("path", ["-", ".", "missing/p"])
def test_a_plan_is_saved_to_a_file_alone(natsctl: Run, document: Run, path: str) -> None:
    refused = natsctl("plan", "-f", document({"name": "A", "subjects": ["A.>"]}), "--out", path)
    assert (refused.code, refused.out) == (2, "")
    assert f"--out {path}: " in refused.err


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


WITH_CONSUMER = {"name": "A", "subjects": ["A.>"], "consumers": [{"durable_name": "C", "ack_policy": "explicit"}]}
MIRROR = {"name": "M", "mirror": {"name": "A"}}


def names(natsctl: Run) -> list[str]:
    return natsctl("str", "ls", "-n", "-a").out.split()


def test_all_that_documents_describe_is_removed_mirrors_before_their_origins(
    natsctl: Run, document: Run, audit: Any
) -> None:
    natsctl("str", "add", "OTHER", "--subjects", "other", "--defaults")
    path = document(WITH_CONSUMER, MIRROR)
    natsctl("apply", "-f", path)
    audit.changes()
    done = natsctl("destroy", "-f", path, "--yes")
    assert done.code == 0, done.err
    asked = [subject for subject in audit.changes() if "JS_MIRROR" not in subject]  # that is the server's own
    assert asked == ["STREAM.DELETE.M", "STREAM.DELETE.A"]
    assert names(natsctl) == ["OTHER"]


def test_what_is_gone_is_done(natsctl: Run, document: Run) -> None:
    done = natsctl("destroy", "-f", document(WITH_CONSUMER), "--yes", "-j")
    assert (done.code, done.json["results"]) == (0, [])
    assert natsctl("destroy", "-f", document(WITH_CONSUMER), "--yes").out == "nothing to do\n"


def test_a_protected_asset_keeps_everything_from_being_removed(natsctl: Run, document: Run, audit: Any) -> None:
    path = document({**WITH_CONSUMER, "protect": True}, {"name": "B", "subjects": ["B"]})
    natsctl("apply", "-f", path)
    audit.changes()
    refused = natsctl("destroy", "-f", path, "--yes")
    assert refused.code == 4
    assert "Stream A: it is protected" in refused.err
    assert "protect: false" in refused.err
    assert audit.changes() == []
    natsctl("apply", "-f", document({**WITH_CONSUMER, "protect": False}))
    assert natsctl("destroy", "-f", path, "--yes").code == 0


def test_with_prune_the_rest_of_the_owner_goes_too(natsctl: Run, document: Run) -> None:
    natsctl("apply", "-f", document(WITH_CONSUMER, {"name": "OLD", "subjects": ["old"]}, owner="team"))
    natsctl("apply", "-f", document({"name": "HERS", "subjects": ["hers"]}, owner="other"))
    natsctl("destroy", "-f", document(WITH_CONSUMER, owner="team"), "--prune", "--yes")
    assert names(natsctl) == ["HERS"]


def test_consumers_alone_are_removed_from_streams_that_stay(natsctl: Run, document: Run) -> None:
    natsctl("apply", "-f", document(WITH_CONSUMER))
    path = document(consumers=[{"stream": "A", "durable_name": "C", "ack_policy": "explicit"}])
    assert natsctl("destroy", "-f", path, "--force").err == "deleted Consumer A > C\n"
    assert names(natsctl) == ["A"]


@pytest.mark.ours("how a plan is shown")
def test_a_person_sees_what_vanishes_and_types_its_number(natsctl: Run, document: Run, person: Run) -> None:
    path = document(WITH_CONSUMER, {"name": "B", "subjects": ["B"]})
    natsctl("apply", "-f", path)
    natsctl("pub", "A.x", "hello", "--wait")
    typing = person("destroy", "-f", path)
    typing.answers("Really delete 2 streams with 1 message: type 2 to do it", "\r")
    assert typing.end()[0] == 0
    assert names(natsctl) == ["A", "B"]
    typing = person("destroy", "-f", path)
    typing.answers("type 2 to do it", "2\r")
    assert typing.end()[0] == 0
    assert names(natsctl) == []
