"""Changes: natsctl's own command lines, each run in a process of its own.

The browser changes nothing itself. A key becomes a command line and runs as `natsctl` with the server and
the login of the browser; secrets go through its environment. A command line that loses something runs with `--dry-run`
first: its output is the question. After a yes it runs with its flag of consent.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Container, Sequence
from typing import Final, NamedTuple

from natsctl.cli.framework.globals import GLOBAL_FLAGS, GlobalOptions

_SECRETS: Final = {
    "user": "NATS_USER",
    "password": "NATS_PASSWORD",
    "token": "NATS_TOKEN",
    "creds": "NATS_CREDS",
    "nkey": "NATS_NKEY",
    "jwt": "NATS_JWT",
    "seed": "NATS_SEED",
    "server": "NATS_URL",
}
"""Options that go through the environment, as a process list shows arguments; a URL may have a password too."""
_LOGIN: Final = [name for name in _SECRETS if name != "server"]
_FOR_PROCESS: Final = frozenset(("password_stdin", "token_stdin", "help", "version", "no_input"))
_LEFT_OUT: Final = _FOR_PROCESS | _SECRETS.keys()
_CONSENT: Final = re.compile(r"cannot ask whether to (.+?): .*\n\s*(--[a-z-]+)", re.DOTALL)


class BrowseTarget(NamedTuple):
    """The entry that a key is about."""

    kind: str
    """`stream`, `consumer`, `kv`, `object bucket`, `message`, `key`, `object`, `service`, `server`, `dead letter`."""
    name: str = ""
    stream: str = ""
    seq: int = 0
    subject: str = ""
    text: str = ""
    """What `y` copies."""


Line = tuple[str, ...]
_DELETES: Final[dict[str, Line]] = {
    "stream": ("stream", "rm", "{name}"),
    "consumer": ("consumer", "rm", "{stream}", "{name}"),
    "kv": ("kv", "del", "{name}", "--all"),
    "object bucket": ("object", "del", "{name}", "--all"),
    "message": ("stream", "rmm", "{stream}", "{seq}"),
    "key": ("kv", "del", "{stream}", "{name}"),
    "object": ("object", "del", "{stream}", "{name}"),
    "dead letter": ("deadletter", "discard", "{stream}", "{seq}", "--consumer", "{name}"),
}
_EDITS: Final[dict[str, Line]] = {
    "stream": ("stream", "edit", "{name}", "--interactive"),
    "consumer": ("consumer", "edit", "{stream}", "{name}", "--interactive"),
    "kv": ("stream", "edit", "{stream}", "--interactive"),
    "object bucket": ("stream", "edit", "{stream}", "--interactive"),
}
_REPLAYS: Final[dict[str, Line]] = {
    "dead letter": ("deadletter", "replay", "{stream}", "{seq}", "--consumer", "{name}"),
}
_WHOLE: Final = frozenset(("stream", "kv", "object bucket"))
"""Kinds that are deleted only after their name was typed, as on the command line."""


def _filled(table: dict[str, Line], target: BrowseTarget) -> list[str]:
    return [word.format_map(target._asdict()) for word in table.get(target.kind, ())]


def delete_line(target: BrowseTarget) -> list[str]:
    return _filled(_DELETES, target)


def replay_line(target: BrowseTarget) -> list[str]:
    return _filled(_REPLAYS, target)


def edit_line(target: BrowseTarget) -> list[str]:
    return _filled(_EDITS, target)


def typed_word(target: BrowseTarget) -> str:
    """Return the word that confirms a deletion, "" if a yes is enough."""
    return target.name if target.kind in _WHOLE else ""


def publish_line(target: BrowseTarget) -> str:
    if target.kind in ("kv", "key"):
        bucket, key = (target.name, "") if target.kind == "kv" else (target.stream, target.name)
        return f"kv put {shlex.quote(bucket)} {shlex.quote(key) + ' ' if key else ''}"
    if target.kind in ("object bucket", "object"):
        return f"object put {shlex.quote(target.name if target.kind == 'object bucket' else target.stream)} "
    return f"publish {shlex.quote(target.subject) + ' ' if target.subject else ''}"


class NeededConsent(NamedTuple):
    """The action that a command line needs a yes for, and its flag for that."""

    action: str
    flag: str


def needed_consent(output: str) -> NeededConsent | None:
    """Return the consent that a command asked for in its output, None if it ended for another reason."""
    match = _CONSENT.search(output)
    return NeededConsent(match[1], match[2]) if match else None


def leading_options(options: GlobalOptions, left_out: Container[str] = _FOR_PROCESS) -> list[str]:
    arguments: list[str] = []
    for flag in GLOBAL_FLAGS:
        value = getattr(options, flag.field)
        if value and flag.field not in left_out:
            text = f"{value:g}s" if flag.field == "timeout" else str(value)
            arguments += [flag.spellings[-1], text] if flag.metavar else [flag.spellings[-1]]
    return arguments


class CommandRunner:
    """Runs command lines with the server and the login of the browser; with `read_only` each is a dry run."""

    def __init__(self, options: GlobalOptions, *, url: str = "", read_only: bool = False) -> None:
        self.options = options
        self.read_only = read_only
        self._url = url

    def arguments(self, line: Sequence[str]) -> list[str]:
        shared = leading_options(self.options, _LEFT_OUT)
        if self.read_only and "--dry-run" not in shared:
            shared.append("--dry-run")
        return [sys.executable, "-m", "natsctl", *shared, *line]

    def environment(self, columns: int = 80) -> dict[str, str]:
        options = {name: str(getattr(self.options, name)) for name in _SECRETS if getattr(self.options, name)}
        left = dict(os.environ)
        if any(name in options for name in _LOGIN):
            for name in _LOGIN:
                left.pop(_SECRETS[name], None)
        if self._url:
            left["NATS_URL"] = self._url
        left |= {_SECRETS[name]: value for name, value in options.items()}
        return {**left, "COLUMNS": str(columns)}

    async def run(self, line: Sequence[str], take: Callable[[str], None], columns: int = 80) -> int:
        """Run a command line without a terminal, and return its exit status; `take` gets its output as it comes.

        It is ended if this is cancelled.
        """
        process = await asyncio.create_subprocess_exec(
            *self.arguments(line),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**self.environment(columns), "NATSCTL_NO_INPUT": "1"},
            start_new_session=True,
        )
        try:
            assert process.stdout is not None
            while part := await process.stdout.read(64 * 1024):
                take(part.decode("utf-8", "replace"))
            return await process.wait()
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.send_signal(signal.SIGINT)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(2):
                        await process.wait()
                if process.returncode is None:
                    process.kill()
                    await process.wait()

    async def output_of(self, line: Sequence[str], columns: int = 80) -> tuple[int, str]:
        parts: list[str] = []
        status = await self.run(line, parts.append, columns)
        return status, "".join(parts)

    def run_in_terminal(self, line: Sequence[str]) -> int:
        return subprocess.run(self.arguments(line), env=self.environment(), check=False).returncode
