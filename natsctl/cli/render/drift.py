"""How an account differs from documents, as a person reads it: per asset, per field, and one line that sums up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from natsctl.cli.render.fold import hanging
from natsctl.cli.render.plan import heading, indented, render_difference
from natsctl.cli.render.values import count, safe

if TYPE_CHECKING:
    from natsctl.cli.desired.drift import Asset, Drift


def render_drift(drift: Drift, width: int | None = None, bold: bool = False) -> str:
    """Each asset that differs with its fields, what is missing, what nobody describes; `width` None folds nothing."""
    blocks = [_asset("~", one, width, bold) for one in drift.different]
    blocks += [_asset("+", one, width, bold, ": not on the server") for one in drift.missing]
    blocks += [_asset("-", one, width, bold, ": not in any document") for one in drift.extra]
    return "\n\n".join([*("\n".join(block) for block in blocks), hanging(_summary(drift), width)])


def _asset(sign: str, one: Asset, width: int | None, bold: bool, tail: str = "") -> Iterator[str]:
    yield from heading(sign, f"{one.kind} {one.key.name}{tail}", width, bold)
    yield from indented((render_difference(difference) for difference in one.differences), width)
    if one.fault:
        yield from indented([safe(f"cannot be compared: {one.fault}")], width)


def _summary(drift: Drift) -> str:
    numbers = (
        (len(drift.different), "different"),
        (len(drift.missing), "not on the server"),
        (len(drift.extra), "not in any document"),
        (drift.equal, "equal"),
    )
    return ", ".join(f"{count(number)} {words}" for number, words in numbers)
