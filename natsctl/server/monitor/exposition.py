"""Prometheus' text format, version 0.0.4: families of samples with their help and their type."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

Kind = Literal["counter", "gauge"]


def labels(pairs: Mapping[str, str]) -> str:
    """Return labels in braces; those that are empty are as good as absent and left out."""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in pairs.items() if value) + "}"


def family(name: str, kind: Kind, about: str, samples: Iterable[tuple[str, float]]) -> bytes:
    """Return a whole family: what it is, then a line for each (labels, value); nothing where there is no sample."""
    lines = [f"{name}{labelled} {_number(value)}\n" for labelled, value in samples]
    if not lines:
        return b""
    return (f"# HELP {name} {_help(about)}\n# TYPE {name} {kind}\n" + "".join(lines)).encode()


def _escaped(value: str) -> str:
    """Return a label's value as it stands between quotes; what is no text (a lone surrogate) is replaced."""
    value = value.encode("utf-8", "replace").decode()
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else repr(float(value))
