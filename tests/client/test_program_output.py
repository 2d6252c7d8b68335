"""The programs that answer requests and make messages: their input and their output."""

import sys

import pytest

from natsctl.client.messaging import request_reply
from natsctl.client.messaging.request_reply import CommandFailedError, run

MEGABYTE = b"x" * (1 << 20)
ECHO = "import sys; sys.stdout.buffer.write(sys.stdin.buffer.read())"
ENDLESS = "while True: print('y')"


async def test_a_body_larger_than_a_pipe_comes_back_whole() -> None:
    assert await run([sys.executable, "-c", ECHO], MEGABYTE) == MEGABYTE


async def test_a_program_need_not_read_its_input() -> None:
    assert await run([sys.executable, "-c", "print('done')"], MEGABYTE) == b"done\n"


async def test_a_program_that_writes_without_end_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_reply, "MAX_OUTPUT_BYTES", 1000)
    with pytest.raises(CommandFailedError, match="wrote more than 1,000 bytes"):
        await run([sys.executable, "-c", ENDLESS], b"")


async def test_the_exit_status_and_first_line_of_a_failure_are_named() -> None:
    with pytest.raises(CommandFailedError, match="exit status 3: bad input"):
        await run([sys.executable, "-c", "import sys; print('bad input'); sys.exit(3)"], b"")
