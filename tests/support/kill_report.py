"""The figures of a kill loop as lines for a person."""

from __future__ import annotations

import dataclasses
from typing import Any

EXAMPLES: int = 20
"""Broken promises that are shown."""


def render_figures(summary: Any) -> str:
    """Return a line for each figure of a summary, a dataclass whose last field is its `examples`."""
    lines = []
    for field in dataclasses.fields(summary)[:-1]:
        value = getattr(summary, field.name)
        text = f"{value:.2f}" if isinstance(value, float) else str(value)
        lines.append(f"{field.name.replace('_', ' '):>22}  {text}")
    return "\n".join([*lines, *(f"  e.g. {text}" for text in summary.examples[:EXAMPLES])])
