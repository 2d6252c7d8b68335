"""A process that runs some clients of a benchmark: `python -m natsctl.client.bench.worker`, started by `workers`.

It reads on stdin one line with what to do, in base64, and then `go` and perhaps `stop`; when stdin ends it ends too,
so that none outlives who started it. It writes one JSON document per line: that it is ready, how far it is, the result
or what went wrong.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import importlib
import json
import pickle
import signal
import sys
from collections.abc import Sequence
from typing import Any

from natsctl.api import errors
from natsctl.api.catalogue import ApiError
from natsctl.api.errors import ApiResponseError, NatsctlError
from natsctl.client.bench.crew import Crew
from natsctl.client.bench.load import Load
from natsctl.client.servers import Target

TOLD_EVERY_S = 0.1
"""Seconds between two lines that tell how far it is."""
MAX_LINE_BYTES = 64 * 1024 * 1024
"""What a line may have: a payload that was given with --payload is in it."""

Task = tuple[Target, Load, Sequence[int]]


def encode_task(task: Task) -> bytes:
    """The line that tells a worker what to do; it goes through a pipe, as it may hold a login."""
    return base64.b64encode(pickle.dumps(task)) + b"\n"


def encode_failure(failure: BaseException) -> dict[str, Any]:
    """What went wrong, so that `decode_failure` can raise the same."""
    told: dict[str, Any] = {
        "kind": _kind(failure).__name__,
        "text": str(failure),
        "hint": getattr(failure, "hint", ""),
        "subject": getattr(failure, "subject", ""),
    }
    if isinstance(failure, ApiResponseError):
        error = failure.error
        told["error"] = {"code": error.code, "err_code": error.err_code, "description": error.description}
    return told


def _kind(failure: BaseException) -> type[BaseException]:
    """The nearest of natsctl's own errors that the failure is: those of single modules are not known elsewhere."""
    return next((kind for kind in type(failure).__mro__ if getattr(errors, kind.__name__, None) is kind), NatsctlError)


def decode_failure(told: dict[str, Any]) -> NatsctlError:
    """The failure of a worker, as if it had happened here."""
    failure: NatsctlError
    if error := told.get("error"):
        failure = ApiResponseError(ApiError(**error), hint=told["hint"])
    else:
        kind = getattr(errors, told["kind"], NatsctlError)
        known = isinstance(kind, type) and issubclass(kind, NatsctlError) and kind is not ApiResponseError
        failure = (kind if known else NatsctlError)(told["text"], hint=told["hint"])
    failure.subject = told["subject"]
    return failure


def _say(**document: Any) -> None:
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()


async def _tell(crew: Crew) -> None:
    while True:
        await asyncio.sleep(TOLD_EVERY_S)
        _say(at=crew.msgs)


async def _obey(lines: asyncio.StreamReader, crew: Crew, work: asyncio.Task[Any]) -> None:
    """Stop the clients when that is said, and cancel them when nobody is there to say anything."""
    while line := await lines.readline():
        if line == b"stop\n":
            crew.stop()
    work.cancel()


async def _main() -> None:
    lines = asyncio.StreamReader(limit=MAX_LINE_BYTES)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    # From our own parent, through its pipe to us.
    target, load, numbers = pickle.loads(base64.b64decode(await lines.readline()))
    crew = Crew(target, load, numbers)
    helpers: list[asyncio.Task[Any]] = []
    try:
        await crew.prepare()
        _say(ready=True)
        if await lines.readline() != b"go\n":
            return
        work = asyncio.create_task(crew.run())
        helpers = [asyncio.create_task(_tell(crew)), asyncio.create_task(_obey(lines, crew, work))]
        _say(result=[done.encode() for done in await work])
    except (NatsctlError, OSError) as failure:
        _say(failed=encode_failure(failure))
    finally:
        for helper in helpers:
            helper.cancel()
        await crew.close()


def _runner() -> Any:
    """What runs the loop: uvloop where the platform has it, whose turns take half the time."""
    try:
        return importlib.import_module("uvloop").run
    except ImportError:
        return asyncio.run


if __name__ == "__main__":
    # Ctrl-C reaches the whole group of processes; the one that started us says what becomes of us.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(BrokenPipeError, asyncio.CancelledError):
        _runner()(_main())
