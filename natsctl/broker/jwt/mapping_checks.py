"""Which subject mappings of an account can be made; one that can not is left out, and refused when it is pushed."""

from __future__ import annotations

from collections.abc import Sequence

from natsctl.api.mapping_functions import TransformError
from natsctl.api.subject_transform import check_mapping
from natsctl.api.subjects import is_valid_subject
from natsctl.broker.jwt.claims import WeightedMapping
from natsctl.broker.jwt.subject_checks import without_references


def mapping_fault(source: str, destinations: Sequence[WeightedMapping]) -> str:
    """Return what is wrong with one mapping, empty where nothing is.

    A source may hold no functions: as what the weights leave, it is a destination too.
    """
    if not is_valid_subject(source.encode()) or "{{" in source or without_references(source) != source:
        return f'mapping "{source}": invalid subject'
    seen: set[str] = set()
    totals: dict[str, int] = {}
    for to in destinations:
        if to.subject in seen:
            return f'mapping "{source}": duplicate entry for "{to.subject}"'
        seen.add(to.subject)
        totals[to.cluster] = totals.get(to.cluster, 0) + (to.weight or 100)
        if not 0 <= to.weight <= 100 or totals[to.cluster] > 100:
            return f'mapping "{source}": total weight needs to be <= 100'
        try:
            check_mapping(source, to.subject)
        except TransformError as bad:
            return f'mapping "{source}" -> "{to.subject}": {bad}'
    return ""
