"""Documents of buckets: in a bucket's own words, or what a server said of its stream."""

from __future__ import annotations

from typing import Any, Final

from natsctl.api.documents import read_document
from natsctl.plan.asset import AssetKey, Kind
from natsctl.plan.documents.assets import SWITCHES, keep, read_stream, tell
from natsctl.plan.documents.bucket_words import ALIASES
from natsctl.plan.documents.found import Found
from natsctl.plan.documents.lined import Listed, Mapped, Spot
from natsctl.plan.documents.lower import WORDS, BucketFieldError, lowered
from natsctl.plan.documents.mentions import described_bucket

_ORIGINS: Final = ("mirror", "sources")


def read_bucket(spot: Spot, kind: Kind, found: Found) -> None:
    """Add the stream of a bucket."""
    if not isinstance(spot.value, Mapped):
        found.fault(spot, "expected an object")
        return
    if is_bucket_info(spot.value):
        read_stream(spot.at("stream_info"), kind, found)
        return
    if isinstance(spot.value.get("config"), Mapped):
        read_stream(spot, kind, found)
        return
    keep_bucket(spot, kind, in_own_words(spot.holding(spot.value.without(*SWITCHES)), found), found)


def is_bucket_info(value: Mapped) -> bool:
    """Return whether a value is the information about a bucket, with that of its stream."""
    stream = value.get("stream_info")
    return isinstance(stream, Mapped) and isinstance(stream.get("config"), Mapped)


def keep_bucket(spot: Spot, kind: Kind, words: Spot, found: Found) -> None:
    """Add the bucket that `words` describe; `spot` is its document."""
    values, faults = read_document(words.value, WORDS[kind])
    good = tell(words, faults, found)
    if not values.get("bucket"):
        if words.value.get("bucket") in (None, ""):
            found.fault(spot, "a bucket needs its name: add bucket: NAME")
        return
    if not good:
        return  # without it, it may not even be a bucket
    try:
        config = lowered(kind, values)
    except BucketFieldError as fault:
        found.fault(words.at(fault.word), str(fault))
        return
    said = described_bucket(kind, config, {**words.value, **values})
    keep(AssetKey(config["name"]), kind, said, spot, words, found, good)


def in_own_words(spot: Spot, found: Found) -> Spot:
    """Return the fields of a bucket by their first names, and origins that are given by a name alone as objects."""
    words = Mapped(spot.value.line)
    for key, value in spot.value.items():
        word = ALIASES.get(key, key)
        if word in words:
            found.fault(spot.at(key), f"{key} is another word for {word}, which stands here too")
        else:
            shown = (key,) if key != word else None
            words.put(word, _value(word, value, spot.at(key)), spot.value.lines[key], shown)
    return spot.holding(words)


def _value(word: str, value: Any, spot: Spot) -> Any:
    if word == "compression" and value in ("s2", "none"):
        return value == "s2"
    if word not in _ORIGINS:
        return value
    if word == "mirror":
        return _origin(value, spot)
    if isinstance(value, str):
        single = Listed(spot.line)
        single.lines = [spot.line]
        single.append(_origin(value, spot))
        return single
    if not isinstance(value, Listed):
        return value
    items = Listed(value.line)
    items.lines = value.lines
    items.extend(_origin(item, spot.at(index)) for index, item in enumerate(value))
    return items


def _origin(value: Any, spot: Spot) -> Any:
    if not isinstance(value, str):
        return value
    named = Mapped(spot.line)
    named.put("name", value, spot.line)
    return named
