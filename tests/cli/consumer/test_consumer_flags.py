"""Every flag that sets a field of a consumer sets it, when one is added, copied and changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Run = Callable[..., Any]

PULL: tuple[tuple[tuple[str, ...], dict[str, Any]], ...] = (
    (("--ack", "all"), {"ack_policy": "all"}),
    (("--deliver", "new"), {"deliver_policy": "new"}),
    (("--deliver", "7"), {"deliver_policy": "by_start_sequence", "opt_start_seq": 7}),
    (("--deliver", "2026-01-01T00:00:00Z"), {"opt_start_time": "2026-01-01T00:00:00Z"}),
    (("--deliver", "subject"), {"deliver_policy": "last_per_subject", "filter_subject": ">"}),
    (("--max-waiting", "7"), {"max_waiting": 7}),
    (("--replay", "original"), {"replay_policy": "original"}),
    (("--memory",), {"mem_storage": True}),
    (("--pause", "2100-01-01T00:00:00Z"), {"pause_until": "2100-01-01T00:00:00Z"}),
    (("--pinned-groups", "g", "--pinned-ttl", "9s"), {"priority_groups": ["g"], "priority_timeout": 9 * 10**9}),
    (("--overflow-groups", "g"), {"priority_policy": "overflow"}),
    (("--prioritized-groups", "g"), {"priority_policy": "prioritized"}),
)
PUSH: tuple[tuple[tuple[str, ...], dict[str, Any]], ...] = (
    (("--bps", "1024"), {"rate_limit_bps": 1024}),
    (("--deliver-group", "g"), {"deliver_group": "g"}),
    (("--heartbeat", "5s", "--flow-control"), {"idle_heartbeat": 5 * 10**9, "flow_control": True}),
)
CHANGED: tuple[tuple[tuple[str, ...], dict[str, Any]], ...] = (
    (("--backoff", "linear", "--backoff-steps", "2", "--backoff-min", "1s", "--backoff-max", "3s"), {"max_deliver": 3}),
    (("--description", "d"), {"description": "d"}),
    (("--filter", "ORDERS.a"), {"filter_subject": "ORDERS.a"}),
    (("--filter", "ORDERS.a", "--filter", "ORDERS.b"), {"filter_subjects": ["ORDERS.a", "ORDERS.b"]}),
    (("--headers-only",), {"headers_only": True}),
    (("--max-deliver", "9"), {"max_deliver": 9}),
    (("--max-pending", "9"), {"max_ack_pending": 9}),
    (("--max-outstanding", "9"), {"max_ack_pending": 9}),
    (("--max-pull-batch", "9"), {"max_batch": 9}),
    (("--max-pull-expire", "9s"), {"max_expires": 9 * 10**9}),
    (("--max-pull-bytes", "9KB"), {"max_bytes": 9216}),
    (("--sample", "50"), {"sample_freq": "50"}),
    (("--wait", "9s"), {"ack_wait": 9 * 10**9}),
    (("--inactive-threshold", "1h"), {"inactive_threshold": 3600 * 10**9}),
    (("--replicas", "1"), {"num_replicas": 1}),
    (("--metadata", "a=b"), {"metadata": {"a": "b"}}),
)


def check(done: Any, wanted: dict[str, Any]) -> None:
    assert done.code == 0, done.err
    config = done.json["config"]
    own = {key: value for key, value in (config.get("metadata") or {}).items() if not key.startswith("_nats.")}
    config["metadata"] = own
    assert {key: config.get(key) for key in wanted} == wanted


@pytest.mark.parametrize(("words", "wanted"), [*PULL, *CHANGED])
def test_a_flag_sets_its_field_in_a_new_pull_consumer_and_in_a_copy(
    orders: Run, words: tuple[str, ...], wanted: dict[str, Any]
) -> None:
    check(orders("con", "add", "ORDERS", "C", *words, "-j"), wanted)
    orders("con", "add", "ORDERS", "PLAIN")
    check(orders("con", "cp", "ORDERS", "PLAIN", "COPY", *words, "-j"), wanted)


@pytest.mark.parametrize(("words", "wanted"), PUSH)
def test_a_flag_sets_its_field_in_a_new_push_consumer_and_in_a_copy(
    orders: Run, words: tuple[str, ...], wanted: dict[str, Any]
) -> None:
    check(orders("con", "add", "ORDERS", "C", "--target", "out", *words, "-j"), wanted)
    orders("con", "add", "ORDERS", "PLAIN", "--target", "plain")
    check(orders("con", "cp", "ORDERS", "PLAIN", "COPY", "--target", "copy", *words, "-j"), wanted)


@pytest.mark.parametrize(("words", "wanted"), CHANGED)
def test_a_flag_changes_its_field(orders: Run, words: tuple[str, ...], wanted: dict[str, Any]) -> None:
    orders("con", "add", "ORDERS", "C")
    check(orders("con", "edit", "ORDERS", "C", *words, "-f", "-j"), wanted)


def test_a_push_consumer_gets_another_target(orders: Run) -> None:
    orders("con", "add", "ORDERS", "C", "--target", "out")
    check(orders("con", "edit", "ORDERS", "C", "--target", "other", "-f", "-j"), {"deliver_subject": "other"})
