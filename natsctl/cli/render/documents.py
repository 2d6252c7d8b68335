"""What a set of documents holds, and what is wrong with it, as lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from natsctl.api.units import plural
from natsctl.cli.render.fold import hanging
from natsctl.cli.render.values import safe

if TYPE_CHECKING:
    from natsctl.cli.desired.shapes import CheckedFile, Validated


def render_validated(verdict: Validated, width: int | None = None) -> str:
    """One line for each file with its faults below it, and one that sums up; `width` None folds nothing."""
    lines = [line for file in verdict.files for line in _file(file, width)]
    faults = sum(len(file.faults) for file in verdict.files)
    assets = sum(len(file.assets) for file in verdict.files)
    held = f"{plural(assets, 'asset')} of owner {safe(verdict.owner)} in {plural(len(verdict.files), 'file')}"
    lines.append(f"{held}: {plural(faults, 'fault') if faults else 'valid'}")
    return "\n".join([*lines[:-1], hanging(lines[-1], width)])


def _file(file: CheckedFile, width: int | None) -> list[str]:
    lines = [hanging(f"{safe(file.file)}: {_held(file)}", width)]
    for fault in file.faults:
        line = f"line {fault.line}: " if fault.line else ""
        told = hanging(safe(f"{line}{fault.path}: {fault.reason}"), width and max(width - 2, 1))
        lines.append("  " + told.replace("\n", "\n  "))
    return lines


def _held(file: CheckedFile) -> str:
    nouns = {"Stream": "stream", "Consumer": "consumer", "KeyValue": "key-value bucket", "ObjectStore": "object store"}
    counts = {kind: sum(asset.kind == kind for asset in file.assets) for kind in nouns}
    return ", ".join(plural(count, nouns[kind]) for kind, count in counts.items() if count) or "no assets"
