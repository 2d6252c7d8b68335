"""What the documents of a set say, while they are read: assets, faults, notes, owners and files to include."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from natsctl.plan.asset import AssetKey, Place
from natsctl.plan.documents.lined import Mapped, Spot
from natsctl.plan.wanted import DEFAULT_OWNER, DocumentSet, Fault, Wanted


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
        from natsctl.plan.documents.lower import WORD_OF
        from natsctl.plan.documents.rules import judged

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
