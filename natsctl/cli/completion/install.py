"""`natsctl completion bash`, `zsh`, `fish` and `install`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from natsctl.api.errors import UsageError
from natsctl.cli import output
from natsctl.cli.completion.scripts import SCRIPTS, SHELLS
from natsctl.cli.flags import Json, session_of
from natsctl.cli.render.text import safe

BASH_COMPLETION = (
    "/usr/share/bash-completion/bash_completion",
    "/etc/bash_completion",
    "/usr/local/etc/profile.d/bash_completion.sh",
    "/opt/homebrew/etc/profile.d/bash_completion.sh",
)
"""Folder of the package that loads completions of bash by themselves."""


class Place(NamedTuple):
    """Path of a shell's script; `line` has to be in the start-up file, unless the shell finds the script itself."""

    script: Path
    startup: Path | None = None
    line: str = ""


def bash() -> None:
    """Print the completion script for bash."""
    output.emit(SCRIPTS["bash"].rstrip("\n"))


def zsh() -> None:
    """Print the completion script for zsh."""
    output.emit(SCRIPTS["zsh"].rstrip("\n"))


def fish() -> None:
    """Print the completion script for fish."""
    output.emit(SCRIPTS["fish"].rstrip("\n"))


def install(
    ctx: typer.Context,
    shell: Annotated[str | None, typer.Argument(metavar="SHELL", help="bash, zsh or fish; yours by default")] = None,
    json: Json = False,
) -> None:
    """Install the completion script for this user; a second run changes nothing."""
    chosen = shell or Path(os.environ.get("SHELL", "")).name
    if chosen not in SHELLS:
        raise UsageError(f"no completion for {chosen or 'an unknown shell'}", hint="give bash, zsh or fish")
    place = _place(chosen)
    wanted = [(place.script, SCRIPTS[chosen])]
    if place.startup is not None:
        wanted.append((place.startup, _with_line(_text(place.startup), place.line)))
    changed = [(path, text) for path, text in wanted if _text(path) != text]
    if session_of(ctx).dry_run:
        from natsctl.client.message import DryRunError, Planned

        raise DryRunError(*(Planned(str(path), text.encode()) for path, text in changed))
    for path, text in changed:
        _write(path, text)
    if json:
        startup = str(place.startup or "")
        document = {"shell": chosen, "path": str(place.script), "startup": startup}
        output.emit_json({**document, "changed": [str(path) for path, _ in changed]})
        return
    for path, _ in changed:
        output.emit(f"wrote {safe(str(path))}")
    output.emit("start a new shell to use it" if changed else f"completion for {chosen} is installed already")


def _place(shell: str) -> Place:
    home = Path(os.environ.get("HOME", "~")).expanduser()
    data = Path(os.environ.get("XDG_DATA_HOME") or home / ".local" / "share")
    if shell == "fish":
        configuration = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
        return Place(configuration / "fish" / "completions" / "natsctl.fish")
    if shell == "zsh":
        folder = data / "zsh" / "site-functions"
        startup = Path(os.environ.get("ZDOTDIR") or home) / ".zshrc"
        line = f"fpath+=('{folder}'); autoload -Uz compinit && compinit  # natsctl completion"
        return Place(folder / "_natsctl", startup, line)
    script = data / "bash-completion" / "completions" / "natsctl"
    if any(Path(one).exists() for one in BASH_COMPLETION):
        return Place(script)
    return Place(script, home / ".bashrc", f"source '{script}'  # natsctl completion")


def _with_line(text: str, line: str) -> str:
    """Return the start-up file with the line at its end, unless it is there."""
    if line in text.splitlines():
        return text
    return f"{text}{'' if not text or text.endswith(chr(10)) else chr(10)}{line}\n"


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as failure:
        raise UsageError(f"{path}: {getattr(failure, 'strerror', None) or failure}") from failure


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as failure:
        raise UsageError(f"{path}: {failure.strerror or failure}") from failure
