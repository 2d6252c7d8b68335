"""Programs that bodies are sent through: found without a shell, fed on stdin, their output is the answer."""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Mapping

from natsctl.api.errors import NatsctlError, UsageError

MAX_OUTPUT_BYTES = 64 * 1024 * 1024
_FIRST_LINE = 200


class CommandFailedError(NatsctlError):
    """A program could not be run, or ended with an exit status of failure."""


def words_of(flag: str, command: str) -> list[str]:
    """The words of a command line. Raises UsageError."""
    try:
        words = shlex.split(command)
    except ValueError as failure:
        raise UsageError(f"{flag}: {failure}") from failure
    if not words:
        raise UsageError(f"{flag} is empty")
    return words


async def run(words: list[str], body: bytes, environment: Mapping[str, str] | None = None) -> bytes:
    """Return what the program writes to stdout and stderr when it is fed `body`. Raises CommandFailedError."""
    pipe = asyncio.subprocess.PIPE
    try:
        process = await asyncio.create_subprocess_exec(
            *words, stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.STDOUT, env={**os.environ, **(environment or {})}
        )
    except (OSError, ValueError) as failure:
        raise CommandFailedError(f"{words[0]}: {getattr(failure, 'strerror', None) or failure}") from failure
    try:
        out, _ = await process.communicate(body)
    except asyncio.CancelledError:
        process.kill()
        await process.wait()
        raise
    if process.returncode:
        said = out.decode("utf-8", "replace").strip().partition("\n")[0][:_FIRST_LINE]
        raise CommandFailedError(f"{words[0]} ended with exit status {process.returncode}{f': {said}' if said else ''}")
    if len(out) > MAX_OUTPUT_BYTES:
        raise CommandFailedError(f"{words[0]} wrote {len(out)} bytes, at most {MAX_OUTPUT_BYTES} are taken")
    return out
