"""What the commands about completion print with -j."""

from __future__ import annotations

from natsctl.api.model import Model


class Installed(Model, kw_only=True):
    """Where a completion script is; `startup` is the file of the shell that loads it, "" where none is needed."""

    shell: str
    path: str
    startup: str
    changed: list[str]
