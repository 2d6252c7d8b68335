"""`natsctl completion`: the scripts of the three shells and their installation.

A script passes the arguments to `natsctl __complete` (candidates.py). An answer is one candidate a line, followed by a
tab and its meaning; the single line `:files` leaves the word to the shell's own completion of files.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, NamedTuple

from natsctl.api.errors import UsageError
from natsctl.api.model import Model
from natsctl.cli.framework import output
from natsctl.cli.framework.candidates import SHELLS
from natsctl.cli.framework.flags import Json
from natsctl.cli.framework.parameters import Argument, as_usage_error
from natsctl.cli.framework.session import Session
from natsctl.cli.framework.verbs import Verb, verb
from natsctl.cli.render.text import safe
from natsctl.client.message import DryRunError, Planned


def script(shell: str) -> str:
    """Return the completion script of a shell; completions/ has copies for packages."""
    return Path(__file__).with_name(f"completion.{shell}").read_text(encoding="utf-8")


class Installed(Model, kw_only=True):
    """Path of a completion script; `startup` is the file of the shell that loads it, or "" if none is needed."""

    shell: str
    path: str
    startup: str
    changed: list[str]


BASH_COMPLETION = (
    "/usr/share/bash-completion/bash_completion",
    "/etc/bash_completion",
    "/usr/local/etc/profile.d/bash_completion.sh",
    "/opt/homebrew/etc/profile.d/bash_completion.sh",
)
"""Folder of the package that loads completions of bash by themselves."""


class CompletionScript(NamedTuple):
    """Path of a shell's script; `line` has to be in the start-up file, unless the shell finds the script itself."""

    script: Path
    startup: Path | None = None
    line: str = ""


def bash() -> None:
    """Print the completion script for bash."""
    output.emit(script("bash").rstrip("\n"))


def zsh() -> None:
    """Print the completion script for zsh."""
    output.emit(script("zsh").rstrip("\n"))


def fish() -> None:
    """Print the completion script for fish."""
    output.emit(script("fish").rstrip("\n"))


def install(
    session: Session,
    shell: Annotated[str | None, Argument(metavar="SHELL", help="bash, zsh or fish; yours by default")] = None,
    json: Json = False,
) -> None:
    """Install the completion script for this user; a second run changes nothing.

    Names come from the server, or from a file if it gave them within the last minute. After a second without an answer
    nothing is completed; NATSCTL_COMPLETION_MS allows more or fewer milliseconds.
    """
    chosen = shell or Path(os.environ.get("SHELL", "")).name
    if chosen not in SHELLS:
        raise UsageError(f"no completion for {chosen or 'an unknown shell'}", hint="give bash, zsh or fish")
    place = _place(chosen)
    wanted = [(place.script, script(chosen))]
    if place.startup is not None:
        wanted.append((place.startup, _with_line(_text(place.startup), place.line)))
    changed = [(path, text) for path, text in wanted if _text(path) != text]
    if session.dry_run:
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


def _place(shell: str) -> CompletionScript:
    home = Path(os.environ.get("HOME", "~")).expanduser()
    data = Path(os.environ.get("XDG_DATA_HOME") or home / ".local" / "share")
    if shell == "fish":
        configuration = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
        return CompletionScript(configuration / "fish" / "completions" / "natsctl.fish")
    if shell == "zsh":
        folder = data / "zsh" / "site-functions"
        startup = Path(os.environ.get("ZDOTDIR") or home) / ".zshrc"
        line = f"fpath+=('{folder}'); autoload -Uz compinit && compinit  # natsctl completion"
        return CompletionScript(folder / "_natsctl", startup, line)
    script = data / "bash-completion" / "completions" / "natsctl"
    if any(Path(one).exists() for one in BASH_COMPLETION):
        return CompletionScript(script)
    return CompletionScript(script, home / ".bashrc", f"source '{script}'  # natsctl completion")


def _with_line(text: str, line: str) -> str:
    if line in text.splitlines():
        return text
    return f"{text}{'' if not text or text.endswith(chr(10)) else chr(10)}{line}\n"


def _text(path: Path) -> str:
    with as_usage_error(str(path)):
        return path.read_text(encoding="utf-8") if path.exists() else ""


def _write(path: Path, text: str) -> None:
    with as_usage_error(str(path)):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


VERBS: tuple[Verb, ...] = (
    Verb("bash", bash),
    Verb("zsh", zsh),
    Verb("fish", fish),
    verb("install", install, "cli.completion:Installed", "natsctl completion install zsh"),
)
