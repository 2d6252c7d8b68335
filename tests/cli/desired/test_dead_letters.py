"""`dead_letters:` of a stream's document: a capture stream through validate, plan, apply, export and prune."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from natsctl.client.deadletters.capture import COPYING_CONSUMER

DOCUMENT = """\
owner: shop
streams:
  - name: ORDERS
    subjects: [ORDERS.>]
    protect: true
    dead_letters: {max_age: 7d, copy: true}
  - name: BILLS
    subjects: [BILLS.>]
    num_replicas: 1
    dead_letters: true
"""


@pytest.fixture
def applied(natsctl: Any, tmp_path: Path) -> Any:
    def run(*words: str, text: str = DOCUMENT) -> Any:
        path = tmp_path / "shop.yaml"
        path.write_text(text)
        return natsctl(*words, "-f", str(path))

    assert run("apply", "--yes").code == 0
    return run


def test_a_plan_after_apply_is_empty_and_limits_set_by_hand_stay(applied: Any, natsctl: Any) -> None:
    assert "4 unchanged" in applied("plan").out
    config = natsctl("str", "info", "DEADLETTERS_ORDERS", "-j").json["config"]
    assert (config["max_age"], config["subjects"][2]) == (7 * 86_400 * 10**9, "$DLQ.ORDERS.>")
    assert natsctl("dlq", "enable", "BILLS", "--max-msgs", "7", "--copy").code == 0
    assert "4 unchanged" in applied("plan").out
    changed = applied("plan", text=DOCUMENT.replace("7d", "9d")).out
    assert "~ Stream DEADLETTERS_ORDERS" in changed and "1 to update" in changed
    assert "- Stream DEADLETTERS_BILLS" in applied("plan", "--prune", text=DOCUMENT.replace(": true\n", ": \n")).out


def test_an_export_has_the_key_and_describes_the_same_account(applied: Any, natsctl: Any) -> None:
    assert natsctl("dlq", "run", "--once").code == 0
    text = natsctl("export").out
    streams = {stream["name"]: stream for stream in yaml.safe_load(text)["streams"]}
    assert sorted(streams) == ["BILLS", "ORDERS"]
    assert streams["ORDERS"]["dead_letters"] == {"max_age": "7d", "max_msgs": -1, "replicas": 1, "copy": True}
    assert COPYING_CONSUMER not in text
    assert "4 unchanged" in applied("plan", text=text).out
    edited = natsctl("str", "edit", "DEADLETTERS_BILLS", "--max-bytes", "1GiB", "-f")
    assert edited.code == 0
    names = [stream["name"] for stream in yaml.safe_load(natsctl("export").out)["streams"]]
    assert names == ["BILLS", "DEADLETTERS_BILLS", "ORDERS"]


def test_destroy_removes_dead_letters_with_their_stream(applied: Any, natsctl: Any) -> None:
    assert applied("destroy", "--yes", text=DOCUMENT).code != 0  # ORDERS is protected, and so are its dead letters
    assert "DEADLETTERS_ORDERS" in natsctl("str", "ls", "-n").out
    plain = DOCUMENT.replace("    protect: true\n", "    protect: false\n")
    assert applied("apply", "--yes", text=plain).code == 0
    assert applied("destroy", "--yes", text=plain).code == 0
    assert natsctl("str", "ls", "-n").out == ""


@pytest.mark.parametrize(
    ("value", "fault"),
    [("7", "expected true, false or an object"), ("{max_agee: 1d}", "unknown key"), ("{max_age: soon}", "duration")],
)
def test_a_wrong_key_is_a_fault_with_its_line(natsctl: Any, tmp_path: Path, value: str, fault: str) -> None:
    path = tmp_path / "one.yaml"
    path.write_text(f"streams:\n  - name: A\n    subjects: [a]\n    dead_letters: {value}\n")
    done = natsctl("validate", "-f", str(path))
    assert (done.code, fault in done.out + done.err, "line 4" in done.out + done.err) == (2, True, True), done
