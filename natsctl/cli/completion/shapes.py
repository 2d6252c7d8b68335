"""Answers of the commands about completion, as -j prints them."""

from __future__ import annotations

from natsctl.api.model import Model


class Installed(Model, kw_only=True):
    """Path of a completion script; `startup` is the file of the shell that loads it, "" where none is needed."""

    shell: str
    path: str
    startup: str
    changed: list[str]
