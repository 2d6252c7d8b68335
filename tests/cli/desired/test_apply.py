"""`natsctl apply` as a script and as a person run it, on both servers."""

from pathlib import Path
from typing import Any

import pytest

from natsctl.desired.live import LiveState
from tests.support.commands import Run

ORDERS = str(Path(__file__).parents[3] / "examples" / "configs" / "orders.yaml")

A = {"name": "A", "subjects": ["A.>"]}
CLUSTERED = {**A, "num_replicas": 3}
"""What only the server knows that it does not take."""


def consumer(name: str, **fields: Any) -> dict[str, Any]:
    return {"durable_name": name, "ack_policy": "explicit", **fields}


def config(natsctl: Run, stream: str) -> dict[str, Any]:
    return natsctl("str", "info", stream, "-j").json["config"]


def test_the_orders_world_is_built_once_and_a_second_apply_sends_nothing(natsctl: Run, audit: Any) -> None:
    first = natsctl("apply", "-f", ORDERS)
    assert first.code == 0
    assert "4 created" in first.out
    stream, *consumers = first.err.splitlines()
    assert stream == "created Stream ORDERS"
    assert sorted(consumers) == [f"created Consumer ORDERS > {name}" for name in ("DISPATCH", "MONITOR", "NEW")]
    # Not in their order: nats-server reports a request aside, and may report a later one first.
    assert sum(subject == "STREAM.CREATE.ORDERS" for subject in audit.changes()) == 1
    second = natsctl("apply", "-f", ORDERS)
    assert (second.code, second.out, second.err) == (0, "nothing to do: 4 assets as described\n", "")
    assert audit.changes() == []


def test_what_was_changed_on_the_server_is_mended_and_nothing_else_is_touched(natsctl: Run, audit: Any) -> None:
    natsctl("apply", "-f", ORDERS)
    natsctl("con", "edit", "ORDERS", "NEW", "--max-deliver", "3", "-f")
    audit.changes()
    drift = natsctl("diff", "-f", ORDERS, "-j")
    assert drift.code == 10
    (differing,) = drift.json["different"]
    assert [one["path"] for one in differing["differences"]] == ["max_deliver"]
    mended = natsctl("apply", "-f", ORDERS, "-j")
    assert mended.code == 0
    (change,) = mended.json["plan"]["changes"]
    assert [(one["path"], one["old"], one["new"]) for one in change["differences"]] == [("max_deliver", 3, 20)]
    assert audit.changes() == ["CONSUMER.CREATE.ORDERS.NEW.ORDERS.received"]
    assert natsctl("apply", "-f", ORDERS).out.startswith("nothing to do")


def test_fields_that_no_document_mentions_stay_as_they_were_set_by_hand(natsctl: Run, tmp_path: Path) -> None:
    path = tmp_path / "plain.yaml"
    text = """
        streams:
        - {name: A, subjects: [A.>], consumers: [{durable_name: C, ack_policy: explicit}]}
        key_values: [{bucket: B, history: 2}]
        object_stores: [{bucket: O}]
    """
    path.write_text(text)
    assert natsctl("apply", "-f", str(path)).code == 0
    by_hand = ("--description", "mine", "--metadata", "team=x", "-f")
    for words in (
        ("str", "edit", "A", "--max-age", "1d", "--compression", "s2", "--allow-direct", "--deny-delete", *by_hand),
        ("con", "edit", "A", "C", "--max-deliver", "7", "--wait", "10s", *by_hand),
        ("kv", "edit", "B", "--ttl", "1h", "--max-value-size", "99", *by_hand),
        ("object", "edit", "O", "--ttl", "1h", *by_hand),
    ):
        assert natsctl(*words).code == 0, words
    queries = (("str", "info", "A"), ("str", "info", "KV_B"), ("str", "info", "OBJ_O"), ("con", "info", "A", "C"))
    before = [natsctl(*words, "-j").json["config"] for words in queries]
    assert natsctl("diff", "-f", str(path)).code == 0
    assert natsctl("apply", "-f", str(path)).out == "nothing to do: 4 assets as described\n"
    changed = (
        text.replace("A.>]", "A.>, a]")
        .replace("history: 2", "history: 3")
        .replace("{durable", "{max_deliver: 8, durable")
    )
    path.write_text(changed.replace("bucket: O", "bucket: O, description: ours"))
    assert natsctl("apply", "-f", str(path), "--force").code == 0
    after = [natsctl(*words, "-j").json["config"] for words in queries]
    news: list[dict[str, Any]] = [
        {"subjects": ["A.>", "a"]}, {"max_msgs_per_subject": 3}, {"description": "ours"}, {"max_deliver": 8}
    ]  # fmt: skip
    assert after == [{**old, **new} for old, new in zip(before, news, strict=True)]


