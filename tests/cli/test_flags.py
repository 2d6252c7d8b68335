"""Flags that set fields: the tables, what they send, and whether the server took it."""

import json
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from natsctl.api.consumer import ConsumerConfig
from natsctl.api.errors import UsageError
from natsctl.api.model import Model
from natsctl.api.stream import StreamConfig
from natsctl.cli.assets import part_of
from natsctl.cli.consumer.definition import (
    CONSUMER_ADD,
    CONSUMER_EDIT,
    CONSUMER_FLAGS,
    settle,
)
from natsctl.cli.framework.flags import Flag, apply
from natsctl.cli.main import run
from natsctl.cli.render.change import not_taken, render_not_taken
from natsctl.cli.stream.create import STREAM_ADD, STREAM_EDIT, STREAM_FLAGS
from tests.cli.conftest import groups_of
from tests.support.commands import Run

SAMPLES: dict[str, Any] = {
    "--subjects": ["a.b,c"],
    "--storage": "m",
    "--compression": "s2",
    "--tag": ["ssd"],
    "--ack": False,
    "--retention": "workq",
    "--discard": "NEW",
    "--mirror": '{"name": "M", "filter_subject": "x"}',
    "--source": ["S", '{"name": "T"}'],
    "--metadata": ["a=b", "c:d=e"],
    "--persist-mode": "async",
    "--backoff": "linear",
    "--deliver": "10",
    "--filter": ["a", "b"],
    "--replay": "original",
    "--sample": "80%",
    "--pause": "2030-01-01T00:00:00Z",
    "--pinned-groups": ["g"],
    "--overflow-groups": ["g"],
    "--prioritized-groups": ["g"],
}
UNFLAGGED_STREAM = {"name", "template_owner", "sealed"}
UNFLAGGED_CONSUMER = {"name", "durable_name", "opt_start_time", "direct", "sourcing", "filter_subject", "backoff"}


def sample(flag: Flag) -> Any:
    if flag.name in SAMPLES:
        return SAMPLES[flag.name]
    if flag.kind.switch:
        return True
    if flag.name == "--ack":
        return "all"
    return {"DURATION": "1y", "SIZE": "1G", "N": "7"}.get(flag.kind.metavar, "text")


def placed(table: tuple[Flag, ...], flag: Flag) -> dict[str, Any]:
    config: dict[str, Any] = {}
    value = "all" if flag.name == "--ack" and not flag.kind.switch else sample(flag)
    apply(config, table, {flag.name: flag.read(value)})
    return config


def missing(config: dict[str, Any], model: type[Model], prefix: str = "") -> list[str]:
    hints = typing.get_type_hints(model)
    found = []
    for key, value in config.items():
        if key not in hints:
            found.append(prefix + key)
        below = [part for part in (hints.get(key), *typing.get_args(hints.get(key))) if isinstance(part, type)]
        nested = next((part for part in below if issubclass(part, Model)), None)
        if isinstance(value, dict) and nested is not None:
            found += missing(value, nested, f"{prefix}{key}.")
    return found


@pytest.mark.parametrize(
    ("table", "model", "unflagged"),
    [(STREAM_FLAGS, StreamConfig, UNFLAGGED_STREAM), (CONSUMER_FLAGS, ConsumerConfig, UNFLAGGED_CONSUMER)],
)
def test_every_flag_sets_a_field_and_every_field_has_a_flag(
    table: tuple[Flag, ...], model: type[Model], unflagged: set[str]
) -> None:
    reached: set[str] = set()
    for flag in table:
        config = placed(table, flag)
        assert not missing(config, model), flag.name
        reached |= config.keys()
    assert set(model.__struct_fields__) - reached == unflagged


def test_names_of_flags_are_unique() -> None:
    for table in (STREAM_ADD, STREAM_EDIT, CONSUMER_ADD, CONSUMER_EDIT):
        names = [name for flag in table for name in (flag.name, *flag.aliases)]
        assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("name", "given", "wanted"),
    [
        ("--subjects", ["a b,c", "a"], {"subjects": ["a", "b", "c"]}),
        ("--max-age", "1y2d", {"max_age": 367 * 86400 * 10**9}),
        ("--max-age", "-1", {"max_age": 0}),
        ("--max-bytes", "5000000000", {"max_bytes": 5_000_000_000}),
        ("--max-bytes", "-1", {"max_bytes": -1}),
        ("--max-msgs", "0", {"max_msgs": 0}),
        ("--ack", True, {"no_ack": False}),
        ("--retention", "work", {"retention": "workqueue"}),
        ("--discard-per-subject", True, {"discard_new_per_subject": True, "discard": "new"}),
        ("--mirror", "M", {"mirror": {"name": "M"}}),
        ("--tag", [""], {}),
        ("--dupe-window", "-1", {}),
    ],
)
def test_stream_values_become_wire_values(name: str, given: Any, wanted: dict[str, Any]) -> None:
    flag = next(flag for flag in STREAM_FLAGS if flag.name == name)
    config: dict[str, Any] = {}
    apply(config, STREAM_FLAGS, {name: flag.read(given)})
    assert config == wanted


