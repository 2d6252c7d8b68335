"""What the documents of a set say, while they are read: assets, faults, notes, owners and files to include."""

from __future__ import annotations

from dataclasses import dataclass, field

from natsctl.plan.asset import AssetKey, Place
from natsctl.plan.documents.lined import Spot
from natsctl.plan.wanted import DEFAULT_OWNER, DocumentFaults, DocumentSet, Fault, Wanted


@dataclass(slots=True)
class Found:
    """Collects; `finished` makes a set of it, or raises all faults."""

    wanted: dict[AssetKey, Wanted] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    owners: list[tuple[str, Place]] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    spots: dict[AssetKey, Spot] = field(default_factory=dict)
    """Where the configuration of each asset stands: fields of it are told by their places."""

    def fault(self, spot: Spot, reason: str) -> None:
        """Keep a mistake."""
        self.faults.append(Fault(spot.place, reason))

    def note(self, spot: Spot, text: str) -> None:
        """Keep what is told of documents that are good."""
        self.notes.append(f"{spot.place}: {text}")

    def add(self, asset: Wanted, spot: Spot) -> None:
        """Keep an asset; one that is there already is a fault that names both places."""
        first = self.wanted.setdefault(asset.key, asset)
        if first is asset:
            self.spots[asset.key] = spot
        else:
            self.fault(spot, f"{asset.key} stands twice, first at {first.place}")

    def finished(self, owner: str) -> DocumentSet:
        """The set; `owner` wins over those in documents. Raises DocumentFaults."""
        if not owner:
            for name, place in self.owners[1:]:
                if name != self.owners[0][0]:
                    reason = f"owner {name}, but {self.owners[0][0]} at {self.owners[0][1]}: a set has one owner"
                    self.faults.append(Fault(place, reason))
        if self.faults:
            order = {name: at for at, name in enumerate(self.files)}
            raise DocumentFaults(
                sorted(self.faults, key=lambda one: (order.get(one.place.file, len(order)), one.place.line))
            )
        named = owner or (self.owners[0][0] if self.owners else DEFAULT_OWNER)
        return DocumentSet(self.wanted, named, tuple(self.files), tuple(self.notes))
