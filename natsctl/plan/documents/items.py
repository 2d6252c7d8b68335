"""Lists of assets, and mappings of them by name."""

from __future__ import annotations

from collections.abc import Iterator

from natsctl.api.documents import TOLD
from natsctl.plan.documents.found import Found
from natsctl.plan.documents.interpolation import has_references
from natsctl.plan.documents.lined import Listed, Mapped, Spot


def items(spot: Spot, name: str, found: Found) -> Iterator[Spot]:
    """Yield each item of a list, or of a mapping whose keys are the names."""
    if isinstance(spot.value, Listed):
        yield from (spot.at(index) for index in range(len(spot.value)))
    elif isinstance(spot.value, Mapped):
        for key in spot.value:
            inner = spot.at(key)
            if has_references(key):
                found.fault(inner, f"a key is not replaced: write a list, with `{name}: {key}` in its item")
                continue
            if inner.value is None:
                inner = inner.holding(Mapped(inner.line))
            if not isinstance(inner.value, Mapped):
                found.fault(inner, "expected an object")
                continue
            yield named(inner, name, key, found)
    elif spot.value is not None and spot.value is not TOLD:
        found.fault(spot, "expected a list, or a mapping by name")


def named(spot: Spot, name: str, key: str, found: Found) -> Spot:
    """Return the spot of a mapping below its name, with the name in it."""
    said = spot.value.get(name)
    if said is not None and said != key:
        found.fault(spot.at(name), f"expected {key}, as it stands below that name, got {said}")
    if said is not None:
        return spot
    value = spot.value.without()
    value.lines = dict(value.lines)
    value.put(name, key, spot.line)
    return spot.holding(value)
