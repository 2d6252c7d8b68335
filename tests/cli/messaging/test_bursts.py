"""Many messages at once are shown without loss, in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Run = Callable[..., Any]


def test_a_burst_is_shown_whole_and_in_order(natsctl: Run, other: Any) -> None:
    count = 20_000
    other.sends_once_heard("burst", *(b"%d" % number for number in range(count)))
    done = natsctl("sub", "burst", "--raw", "--count", str(count), "--wait", "20s")
    assert done.code == 0
    assert done.out.split() == [str(number) for number in range(count)]
