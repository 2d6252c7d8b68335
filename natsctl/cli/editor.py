"""A configuration in the person's editor: YAML with durations and sizes as words, and back.

What the person leaves alone keeps the value that the server sent, fields unknown to us included.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from natsctl.api.errors import UsageError
from natsctl.api.units import format_duration
from natsctl.cli.render.change import DURATIONS, SERVER_OWNED, SIZES

if TYPE_CHECKING:
    from natsctl.api.model import Model
    from natsctl.cli.flags import Config
    from natsctl.cli.session import Session

EDITORS = ("vi", "nano")
"""Tried in this order where neither VISUAL nor EDITOR names one."""
STDERR = 2
"""Where an editor draws: stdout may be somebody's pipe."""


def edit_config(
    session: Session, config: Config, model: type[Model], what: str, meanings: Mapping[str, str] | None = None
) -> Config:
    """The configuration as the person left it; a document with a fault may be edited again at a terminal.

    `meanings` says what fields are, in comments beside them.
    Raises UsageError for a fault where nobody can be asked, and for an empty document.
    """
    original = _document(config)
    text = _text(original, model, what, meanings or {})
    while True:
        text = edit_text(text, ".yaml")
        try:
            return _read(text, original, config, model)
        except UsageError as failure:
            if not session.interactive:
                raise
            from natsctl.cli.output import note
            from natsctl.cli.prompts.ask import prompt_confirm
            from natsctl.cli.render.text import safe

            note(safe(str(failure), block=True))
            if not prompt_confirm("Edit it again", True):
                raise


def edit_text(text: str, suffix: str) -> str:
    """What the person's editor makes of a text; the file it had is gone then. Raises UsageError."""
    command = _editor()
    handle, name = tempfile.mkstemp(suffix, "natsctl-")
    path = Path(name)
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text)
        # The answer is not the editor's to write.
        status = subprocess.run([*command, name], stdout=STDERR, check=False).returncode
        if status:
            raise UsageError(f"the editor {command[0]} exited with {status}: nothing is changed")
        return path.read_text()
    except (OSError, UnicodeDecodeError) as failure:
        raise UsageError(f"the editor {command[0]}: {failure}") from failure
    finally:
        path.unlink(missing_ok=True)


def _editor() -> list[str]:
    named = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if named:
        return shlex.split(named)
    found = next((one for one in EDITORS if shutil.which(one)), None) if sys.stdin.isatty() else None
    if found is None:
        raise UsageError("no editor to use: set EDITOR", hint="flags, --config and --unset work without one")
    return [found]


def _document(config: Config) -> Config:
    """The configuration in words, without what the server keeps for itself."""
    document = {key: _words(key, value) for key, value in config.items()}
    if isinstance(document.get("metadata"), dict):
        document["metadata"] = {k: v for k, v in document["metadata"].items() if not k.startswith(SERVER_OWNED)}
        if not document["metadata"]:
            del document["metadata"]
    return document


def _words(name: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _words(key, below) for key, below in value.items()}
    if isinstance(value, list):
        return [_words(name, one) for one in value]
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        return value
    if name in DURATIONS:
        return format_duration(value)
    return _size(value) if name in SIZES else value


def _size(number: int) -> str | int:
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if number % factor == 0:
            return f"{number // factor}{unit}"
    return number


def _text(document: Config, model: type[Model], what: str, meanings: Mapping[str, str]) -> str:
    import yaml

    def comment(name: str) -> list[str]:
        return [f"# {meanings[name]}"] if name in meanings else []

    lines = [
        f"# {what}",
        "# Durations are 30s, 5m, 1h30m, 7d or 1y, sizes 10KB, 5MB or 1GiB. Removing a line removes its",
        "# field; an empty file changes nothing.",
        "",
    ]
    for name, value in document.items():
        lines += [*comment(name), yaml.safe_dump({name: value}, allow_unicode=True).rstrip("\n")]
    lines += ["", "# Not set:", ""]
    for name in model.__struct_fields__:
        if name not in document:
            lines += [*comment(name), f"# {name}:"]
    return "\n".join([*lines, ""])


def _read(text: str, original: Config, config: Config, model: type[Model]) -> Config:
    from natsctl.cli.documents import config_in, parse_document

    document = parse_document("the edited text", text)
    if not isinstance(document, dict) or not document:
        raise UsageError("the edited text is empty: nothing is changed")
    changed = {key: value for key, value in document.items() if key not in original or original[key] != value}
    wanted = {key: config[key] for key in config if key in document and key not in changed}
    wanted |= config_in(changed, "the edited text", model) if changed else {}
    owned = {k: v for k, v in (config.get("metadata") or {}).items() if k.startswith(SERVER_OWNED)}
    if owned:
        wanted["metadata"] = {**(wanted.get("metadata") or {}), **owned}
    return wanted
