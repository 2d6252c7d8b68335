"""How a command line ended, for tests that run some."""

from __future__ import annotations

import json
from typing import Any, NamedTuple


class Done(NamedTuple):
    """Its exit code, and what it wrote."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one document on stdout."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        """The documents on stdout, one on a line."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def error(self) -> Any:
        """The error object on stderr."""
        return json.loads(self.err)["error"]
