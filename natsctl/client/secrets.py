"""Secrets where a setting may point to them.

`file:///path`, `env://NAME`, `data:;base64,…`, a path, or the text itself; `op://vault/item/field` asks 1Password's
`op`, and `nsc://operator/account/user` asks `nsc` where it keeps the user's credentials.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
from pathlib import Path

from natsctl.api.errors import UsageError
from natsctl.client.settings import expand_path

MAX_TOOL_S = 60.0
"""Seconds that another program may take for a secret: it may ask the person to unlock it."""


def resolve_text(value: str, name: str) -> str:
    """The secret itself, where `value` may be a URI that points to it; raises UsageError."""
    pointed = _pointed(value, name)
    return value if pointed is None else pointed


def resolve_file(value: str, name: str) -> str:
    """The content of the secret's file, where `value` is its path or a URI; raises UsageError."""
    pointed = _pointed(value, name)
    return _read(Path(value), name) if pointed is None else pointed


def resolve_either(value: str, name: str, begins: str) -> str:
    """The secret, where `value` is a URI, the text itself, which then begins so, or else the path of its file."""
    pointed = _pointed(value, name)
    if pointed is not None:
        return pointed
    return value if value.startswith(begins) else _read(Path(expand_path(value)), name)


def _pointed(value: str, name: str) -> str | None:
    if value.startswith("file://"):
        return _read(Path(value.removeprefix("file://")), name).strip()
    if value.startswith("env://"):
        variable = value.removeprefix("env://").strip("/")
        if variable not in os.environ:
            raise UsageError(f"{name}: environment variable {variable} is not set")
        return os.environ[variable]
    if value.startswith("data:;base64,"):
        try:
            return base64.b64decode(value.partition(",")[2], validate=True).decode()
        except (binascii.Error, UnicodeDecodeError) as failure:
            raise UsageError(f"{name}: not base64 text") from failure
    if value.startswith("op://"):
        return _told(name, "op", "read", value).strip()
    if value.startswith("nsc://"):
        return _read(Path(_nsc_file(value, name)), name)
    return None


def _nsc_file(value: str, name: str) -> str:
    """Where `nsc` keeps the credentials of that user."""
    text = _told(name, "nsc", "generate", "profile", value)
    try:
        return str(json.loads(text)["user"]["creds"])
    except (ValueError, KeyError, TypeError):
        raise UsageError(f"{name}: nsc told no credentials of {value}: {text[:200]!r}") from None


def _told(name: str, tool: str, *words: str) -> str:
    """What another program says; raises UsageError where it is absent, fails or takes too long."""
    import subprocess

    try:
        done = subprocess.run(
            [tool, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=MAX_TOOL_S, check=False
        )
    except FileNotFoundError:
        hint = "install it, or keep the secret in a file"
        raise UsageError(f"{name}: {words[-1]} needs {tool}, which is not on PATH", hint=hint) from None
    except (OSError, subprocess.TimeoutExpired) as failure:
        raise UsageError(f"{name}: {tool}: {failure}") from failure
    if done.returncode:
        raise UsageError(f"{name}: {tool} {words[0]} failed: {done.stderr.strip() or done.returncode}")
    return done.stdout


def _read(path: Path, name: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as failure:
        raise UsageError(f"{name}: {failure.strerror or failure}: {path}") from failure
    except UnicodeDecodeError as failure:
        raise UsageError(f"{name}: {path} is not a text file") from failure


def seed_in(text: str, name: str) -> str:
    """The NKey seed in a seed file or credentials file; raises UsageError."""
    for line in text.splitlines():
        if line.strip().startswith("S") and " " not in line.strip() and len(line.strip()) > 40:
            return line.strip()
    raise UsageError(f"{name}: no NKey seed in it")


def jwt_in(text: str, name: str) -> str:
    """The user JWT in a credentials file, or the text itself when it is one; raises UsageError."""
    for line in text.splitlines():
        if line.strip().startswith("ey"):
            return line.strip()
    raise UsageError(f"{name}: no user JWT in it")
