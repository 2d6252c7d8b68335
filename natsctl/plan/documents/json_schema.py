"""The JSON schema of document files, for editors: what can be told of a document without the rules of servers.

Each form has a definition, and conditions choose between them by the keys that `forms.py` goes by.
"""

from __future__ import annotations

from typing import Any, Final

from natsctl.api.consumer import ConsumerConfig
from natsctl.api.model import Model
from natsctl.api.stream import StreamConfig
from natsctl.plan.asset import Kind
from natsctl.plan.documents import controller_schema
from natsctl.plan.documents.bucket_words import ALIASES, KeyValueWords, ObjectStoreWords
from natsctl.plan.documents.extra import EXTRA
from natsctl.plan.documents.field_texts import OWN
from natsctl.plan.documents.forms import COLLECTIONS, CONSUMER_ONLY, KEY_VALUE_ONLY, NAMES, SETTINGS
from natsctl.plan.documents.lower import WORDS
from natsctl.plan.documents.mentions import IGNORE
from natsctl.plan.documents.schema_types import (
    REFERENCE,
    Schema,
    choose,
    closed,
    described,
    has,
    has_any,
    properties_of,
)

_SWITCH: Final[Schema] = {"type": ["boolean", "string", "null"], "pattern": REFERENCE}
_SWITCHES: Final[dict[str, Schema]] = {key: described(_SWITCH, OWN[key]) for key in ("protect", "create_only")}
_NAME: Final[Schema] = {"type": "string", "minLength": 1}
_IGNORE: Final[Schema] = described({"type": ["array", "null"], "items": _NAME}, OWN[IGNORE])
_OWN: Final[dict[str, Schema]] = {**_SWITCHES, IGNORE: _IGNORE}
_OWNER: Final[Schema] = {"type": ["string", "null"], "minLength": 1}
_IS_INFO: Final[Schema] = {"required": ["config"], "properties": {"config": {"type": "object"}}}
_IS_BUCKET_INFO: Final[Schema] = {
    "required": ["stream_info"],
    "properties": {"stream_info": {"type": "object", **_IS_INFO}},
}