def test_a_dry_run_gives_the_exact_requests_and_drift(natsctl: Run, document: Run, audit: Any) -> None:
    path = document({**A, "consumers": [consumer("C", filter_subject="A.b")]})
    done = natsctl("apply", "-f", path, "--dry-run", "-j")
    assert done.code == 10
    assert [one["subject"] for one in done.json["requests"]] == [
        "$JS.API.STREAM.CREATE.A",
        "$JS.API.CONSUMER.CREATE.A.C.A.b",
    ]
    assert done.json["requests"][1]["body"]["action"] == "create"
    assert len(done.json["effect"]["plan"]["changes"]) == 2
    assert audit.changes() == []
    natsctl("apply", "-f", path)
    again = natsctl("apply", "-f", path, "--dry-run", "-j")
    assert (again.code, again.json["requests"]) == (0, [])


def test_a_failure_is_told_with_the_servers_error_and_what_needed_it_is_skipped(natsctl: Run, document: Run) -> None:
    path = document({**CLUSTERED, "consumers": [consumer("C")]}, {"name": "B", "subjects": ["B"]})
    done = natsctl("apply", "-f", path)
    assert done.code == 1
    assert "failed to create Stream A: replicas > 1 not supported in non-clustered mode (10074)" in done.err
    assert "skipped Consumer A > C: Stream A was not done" in done.err
    assert "created Stream B" in done.err
    assert "1 created, 1 failed, 1 skipped" in done.out


def test_asked_to_stop_nothing_is_begun_after_a_failure(natsctl: Run, document: Run) -> None:
    path = document(CLUSTERED, {"name": "B", "subjects": ["B"]})
    done = natsctl("apply", "-f", path, "--on-failure", "stop", "--concurrency", "1", "-j")
    assert [one["status"] for one in done.json["results"]] == ["failed", "skipped"]
    assert done.json["ended"] == "stopped"
    assert natsctl("apply", "-f", path, "--on-failure", "maybe").code == 2


def test_subjects_that_another_stream_has_are_refused_before_anything_is_sent(natsctl: Run, document: Run) -> None:
    natsctl("str", "add", "TAKEN", "--subjects", "A.>", "--defaults")
    done = natsctl("apply", "-f", document(A, {"name": "B", "subjects": ["B"]}))
    assert done.code == 4
    assert "Stream A: subjects overlap with an existing stream: A.> belongs to TAKEN" in done.err
    assert natsctl("str", "ls", "-n").out.split() == ["TAKEN"]


def test_a_replacement_is_refused_before_anything_is_sent(natsctl: Run, document: Run, audit: Any) -> None:
    natsctl("apply", "-f", document(A))
    audit.changes()
    path = document({**A, "storage": "memory"}, {"name": "B", "subjects": ["B"]})
    refused = natsctl("apply", "-f", path)
    assert refused.code == 4
    first, which, hint = refused.err.splitlines()[-3:]
    assert first == "natsctl: error: nothing was changed: the plan has what may not be done"
    assert which.startswith("  Stream A: ")
    assert "--allow-replace" in hint
    assert audit.changes() == []


def test_a_replacement_makes_the_stream_and_its_consumers_anew(natsctl: Run, document: Run) -> None:
    consumers = [consumer("C")]
    natsctl("apply", "-f", document({**A, "consumers": consumers}))
    natsctl("pub", "A.x", "hello", "--wait")
    done = natsctl(
        "apply", "-f", document({**A, "storage": "memory", "consumers": consumers}), "--allow-replace", "--yes"
    )
    assert done.code == 0, done.err
    info = natsctl("str", "info", "A", "-j").json
    assert (info["config"]["storage"], info["state"]["messages"], info["state"]["consumer_count"]) == ("memory", 0, 1)


