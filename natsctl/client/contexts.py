"""The context files of the `nats` tool, read in place.

`<config>/nats/context/<name>.json` and `<config>/nats/context.txt`. natsctl only reads them. Source of the layout and
keys: reference/cli.md part 4.1.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from natsctl.api.errors import UsageError
from natsctl.api.exit_codes import ExitCode
from natsctl.client.settings import Settings, expand_path

_PATHS = ("creds", "nkey", "cert", "key", "ca")


_NONE = "there are no contexts: they are files of the nats tool in ~/.config/nats/context"


class ContextNotFound(UsageError):
    """The context that was asked for does not exist; `known` are those that do."""

    exit_code = ExitCode.NOT_FOUND

    def __init__(self, text: str, known: list[str]) -> None:
        super().__init__(text, hint=f"known are {', '.join(known)}" if known else _NONE)
        self.known = known


class Contexts:
    """The user's contexts."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        configured = environment.get("XDG_CONFIG_HOME")
        base = Path(configured) if configured else Path(environment.get("HOME", "~")).expanduser() / ".config"
        self._folder = base / "nats"

    def selected(self) -> str:
        """The name of the selected context, or "" without one."""
        try:
            return (self._folder / "context.txt").read_text(encoding="utf-8").strip()
        except OSError:
            return ""

    def names(self) -> list[str]:
        """The names of all contexts, sorted; empty files do not count."""
        try:
            files = sorted((self._folder / "context").glob("*.json"))
        except OSError:
            return []
        return [file.stem for file in files if file.stat().st_size]

    def load(self, name: str) -> Settings:
        """The values of a context, by name or by a path that ends in .json; raises ContextNotFound or UsageError."""
        file = Path(name) if name.endswith(".json") else self._file(name)
        try:
            text = file.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise ContextNotFound(f"unknown context {name!r}", self.names()) from None
        except OSError as failure:
            raise UsageError(f"context {name!r}: {failure.strerror}: {file}") from failure
        try:
            content = json.loads(text)
        except ValueError as failure:
            raise UsageError(f"{file}: {failure}") from failure
        if not isinstance(content, dict):
            raise UsageError(f"{file}: expected an object, got {type(content).__name__}")
        return self._settings(content, file)

    def _file(self, name: str) -> Path:
        if not name or ".." in name or "/" in name or "\\" in name:
            raise UsageError(f"invalid context name {name!r}")
        return self._folder / "context" / f"{name}.json"

    def _settings(self, content: dict[str, Any], file: Path) -> Settings:
        if content.get("nsc") and not content.get("creds"):
            raise UsageError(
                f"{file}: logins by nsc are not supported", hint="set creds to the user's credentials file"
            )
        known: dict[str, Any] = {
            field.name: type(field.default) for field in fields(Settings) if field.default is not None
        }
        said: dict[str, Any] = {}
        for name, kind in known.items():
            value = content.get(name)
            if value in (None, ""):
                continue
            if not isinstance(value, kind):
                raise UsageError(f"{file}: $.{name}: expected {kind.__name__}, got {type(value).__name__}")
            said[name] = expand_path(value, self._environment) if name in _PATHS else value
        return Settings(**said)