def document_schema(id: str) -> Schema:
    """Return the schema of a document file (draft 2020-12), under the given id."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": id,
        "title": "natsctl documents",
        "description": "Streams, consumers and buckets as they shall be, for natsctl validate, plan and apply.",
        "$ref": "#/$defs/document",
        # No condition: editors offer this in an empty document.
        "properties": {key: {"description": OWN[key]} for key in ("kind", *SETTINGS, *COLLECTIONS)},
        "$defs": {
            "document": _document(),
            "plain": _plain(),
            "typed": _typed(),
            "manifest": controller_schema.manifest("#/$defs/document"),
            **{name: {"type": "object", "properties": fields} for name, fields in _FIELDS.items()},
            **_assets(),
            **controller_schema.definitions(),
        },
    }


def _ref(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}


def _document() -> Schema:
    """Return the schema of any form."""
    bare = {"anyOf": [{"properties": {"name": {"type": "string"}}, "required": ["name"]}, _IS_INFO]}
    return choose(
        ({"type": "null"}, {}),
        ({"type": "array"}, {"items": _ref("document")}),
        ({**has("apiVersion"), "properties": {"apiVersion": {"type": "string"}}}, _ref("manifest")),
        ({**has("kind"), "properties": {"kind": {"type": "string"}}}, _ref("typed")),
        ({"allOf": [has_any((*COLLECTIONS, *SETTINGS)), {"not": bare}]}, _ref("plain")),
        ({"type": "object", **_IS_BUCKET_INFO}, _ref("bucket_info")),
        ({"allOf": [has("bucket"), has_any(sorted(KEY_VALUE_ONLY))]}, _ref("KeyValue")),
        (has("bucket"), False),  # type: ignore[arg-type]  # a schema that nothing fits: it may be of both kinds
        (_is_consumer(), _ref("Consumer")),
        otherwise=_ref("Stream"),
    )


def _is_consumer() -> Schema:
    own = has_any(sorted(CONSUMER_ONLY))
    info = {"allOf": [_IS_INFO, {"properties": {"config": own}}]}
    return {"anyOf": [has_any(("stream", "stream_name")), {"allOf": [{"not": _IS_INFO}, own]}, info]}


def _plain() -> Schema:
    lists = {key: described(_collection(kind), OWN[key]) for key, kind in COLLECTIONS.items()}
    listing = {"properties": {"type": {"type": "string", "pattern": r"^io\.nats\."}}, "required": ["type"]}
    settings = {
        "owner": described(_OWNER, OWN["owner"]),
        "include": described({"anyOf": [_NAME, {"type": "array", "items": _NAME}]}, OWN["include"]),
        IGNORE: _IGNORE,
    }
    properties = {**lists, **settings}
    return choose((listing, {"type": "object", "properties": properties}), otherwise=closed(properties))


def _collection(kind: Kind) -> Schema:
    """Return the schema of assets in a list, or in a mapping by name."""
    return {
        "type": ["array", "object", "null"],
        "items": _ref(kind),
        "additionalProperties": {"anyOf": [{"type": "null"}, _ref(f"{kind}Named")]},
    }


def _typed() -> Schema:
    """`kind:` with the configuration beside it, or below `spec`."""
    kinds = {"type": "string", "pattern": f"^({'|'.join(_any_case(kind) for kind in Kind)})$"}
    own = {
        "kind": described({"anyOf": [{"enum": list(Kind)}, kinds]}, OWN["kind"]),
        "owner": described(_OWNER, OWN["owner"]),
    }
    cases = []
    for kind in Kind:
        is_kind = {"properties": {"kind": {"pattern": f"^{_any_case(kind)}$"}}}
        below = closed({**own, "spec": described(_ref(kind), OWN["spec"])}, ["kind"])
        cases.append((is_kind, choose((_has_spec(), below), otherwise=_ref(f"{kind}Typed"))))
    return {"properties": own, **choose(*cases, otherwise={})}


def _has_spec() -> Schema:
    return {"required": ["spec"], "properties": {"spec": {"type": "object"}}}


def _any_case(word: str) -> str:
    return "".join(f"[{char.upper()}{char.lower()}]" for char in word)


def _assets() -> dict[str, Schema]:
    """Return each kind as an item of a list, below its name, and with `kind`."""
    found: dict[str, Schema] = {}
    typed: dict[str, Schema] = {"kind": {}, "owner": {}}
    for kind in Kind:
        fields = _fields(kind)
        named = _named_by(kind)
        found[kind] = _or_info(kind, {**closed(fields), "type": "object", **named})
        found[f"{kind}Named"] = _or_info(kind, {**closed(fields), "type": "object"})
        found[f"{kind}Typed"] = _or_info(kind, {**closed({**fields, **typed}), "type": "object", **named})
    # Below its stream a consumer needs no other identification.
    consumer = {key: schema for key, schema in found[Kind.CONSUMER].items() if key != "else"}
    below = {**closed(_fields(Kind.CONSUMER)), "type": "object", **_needs("name", "durable_name")}
    found["ConsumerOfStream"] = {**consumer, "else": below} if "else" in found[Kind.CONSUMER] else below
    found["bucket_info"] = {"type": "object", "properties": {"stream_info": _info(StreamConfig, ("name",))}}
    return found


def _named_by(kind: Kind) -> Schema:
    if kind is Kind.CONSUMER:
        return {"allOf": [_needs("name", "durable_name"), _needs("stream", "stream_name")]}
    return _needs(NAMES[kind], *(alias for alias, word in ALIASES.items() if word == "bucket" and kind in WORDS))


def _needs(*keys: str) -> Schema:
    """Return a schema that requires one of these keys, with a text."""
    return {"anyOf": [{"required": [key], "properties": {key: _NAME}} for key in keys]}


def _fields(kind: Kind) -> dict[str, Schema]:
    own = {**_OWN, EXTRA: described({"type": ["object", "null"]}, OWN[EXTRA])}
    if kind is Kind.STREAM:
        consumers: Schema = {
            "type": ["array", "object", "null"],
            "items": _ref("ConsumerOfStream"),
            "additionalProperties": {"anyOf": [{"type": "null"}, _ref("ConsumerNamed")]},
        }
        return {**_shared("StreamConfig"), "consumers": described(consumers, OWN["consumers"]), **own}
    if kind is Kind.CONSUMER:
        stream = {key: described({"type": ["string", "null"]}, OWN[key]) for key in ("stream", "stream_name")}
        return {**_shared("ConsumerConfig"), **stream, **own}
    return {**_shared(WORDS[kind].__name__), **_OWN}


def _bucket_fields(words: type[ObjectStoreWords]) -> dict[str, Schema]:
    fields = properties_of(words)
    if words is KeyValueWords:
        mirror, sources = fields["mirror"], fields["sources"]
        fields["mirror"] = {"description": mirror["description"], **_origin(mirror)}
        fields["sources"] = {**sources, "type": ["array", "string", "null"], "items": _origin(sources["items"])}
    either = {"anyOf": [fields["compression"], {"enum": ["s2", "none"]}]}
    fields["compression"] = described(either, fields["compression"]["description"])
    return fields | {alias: fields[word] for alias, word in ALIASES.items() if word in fields}


def _origin(schema: Schema) -> Schema:
    """Return the schema of a bucket to copy: an object with its name, or the name alone."""
    named = {**schema["properties"]["name"], **_NAME}
    return {"anyOf": [{**schema, "properties": {**schema["properties"], "name": named}, "required": ["name"]}, _NAME]}


_FIELDS: Final[dict[str, dict[str, Schema]]] = {
    **{model.__name__: properties_of(model) for model in (StreamConfig, ConsumerConfig)},
    **{words.__name__: _bucket_fields(words) for words in WORDS.values()},
}
"""The fields that several definitions share, by the name of the definition that has them."""


def _shared(name: str) -> dict[str, Schema]:
    return {key: {"$ref": f"#/$defs/{name}/properties/{key}"} for key in _FIELDS[name]}


def _or_info(kind: Kind, own: Schema) -> Schema:
    """Return the schema of a configuration, or of a server's answer about one, which may have unknown keys."""
    if kind in WORDS:
        info = {"type": "object", "properties": {"stream_info": _info(StreamConfig, ("name",))}}
        return choose((_IS_BUCKET_INFO, info), (_IS_INFO, _info(StreamConfig, ("name",))), otherwise=own)
    if kind is Kind.CONSUMER:
        return choose((_IS_INFO, _info(ConsumerConfig, ())), otherwise=own)
    return choose((_IS_INFO, _info(StreamConfig, ("name",))), otherwise=own)


def _info(model: type[Model], names: tuple[str, ...]) -> Schema:
    config: dict[str, Any] = {"type": "object", "allOf": [_ref(model.__name__), *([_needs(*names)] if names else [])]}
    return {"type": "object", "required": ["config"], "properties": {"config": config}}
