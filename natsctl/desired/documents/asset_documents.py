"""Streams, consumers and buckets as documents write them, and the configurations that they mean."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from natsctl.api.consumer import ConsumerConfig
from natsctl.api.documents import REPORTED, DocumentFault, Untyped, did_you_mean, is_info, read_document
from natsctl.api.locations import DocumentNode, LocatedDict, LocatedList
from natsctl.api.model import Duration, Int, Model, Shape, shape_of
from natsctl.api.stream import StreamConfig
from natsctl.client.deadletters.capture import MARK, CaptureOptions, capture_config
from natsctl.desired.assets import AssetKey, DesiredAsset, Kind, is_protected, without_labels, without_server_made
from natsctl.desired.documents.bucket_fields import (
    ALIASES,
    CONFIG_ALIASES,
    WORD_OF,
    WORDS,
    BucketFieldError,
    stream_fields,
)
from natsctl.desired.documents.collector import Collector, items


class DeadLetterWords(Model):
    """A capture stream as a document describes it; fields that it does not mention get their defaults at creation."""

    max_age: Duration = 0
    max_msgs: Int = -1
    replicas: Int = 1
    copy: bool = False


DEAD_LETTER_FIELDS: Final = {
    "max_age": "max_age",
    "max_msgs": "max_msgs",
    "replicas": "num_replicas",
    "copy": "subjects",
}
"""The field of the capture stream that each key sets."""


def capture_fields(stream: str, words: Mapping[str, Any], replicas: int) -> tuple[dict[str, Any], frozenset[str]]:
    """Return the configuration of a stream's capture stream, and the fields that apply at its creation only.

    `replicas` is the number of the stream's own.
    """
    options = CaptureOptions(words.get("max_age"), words.get("max_msgs"), words.get("replicas"), words.get("copy"))
    unsaid = {field for word, field in DEAD_LETTER_FIELDS.items() if word not in words}
    return capture_config(stream, options, replicas), frozenset(unsaid | {"description"})


def captured_stream(config: Mapping[str, Any]) -> str:
    """Return the stream with dead letters that a stream keeps, if natsctl made it for that; else ""."""
    metadata = config.get("metadata")
    return str(metadata.get(MARK, "")) if isinstance(metadata, Mapping) else ""


def words_of_capture(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of a document that describe a capture stream, the inverse of `capture_fields`."""
    age_ns, most = config.get("max_age") or 0, config.get("max_msgs") or -1
    replicas, subjects = config.get("num_replicas") or 1, config.get("subjects") or ()
    return {"max_age": age_ns, "max_msgs": most, "replicas": replicas, "copy": len(subjects) > 2}


IGNORE: Final = "ignore"
"""The key of a document, or of an asset in it, that lists fields to leave unchanged where the asset exists."""
NAMES: Final = frozenset(("name", "durable_name"))
_SEVERAL: Final[dict[str, tuple[str, ...]]] = {
    "limit_marker_ttl": ("subject_delete_marker_ttl", "allow_msg_ttl"),
    "mirror": ("mirror", "mirror_direct", "subjects"),
    "sources": ("sources",),
    "compression": ("compression",),
}
"""Bucket fields that map to several stream fields, or to one of the same name."""
_FIELDS_OF: Final = {word: (field,) for field, word in WORD_OF.items()} | _SEVERAL
_MAKES: Final[dict[Kind, frozenset[str]]] = {
    Kind.KEY_VALUE: frozenset(("name", "discard", "allow_rollup_hdrs", "deny_delete")),
    Kind.OBJECT_STORE: frozenset(("name", "discard", "allow_rollup_hdrs")),
}
"""Fields that make a stream a bucket: implied by every document of a bucket."""
_FOR_GOOD: Final = frozenset(("allow_msg_ttl",))
"""Fields that a server does not switch off again: null has no effect on them."""


class DescribedAsset(NamedTuple):
    """A configuration as written in a document; the other members are as in `DesiredAsset`."""

    config: dict[str, Any]
    nulls: frozenset[str] = frozenset()
    at_creation: frozenset[str] = frozenset()


