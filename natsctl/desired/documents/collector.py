"""The collector of a set of documents: assets, faults, notes, owners and files to include."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from natsctl.api.documents import TOLD
from natsctl.desired.assets import DEFAULT_OWNER, AssetKey, DocumentSet, Fault, Place, Wanted
from natsctl.desired.documents.locations import Listed, Mapped, Spot
from natsctl.desired.documents.yaml_text import has_references


@dataclass(slots=True)
class Found:
    """Collector of all documents of a set; `finished` returns the set."""

    wanted: dict[AssetKey, Wanted] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    notes: list[tuple[Place, str]] = field(default_factory=list)
    owners: list[tuple[str, Place]] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    spots: dict[AssetKey, Spot] = field(default_factory=dict)
    """The spot of each asset's configuration: faults in its fields are reported by their locations."""
    broken: set[AssetKey] = field(default_factory=set)
    ignored: frozenset[str] = frozenset()
    """Fields that the current document ignores in all of its assets, as the document spells them."""

    def fault(self, spot: Spot, reason: str) -> None:
        """Record a mistake."""
        self.faults.append(Fault(spot.place, reason))

    def note(self, spot: Spot, text: str) -> None:
        """Record a note on valid documents."""
        self.notes.append((spot.place, text))

    def add(self, asset: Wanted, spot: Spot, good: bool) -> None:
        """Add an asset; a duplicate is a fault that names both locations.

        One that is not `good` is not checked: a part of it is missing.
        """
        first = self.wanted.setdefault(asset.key, asset)
        if first is asset:
            self.spots[asset.key] = spot
            if not good:
                self.broken.add(asset.key)
        else:
            self.fault(spot, f"{asset.key} stands twice, first at {first.place}")

    def _judge(self) -> None:
        """Check the assets against the rules of servers."""
        from natsctl.desired.documents.bucket_fields import WORD_OF
        from natsctl.desired.documents.rules import judged

        for one in judged({key: asset for key, asset in self.wanted.items() if key not in self.broken}):
            spot = self.spots[one.key]
            fields = (name for field in one.fields for name in (field, WORD_OF.get(field, field)))
            field = next((name for name in fields if isinstance(spot.value, Mapped) and name in spot.value), "")
            spot = spot.at(field) if field else spot
            if one.warning:
                self.note(spot, f"warning: {one.reason}")
            else:
                self.fault(spot, one.reason)

    def finished(self, owner: str) -> tuple[DocumentSet, list[Fault]]:
        """Return the set as far as it could be read, and all faults in order; `owner` wins over those in documents."""
        self._judge()
        if not owner:
            self._agree_on_owner()
        order = {name: at for at, name in enumerate(self.files)}
        self.faults.sort(key=lambda one: (order.get(one.place.file, len(order)), one.place.line))
        named = owner or (self.owners[0][0] if self.owners else DEFAULT_OWNER)
        owned = bool(owner or self.owners)
        return DocumentSet(self.wanted, named, tuple(self.files), tuple(_folded(self.notes)), owned), self.faults

    def _agree_on_owner(self) -> None:
        for name, place in self.owners[1:]:
            first, at = self.owners[0]
            if name != first:
                self.faults.append(Fault(place, f"owner {name}, but {first} at {at}: a set has one owner"))


def _folded(notes: Sequence[tuple[Place, str]]) -> Iterator[str]:
    """Return notes as texts, with equal ones folded into one."""
    places: dict[str, list[Place]] = {}
    for place, text in notes:
        places.setdefault(text, []).append(place)
    for text, found in places.items():
        more = f" (and {len(found) - 1} more like it)" if len(found) > 1 else ""
        yield f"{found[0]}: {text}{more}"


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
