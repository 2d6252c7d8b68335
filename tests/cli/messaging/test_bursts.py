"""Many messages at once are shown without loss, in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.cli.messaging.conftest import until_stored

Run = Callable[..., Any]


def test_a_burst_is_shown_whole_and_in_order(natsctl: Run, other: Any) -> None:
    count = 20_000
    other.sends_once_heard("burst", *(b"%d" % number for number in range(count)))
    done = natsctl("sub", "burst", "--raw", "--count", str(count), "--wait", "20s")
    assert done.code == 0
    assert done.out.split() == [str(number) for number in range(count)]


def test_messages_that_are_not_shown_do_not_keep_a_wait_from_ending(natsctl: Run, other: Any) -> None:
    import asyncio

    async def chatter(connection: Any) -> None:
        while True:
            await connection.publish("noise.x", b"")
            await asyncio.sleep(0.005)

    other.does(chatter)
    assert natsctl("sub", "noise.*", "-I", "noise.x", "--wait", "100ms").code == 0


def test_many_stored_messages_are_read_whole_and_in_order(stored: Run) -> None:
    lines = "".join(f"{number}\n" for number in range(3000)).encode()
    assert stored("pub", "s.a", "--send-on", "newline", "-q", stdin=lines).code == 0
    until_stored(stored, 3000)
    for more in ((), ("--direct",)):
        done = stored("sub", "s.a", "--all", "-T", "--raw", *more)
        assert done.out.encode() == lines