def test_prune_removes_what_has_the_label_and_no_document(natsctl: Run, document: Run) -> None:
    natsctl("str", "add", "MINE", "--subjects", "mine", "--defaults")
    natsctl("apply", "-f", document(A, {"name": "OLD", "subjects": ["old"]}, owner="team"))
    kept = natsctl("apply", "-f", document(A, owner="team"))
    assert (kept.code, kept.err) == (0, "")
    unowned = natsctl("apply", "-f", document(A), "--prune", "--yes")
    assert (unowned.code, "--owner NAME" in unowned.err) == (2, True)
    unasked = natsctl("apply", "-f", document(A, owner="team"), "--prune")
    assert (unasked.code, "--yes" in unasked.err) == (2, True)
    pruned = natsctl("apply", "-f", document(A, owner="team"), "--prune", "--yes")
    assert pruned.code == 0
    assert "deleted Stream OLD" in pruned.err
    assert natsctl("str", "ls", "-n").out.split() == ["A", "MINE"]


def saved_plan(natsctl: Run, path: str, folder: Path) -> Path:
    file = folder / "plan.json"
    assert natsctl("plan", "-f", path, "--out", str(file)).code == 10
    return file


@pytest.mark.parametrize("words", [("--plan",), (), ("-f",)])
def test_a_saved_plan_is_carried_out_however_it_is_given(
    words: tuple[str, ...], natsctl: Run, document: Run, tmp_path: Path
) -> None:
    file = saved_plan(natsctl, document(A), tmp_path)
    done = natsctl("apply", *words, str(file))
    assert (done.code, done.err) == (0, "created Stream A\n")


def test_a_saved_plan_is_refused_when_the_account_has_changed(
    natsctl: Run, document: Run, tmp_path: Path, audit: Any
) -> None:
    natsctl("apply", "-f", document(A))
    file = saved_plan(natsctl, document({**A, "max_msgs": 5}, {"name": "B", "subjects": ["B"]}), tmp_path)
    natsctl("str", "edit", "A", "--max-bytes", "1000", "-f")
    natsctl("str", "add", "B", "--subjects", "B", "--defaults")
    audit.changes()
    refused = natsctl("apply", "--plan", str(file))
    assert refused.code == 4
    assert "Stream A: max_bytes was -1, it is 1000 now" in refused.err
    assert "Stream B exists now" in refused.err
    assert audit.changes() == []


@pytest.mark.ours("what is decided before a request")
def test_a_plan_and_documents_do_not_go_together(natsctl: Run, document: Run, tmp_path: Path) -> None:
    path = document(A)
    file = saved_plan(natsctl, path, tmp_path)
    assert natsctl("apply", "--plan", str(file), "-f", path).code == 2
    assert natsctl("apply", "-f", path, str(file)).code == 2


