"""What a document mentions of an asset beside plain values: nulls, fields to ignore, the words of buckets.

A null asks for the default of a field. A field that is ignored, and a field of a bucket for which the document has no
word, matters for the creation alone: afterwards whatever is there stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from natsctl.api.consumer import ConsumerConfig
from natsctl.api.documents import TOLD, did_you_mean, is_info
from natsctl.api.model import Model
from natsctl.api.shapes import shape_of
from natsctl.api.stream import StreamConfig
from natsctl.plan.asset import AssetKey, Kind
from natsctl.plan.documents.bucket_words import ALIASES
from natsctl.plan.documents.found import Found
from natsctl.plan.documents.lined import Listed, Mapped, Spot
from natsctl.plan.documents.lower import WORD_OF, WORDS

IGNORE: Final = "ignore"
"""The key of a document, or of an asset in it, that lists fields to leave unchanged where the asset exists."""
NAMES: Final = frozenset(("name", "durable_name"))
_SEVERAL: Final[dict[str, tuple[str, ...]]] = {
    "limit_marker_ttl": ("subject_delete_marker_ttl", "allow_msg_ttl"),
    "mirror": ("mirror", "mirror_direct", "subjects"),
    "sources": ("sources",),
    "compression": ("compression",),
}
"""Bucket fields that stand for more than one field of the stream, or for one of the same name."""
_FIELDS_OF: Final = {word: (field,) for field, word in WORD_OF.items()} | _SEVERAL
_MAKES: Final[dict[Kind, frozenset[str]]] = {
    Kind.KEY_VALUE: frozenset(("name", "discard", "allow_rollup_hdrs", "deny_delete")),
    Kind.OBJECT_STORE: frozenset(("name", "discard", "allow_rollup_hdrs")),
}
"""Fields that make a stream a bucket: implied by every document of a bucket."""
_FOR_GOOD: Final = frozenset(("allow_msg_ttl",))
"""Fields that a server does not switch off again: null has no effect on them."""


class Described(NamedTuple):
    """A configuration as a document gives it; the other members are those of `Wanted`."""

    config: dict[str, Any]
    nulls: frozenset[str] = frozenset()
    at_creation: frozenset[str] = frozenset()


def nulls_of(where: Spot, model: type[Model]) -> frozenset[str]:
    """Return the fields that a document sets to null, keys of metadata as `metadata.KEY`."""
    value = where.value
    if not isinstance(value, Mapped) or is_info(value):
        return frozenset()
    named = {name for name in value if value[name] is None and name in shape_of(model).fields}
    return frozenset(named - NAMES | _null_keys(value))


def _null_keys(value: Mapping[str, Any]) -> set[str]:
    below = value.get("metadata")
    return {f"metadata.{key}" for key in below if below[key] is None} if isinstance(below, Mapping) else set()


def described_bucket(kind: Kind, config: dict[str, Any], words: Mapping[str, Any]) -> Described:
    """Return the stream of a bucket with the fields that the document mentions, those at null included."""
    fields = {field for word in words for field in _FIELDS_OF.get(word, ())}
    nulls = fields - config.keys() - _FOR_GOOD | _null_keys(words)
    return Described(config, frozenset(nulls), frozenset(config.keys() - fields - _MAKES[kind]))


def ignored_fields(key: AssetKey, kind: Kind, spot: Spot, found: Found) -> frozenset[str]:
    """Return the fields that an asset ignores by its own list and its document's; unknown ones are faults."""
    known = _known(key, kind)
    named: set[str] = set()
    for one in ignore_list(spot, found):
        if one.value.partition(".")[0] in known:
            named.add(str(one.value))
        else:
            found.fault(one, f"{one.value} is no field of it{did_you_mean(one.value, known)}")
    named |= {name for name in found.ignored if name.partition(".")[0] in known}
    return frozenset(field for name in named for field in _fields_of(name, kind))


def ignore_list(spot: Spot, found: Found) -> Iterable[Spot]:
    """Return the entries of a list of fields to ignore; any other entry is a fault."""
    if spot.value is None or spot.value is TOLD:
        return
    if not isinstance(spot.value, Listed):
        found.fault(spot, "expected a list of fields")
        return
    for index, value in enumerate(spot.value):
        one = spot.at(index)
        if isinstance(value, str) and value:
            yield one
        elif value is not TOLD:
            found.fault(one, "expected the name of a field")


def known_anywhere() -> frozenset[str]:
    """Return all names that the list of a document may have: fields of streams, consumers and buckets."""
    kinds = (AssetKey("s"), Kind.STREAM), (AssetKey("s", "c"), Kind.CONSUMER), (AssetKey("s"), Kind.KEY_VALUE)
    return frozenset().union(*(_known(key, kind) for key, kind in kinds))


def _known(key: AssetKey, kind: Kind) -> frozenset[str]:
    model = ConsumerConfig if key.consumer else StreamConfig
    words = {*shape_of(WORDS[kind]).fields, *ALIASES} if kind in WORDS else set()
    return frozenset({*shape_of(model).fields, *words} - NAMES - {"bucket"})


def _fields_of(name: str, kind: Kind) -> tuple[str, ...]:
    """Return the fields that a name stands for."""
    if kind not in WORDS:
        return (name,)
    return _FIELDS_OF.get(ALIASES.get(name, name), (name,))
