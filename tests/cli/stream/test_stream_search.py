"""Search in the messages of a stream, on both servers."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

Run = Callable[..., Any]

READS: list[tuple[str, ...]] = [(), ("--direct",)]
"""Through an ordered consumer, and by direct gets."""


@pytest.fixture
def orders(natsctl: Run) -> Run:
    natsctl("str", "add", "S", "--subjects", "s.>", "--allow-direct")
    for number in (1, 2, 3):
        body = f'{{"total": {number}00, "items": [{{"sku": "a{number}"}}], "note": "Größe"}}'
        natsctl("pub", "s.new", body, "-H", f"Kind:k{number}", "-H", "Trace: t", "-q", "-J")
    natsctl("pub", "s.text", "plain Text (x)", "-q", "-J")
    natsctl("pub", "s.bare", "null", "-H", "Nats-Sequence:77", "-q", "-J")
    natsctl("str", "rmm", "S", "2", "-f")
    natsctl("pub", "s.new", '{"total": "many"}', "-q", "-J")
    return natsctl


def found(run: Run, *words: str) -> list[int]:
    done = run("str", "search", "S", *words, "-j")
    assert done.code in (0, 7), done
    assert (done.code == 7) == (not done.lines), done
    return [one["seq"] for one in done.lines]


CASES: list[tuple[tuple[str, ...], list[int]]] = [
    ((), [1, 3, 4, 5, 6]),
    (("total",), [1, 3, 6]),
    (("a[13]",), [1, 3]),
    (("größe", "-i"), [1, 3]),
    (("(x)", "-F"), [4]),
    (("text",), []),
    (("--subject", "s.text", "--subject", "s.bare"), [4, 5]),
    (("--subject", "s.>", "--exclude-subject", "s.new"), [4, 5]),
    (("--subject", "nothing.here"), []),
    (("--header", "kind"), [1, 3]),
    (("--header", "Kind:k3"), [3]),
    (("--header", "Nats-Sequence:77"), [5]),
    (("--exclude-header", "Trace", "--payload-match", "total"), [6]),
    (("--exclude-payload-match", "total"), [4, 5]),
    (("--seq", "2-4"), [3, 4]),
    (("--seq", "4-"), [4, 5, 6]),
    (("--seq", "99-"), []),
    (("--since", "1h", "--count", "2"), [1, 3]),
    (("--until", "1h"), []),
    (("--expression", "json.total > 100"), [3]),
    (("--expression", 'json.items[0].sku == "a1" or headers.Kind == "k3"'), [1, 3]),
    (("--expression", 'subject startsWith "s.t" or seq == 5 and json == nil'), [4, 5]),
    (("--expression", 'size < 10 && data matches "^nu" && time > "2020"'), [5]),
]
"""Filters, and the sequences of what they find."""


@pytest.mark.parametrize("way", READS)
def test_messages_are_found_by_what_they_are(orders: Run, way: tuple[str, ...]) -> None:
    for words, seqs in CASES:
        assert found(orders, *words, *way) == seqs, words


def test_found_messages_are_shown_as_they_are_stored(orders: Run) -> None:
    for way in READS:
        done = orders("str", "grep", "S", "a1", *way)
        assert done.out.startswith("Item: S#1 received ")
        assert 'on Subject s.new\nKind: k1\nTrace: t\n\n{"total": 100,' in done.out
        assert done.err == "5 messages of Stream S searched, 1 found\n"
        assert orders("str", "search", "S", "--subject", "s.text", "--raw", *way).out == "plain Text (x)\n"
        (one,) = orders("str", "search", "S", "--seq", "5", "-j", *way).lines
        assert one == orders("str", "get", "S", "5", "-j").json
    assert orders("con", "ls", "S", "-n").out == ""


def test_a_search_counts_and_says_when_nothing_is_there(orders: Run) -> None:
    done = orders("str", "search", "S", "total", "--total")
    assert (done.code, done.out, done.err) == (0, "3\n", "")
    assert orders("str", "search", "S", "total", "--total", "-j").json == {"matches": 3, "searched": 5}
    done = orders("str", "search", "S", "zzz", "--total")
    assert (done.code, done.out) == (7, "0\n")
    done = orders("str", "search", "S", "zzz", "-j")
    assert (done.code, done.out) == (7, "")
    assert done.error["description"] == "no message matches: 5 messages of Stream S searched"
    assert orders("str", "search", "S", "--since", time.strftime("%Y-01-01"), "--seq", "1-1", "--total").out == "1\n"


@pytest.mark.parametrize("retention", ["interest", "workqueue"])
@pytest.mark.parametrize("direct", ["--allow-direct", "--no-allow-direct"])
def test_a_search_takes_nothing_from_a_queue(natsctl: Run, retention: str, direct: str) -> None:
    natsctl("str", "add", "Q", "--subjects", "q.*", "--retention", retention, direct)
    natsctl("con", "add", "Q", "C", "--pull")
    natsctl("pub", "q.a", "x{{Count}}", "--count", "3", "-q", "-J")
    natsctl("pub", "q.b", "x", "-H", "K:v", "-q", "-J")
    for words, seqs in (
        (("x",), [1, 2, 3, 4]),
        (("--subject", "q.b", "--subject", "q.c"), [4]),
        (("x", "--seq", "2-3", "--since", "1h"), [2, 3]),
        (("--header", "K", "--since", "1h"), [4]),
    ):
        assert [one["seq"] for one in natsctl("str", "search", "Q", *words, "-j").lines] == seqs
    assert natsctl("str", "info", "Q", "-j").json["state"]["messages"] == 4
    assert natsctl("con", "info", "Q", "C", "-j").json["num_ack_pending"] == 0
