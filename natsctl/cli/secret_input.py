"""Secrets that are not on the command line: `--password-stdin` and `--token-stdin`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from natsctl.api.errors import UsageError

MAX_SECRET_BYTES = 64 * 1024
"""No password or token is near this; a wrong file is told instead of sent as a login."""
_SECRETS = ("password", "token")


def given_on_stdin(given: Mapping[str, Any]) -> dict[str, Any]:
    """What was given, with the secret of the first line of stdin where a flag asks for it.

    At a terminal it is asked for and not shown. Raises UsageError where two want that line, or it is empty.
    """
    wanted = [name for name in _SECRETS if given.get(f"{name}_stdin")]
    if not wanted:
        return dict(given)
    if len(wanted) > 1:
        raise UsageError("--password-stdin and --token-stdin both read the first line of stdin")
    name = wanted[0]
    if given.get(name):
        raise UsageError(f"--{name} and --{name}-stdin exclude each other")
    secret = _asked(name) if sys.stdin.isatty() else _first_line()
    if not secret:
        raise UsageError(f"--{name}-stdin: no {name} on stdin")
    return {**given, name: secret}


def _asked(name: str) -> str:
    import getpass

    return getpass.getpass(f"{name.capitalize()}: ", sys.stderr)


def _first_line() -> str:
    # Of the bytes, not of the text above them: what follows is the body of a message, for whoever reads on.
    line = sys.stdin.buffer.readline(MAX_SECRET_BYTES + 1)
    if len(line) > MAX_SECRET_BYTES:
        raise UsageError(f"the first line of stdin is longer than {MAX_SECRET_BYTES} bytes")
    try:
        return line.decode().rstrip("\r\n")
    except UnicodeDecodeError as failure:
        raise UsageError(f"the first line of stdin is not UTF-8 text (byte {failure.start})") from failure
