"""What flags that have no test of their own do: the field that they set, the message that goes out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]
HOUR = 3600 * 10**9
WITHIN_S = 20.0

STREAM: dict[str, dict[str, Any]] = {
    "--max-consumers 9": {"max_consumers": 9},
    "--max-msgs-per-subject 3 --discard new --discard-per-subject": {
        "max_msgs_per_subject": 3,
        "discard_new_per_subject": True,
    },
    "--first-sequence 5": {"first_seq": 5},
    "--deny-purge": {"deny_purge": True},
    "--allow-msg-ttl --subject-del-markers-ttl 1h": {"subject_delete_marker_ttl": HOUR},
    "--limit-consumer-inactive 1h": {"consumer_limits": {"inactive_threshold": HOUR}},
    "--limit-consumer-max-pending 7": {"consumer_limits": {"max_ack_pending": 7}},
    "--allow-schedules": {"allow_msg_schedules": True},
    "--no-allow-direct": {"allow_direct": False},
    "--persist-mode async": {"persist_mode": "async"},
}
"""Flags of `stream add` and `copy`, and what the server says that the stream then has."""
EDITED = (
    "--max-consumers 9",
    "--max-msgs-per-subject 3 --discard new --discard-per-subject",
    "--allow-msg-ttl --subject-del-markers-ttl 1h",
    "--allow-schedules",
    "--no-allow-direct",
)
"""Those that a stream may change."""


def held(config: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Of a configuration, what is wanted; the objects in it only as far as they are wanted too."""
    return {
        name: held(config.get(name) or {}, value) if isinstance(value, dict) else config.get(name)
        for name, value in wanted.items()
    }


def request_of(done: Any) -> Any:
    """The body of the last request that a dry run shows; an edit's ends with 10, as something would change."""
    assert done.code in (0, 10), done.err
    return done.json["requests"][-1]["body"]


@pytest.mark.parametrize("flags", STREAM)
def test_a_flag_of_a_new_stream_sets_its_field(natsctl: Run, flags: str) -> None:
    wanted = STREAM[flags]
    made = natsctl("str", "add", "S", "--subjects", "s.*", "--defaults", *flags.split(), "-j")
    assert made.code == 0, made.err
    assert held(made.json["config"], wanted) == wanted
    copied = natsctl("str", "copy", "S", "T", "--subjects", "t.*", *flags.split(), "-j")
    assert copied.code == 0, copied.err
    assert held(copied.json["config"], wanted) == wanted


@pytest.mark.parametrize("flags", EDITED)
def test_a_flag_of_an_edit_sets_its_field(natsctl: Run, flags: str) -> None:
    wanted = STREAM[flags]
    natsctl("str", "add", "S", "--subjects", "s.*", "--defaults")
    edited = natsctl("str", "edit", "S", *flags.split(), "-f", "-j")
    assert edited.code == 0, edited.err
    assert held(edited.json["config"], wanted) == wanted


PLACED: tuple[tuple[str, str], ...] = (
    ("str add NEW --subjects new --defaults", "--tag"),
    ("str edit S", "--tag"),
    ("str edit S", "--tags"),
    ("str copy S NEW --subjects new", "--tag"),
    ("str copy S NEW --subjects new", "--tags"),
    ("kv add NEW", "--tags"),
    ("kv edit B", "--tags"),
    ("object add NEW", "--tags"),
    ("object edit F", "--tags"),
)


@pytest.mark.parametrize(("command", "tags"), PLACED, ids=lambda words: words.replace(" ", "_"))
def test_flags_of_placement_go_to_the_server(natsctl: Run, command: str, tags: str) -> None:
    natsctl("str", "add", "S", "--subjects", "s.*", "--defaults")
    natsctl("kv", "add", "B")
    natsctl("object", "add", "F")
    words = [*command.split(), "--cluster", "C1", tags, "ssd", tags, "eu", "--dry-run", "-j"]
    assert request_of(natsctl(*words))["placement"] == {"cluster": "C1", "tags": ["ssd", "eu"]}


@pytest.mark.parametrize("command", ("str restore", "account restore"))
def test_flags_of_placement_replace_those_of_a_backup(natsctl: Run, tmp_path: Path, command: str) -> None:
    natsctl("str", "add", "S", "--subjects", "s.*", "--defaults")
    folder = str(tmp_path / "saved")
    save = ("str", "backup", "S", folder) if command == "str restore" else ("account", "backup", folder, "-f")
    assert natsctl(*save).code == 0
    assert natsctl("str", "rm", "S", "-f").code == 0
    done = natsctl(*command.split(), folder, "--cluster", "C1", "--tag", "ssd", "--replicas", "3", "--dry-run", "-j")
    config = request_of(done)["config"]
    assert (config["placement"], config["num_replicas"]) == ({"cluster": "C1", "tags": ["ssd"]}, 3)


CONSUMER: dict[str, dict[str, Any]] = {
    "--pull --inactive-threshold 1h": {"inactive_threshold": HOUR},
    "--pull --max-waiting 9": {"max_waiting": 9},
    "--pull --max-pull-batch 9 --max-pull-expire 1h --max-pull-bytes 1KB": {
        "max_batch": 9,
        "max_expires": HOUR,
        "max_bytes": 1024,
    },
    "--pull --headers-only": {"headers_only": True},
    "--pull --memory": {"mem_storage": True},
    "--pull --sample 50": {"sample_freq": "50"},
    "--pull --max-pending 7": {"max_ack_pending": 7},
    "--pull --wait 9s": {"ack_wait": 9 * 10**9},
    "--pull --max-deliver 4 --backoff linear --backoff-steps 2 --backoff-min 1s --backoff-max 9s": {"max_deliver": 4},
    "--target out --heartbeat 5s --flow-control": {"idle_heartbeat": 5 * 10**9, "flow_control": True},
    "--target out --bps 1024 --ack none": {"rate_limit_bps": 1024},
}


BENCH: dict[str, dict[str, Any]] = {
    "--replicas 3": {"num_replicas": 3},
    "--maxbytes 1MB": {"max_bytes": 1024**2},
    "--dedupwindow 1h --dedup": {"duplicate_window": HOUR},
    "--persistasync": {"persist_mode": "async"},
}


BENCHES = [
    (how, flags)
    for how in ("sync", "async", "atomic", "fast")
    for flags in BENCH
    if flags != "--persistasync" or how in ("sync", "async")  # a batch is not for a stream that stores later
]


@pytest.mark.parametrize(("how", "flags"), BENCHES)
def test_a_flag_of_a_benchmark_sets_a_field_of_its_stream(natsctl: Run, how: str, flags: str) -> None:
    words = ["bench", "js", "pub", how, "b.x", "--create", *flags.split(), "--msgs", "10", "--dry-run", "-j"]
    done = natsctl(*words)
    assert done.code == 0, done.err
    made = next(one["body"] for one in done.json["requests"] if "STREAM.CREATE" in one["subject"])
    assert held(made, BENCH[flags]) == BENCH[flags]