def test_merging_keeps_what_was_not_named() -> None:
    live = {"placement": {"cluster": "c", "tags": ["t"]}, "metadata": {"a": "1", "b": "2"}, "unknown": {"x": 1}}
    flags = {flag.name: flag for flag in STREAM_EDIT}
    merged = dict(live)
    given = {"--cluster": "d", "--metadata": flags["--metadata"].read(["a=", "c=3"]), "--no-republish": True}
    apply(merged, STREAM_EDIT, given)
    assert merged == {
        "placement": {"cluster": "d", "tags": ["t"]},
        "metadata": {"b": "2", "c": "3"},
        "unknown": {"x": 1},
    }
    assert live["placement"] == {"cluster": "c", "tags": ["t"]}


def test_an_empty_placement_is_taken_away() -> None:
    config: dict[str, Any] = {"placement": {"cluster": "c"}}
    apply(config, STREAM_EDIT, {"--cluster": ""})
    assert config == {}


def test_flags_that_exclude_each_other_are_refused() -> None:
    with pytest.raises(UsageError, match="--pull and --target"):
        settle({}, {"--pull": True, "--target": "x"})
    with pytest.raises(UsageError, match="--heartbeat"):
        settle({}, {"--heartbeat": 10**9})
    config: dict[str, Any] = {"deliver_policy": "last_per_subject"}
    settle(config, {"--backoff": "linear"})
    assert config["filter_subject"] == ">"
    assert config["max_deliver"] == len(config["backoff"]) + 1


HOUR = 3600 * 10**9

STREAM = {words: json.loads(wanted) for words, wanted in (row.split("  →  ") for row in groups_of("flags.txt")["set"])}
"""Flags of `stream add` and `copy`, and what the server says that the stream then has."""
EDITED = (
    "--max-consumers 9", "--max-msgs-per-subject 3 --discard new --discard-per-subject",
    "--allow-msg-ttl --subject-del-markers-ttl 1h", "--allow-schedules", "--no-allow-direct",
)  # fmt: skip
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
    ("str add NEW --subjects new --defaults", "--tag"), ("str edit S", "--tag"), ("str edit S", "--tags"),
    ("str copy S NEW --subjects new", "--tag"), ("str copy S NEW --subjects new", "--tags"), ("kv add NEW", "--tags"),
    ("kv edit B", "--tags"), ("object add NEW", "--tags"), ("object edit F", "--tags"),
)  # fmt: skip


@pytest.mark.ours("a dry run sends nothing")
@pytest.mark.parametrize(("command", "tags"), PLACED, ids=lambda words: words.replace(" ", "_"))
def test_flags_of_placement_go_to_the_server(natsctl: Run, command: str, tags: str) -> None:
    natsctl("str", "add", "S", "--subjects", "s.*", "--defaults")
    natsctl("kv", "add", "B")
    natsctl("object", "add", "F")
    words = [*command.split(), "--cluster", "C1", tags, "ssd", tags, "eu", "--dry-run", "-j"]
    assert request_of(natsctl(*words))["placement"] == {"cluster": "C1", "tags": ["ssd", "eu"]}


@pytest.mark.ours("a dry run sends nothing")
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


@pytest.mark.ours("a dry run sends nothing")
@pytest.mark.parametrize(("how", "flags"), BENCHES)
def test_a_flag_of_a_benchmark_sets_a_field_of_its_stream(natsctl: Run, how: str, flags: str) -> None:
    words = ["bench", "js", "pub", how, "b.x", "--create", *flags.split(), "--msgs", "10", "--dry-run", "-j"]
    done = natsctl(*words)
    assert done.code == 0, done.err
    made = next(one["body"] for one in done.json["requests"] if "STREAM.CREATE" in one["subject"])
    assert held(made, BENCH[flags]) == BENCH[flags]


@pytest.fixture
def origin(natsctl: Run) -> Run:
    """Return natsctl with a stream O that answers no direct gets; its mirrors do as it does, whatever they ask for."""
    assert natsctl("str", "add", "O", "--subjects", "o", "--no-allow-direct").code == 0
    return natsctl