def nulls_of(where: DocumentNode, model: type[Model]) -> frozenset[str]:
    """Return the fields that a document sets to null, keys of metadata as `metadata.KEY`."""
    value = where.value
    if not isinstance(value, LocatedDict) or is_info(value):
        return frozenset()
    named = {name for name in value if value[name] is None and name in shape_of(model).fields}
    return frozenset(named - NAMES | _null_keys(value))


def _null_keys(value: Mapping[str, Any]) -> set[str]:
    below = value.get("metadata")
    return {f"metadata.{key}" for key in below if below[key] is None} if isinstance(below, Mapping) else set()


def described_bucket(kind: Kind, config: dict[str, Any], words: Mapping[str, Any]) -> DescribedAsset:
    """Return the stream of a bucket with the fields that the document mentions, those at null included."""
    fields = {field for word in words for field in _FIELDS_OF.get(word, ())}
    nulls = fields - config.keys() - _FOR_GOOD | _null_keys(words)
    return DescribedAsset(config, frozenset(nulls), frozenset(config.keys() - fields - _MAKES[kind]))


def ignored_fields(key: AssetKey, kind: Kind, node: DocumentNode, found: Collector) -> frozenset[str]:
    """Return the fields that an asset ignores by its own list and its document's; unknown ones are faults."""
    known = _known(key, kind)
    named: set[str] = set()
    for one in ignore_list(node, found):
        if one.value.partition(".")[0] in known:
            named.add(str(one.value))
        else:
            found.fault(one, f"{one.value} is no field of it{did_you_mean(one.value, known)}")
    named |= {name for name in found.ignored if name.partition(".")[0] in known}
    return frozenset(field for name in named for field in _fields_of(name, kind))


def ignore_list(node: DocumentNode, found: Collector) -> Iterable[DocumentNode]:
    """Return the entries of a list of fields to ignore; any other entry is a fault."""
    if node.value is None or node.value is REPORTED:
        return
    if not isinstance(node.value, LocatedList):
        found.fault(node, "expected a list of fields")
        return
    for index, value in enumerate(node.value):
        one = node.at(index)
        if isinstance(value, str) and value:
            yield one
        elif value is not REPORTED:
            found.fault(one, "expected the name of a field")


def known_anywhere() -> frozenset[str]:
    """Return all names that the list of a document may have: fields of streams, consumers and buckets."""
    kinds = (AssetKey("s"), Kind.STREAM), (AssetKey("s", "c"), Kind.CONSUMER), (AssetKey("s"), Kind.KEY_VALUE)
    return frozenset().union(*(_known(key, kind) for key, kind in kinds))


def _known(key: AssetKey, kind: Kind) -> frozenset[str]:
    model = ConsumerConfig if key.consumer else StreamConfig
    words = {*shape_of(WORDS[kind]).fields, *ALIASES} if kind in WORDS else CONFIG_ALIASES.keys()
    return frozenset({*shape_of(model).fields, *words} - NAMES - {"bucket"})


def _fields_of(name: str, kind: Kind) -> tuple[str, ...]:
    if kind not in WORDS:
        return (CONFIG_ALIASES.get(name, name),)
    return _FIELDS_OF.get(ALIASES.get(name, name), (name,))


EXTRA: Final = "extra"
"""Key of a document with fields to send in addition to the configuration; objects are merged."""


def unknown_of(config: Mapping[str, Any], shape: Shape) -> dict[str, Any]:
    """Return the unknown fields, in their objects; a list is whole if one of its items has such fields."""
    found: dict[str, Any] = {}
    for name, value in config.items():
        known = shape.fields.get(name)
        if known is None:
            found[name] = value
        elif known.shape.kind == "struct" and isinstance(value, Mapping):
            if inner := unknown_of(value, known.shape):
                found[name] = inner
        elif known.shape.kind == "list" and _has_unknown(value, known.shape.elements()):
            found[name] = value
    return found


def _has_unknown(items: Any, shape: Shape) -> bool:
    return shape.kind == "struct" and any(isinstance(item, Mapping) and unknown_of(item, shape) for item in items or ())


def known_of(config: Mapping[str, Any], shape: Shape) -> dict[str, Any]:
    return {
        name: _known_value(value, shape.fields[name].shape) for name, value in config.items() if name in shape.fields
    }


