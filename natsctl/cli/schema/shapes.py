"""Answers of the commands about schemas with -j, and the documents that every command may print."""

from __future__ import annotations

from typing import Any

from msgspec import field

from natsctl.api.model import Model

Names = list[str]
"""Names, as `-n -j` prints them, and commands that know names only."""


class Described(Model, kw_only=True):
    """A kind of document, and the commands that print it with -j."""

    id: str
    description: str
    commands: list[str]


class Schema(Model, kw_only=True):
    """A JSON schema (draft 2020-12)."""

    schema: str = field(name="$schema")
    id: str = field(name="$id")


class Verdict(Model, kw_only=True):
    """Result of a validation: whether a document is of a kind, else where it is not and why."""

    id: str
    valid: bool
    path: str
    reason: str
    unknown: list[str]


class Failure(Model, kw_only=True):
    """Failure of a command; what is not known is null."""

    code: int | None
    err_code: int | None
    description: str
    subject: str | None
    hint: str | None


class Failed(Model, kw_only=True):
    """The one line that a command with -j writes to stderr when it fails."""

    error: Failure


class Unsent(Model, kw_only=True):
    """A message that would have been sent: `body` where it is JSON, `data` (base64) where it is not."""

    subject: str
    headers: dict[str, list[str]] | None = None
    body: Any = None
    data: str | None = None


class DryRun(Model, kw_only=True):
    """Answer of a command with --dry-run and -j, in place of its usual one."""

    dry_run: bool
    requests: list[Unsent]
    effect: dict[str, Any]
