"""Secrets where a setting may point to them.

`file:///path`, `env://NAME`, `data:;base64,…`, a path, or the text itself.
"""

from __future__ import annotations

import base64
import binascii
import os
from pathlib import Path

from natsctl.api.errors import UsageError

_OTHERS = ("op://", "nsc://")


def resolve_text(value: str, name: str) -> str:
    """The secret itself, where `value` may be a URI that points to it; raises UsageError."""
    pointed = _pointed(value, name)
    return value if pointed is None else pointed


def resolve_file(value: str, name: str) -> str:
    """The content of the secret's file, where `value` is its path or a URI; raises UsageError."""
    pointed = _pointed(value, name)
    return _read(Path(value), name) if pointed is None else pointed


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
    if value.startswith(_OTHERS):
        raise UsageError(f"{name}: {value.partition('://')[0]}:// is not supported", hint="export it to a file first")
    return None


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
