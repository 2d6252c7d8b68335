"""Context files, shared with the `nats` tool.

A document is the whole JSON object, unknown keys included; keys that natsctl does not know are kept.
Source of the keys: docs/compatibility.md#contexts.

`<config>/nats/context/<name>.json` holds one context, `<config>/nats/context.txt` the name of the selected one and
`previous-context.txt` that of the one before. Folders are made with mode 0700, files with 0600; a file is replaced
atomically, so that a concurrent reader sees the old or the new one. Source: docs/compatibility.md#contexts.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

from natsctl.api.errors import ConflictError, ExitCode, UsageError, file_errors
from natsctl.client.settings import Settings
from natsctl.hints import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from natsctl.client.atomic_file import FileChange
    from natsctl.client.context_file import Document

_NONE = "there are no contexts: natsctl context add NAME makes one"


class ContextNotFoundError(UsageError):
    """The requested context does not exist; `known` are the existing ones."""

    exit_code = ExitCode.NOT_FOUND

    def __init__(self, text: str, known: list[str]) -> None:
        super().__init__(text, hint=f"known are {', '.join(known)}" if known else _NONE)
        self.known = known


class Contexts:
    """The user's contexts. What changes them returns the files to write, and `write` does it."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        home = os.path.expanduser(environment.get("HOME", "~"))  # noqa: PTH111  # as below
        base = environment.get("XDG_CONFIG_HOME") or f"{home}/.config"
        self._files = f"{base}/nats"  # most commands read one name there, and need no pathlib

    @property
    def _folder(self) -> Path:
        from pathlib import Path

        return Path(self._files)

    # -- reading

    def selected(self) -> str:
        """Return the name of the selected context, or "" without one."""
        return _line(f"{self._files}/context.txt")

    def previous(self) -> str:
        """Return the name of the context that was selected before, or ""."""
        return _line(f"{self._files}/previous-context.txt")

    def names(self) -> list[str]:
        """Return the names of all contexts, sorted; empty files do not count."""
        try:
            files = (self._folder / "context").glob("*.json")
            return sorted(file.stem for file in files if file.stat().st_size)
        except OSError:
            return []

    def path(self, name: str) -> Path:
        """Return the path of a context, by name or by a path that ends in .json.

        Raises UsageError for an invalid name.
        """
        if name.endswith(".json"):
            return type(self._folder)(name)
        if not name or ".." in name or "/" in name or "\\" in name or not name.isprintable():
            raise UsageError(f"invalid context name {name!r}", hint="it is a file name without .json")
        return self._folder / "context" / f"{name}.json"

    def exists(self, name: str) -> bool:
        return self.path(name).is_file()

    def load(self, name: str) -> Settings:
        """Return the values of a context; raises ContextNotFoundError or UsageError."""
        from natsctl.client.context_file import settings_of

        return settings_of(self.document(name), str(self.path(name)), self._environment)

    def document(self, name: str) -> Document:
        """Return the object in a context's file, as it stands there; raises ContextNotFoundError or UsageError."""
        file = self.path(name)
        try:
            text = file.read_text(encoding="utf-8")
            if not text.strip():
                raise ValueError("it is empty")
            if text.startswith("\ufeff"):
                raise ValueError("it begins with a byte order mark: save it as UTF-8 without one")
            content = json.loads(text)
        except FileNotFoundError:
            raise ContextNotFoundError(f"unknown context {name!r}", self.names()) from None
        except OSError as failure:
            raise UsageError(f"context {name!r}: {failure.strerror}: {file}") from failure
        except (ValueError, RecursionError) as failure:
            raise UsageError(f"{file}: {failure}") from failure
        if not isinstance(content, dict):
            raise UsageError(f"{file}: expected an object, got {type(content).__name__}")
        return content

    # -- changing

    def save(self, name: str, document: Mapping[str, Any]) -> FileChange:
        """Return a context's file with that content, all keys of the `nats` tool in it.

        Raises UsageError for wrong values.
        """
        from natsctl.client.context_file import complete, settings_of

        whole = complete(document)
        settings_of(whole, name, self._environment)
        return _change(self.path(name), json.dumps(whole, indent=2, ensure_ascii=False) + "\n")

    def select(self, name: str) -> list[FileChange]:
        """Return the files that make a context the selected one; raises ContextNotFoundError."""
        if not self.exists(name):
            raise ContextNotFoundError(f"unknown context {name!r}", self.names())
        return self.selecting(name)

    def selecting(self, name: str) -> list[FileChange]:
        """Return the same for a context that is written along with them."""
        before = self.selected()
        writes = [_change(self._folder / "context.txt", name)]
        if before and before != name:
            writes.append(_change(self._folder / "previous-context.txt", before))
        return writes

    def unselect(self) -> list[FileChange]:
        before = self.selected()
        writes = [_change(self._folder / "context.txt", None)]
        return [*writes, _change(self._folder / "previous-context.txt", before)] if before else writes

    def remove(self, name: str) -> FileChange:
        """Return the file that goes with a context.

        Raises ContextNotFoundError, and ConflictError for the selected one.
        """
        if not self.exists(name):
            raise ContextNotFoundError(f"unknown context {name!r}", self.names())
        if name == self.selected():
            raise ConflictError(
                f"context {name} is the selected one",
                hint="natsctl context unselect first, or select another one",
            )
        return _change(self.path(name), None)


def _change(path: Path, text: str | None) -> FileChange:
    from natsctl.client.atomic_file import FileChange

    return FileChange(path, text)


def write(change: FileChange) -> None:
    """Replace or remove a file; raises UsageError if the system refuses."""
    with file_errors(change.path, UsageError):
        change.apply()


def _line(file: str) -> str:
    try:
        with open(file, encoding="utf-8") as opened:  # noqa: PTH123
            return opened.read().strip()
    except (OSError, UnicodeDecodeError):
        return ""
