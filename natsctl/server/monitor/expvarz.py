"""`/debug/vars`: the command line and the memory of the process."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from natsctl.server.instance import ServerInstance


def expvarz(server: ServerInstance) -> dict[str, Any]:
    """Return what Go programs publish of their process, as far as this one has it."""
    return {"memstats": {}, "cmdline": sys.argv[:1]}
