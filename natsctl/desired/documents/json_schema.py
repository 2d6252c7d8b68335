"""The JSON schema of documents, for editors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from natsctl.api.consumer import ConsumerConfig
from natsctl.api.model import INT64_MAX, INT64_MIN, UINT64_MAX, Model, Shape, shape_of
from natsctl.api.stream import StreamConfig
from natsctl.desired.assets import Kind
from natsctl.desired.documents.asset_documents import DEAD_LETTER_FIELDS, DEAD_LETTERS, EXTRA, IGNORE
from natsctl.desired.documents.bucket_fields import ALIASES, CONFIG_ALIASES, WORDS, KeyValueWords, ObjectStoreWords
from natsctl.desired.documents.controller import (
    CONNECTION,
    DELIVER_POLICIES,
    GROUP,
    KINDS,
    LIFE,
    PASSED_OVER,
    REQUIRED,
    SpecField,
)
from natsctl.desired.documents.loader import COLLECTIONS, CONSUMER_ONLY, KEY_VALUE_ONLY, NAMES, SETTINGS

_NAMED: Final = {"description": "A text for people", "metadata": "Keys and values of your own"}
_PLACED: Final = {
    "placement": "The cluster and the servers that hold it",
    "num_replicas": "Copies in a cluster, 1 to 5",
}

TEXTS: Final[dict[str, dict[str, str]]] = {
    "StreamConfig": {
        **_NAMED,
        **_PLACED,
        "name": "The stream's name",
        "subjects": "Subjects that the stream stores; * and > are wildcards. Default: the stream's name",
        "retention": "When messages may go: by limits, when all consumers have them, or when one has",
        "max_consumers": "Maximum number of consumers; -1 for no limit",
        "max_msgs": "Maximum number of messages; -1 for no limit",
        "max_bytes": "Maximum size in bytes; -1 for no limit",
        "max_age": "Maximum age of messages; 0 for no limit",
        "max_msgs_per_subject": "Maximum number of messages per subject; -1 for no limit",
        "max_msg_size": "Largest message that is taken; -1 for no limit",
        "discard": "The message to drop at a limit: the oldest, or the new one",
        "discard_new_per_subject": "Refuse new messages at the limit of their subject; needs discard: new",
        "storage": "Storage of messages; cannot be changed later",
        "no_ack": "Do not acknowledge published messages",
        "duplicate_window": "Time that message ids are remembered. Default: 2m, or max_age if that is less",
        "template_owner": "The template that made it, on servers of 2020",
        "mirror": "Copy this stream, and nothing else",
        "sources": "Copy messages of these streams too",
        "compression": "Compression of stored messages",
        "first_seq": "Sequence of the first message",
        "subject_transform": "Store messages under other subjects",
        "republish": "Publish stored messages again on other subjects",
        "allow_direct": "Answer direct gets of single messages on every replica",
        "mirror_direct": "Answer direct gets of the origin on the mirror too",
        "sealed": "Accept no more messages, and remove none",
        "deny_delete": "Refuse to delete single messages; cannot be taken back",
        "deny_purge": "Refuse to purge; cannot be taken back",
        "allow_rollup_hdrs": "Allow messages that replace the ones before them",
        "consumer_limits": "Defaults and limits of its consumers",
        "allow_msg_ttl": "Allow a time to live on each message; cannot be taken back",
        "subject_delete_marker_ttl": "How long to keep a marker after the last message of a subject has expired",
        "allow_msg_counter": "Use each subject as a counter",
        "allow_atomic": "Allow atomic batches of publishes",
        "allow_msg_schedules": "Allow scheduled messages",
        "persist_mode": "Acknowledge before (async) or after (default) messages are on disk",
        "allow_batched": "Allow fast batches of publishes",
    },
    "ConsumerConfig": {
        **_NAMED,
        "name": "The consumer's name; it is durable, unless it has an inactive_threshold",
        "durable_name": "The name of a consumer that outlives its clients",
        "deliver_policy": "The first message to deliver",
        "opt_start_seq": "The sequence to start at; needs deliver_policy: by_start_sequence",
        "opt_start_time": "The time to start at; needs deliver_policy: by_start_time",
        "ack_policy": "The acknowledgements that are needed",
        "ack_wait": "Time to wait for an ack before delivering again. Default: 30s",
        "max_deliver": "Most deliveries of one message; -1 for no limit",
        "backoff": "Waits before each redelivery, instead of ack_wait",
        "filter_subject": "Only messages of this subject",
        "filter_subjects": "Only messages of these subjects",
        "replay_policy": "As fast as possible, or at the pace of the original messages",
        "rate_limit_bps": "Most bits a second that are pushed",
        "sample_freq": "Percentage of acks that are sampled",
        "max_waiting": "Most pull requests that wait. Default: 512",
        "max_ack_pending": "Maximum number of unacknowledged messages. Default: 1000",
        "flow_control": "Push with flow control; needs idle_heartbeat",
        "headers_only": "Deliver without bodies",
        "max_batch": "Maximum number of messages per pull request",
        "max_expires": "Maximum wait of a pull request",
        "max_bytes": "Maximum bytes per pull request",
        "deliver_subject": "Push messages to this subject; without it clients pull",
        "deliver_group": "Queue group that pushed messages are shared in",
        "idle_heartbeat": "Push a heartbeat when idle this long",
        "inactive_threshold": "Remove the consumer when unused this long",
        "num_replicas": "Copies in a cluster; 0 for as many as the stream has",
        "mem_storage": "Keep the consumer's state in memory",
        "direct": "For mirrors and sources of servers",
        "sourcing": "For mirrors and sources of servers",
        "pause_until": "Deliver nothing until then",
        "priority_groups": "Groups of clients that compete for messages",
        "priority_policy": "How clients of a priority group share messages",
        "priority_timeout": "Time after which a silent client is no longer pinned",
    },
    "KeyValueWords": {
        **_NAMED,
        "bucket": "The bucket's name",
        "history": "Values kept of each key, 1 to 64",
        "ttl": "Maximum age of values; 0 for no limit",
        "limit_marker_ttl": "Allow a time to live on each key, and keep markers of expired keys for so long",
        "max_value_size": "Largest value that is taken; -1 for no limit",
        "max_bucket_size": "Maximum size of the bucket in bytes; -1 for no limit",
        "storage": "Storage of values; cannot be changed later",
        "replicas": "Copies in a cluster, 1 to 5",
        "placement": _PLACED["placement"],
        "compression": "Compress stored data",
        "republish": "Publish stored messages again on other subjects",
        "mirror": "Copy this bucket; writes go to it too",
        "sources": "Take in the keys of these buckets too",
    },
    "Placement": {
        "cluster": "The cluster",
        "tags": "Only servers with these tags",
        "preferred": "The server to become the leader; for moves only",
    },
    "SubjectTransform": {"src": "Subjects to map", "dest": "Subjects that they become"},
    "RePublish": {
        "src": "Subjects to publish again",
        "dest": "Subjects to publish them on",
        "headers_only": "Publish again without bodies",
    },
    "ExternalStream": {
        "api": "Prefix of the API of another domain or account, such as $JS.hub.API",
        "deliver": "Prefix of the subjects that messages come on",
    },
    "StreamConsumerSource": {"name": "The consumer", "deliver_subject": "The subject that it pushes to"},
    "StreamSource": {
        "name": "The stream, or the bucket",
        "opt_start_seq": "The sequence to start at",
        "opt_start_time": "The time to start at",
        "filter_subject": "Only messages of this subject",
        "subject_transforms": "Only messages of these subjects, under other ones",
        "external": "Place of a stream in another account or domain",
        "consumer": "An existing durable consumer to use instead of a new one",
    },
    "StreamConsumerLimits": {
        "inactive_threshold": "Default and upper limit of inactive_threshold",
        "max_ack_pending": "Default and upper limit of max_ack_pending",
    },
}
TEXTS["ObjectStoreWords"] = {**TEXTS["KeyValueWords"], "storage": "Storage of objects; cannot be changed later"}
DOCUMENT_KEYS: Final = {
    "protect": "Never remove or replace it",
    "create_only": "Create it if it is missing; never change an existing one",
    "ignore": "Fields that are set when it is created, and left as they are afterwards",
    "extra": "Fields of newer servers, as the wire has them",
    "consumers": "The stream's consumers: a list, or a mapping by name",
    "copy": "Keep the messages too: natsctl deadletter run copies them",
    "dead_letters": "Keep messages that consumers give up or terminate: true, or limits",
    "stream": "The consumer's stream",
    "stream_name": "The consumer's stream",
    "kind": "The kind of asset that the document describes",
    "owner": "Owner of the assets: prune and destroy only remove assets of this owner",
    "include": "Files, folders and globs to read too, as seen from this file",
    "spec": "The configuration",
    "streams": "Streams: a list, or a mapping by name",
    "key_values": "Key-value buckets: a list, or a mapping by name",
    "kv": "Key-value buckets: a list, or a mapping by name",
    "object_stores": "Object stores: a list, or a mapping by name",
    "objects": "Object stores: a list, or a mapping by name",
}
"""Keys of a document other than configurations."""


Schema = dict[str, Any]

REFERENCE: Final = r"\$\{"
"""Pattern of a placeholder for another value."""
_UNITS: Final = "(ns|us|µs|μs|ms|[smhdwMyY])"
DURATION: Final = rf"^\s*[-+]?(0|([0-9]{{1,20}}(\.[0-9]{{0,30}})?{_UNITS}|\.[0-9]{{1,30}}{_UNITS})+)\s*$|^-?[0-9]+$"
SIZE: Final = r"^\s*[0-9]{1,20}(\.[0-9]{1,18})?\s*([KMGTPEkmgtpe]([iI]?[bB])?|[bB])?\s*$|^-?[0-9]+$"
TIME: Final = (
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}([.,][0-9]{1,18})?([Zz]|[-+][0-9]{2}:[0-9]{2})$"
)
_PATTERNS: Final = {"duration": DURATION, "size": SIZE}
_EXAMPLES: Final = {"duration": ["30s", "5m", "1h30m", "1y"], "size": ["64KiB", "10MB", "1GiB"]}
_RANGES: Final = {"int32": (-(2**31), 2**31 - 1), "uint64": (0, UINT64_MAX)}


def of_shape(shape: Shape) -> Schema:
    """Return the schema of a value; a struct is an object without other keys."""
    if shape.kind == "struct":
        return closed(properties_of(shape.python))
    if shape.kind == "list":
        return {"type": ["array", "null"], "items": present(of_shape(shape.elements()))}
    if shape.kind == "dict":
        return {"type": ["object", "null"], "additionalProperties": of_shape(shape.elements())}
    if shape.kind == "enum":
        return of_choice(member.value for member in shape.python if member.value)
    if shape.human == "time":
        return {"type": ["string", "null"], "format": "date-time", "pattern": f"{TIME}|{REFERENCE}"}
    if shape.kind == "int":
        return _number(shape)
    if shape.kind == "bool":
        return {"type": ["boolean", "string", "null"], "pattern": REFERENCE}
    return {"type": ["string", "null"]}


def present(schema: Schema) -> Schema:
    kinds = schema.get("type")
    return {**schema, "type": [kind for kind in kinds if kind != "null"]} if isinstance(kinds, list) else schema


def _number(shape: Shape) -> Schema:
    low, high = _RANGES.get(shape.go, (INT64_MIN, INT64_MAX))
    schema: Schema = {"type": ["integer", "string", "null"], "minimum": low, "maximum": high, "pattern": REFERENCE}
    if shape.human:
        schema |= {"pattern": f"{_PATTERNS[shape.human]}|{REFERENCE}", "examples": _EXAMPLES[shape.human]}
    return schema


def of_choice(choices: Iterable[str]) -> Schema:
    """Return the schema of a choice; editors offer the names as given and accept capitals too."""
    words = list(choices)
    spelled = "|".join(_any_case(word) for word in words)
    return {"anyOf": [{"enum": [*words, None]}, {"type": "string", "pattern": f"^({spelled})$|{REFERENCE}"}]}


def _any_case(word: str) -> str:
    spelled = (f"[{char.upper()}{char}]" if char.isalpha() else "[_ ]" if char == "_" else char for char in word)
    return "".join(spelled)


def properties_of(model: type[Model]) -> dict[str, Schema]:
    texts = TEXTS[model.__name__]
    return {key: described(of_shape(field.shape), texts[key]) for key, field in shape_of(model).fields.items()}


def described(schema: Schema, text: str) -> Schema:
    return {"description": text, **schema}


def closed(properties: Mapping[str, Schema], required: Iterable[str] = ()) -> Schema:
    """Return the schema of an object that has these keys and no others."""
    wanted = list(required)
    schema: Schema = {"type": ["object", "null"], "properties": dict(properties), "additionalProperties": False}
    return schema | ({"type": "object", "required": wanted} if wanted else {})


def has(*keys: str) -> Schema:
    return {"type": "object", "required": list(keys)}


def has_any(keys: Iterable[str]) -> Schema:
    return {"type": "object", "anyOf": [{"required": [key]} for key in keys]}


def choose(*cases: tuple[Schema, Schema], otherwise: Schema) -> Schema:
    """Return the schema of the first case that holds."""
    schema = otherwise
    for condition, wanted in reversed(cases):
        schema = {"if": condition, "then": wanted, "else": schema}
    return schema


_MODELS: Final[dict[str, type[Model]]] = {
    "Stream": StreamConfig,
    "Consumer": ConsumerConfig,
    "KeyValue": KeyValueWords,
    "ObjectStore": ObjectStoreWords,
}
_SWITCH: Final[Schema] = {"type": ["boolean", "string", "null"], "pattern": REFERENCE}
_LIFE_TEXTS: Final = dict(zip(LIFE, (DOCUMENT_KEYS["protect"], DOCUMENT_KEYS["create_only"]), strict=True))


def manifest(document: str) -> Schema:
    """Return the schema of a resource of the controller, a List of resources, or another (skipped) resource."""
    is_list = {"properties": {"kind": {"const": "List"}, "items": {"type": "array"}}, "required": ["kind", "items"]}
    ours = {"properties": {"apiVersion": {"pattern": f"^{GROUP.replace('.', '[.]')}"}}}
    known = {"type": "object", "required": ["kind"], "properties": {"kind": {"enum": [*KINDS, *PASSED_OVER]}}}
    cases = [
        (
            {"properties": {"kind": {"const": kind}}},
            {**has("spec"), "properties": {"spec": {"$ref": _manifest_ref(kind)}}},
        )
        for kind in KINDS
    ]
    listed = [
        (
            {
                "properties": {"kind": {"const": f"{kind}List"}, "items": {"type": "array"}},
                "required": ["kind", "items"],
            },
            {"properties": {"items": {"items": _item_of(kind, document)}}},
        )
        for kind in (*KINDS, *PASSED_OVER)
    ]
    return choose(
        (is_list, {"properties": {"items": {"items": {"$ref": document}}}}),
        *(({"allOf": [ours, is_listed]}, items) for is_listed, items in listed),
        (ours, {"allOf": [known, choose(*cases, otherwise={})]}),
        otherwise={"type": "object"},
    )


def _item_of(kind: str, document: str) -> Schema:
    """Return the schema of an item of a list of one kind; its own kind is optional."""
    bare = {"required": ["spec"], "properties": {"spec": {"$ref": _manifest_ref(kind)}}} if kind in KINDS else {}
    return choose((has("kind"), {"$ref": document}), otherwise={"type": "object", **bare})


def _manifest_ref(kind: str) -> str:
    return f"#/$defs/{kind}Spec"


def manifest_definitions() -> dict[str, Schema]:
    definitions = {}
    for kind, (_, _, fields) in KINDS.items():
        own = _properties(fields, shape_of(_MODELS[kind]), _MODELS[kind])
        life = {key: described(_SWITCH, _LIFE_TEXTS[key]) for key in LIFE}
        connection = {key: {"description": "Ignored: natsctl connects as its flags say"} for key in CONNECTION}
        required = ["streamName", "durableName"] if kind == "Consumer" else [REQUIRED[kind]]
        for name in required:
            own[name] = {"description": own[name]["description"], "type": "string", "minLength": 1}
        definitions[f"{kind}Spec"] = closed({**own, **life, **connection}, required)
    return definitions


def _properties(fields: dict[str, SpecField], shape: Shape, model: type[Model] | None) -> dict[str, Schema]:
    texts = TEXTS.get(model.__name__, {}) if model is not None else {}
    return {
        name: described(_field(field, shape), texts.get(field.to[0]) or DOCUMENT_KEYS.get(field.to[0], ""))
        for name, field in fields.items()
    }


def _field(field: SpecField, shape: Shape) -> Schema:
    """Return the schema of a field, by its target in a configuration; empty texts and zeros count as absent."""
    if field.to == ("stream",):
        return {"type": "string", "minLength": 1}
    for step in field.to:
        shape = shape.fields[step].shape
    if field.to == ("deliver_policy",):
        return of_choice(["", *(member.value for member in shape.python), *DELIVER_POLICIES])
    if field.below is None:
        return {"anyOf": [of_shape(shape), {"enum": ["", 0]}]}
    inner = shape.elements() if shape.kind == "list" else shape
    schema = closed(_properties(field.below, inner, inner.python))
    return {"type": ["array", "null"], "items": present(schema)} if shape.kind == "list" else schema


_SWITCHES: Final[dict[str, Schema]] = {
    key: described(_SWITCH, DOCUMENT_KEYS[key]) for key in ("protect", "create_only")
}
_NAME: Final[Schema] = {"type": "string", "minLength": 1}
_IGNORE: Final[Schema] = described({"type": ["array", "null"], "items": _NAME}, DOCUMENT_KEYS[IGNORE])
_OWN: Final[dict[str, Schema]] = {**_SWITCHES, IGNORE: _IGNORE}
_OWNER: Final[Schema] = {"type": ["string", "null"], "minLength": 1}
_IS_INFO: Final[Schema] = {"required": ["config"], "properties": {"config": {"type": "object"}}}
_IS_BUCKET_INFO: Final[Schema] = {
    "required": ["stream_info"],
    "properties": {"stream_info": {"type": "object", **_IS_INFO}},
}


def document_schema(id: str) -> Schema:
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": id,
        "title": "natsctl documents",
        "description": "The desired state of streams, consumers and buckets, for natsctl validate, plan and apply.",
        "$ref": "#/$defs/document",
        # No condition: editors offer this in an empty document.
        "properties": {key: {"description": DOCUMENT_KEYS[key]} for key in ("kind", *SETTINGS, *COLLECTIONS)},
        "$defs": {
            "document": _document(),
            "plain": _plain(),
            "typed": _typed(),
            "manifest": manifest("#/$defs/document"),
            **{name: {"type": "object", "properties": fields} for name, fields in _FIELDS.items()},
            **_assets(),
            **manifest_definitions(),
        },
    }


def _ref(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}


def _document() -> Schema:
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
    lists = {key: described(_collection(kind), DOCUMENT_KEYS[key]) for key, kind in COLLECTIONS.items()}
    listing = {"properties": {"type": {"type": "string", "pattern": r"^io\.nats\."}}, "required": ["type"]}
    settings = {
        "owner": described(_OWNER, DOCUMENT_KEYS["owner"]),
        "include": described({"anyOf": [_NAME, {"type": "array", "items": _NAME}]}, DOCUMENT_KEYS["include"]),
        IGNORE: _IGNORE,
    }
    properties = {**lists, **settings}
    return choose((listing, {"type": "object", "properties": properties}), otherwise=closed(properties))


def _collection(kind: Kind) -> Schema:
    return {
        "type": ["array", "object", "null"],
        "items": _ref(kind),
        "additionalProperties": {"anyOf": [{"type": "null"}, _ref(f"{kind}Named")]},
    }


def _typed() -> Schema:
    """Return the schema of the typed form: `kind:` with the configuration next to it or below `spec`."""
    kinds = {"type": "string", "pattern": f"^({'|'.join(_kind_in_any_case(kind) for kind in Kind)})$"}
    own = {
        "kind": described({"anyOf": [{"enum": list(Kind)}, kinds]}, DOCUMENT_KEYS["kind"]),
        "owner": described(_OWNER, DOCUMENT_KEYS["owner"]),
    }
    cases = []
    for kind in Kind:
        is_kind = {"properties": {"kind": {"pattern": f"^{_kind_in_any_case(kind)}$"}}}
        below = closed({**own, "spec": described(_ref(kind), DOCUMENT_KEYS["spec"])}, ["kind"])
        cases.append((is_kind, choose((_has_spec(), below), otherwise=_ref(f"{kind}Typed"))))
    return {"properties": own, **choose(*cases, otherwise={})}


def _has_spec() -> Schema:
    return {"required": ["spec"], "properties": {"spec": {"type": "object"}}}


def _kind_in_any_case(word: str) -> str:
    return "".join(f"[{char.upper()}{char.lower()}]" for char in word)


def _assets() -> dict[str, Schema]:
    """Return the schemas of each kind: as an item of a list, below its name, and with `kind`."""
    assets: dict[str, Schema] = {}
    typed: dict[str, Schema] = {"kind": {}, "owner": {}}
    for kind in Kind:
        fields = _fields(kind)
        named = _named_by(kind)
        assets[kind] = _or_info(kind, {**closed(fields), "type": "object", **named})
        assets[f"{kind}Named"] = _or_info(kind, {**closed(fields), "type": "object"})
        assets[f"{kind}Typed"] = _or_info(kind, {**closed({**fields, **typed}), "type": "object", **named})
    # Below its stream a consumer needs no other identification.
    consumer = {key: schema for key, schema in assets[Kind.CONSUMER].items() if key != "else"}
    below = {**closed(_fields(Kind.CONSUMER)), "type": "object", **_needs("name", "durable_name")}
    assets["ConsumerOfStream"] = {**consumer, "else": below} if "else" in assets[Kind.CONSUMER] else below
    stream = _shared("StreamConfig")
    limits = {word: stream[field] for word, field in DEAD_LETTER_FIELDS.items() if word != "copy"}
    copies = {"copy": described(_SWITCH, DOCUMENT_KEYS["copy"])}
    assets["DeadLetters"] = described({"anyOf": [_SWITCH, closed(limits | copies)]}, DOCUMENT_KEYS[DEAD_LETTERS])
    assets["bucket_info"] = {"type": "object", "properties": {"stream_info": _info(StreamConfig, ("name",))}}
    return assets


def _named_by(kind: Kind) -> Schema:
    if kind is Kind.CONSUMER:
        return {"allOf": [_needs("name", "durable_name"), _needs("stream", "stream_name")]}
    return _needs(NAMES[kind], *(alias for alias, word in ALIASES.items() if word == "bucket" and kind in WORDS))


def _needs(*keys: str) -> Schema:
    """Return a schema that requires one of these keys with a text that is not empty."""
    return {"anyOf": [{"required": [key], "properties": {key: _NAME}} for key in keys]}


def _fields(kind: Kind) -> dict[str, Schema]:
    own = {**_OWN, EXTRA: described({"type": ["object", "null"]}, DOCUMENT_KEYS[EXTRA])}
    if kind is Kind.STREAM:
        consumers: Schema = {
            "type": ["array", "object", "null"],
            "items": _ref("ConsumerOfStream"),
            "additionalProperties": {"anyOf": [{"type": "null"}, _ref("ConsumerNamed")]},
        }
        below = {"consumers": described(consumers, DOCUMENT_KEYS["consumers"])}
        below[DEAD_LETTERS] = _ref("DeadLetters")
        return {**_shared("StreamConfig"), **below, **own}
    if kind is Kind.CONSUMER:
        stream = {key: described({"type": ["string", "null"]}, DOCUMENT_KEYS[key]) for key in ("stream", "stream_name")}
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


def _config_fields(model: type[Model]) -> dict[str, Schema]:
    fields = properties_of(model)
    return fields | {alias: fields[name] for alias, name in CONFIG_ALIASES.items()}


def _origin(schema: Schema) -> Schema:
    """Return the schema of a bucket to copy: an object with its name, or just the name."""
    named = {**schema["properties"]["name"], **_NAME}
    return {"anyOf": [{**schema, "properties": {**schema["properties"], "name": named}, "required": ["name"]}, _NAME]}


_FIELDS: Final[dict[str, dict[str, Schema]]] = {
    **{model.__name__: _config_fields(model) for model in (StreamConfig, ConsumerConfig)},
    **{words.__name__: _bucket_fields(words) for words in WORDS.values()},
}
"""The fields that several definitions share, by the name of the definition that has them."""


def _shared(name: str) -> dict[str, Schema]:
    return {key: {"$ref": f"#/$defs/{name}/properties/{key}"} for key in _FIELDS[name]}


def _or_info(kind: Kind, own: Schema) -> Schema:
    """Return the schema of a configuration, or of a server's answer about it, with unknown keys allowed."""
    if kind in WORDS:
        info = {"type": "object", "properties": {"stream_info": _info(StreamConfig, ("name",))}}
        return choose((_IS_BUCKET_INFO, info), (_IS_INFO, _info(StreamConfig, ("name",))), otherwise=own)
    if kind is Kind.CONSUMER:
        return choose((_IS_INFO, _info(ConsumerConfig, ())), otherwise=own)
    return choose((_IS_INFO, _info(StreamConfig, ("name",))), otherwise=own)


def _info(model: type[Model], names: tuple[str, ...]) -> Schema:
    config: dict[str, Any] = {"type": "object", "allOf": [_ref(model.__name__), *([_needs(*names)] if names else [])]}
    return {"type": "object", "required": ["config"], "properties": {"config": config}}
