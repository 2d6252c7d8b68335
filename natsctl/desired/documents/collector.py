"""The collector of a set of documents: assets, faults, notes, owners and files to include."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from natsctl.api.documents import REPORTED, has_references
from natsctl.api.locations import DocumentNode, LocatedDict, LocatedList, Location
from natsctl.desired.assets import DEFAULT_OWNER, AssetKey, DesiredAsset, DocumentSet, Fault


@dataclass(slots=True)
class Collector:
    """The parts of a set of documents as they are read; `finished` returns the set."""

    wanted: dict[AssetKey, DesiredAsset] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    notes: list[tuple[Location, str]] = field(default_factory=list)
    owners: list[tuple[str, Location]] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    nodes: dict[AssetKey, DocumentNode] = field(default_factory=dict)
    """The node of each asset's configuration, for the locations of faults in its fields."""
    incomplete: set[AssetKey] = field(default_factory=set)
    """Assets that could be read in part only; they may have warnings, but no further faults."""
    ignored: frozenset[str] = frozenset()
    """Fields that the current document ignores in all of its assets, as the document spells them."""

    def fault(self, node: DocumentNode, reason: str) -> None:
        self.faults.append(Fault(node.place, reason))

    def note(self, node: DocumentNode, text: str) -> None:
        self.notes.append((node.place, text))

    def add(self, asset: DesiredAsset, node: DocumentNode, complete: bool) -> None:
        """Add an asset; a duplicate is a fault that names both locations."""
        first = self.wanted.setdefault(asset.key, asset)
        if first is asset:
            self.nodes[asset.key] = node
            if not complete:
                self.incomplete.add(asset.key)
        else:
            self.fault(node, f"{asset.key} stands twice, first at {first.place}")

    def _check_assets(self) -> None:
        """Record each asset that a server would refuse as a fault, and warnings as notes."""
        from natsctl.desired.documents.bucket_fields import WORD_OF
        from natsctl.desired.documents.rules import check_rules

        for rule in check_rules(self.wanted, self.incomplete):
            node = self.nodes[rule.key]
            fields = (name for field in rule.fields for name in (field, WORD_OF.get(field, field)))
            field = next((name for name in fields if isinstance(node.value, LocatedDict) and name in node.value), "")
            node = node.at(field) if field else node
            if rule.warning:
                self.note(node, f"warning: {rule.reason}")
            else:
                self.fault(node, rule.reason)

    def finished(self, owner: str) -> tuple[DocumentSet, list[Fault]]:
        """Return the readable part of the set and all faults in order; `owner` overrides owners in documents."""
        self._check_assets()
        if not owner:
            self._check_owner()
        order = {name: index for index, name in enumerate(self.files)}
        self.faults.sort(key=lambda fault: (order.get(fault.place.file, len(order)), fault.place.line))
        named = owner or (self.owners[0][0] if self.owners else DEFAULT_OWNER)
        owned = bool(owner or self.owners)
        return DocumentSet(self.wanted, named, tuple(self.files), tuple(_folded(self.notes)), owned), self.faults

    def _check_owner(self) -> None:
        """Record each document with another owner than the first as a fault."""
        for name, place in self.owners[1:]:
            first, at = self.owners[0]
            if name != first:
                self.faults.append(Fault(place, f"owner {name}, but {first} at {at}: a set has one owner"))


def _folded(notes: Sequence[tuple[Location, str]]) -> Iterator[str]:
    """Yield each different note once, with its first location and the number of the others."""
    places: dict[str, list[Location]] = {}
    for place, text in notes:
        places.setdefault(text, []).append(place)
    for text, found in places.items():
        more = f" (and {len(found) - 1} more like it)" if len(found) > 1 else ""
        yield f"{found[0]}: {text}{more}"


def items(node: DocumentNode, name: str, found: Collector) -> Iterator[DocumentNode]:
    """Yield each item of a list, or of a mapping keyed by name."""
    if isinstance(node.value, LocatedList):
        yield from (node.at(index) for index in range(len(node.value)))
    elif isinstance(node.value, LocatedDict):
        for key in node.value:
            inner = node.at(key)
            if has_references(key):
                found.fault(inner, f"a key is not replaced: write a list, with `{name}: {key}` in its item")
                continue
            if inner.value is None:
                inner = inner.holding(LocatedDict(inner.line))
            if not isinstance(inner.value, LocatedDict):
                found.fault(inner, "expected an object")
                continue
            yield named(inner, name, key, found)
    elif node.value is not None and node.value is not REPORTED:
        found.fault(node, "expected a list, or a mapping by name")


def named(node: DocumentNode, name: str, key: str, found: Collector) -> DocumentNode:
    """Return the node of an asset in a mapping, with its `key` as the field `name`."""
    given = node.value.get(name)
    if given is not None and given != key:
        found.fault(node.at(name), f"expected {key}, as it stands below that name, got {given}")
    if given is not None:
        return node
    value = node.value.without()
    value.lines = dict(value.lines)
    value.put(name, key, node.line)
    return node.holding(value)
