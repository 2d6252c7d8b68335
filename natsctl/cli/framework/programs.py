"""Other programs as commands: `natsctl-NAME` on PATH is run as `natsctl NAME`, as git and kubectl do.

A command of natsctl's own always wins. The program replaces this process: arguments, exit code and signals are its own;
it learns the server from its own flags or the environment.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import NoReturn

PREFIX = "natsctl-"


def _is_name(word: str) -> bool:
    """Return whether a word consists of lower-case letters, digits and hyphens, and begins with a letter."""
    return word.isascii() and word[:1].isalpha() and word.islower() and word.replace("-", "").isalnum()


def program_of(word: str) -> str | None:
    import shutil

    return shutil.which(PREFIX + word) if _is_name(word) else None


def programs() -> dict[str, str]:
    """Return the path of every such program by its name; of several with one name the first on PATH."""
    found: dict[str, str] = {}
    for folder in os.get_exec_path():
        try:
            entries = os.listdir(folder or ".")  # noqa: PTH208  # a Path for each name would take longer than all of help
        except OSError:
            continue
        for entry in entries:
            name, path = entry.removeprefix(PREFIX), f"{folder or '.'}/{entry}"
            if entry.startswith(PREFIX) and name not in found and _is_name(name) and os.access(path, os.X_OK):
                found[name] = path
    return dict(sorted(found.items()))


def run_program(path: str, words: Sequence[str], given: Mapping[str, object]) -> NoReturn:
    """Execute that program, replacing this process.

    Raises UsageError for flags before its name (it would not get them), NatsctlError if it cannot be run.
    """
    if given:
        from natsctl.api.errors import UsageError

        name = os.path.basename(path).removeprefix(PREFIX)  # noqa: PTH119  # no pathlib for one name
        raise UsageError(
            f"flags of natsctl do not reach {path}",
            hint=f"give them after the name, natsctl {name} …, or name the server by NATS_URL or NATS_CONTEXT",
        )
    sys.stdout.flush()
    try:
        os.execv(path, [path, *words])
    except OSError as failure:
        from natsctl.api.errors import NatsctlError

        hint = "a script begins with a line such as #!/bin/sh"
        raise NatsctlError(f"{path} cannot be run: {failure.strerror}", hint=hint) from failure
