"""Files in YAML with the line of every key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from natsctl.spark.pipeline.faults import Fault, PipelineFaults

Keys = tuple[str, ...]


def load_with_lines(path: Path) -> tuple[Any, dict[Keys, int]]:
    """What the file holds, and the line of each key of its mappings. Raises PipelineFaults, OSError."""
    import yaml

    try:
        text = path.read_text(encoding="utf-8")
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        value = yaml.safe_load(text)
    except UnicodeDecodeError as failure:
        raise PipelineFaults([Fault(path.name, 0, "it is not UTF-8 text")]) from failure
    except yaml.YAMLError as failure:
        mark = getattr(failure, "problem_mark", None)
        what = getattr(failure, "problem", None) or str(failure)
        raise PipelineFaults([Fault(path.name, mark.line + 1 if mark else 0, f"not YAML: {what}")]) from failure
    lines: dict[Keys, int] = {}
    if root is not None:
        _collect(root, (), lines)
    return value, lines


def line_of(lines: dict[Keys, int], keys: Keys) -> int:
    """The line of a key, or of the nearest one above it that has a line; 0 without any."""
    while keys and keys not in lines:
        keys = keys[:-1]
    return lines.get(keys, 0)


def _collect(node: Any, above: Keys, lines: dict[Keys, int]) -> None:
    import yaml

    if not isinstance(node, yaml.MappingNode):
        return
    for key, value in node.value:
        keys = (*above, str(key.value))
        lines[keys] = key.start_mark.line + 1
        _collect(value, keys, lines)
