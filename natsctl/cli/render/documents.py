"""What a set of documents holds, and what is wrong with it, as lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from natsctl.api.units import plural
from natsctl.cli.render.values import safe

if TYPE_CHECKING:
    from natsctl.cli.desired.shapes import CheckedFile, Validated


def render_validated(verdict: Validated) -> str:
    """One line for each file with its faults below it, and one that sums up."""
    lines = [line for file in verdict.files for line in _file(file)]
    faults = sum(len(file.faults) for file in verdict.files)
    assets = sum(len(file.assets) for file in verdict.files)
    held = f"{plural(assets, 'asset')} of owner {safe(verdict.owner)} in {plural(len(verdict.files), 'file')}"
    lines.append(f"{held}: {plural(faults, 'fault') if faults else 'valid'}")
    return "\n".join(lines)


def _file(file: CheckedFile) -> list[str]:
    lines = [f"{safe(file.file)}: {_held(file)}"]
    for fault in file.faults:
        line = f"line {fault.line}: " if fault.line else ""
        lines.append(safe(f"  {line}{fault.path}: {fault.reason}"))
    return lines


def _held(file: CheckedFile) -> str:
    nouns = {"Stream": "stream", "Consumer": "consumer", "KeyValue": "key-value bucket", "ObjectStore": "object store"}
    counts = {kind: sum(asset.kind == kind for asset in file.assets) for kind in nouns}
    return ", ".join(plural(count, nouns[kind]) for kind, count in counts.items() if count) or "no assets"
