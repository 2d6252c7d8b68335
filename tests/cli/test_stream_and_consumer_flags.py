"""The tables of flags: every row sets a field that exists, no field is forgotten, and values are read as documented."""

from __future__ import annotations

import typing
from typing import Any

import pytest

from natsctl.api.consumer import ConsumerConfig
from natsctl.api.errors import UsageError
from natsctl.api.model import Model
from natsctl.api.stream import StreamConfig
from natsctl.cli.consumer.definition import CONSUMER_FLAGS, linear_backoff, read_deliver, settle
from natsctl.cli.flags import Flag, apply
from natsctl.cli.stream.create import STREAM_EDIT, STREAM_FLAGS

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
    """The fields that the model does not have, by path."""
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
    for table in (STREAM_FLAGS, CONSUMER_FLAGS):
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


@pytest.mark.parametrize(
    ("table", "name", "given"),
    [
        (STREAM_FLAGS, "--max-age", "1x"),
        (STREAM_FLAGS, "--max-bytes", "lots"),
        (STREAM_FLAGS, "--storage", "tape"),
        (STREAM_FLAGS, "--max-msgs", "1.5"),
        (STREAM_FLAGS, "--mirror", '{"nome": "x"}'),
        (STREAM_FLAGS, "--metadata", ["novalue"]),
        (CONSUMER_FLAGS, "--deliver", "sometimes"),
        (CONSUMER_FLAGS, "--deliver", "0"),
        (CONSUMER_FLAGS, "--sample", "101"),
    ],
)
def test_a_bad_value_is_told_with_its_flag(table: tuple[Flag, ...], name: str, given: Any) -> None:
    flag = next(flag for flag in table if flag.name == name)
    with pytest.raises(UsageError, match=name):
        flag.read(given)


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


def test_start_policies_are_words_sequences_times_and_durations() -> None:
    assert read_deliver("next") == {"deliver_policy": "new"}
    assert read_deliver("subject") == {"deliver_policy": "last_per_subject"}
    assert read_deliver("10") == {"deliver_policy": "by_start_sequence", "opt_start_seq": 10}
    assert read_deliver("2026-01-01T00:00:00+01:00")["opt_start_time"] == "2025-12-31T23:00:00Z"
    assert read_deliver("2m")["deliver_policy"] == "by_start_time"


def test_a_linear_backoff_grows_and_stays_below_the_longest() -> None:
    assert linear_backoff(4, 60_000_000_000, 100_000_000_000) == [60 * 10**9, 70 * 10**9, 80 * 10**9, 90 * 10**9]


def test_flags_that_exclude_each_other_are_refused() -> None:
    with pytest.raises(UsageError, match="--pull and --target"):
        settle({}, {"--pull": True, "--target": "x"})
    with pytest.raises(UsageError, match="--heartbeat"):
        settle({}, {"--heartbeat": 10**9})
    config: dict[str, Any] = {"deliver_policy": "last_per_subject"}
    settle(config, {"--backoff": "linear"})
    assert config["filter_subject"] == ">"
    assert config["max_deliver"] == len(config["backoff"]) + 1
