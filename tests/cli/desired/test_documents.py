"""`natsctl validate`, and every example document applied as it stands."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import Run

GOOD = "owner: shop\nstreams:\n- name: A\n  subjects: [a.>]\n  consumers: [{name: C, filter_subject: b}]\n"
NOTE = (
    "a.yaml:5: $.streams[0].consumers[0].filter_subject: warning: filter b matches nothing that stream A stores (a.>)"
)
BAD = "streams:\n- name: A\n  max_agee: 1\n- name: B\n  subjects: [A]\n  max_age: ${AGE}\n"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_good_documents_are_told_file_by_file(offline: Run, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(GOOD)
    (tmp_path / "b.json").write_text('{"kind": "KeyValue", "bucket": "CFG"}')
    done = offline("validate", "-f", "a.yaml", "b.json")
    assert done.code == 0
    assert done.out.splitlines() == [
        "a.yaml: 1 stream, 1 consumer",
        "b.json: 1 key-value bucket",
        "3 assets of owner shop in 2 files: valid",
    ]
    assert done.err == f"note: {NOTE}\n"


def test_every_fault_is_told_and_ends_with_2(offline: Run, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text(BAD)
    (tmp_path / "worse.json").write_text('{"name": ')
    done = offline("validate", "bad.yaml", "-f", "worse.json")
    assert done.code == 2
    assert done.out.splitlines() == [
        "worse.json: no assets",
        "  line 1: $: not JSON: expecting value, got the end",
        "bad.yaml: 2 streams",
        "  line 3: $.streams[0].max_agee: unknown key, did you mean max_age?",
        "  line 6: $.streams[1].max_age: AGE is not set: set it, or give --var AGE=VALUE",
        "2 assets of owner default in 2 files: 3 faults",
    ]
    again = offline("validate", "bad.yaml", "--var", "AGE=1ms")
    assert "  line 5: $.streams[1].subjects: subject A overlaps with A of stream A" in again.out.splitlines()
    assert "  line 6: $.streams[1].max_age: max age needs to be >= 100ms" in again.out.splitlines()


def test_the_verdict_is_one_document(offline: Run, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(GOOD)
    done = offline("validate", "-f", "a.yaml", "--owner", "me", "-j")
    assert (done.code, done.err) == (0, "")
    stream = {"kind": "Stream", "stream": "A", "consumer": "", "line": 3}
    consumer = {"kind": "Consumer", "stream": "A", "consumer": "C", "line": 5}
    files = [{"file": "a.yaml", "assets": [stream, consumer], "faults": []}]
    assert done.json == {"valid": True, "owner": "me", "files": files, "notes": [NOTE]}
    (tmp_path / "bad.yaml").write_text(BAD)
    done = offline("validate", "-f", "bad.yaml", "-j")
    assert (done.code, done.json["valid"]) == (2, False)
    assert done.json["files"][0]["faults"][0] == {
        "line": 3,
        "path": "$.streams[0].max_agee",
        "reason": "unknown key, did you mean max_age?",
    }


def test_documents_come_from_a_pipe_too(offline: Run) -> None:
    assert offline("validate", "-f", "-", stdin=b"name: A\n").out.startswith("stdin: 1 stream\n")


def test_a_hostile_text_does_nothing_to_a_terminal(offline: Run, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text('name: "\\e[31mA"\n"\\e]0;x\\a": 5\nmax_age: ${X:?\x1b[0m}\n'.replace("\x1b", "e"))
    done = offline("validate", "-f", "a.yaml")
    assert done.code == 2
    assert "\x1b" not in done.out
    assert "\x07" not in done.out


def test_faults_that_stop_another_command_stand_on_lines_of_their_own(offline: Run, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text(BAD)
    done = offline("plan", "-f", "bad.yaml")
    assert done.code == 2
    assert done.err.splitlines() == [
        "natsctl: error: 2 faults",
        "  bad.yaml:3: $.streams[0].max_agee: unknown key, did you mean max_age?",
        "  bad.yaml:6: $.streams[1].max_age: AGE is not set: set it, or give --var AGE=VALUE",
    ]


def test_the_schema_for_editors_is_printed_and_judges(offline: Run, tmp_path: Path) -> None:
    schema = offline("schema", "info", "documents").json
    assert schema["$id"] == "io.natsctl.plan.v1.documents"
    (tmp_path / "a.json").write_text('{"streams": [{"name": "A", "storage": "disk"}]}')
    done = offline("schema", "validate", "documents", "a.json", "-j")
    assert (done.code, done.json["path"]) == (1, "$.streams[0].storage")
    (tmp_path / "a.json").write_text('{"streams": [{"name": "A"}]}')
    assert offline("schema", "validate", "documents", "a.json").out == (
        "a.json is a valid io.natsctl.plan.v1.documents\n"
    )


ROOT = Path(__file__).parents[3]
CONFIGS, DOCUMENTS = ROOT / "examples" / "configs", ROOT / "examples" / "documents"
EXAMPLES: dict[Path, list[str]] = {
    CONFIGS / "orders.yaml": ["ORDERS", "ORDERS > DISPATCH", "ORDERS > MONITOR", "ORDERS > NEW"],
    DOCUMENTS / "buckets.yaml": ["KV_SESSIONS", "KV_SETTINGS", "OBJ_PICTURES"],
    DOCUMENTS / "controller.yaml": ["KV_PAYMENT_LIMITS", "PAYMENTS", "PAYMENTS > LEDGER"],
    DOCUMENTS / "mirrors.yaml": ["ARCHIVE", "ARCHIVE > AUDIT", "RETURNS", "SALES", "SALES_COPY"],
    DOCUMENTS / "shop" / "shop.yaml": ["SALES_test", "SALES_test > BILLING", "STOCK_test"],
}


def live_state(natsctl: Run) -> dict[str, dict[str, Any]]:
    """The configuration of every stream and consumer, without what servers and plans write into metadata."""
    found = {}
    for stream in natsctl("str", "ls", "-a", "-j", "--details").json:
        found[stream["config"]["name"]] = stream["config"]
        for consumer in natsctl("con", "ls", stream["config"]["name"], "-j", "--details").json:
            found[f"{stream['config']['name']} > {consumer['name']}"] = consumer["config"]
    return {name: {key: value for key, value in config.items() if key != "metadata"} for name, config in found.items()}


def test_every_example_is_here() -> None:
    assert set(DOCUMENTS.glob("*.yaml")) | set(DOCUMENTS.glob("*/*.yaml")) | {CONFIGS / "orders.yaml"} == set(EXAMPLES)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_is_applied_found_done_and_destroyed(natsctl: Run, path: Path) -> None:
    words = ("-f", str(path), "--var", "STAGE=test")
    assert natsctl("validate", *words).code == 0
    assert natsctl("plan", *words).code == 10
    done = natsctl("apply", *words)
    assert done.code == 0, done.out + done.err
    assert sorted(live_state(natsctl)) == EXAMPLES[path]
    assert natsctl("diff", *words).code == 0
    assert natsctl("apply", *words, "-j").json["results"] == []
    protected = path.name == "mirrors.yaml"
    assert natsctl("destroy", *words, "--yes").code == (4 if protected else 0)
    assert sorted(live_state(natsctl)) == (EXAMPLES[path] if protected else [])


def test_orders_are_what_the_files_of_single_assets_make(natsctl: Run) -> None:
    assert natsctl("apply", "-f", str(CONFIGS / "orders.yaml")).code == 0
    applied = live_state(natsctl)
    natsctl("str", "rm", "ORDERS", "-f")
    assert natsctl("str", "add", "--config", str(CONFIGS / "orders.json")).code == 0
    for file in ("orders_new.json", "orders_dispatch.json", "monitor.json"):
        assert natsctl("con", "add", "ORDERS", "--config", str(CONFIGS / file)).code == 0
    made = live_state(natsctl)
    assert made == applied
    assert natsctl("diff", "-f", str(CONFIGS / "orders.yaml")).code == 0