def test_a_flag_that_the_server_leaves_out_is_told(origin: Run) -> None:
    made = origin("str", "add", "T", "--mirror", "O", "--allow-mirror-direct", "--max-msgs", "5")
    assert made.code == 0
    assert "warning: the server did not take: mirror_direct true (it has false)" in made.err
    assert "warning" not in made.out
    told = origin("str", "cp", "T", "U", "--allow-mirror-direct").err
    assert "did not take: mirror_direct true" in told
    edited = origin("str", "edit", "T", "--allow-mirror-direct", "--max-msgs", "6", "-f").err
    assert "did not take: mirror_direct true (it has false)" in edited


def test_a_program_sees_it_in_the_answer(origin: Run) -> None:
    made = origin("str", "add", "T", "--mirror", "O", "--allow-mirror-direct", "-j")
    assert (made.err, made.json["config"].get("mirror_direct")) == ("", False)


@pytest.mark.both
def test_what_was_taken_is_not_warned_of(server: Any, capsys: pytest.CaptureFixture[str]) -> None:
    for line in (
        "str add T --subjects t,u --metadata a=b --no-ack --max-bytes 1GB --dupe-window 1m --max-msgs 0 --max-age 1d",
        "con add T C --defaults --pause 2099-01-01T00:00:00+02:00 --filter t --sample 50 --backoff linear",
        "con add T D --target x.y --deliver 1h --heartbeat 5s --flow-control --bps 1000000 --metadata x=y",
        "con add T E --deliver 2026-11-21T07:00:00.5+00:00 --max-waiting 5 --inactive-threshold 1h --filter t,u",
        "str edit T --max-msgs 0 --max-age 0 --metadata a= -f",
        "con edit T C --description z --metadata u=v --filter= -f",
        "str cp T W --subjects w",
    ):
        assert run(["-s", server.url, *line.split()]) == 0, capsys.readouterr().err
        assert "warning" not in capsys.readouterr().err, line


@pytest.mark.parametrize(
    ("asked", "got"),
    [
        ({"max_msgs": -1}, {}),
        ({"max_msgs": 0}, {"max_msgs": -1}),
        ({"description": ""}, {}),
        ({"allow_direct": False}, {}),
        ({"metadata": {"_nats.ver": "1", "a": "b"}}, {"metadata": {"a": "b", "_nats.ver": "2"}}),
        ({"opt_start_time": "2026-01-01T01:00:00+01:00"}, {"opt_start_time": "2026-01-01T00:00:00Z"}),
        ({"sources": [{"name": "A"}]}, {"sources": [{"name": "A", "filter_subject": "x"}]}),
        ({}, {"anything": 1}),
    ],
)
def test_the_same_in_another_spelling_is_taken(asked: dict[str, Any], got: dict[str, Any]) -> None:
    assert not_taken(asked, got, emptied=True) == []


@pytest.mark.parametrize(
    ("asked", "got", "path"),
    [
        ({"max_msgs": 5}, {"max_msgs": -1}, "max_msgs"),
        ({"allow_direct": False}, {"allow_direct": True}, "allow_direct"),
        ({"placement": {"tags": ["a"]}}, {}, "placement.tags"),
        ({"sources": [{"name": "A", "filter_subject": "x"}]}, {"sources": [{"name": "A"}]}, "sources.0.filter_subject"),
        ({"subjects": ["a", "b"]}, {"subjects": ["a"]}, "subjects"),
        ({"unknown_to_us": "x"}, {}, "unknown_to_us"),
    ],
)
def test_what_was_not_taken_is_named_by_its_path(asked: dict[str, Any], got: dict[str, Any], path: str) -> None:
    (one,) = not_taken(asked, got)
    assert one.path == path
    assert path in render_not_taken([one])


def test_emptiness_is_asked_for_by_an_edit_only() -> None:
    assert not_taken({"subjects": []}, {"subjects": ["T"]}) == []
    assert [one.path for one in not_taken({"subjects": []}, {"subjects": ["T"]}, emptied=True)] == ["subjects"]
    part = part_of({"placement": {"tags": ["a"]}, "x": 1}, ["placement.tags", "mirror"])
    assert part == {"placement": {"tags": ["a"]}, "mirror": None}


def test_a_server_s_text_cannot_drive_the_terminal() -> None:
    assert "\x1b" not in render_not_taken(not_taken({"description": "a"}, {"description": "\x1b[2J"}))