def test_an_interrupted_replacement_is_named_by_plan_and_finished_by_apply(
    natsctl: Run, document: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a kill -9 between the backup and the removal leaves."""
    from natsctl.desired.apply import replacement

    async def killed(*arguments: Any) -> None:
        raise RuntimeError("killed")

    natsctl("apply", "-f", document(A))
    with monkeypatch.context() as patched:
        patched.setattr(replacement.Replacement, "_check_untouched", killed)
        patched.setattr(replacement.Replacement, "_take_back", killed)
        natsctl("apply", "-f", document({**A, "storage": "memory"}), "--allow-replace", "--keep-messages", "--yes")
    path = document(A)
    unfinished = "the replacement of A is not finished: apply does that first"
    assert unfinished in natsctl("plan", "-f", path).out
    dry = natsctl("apply", "-f", path, "--dry-run")
    assert (dry.code, "apply finishes an interrupted run" in dry.err) == (4, True)
    assert natsctl("str", "ls", "-n").out.split() == ["A", "natsctl-replaced-A"]
    done = natsctl("apply", "-f", path, "-j")
    assert (done.code, done.err) == (0, "")
    assert done.json["notes"] == ["the replacement of A was interrupted: it is as it was before, with 0 messages"]
    assert config(natsctl, "A")["subjects"] == ["A.>"]
    assert natsctl("str", "ls", "-n").out.split() == ["A"]


def test_a_consumer_that_no_document_describes_any_more_does_not_come_back_with_its_stream(
    natsctl: Run, document: Run
) -> None:
    natsctl("apply", "-f", document({**A, "consumers": [consumer("KEPT"), consumer("DROPPED")]}))
    natsctl("pub", "A.1", "hello")
    wanted = document({**A, "storage": "memory", "consumers": [consumer("KEPT")]})
    flags = ("--owner", "default", "--prune", "--allow-replace", "--keep-messages", "--yes")
    assert natsctl("apply", "-f", wanted, *flags).code == 0
    assert natsctl("con", "ls", "A", "--names").out.split() == ["KEPT"]
    assert natsctl("apply", "-f", wanted, *flags).out.startswith("nothing to do")


@pytest.mark.ours("what is decided before a request")
@pytest.mark.parametrize("command", ["apply", "plan", "diff", "destroy"])
def test_documents_that_describe_nothing_are_a_mistake(natsctl: Run, tmp_path: Path, command: str) -> None:
    empty = tmp_path / "never-written.yaml"
    empty.write_text("")
    refused = natsctl(command, "-f", str(empty))
    assert (refused.code, refused.out) == (2, "")
    assert f"is described in {empty}" in refused.err
    assert "--allow-empty" in refused.err
    assert natsctl(command, "-f", str(empty), "--allow-empty").code == 0


def test_a_sealed_stream_stays_as_its_document_seals_it(natsctl: Run, document: Run) -> None:
    sealed = {**A, "max_age": "1h", "sealed": True}
    natsctl("apply", "-f", document(A))
    assert natsctl("apply", "-f", document(sealed)).code == 2
    assert natsctl("apply", "-f", document(sealed), "--yes").code == 0
    refused = natsctl("plan", "-f", document({**A, "max_age": "1h"}))
    assert "it is sealed for good" in refused.out
    assert natsctl("plan", "-f", document(sealed)).code == 0
    assert natsctl("apply", "-f", document({**sealed, "description": "closed"})).code == 0
    assert config(natsctl, "A")["description"] == "closed"


@pytest.mark.ours("what is decided before a request")
def test_a_dash_is_stdin_whatever_file_has_that_name(
    natsctl: Run, document: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    natsctl("plan", "-f", document(A), "--out", "named-later.json")
    (tmp_path / "named-later.json").rename(tmp_path / "-")
    assert natsctl("apply", "-f", "-", stdin=b"streams: [{name: B}]").code == 0
    assert natsctl("str", "ls", "--names").out.split() == ["B"]


@pytest.mark.ours("what is decided before a request")
def test_more_removals_than_usual_are_refused(natsctl: Run, document: Run) -> None:
    many = [{"name": f"S{number}", "subjects": [f"s{number}"], "storage": "memory"} for number in range(12)]
    natsctl("apply", "-f", document(*many, owner="team"))
    path = document(many[0], owner="team")
    planned = natsctl("plan", "-f", path, "--prune")
    assert "--max-removals 11 allows it" in planned.out
    refused = natsctl("apply", "-f", path, "--prune", "--yes")
    assert (refused.code, "removes 11 assets, more than 10" in refused.err) == (4, True)
    assert natsctl("apply", "-f", path, "--prune", "--yes", "--max-removals", "11").code == 0
    assert natsctl("str", "ls", "-n").out.split() == ["S0"]
    assert natsctl("destroy", "-f", path, "--yes", "--max-removals", "0").code == 4


@pytest.mark.ours("what is decided before a request")
def test_what_somebody_else_does_meanwhile_is_not_counted(
    natsctl: Run, document: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from natsctl.desired import planner

    path = document({**A, "consumers": [consumer("C")]})
    made = planner.make_plan

    def overtaken(*arguments: Any) -> Any:
        return made(arguments[0], LiveState(), *arguments[2:])

    natsctl("apply", "-f", path)
    monkeypatch.setattr(planner, "make_plan", overtaken)
    second = natsctl("apply", "-f", path, "-j")
    assert second.code == 0, second.err
    assert (second.json["summary"]["created"], second.json["summary"]["unchanged"]) == (0, 2)
    assert all(one["by_others"] for one in second.json["results"])