def _known_value(value: Any, shape: Shape) -> Any:
    if shape.kind == "struct" and isinstance(value, Mapping):
        return known_of(value, shape)
    if shape.kind == "list" and isinstance(value, list):
        return [_known_value(item, shape.elements()) for item in value]
    return value


def merged(config: Mapping[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration with the content of `extra`: objects are merged, other values replaced."""
    result = dict(config)
    for name, value in extra.items():
        there = result.get(name)
        if isinstance(value, Untyped):
            value = value.meant
        if value is None:
            continue  # null has no effect
        if isinstance(value, Mapping):
            result[name] = merged(there if isinstance(there, Mapping) else {}, value)
        else:
            result[name] = [*map(_plain, value)] if isinstance(value, list) else value
    return result


def _plain(value: Any) -> Any:
    """Return a value in plain containers, without lines."""
    if isinstance(value, Untyped):
        return value.meant
    if isinstance(value, Mapping):
        return merged({}, value)
    return [_plain(item) for item in value] if isinstance(value, list) else value


Read: TypeAlias = "Callable[[DocumentNode, Kind, Collector], None]"
"""Reader of the asset at a node."""

PROTECT: Final = "protect"
"""Neither removed nor replaced."""
CREATE_ONLY: Final = "create_only"
"""The asset is created if it does not exist, and left unchanged if it does."""
SWITCHES: Final = (PROTECT, CREATE_ONLY, IGNORE)
DEAD_LETTERS: Final = "dead_letters"
"""The key of a stream's document that describes its capture stream: true, or an object."""
_STREAM_KEYS: Final = ("consumers", DEAD_LETTERS, EXTRA, *SWITCHES)
_CONSUMER_KEYS: Final = ("stream", "stream_name", EXTRA, *SWITCHES)


def read_stream(node: DocumentNode, kind: Kind, found: Collector) -> None:
    if not _is_object(node, found):
        return
    where = _own_names(config_node(node, _STREAM_KEYS), found)
    config, good = _config(node, where, StreamConfig, found)
    name = config.get("name")
    if not name:
        _unnamed(node, "a stream needs a name", found)
        return
    keep(AssetKey(name), kind, DescribedAsset(config, nulls_of(where, StreamConfig)), node, where, found, good)
    for item in items(node.at("consumers"), "name", found):
        read_consumer(item, Kind.CONSUMER, found, name)
    _read_dead_letters(node, name, config, found)


def _read_dead_letters(node: DocumentNode, stream: str, config: Mapping[str, Any], found: Collector) -> None:
    """Add the capture stream of a stream; it is protected as the stream is, and created only if the stream is."""
    where = node.at(DEAD_LETTERS)
    value = where.value.meant if isinstance(where.value, Untyped) else where.value
    if value in (None, False) or value is REPORTED:
        return
    words: dict[str, Any] = {}
    complete = True
    if isinstance(value, LocatedDict):
        words, faults = read_document(value, DeadLetterWords)
        complete = report_faults(where, faults, found)
    elif value is not True:
        found.fault(where, "expected true, false or an object")
        return
    capture, at_creation = capture_fields(stream, words, int(config.get("num_replicas") or 1))
    described = DescribedAsset(capture, at_creation=at_creation)
    switches = node.holding(node.value.without(IGNORE))
    keep(AssetKey(capture["name"]), Kind.STREAM, described, switches, where, found, complete)


ACKS: Final = "ack_policy"


def default_acks(config: Mapping[str, Any]) -> str:
    """Return the default ack policy of a new consumer, as in `consumer add`."""
    return "none" if config.get("deliver_subject") else "explicit"


def read_consumer(node: DocumentNode, kind: Kind, found: Collector, stream: str = "", *, plain: bool = True) -> None:
    """Add a consumer; `stream` is the stream above it in the document.

    In natsctl's own forms (`plain`) a pull consumer without `ack_policy` is created with explicit acks. In the server's
    and nats' JSON a missing ack policy means ack none.
    """
    if not _is_object(node, found):
        return
    stream = _stream_of(node, stream, found)
    where = _own_names(config_node(node, _CONSUMER_KEYS), found)
    config, good = _config(node, where, ConsumerConfig, found)
    said = is_info(node.value)
    # Servers before 2.9 give the name of an ephemeral consumer only next to its configuration.
    name = config.get("durable_name") or config.get("name") or (said and _text(node.value.get("name")))
    if not name:
        _unnamed(node, "a consumer needs a name or durable_name", found)
    if not name or not stream:
        return
    if config.get("name", name) != name:
        found.fault(where.at("name"), f"expected {name} as in durable_name, got {config['name']}")
    if not said and not config.get("inactive_threshold"):
        config.setdefault("durable_name", name)
    if said:
        config.pop("pause_until", None)  # an action of a client, not a field of a document
    nulls = nulls_of(where, ConsumerConfig) - config.keys()
    at_creation: frozenset[str] = frozenset()
    if not config.get(ACKS) and not where.value.get(ACKS):
        config[ACKS] = default_acks(config) if plain and not said else "none"
        at_creation, nulls = frozenset((ACKS,)) - nulls, nulls - {ACKS}
    keep(AssetKey(stream, name), kind, DescribedAsset(config, nulls, at_creation), node, where, found, good)


def keep(
    key: AssetKey,
    kind: Kind,
    said: DescribedAsset,
    node: DocumentNode,
    where: DocumentNode,
    found: Collector,
    complete: bool,
) -> None:
    """Add an asset without the metadata that servers and plans write.

    `node` is its document, `where` its configuration in that; `complete`: no part of it is missing because of a fault.
    """
    config = said.config
    protect = _switched(node, PROTECT, is_protected(config), found)
    create_only = _switched(node, CREATE_ONLY, False, found)
    if "metadata" in config:
        config = without_server_made(without_labels(config))
    at_creation = said.at_creation | ignored_fields(key, kind, node.at(IGNORE), found)
    asset = DesiredAsset(key, kind, config, where.place, protect, create_only, said.nulls, at_creation)
    found.add(asset, where, complete)


def _stream_of(node: DocumentNode, above: str, found: Collector) -> str:
    said = [node.at(key) for key in ("stream", "stream_name") if node.value.get(key) is not None]
    for one in said:
        if not isinstance(one.value, str) or not one.value:
            if one.value is not REPORTED:
                found.fault(one, "expected the name of a stream")
            return ""
        if above and one.value != above:
            found.fault(one, f"expected {above}, as it stands below that stream, got {one.value}")
    if not above and not said:
        found.fault(node, "a consumer needs its stream: add stream: NAME, or put it below the stream's consumers:")
    return above or (str(said[0].value) if said else "")


def _text(value: Any) -> str:
    return str(value) if isinstance(value, str) else ""


def _is_object(node: DocumentNode, found: Collector) -> bool:
    if isinstance(node.value, LocatedDict):
        return True
    found.fault(node, "expected an object")
    return False


def _unnamed(node: DocumentNode, reason: str, found: Collector) -> None:
    """Report a missing name, unless the value there was a fault itself."""
    config = config_node(node, ())
    if all(config.value.get(key) in (None, "") for key in ("name", "durable_name")):
        found.fault(config, reason)


def config_node(node: DocumentNode, own_keys: tuple[str, ...]) -> DocumentNode:
    """Return the node of the configuration: below `config` in a server's answer, else the document itself."""
    if isinstance(node.value.get("config"), LocatedDict):
        return node.at("config")
    return node.holding(node.value.without(*own_keys)) if own_keys else node


def _config(
    node: DocumentNode, where: DocumentNode, model: type[Model], found: Collector
) -> tuple[dict[str, Any], bool]:
    """Return the wire's values that a document gives, and whether none is missing because of a fault."""
    values, faults = read_document(where.value, model, lenient=is_info(node.value))
    good = report_faults(where, faults, found)
    said: Any = {} if node.value.get(EXTRA) is None else node.value[EXTRA]
    extra = unknown_of(where.value, shape_of(model)) if is_info(node.value) else said
    if not isinstance(extra, dict):
        found.fault(node.at(EXTRA), "expected an object")
        return values, False
    return merged(values, extra), good


def report_faults(where: DocumentNode, faults: Sequence[DocumentFault], found: Collector) -> bool:
    """Report the faults below a node, and return whether all known fields are there nevertheless."""
    for fault in faults:
        if fault.reason:
            node = where.at(*fault.path)
            unquoted = fault.reason.startswith("expected a text") and isinstance(node.value, int | float)
            found.fault(node, f"{fault.reason}: put it in quotes" if unquoted else fault.reason)
    return not any(fault.lost for fault in faults)


def _switched(node: DocumentNode, key: str, otherwise: bool, found: Collector) -> bool:
    said = node.at(key)
    if said.value is None:
        return otherwise
    value = said.value.meant if isinstance(said.value, Untyped) else said.value
    if not isinstance(value, bool):
        found.fault(said, "expected true or false")
        return False
    return value


_ORIGINS: Final = ("mirror", "sources")


def read_bucket(node: DocumentNode, kind: Kind, found: Collector) -> None:
    if not isinstance(node.value, LocatedDict):
        found.fault(node, "expected an object")
        return
    if is_bucket_info(node.value):
        read_stream(node.at("stream_info"), kind, found)
        return
    if isinstance(node.value.get("config"), LocatedDict):
        read_stream(node, kind, found)
        return
    keep_bucket(node, kind, in_own_words(node.holding(node.value.without(*SWITCHES)), found), found)


def is_bucket_info(value: LocatedDict) -> bool:
    stream = value.get("stream_info")
    return isinstance(stream, LocatedDict) and isinstance(stream.get("config"), LocatedDict)


def keep_bucket(node: DocumentNode, kind: Kind, words: DocumentNode, found: Collector) -> None:
    """Add the bucket that `words` describe; `node` is its document."""
    values, faults = read_document(words.value, WORDS[kind])
    good = report_faults(words, faults, found)
    if not values.get("bucket"):
        if words.value.get("bucket") in (None, ""):
            found.fault(node, "a bucket needs its name: add bucket: NAME")
        return
    if not good:
        return  # without it, it may not even be a bucket
    try:
        config = stream_fields(kind, values)
    except BucketFieldError as fault:
        found.fault(words.at(fault.word), str(fault))
        return
    said = described_bucket(kind, config, {**words.value, **values})
    keep(AssetKey(config["name"]), kind, said, node, words, found, good)


def in_own_words(node: DocumentNode, found: Collector) -> DocumentNode:
    """Return the fields of a bucket by their first names, with origins given only by name as objects."""
    return _renamed(node, ALIASES, found, _value)


def _own_names(node: DocumentNode, found: Collector) -> DocumentNode:
    return _renamed(node, CONFIG_ALIASES, found) if CONFIG_ALIASES.keys() & node.value.keys() else node


def _renamed(
    node: DocumentNode,
    names: Mapping[str, str],
    found: Collector,
    convert: Callable[[str, Any, DocumentNode], Any] = lambda word, value, node: value,
) -> DocumentNode:
    words = LocatedDict(node.value.line)
    for key, value in node.value.items():
        word = names.get(key, key)
        if word in words:
            other = next(name for name in node.value if names.get(name) == word) if key == word else key
            found.fault(node.at(key), f"{other} is another name for {word}, which is present too")
        else:
            shown = (key,) if key != word else None
            words.put(word, convert(word, value, node.at(key)), node.value.lines[key], shown)
    return node.holding(words)


def _value(word: str, value: Any, node: DocumentNode) -> Any:
    if word == "compression" and value in ("s2", "none"):
        return value == "s2"
    if word not in _ORIGINS:
        return value
    if word == "mirror":
        return _origin(value, node)
    if isinstance(value, str):
        single = LocatedList(node.line)
        single.lines = [node.line]
        single.append(_origin(value, node))
        return single
    if not isinstance(value, LocatedList):
        return value
    items = LocatedList(value.line)
    items.lines = value.lines
    items.extend(_origin(item, node.at(index)) for index, item in enumerate(value))
    return items


def _origin(value: Any, node: DocumentNode) -> Any:
    if not isinstance(value, str):
        return value
    named = LocatedDict(node.line)
    named.put("name", value, node.line)
    return named
