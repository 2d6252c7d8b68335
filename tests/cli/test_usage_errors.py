"""Lines that cannot be meant: each ends with 2, names what is missing or wrong, prints nothing and changes nothing."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any

import pytest

from tests.cli.conftest import groups_of

Run = Callable[..., Any]

FILLED = (
    "str add S --subjects s.* --allow-direct",
    "con add S C --pull",
    "con add S NOACK --pull --ack none",
    "str add HITS --subjects hits.> --allow-counter",
    "counter incr hits.a",
    "kv add HELD",
    "pub s.a x -J -q",
)
LINES = groups_of("usage_errors.txt")
"""Lines by noun, each with what its error names."""


@pytest.mark.ours("what is wrong is found before a server is asked")
@pytest.mark.parametrize("group", LINES)
def test_what_is_missing_or_wrong_is_named(
    natsctl: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Any, group: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for line in FILLED:
        assert natsctl(*shlex.split(line)).code == 0, line
    before = [natsctl("str", "info", name, "-j").json["state"] for name in ("S", "HITS", "KV_HELD")]
    for line, _, named in (row.partition("  →  ") for row in LINES[group]):
        done = natsctl(*shlex.split(line))
        assert (done.code, done.out, named in done.err) == (2, "", True), (line, done)
    assert [natsctl("str", "info", name, "-j").json["state"] for name in ("S", "HITS", "KV_HELD")] == before
    assert natsctl("str", "ls", "-a", "-n").out.split() == ["HITS", "KV_HELD", "S"]
    assert list(tmp_path.iterdir()) == []
