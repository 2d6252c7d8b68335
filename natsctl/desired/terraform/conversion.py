"""Conversion of files, folders and states of Terraform into a set of assets, or into all of their faults.

A resource of the JetStream provider becomes the asset that the provider would have created.

Terraform's JSON syntax (`.tf.json`) is read as the blocks and attributes of HCL. It does not say whether an object is
a block or a map: the provider's schema does. Texts are templates, as in quotes. Source:
https://developer.hashicorp.com/terraform/language/syntax/json
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from natsctl.api.documents import read_json
from natsctl.api.errors import UsageError, file_errors
from natsctl.api.locations import LocatedDict, LocatedList, Location, Step, TextError, spelled
from natsctl.api.units import SECOND
from natsctl.desired.assets import (
    AssetKey,
    DesiredAsset,
    DocumentError,
    DocumentSet,
    Fault,
    Kind,
    without_labels,
    without_server_made,
)
from natsctl.desired.documents.bucket_fields import stream_fields
from natsctl.desired.terraform.configuration import SCHEMAS, Module, TerraformInstance, given_variables, passed_over
from natsctl.desired.terraform.hcl import Block, parse
from natsctl.desired.terraform.provider import DELIVERIES, Body, Nested, Schema, filled

SUFFIX: Final = ".tf.json"
_LABELS: Final = {"resource": 2, "data": 2, "variable": 1, "output": 1, "module": 1, "provider": 1}
"""Types of blocks, and how many levels of names follow them."""
_COMMENT: Final = "//"
_INTERPOLATION: Final = re.compile(r"\$\$\{|%%\{|[$%]\{")
_BLOCKS_ANYWHERE: Final = frozenset(("lifecycle", "timeouts", "connection", "provisioner"))


def parse_json(file: str, text: bytes, schemas: Mapping[str, Schema]) -> tuple[Block, list[Fault]]:
    whole = Block("", (), Location(file, 1))
    faults: list[Fault] = []

    def report(line: int, path: Sequence[Step], reason: str) -> None:
        faults.append(Fault(Location(file, line, "$" + "".join(map(spelled, path))), reason))

    try:
        documents = [value for _, value in read_json(text.decode("utf-8-sig"), report, None)]
    except UnicodeDecodeError:
        return whole, [Fault(Location(file, 1), "not UTF-8 text")]
    except TextError as fault:
        return whole, [Fault(Location(file, fault.line), fault.reason)]
    if len(documents) != 1 or not isinstance(documents[0], LocatedDict):
        return whole, [Fault(Location(file, 1), "expected one object, a Terraform configuration")]
    reader = _JsonBlockReader(file, schemas, faults)
    for kind, value in documents[0].items():
        if kind != _COMMENT:
            whole.blocks.extend(reader.blocks(kind, (), value, documents[0].lines[kind], _LABELS.get(kind, 0)))
    return whole, faults


class _JsonBlockReader:
    def __init__(self, file: str, schemas: Mapping[str, Schema], faults: list[Fault]) -> None:
        self._file, self._schemas, self._faults = file, schemas, faults

    def blocks(self, kind: str, labels: tuple[str, ...], value: Any, line: int, names: int) -> Iterator[Block]:
        """Yield the blocks below a key: `names` levels of names, then one body or a list of bodies."""
        if isinstance(value, LocatedList):
            for item, at in zip(value, value.lines, strict=True):
                yield from self.blocks(kind, labels, item, at, names)
        elif not isinstance(value, LocatedDict):
            self._faults.append(Fault(Location(self._file, line, ".".join(("$", kind, *labels))), "expected an object"))
        elif names:
            for name, inner in value.items():
                if name != _COMMENT:
                    yield from self.blocks(kind, (*labels, name), inner, value.lines[name], names - 1)
        else:
            schema = self._schemas.get(labels[0], {}) if kind == "resource" else {}
            yield self._block(kind, labels, value, line, schema)

    def _block(self, kind: str, labels: tuple[str, ...], body: LocatedDict, line: int, schema: Schema) -> Block:
        block = Block(kind, labels, Location(self._file, line, ".".join(("$", kind, *labels))))
        for name, value in body.items():
            known, at = schema.get(name), body.lines[name]
            if name == _COMMENT:
                continue
            if isinstance(known, Nested):
                block.blocks.extend(self._nested(name, (), value, at, known.schema))
            elif name == "dynamic" and isinstance(value, LocatedDict):
                for label, inner in value.items():
                    nested = schema.get(label)
                    inside: Schema = {"content": nested} if isinstance(nested, Nested) else {}
                    block.blocks.extend(self._nested(name, (label,), inner, value.lines[label], inside))
            elif name in _BLOCKS_ANYWHERE and kind == "resource":
                block.blocks.extend(self._nested(name, (), value, at, {}))
            else:
                plain = (kind, name) in (("variable", "type"), ("dynamic", "iterator"))
                self._attribute(block, name, value if plain else _expression(value), at)
        return block

    def _nested(self, kind: str, labels: tuple[str, ...], value: Any, line: int, schema: Schema) -> Iterator[Block]:
        items = zip(value, value.lines, strict=True) if isinstance(value, LocatedList) else ((value, line),)
        for item, at in items:
            if isinstance(item, LocatedDict):
                yield self._block(kind, labels, item, at, schema)
            elif item is not None:
                self._faults.append(Fault(Location(self._file, at, f"$.{kind}"), "expected an object"))

    def _attribute(self, block: Block, name: str, expression: str, line: int) -> None:
        parsed, wrong = parse(self._file, b"\n" * (line - 1) + f"{name} = {expression}\n".encode())
        if wrong or len(parsed.attributes) != 1:
            self._faults.append(Fault(Location(self._file, line, f"{block.place.path}.{name}"), "cannot be read"))
        else:
            block.attributes.append(parsed.attributes[0])


def _expression(value: Any) -> str:
    """Return a JSON value as an expression of HCL, in one line."""
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{_template(key)} = {_expression(value[key])}' for key in value)} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(_expression, value))}]"
    return _template(value) if isinstance(value, str) else json.dumps(value)


def _template(text: str) -> str:
    parts, at = ['"'], 0
    while match := _INTERPOLATION.search(text, at):
        parts.append(_quoted(text[at : match.start()]))
        escaped = len(match[0]) == len("$${")
        at = match.end() if escaped else _end_of(text, match.end())
        parts.append(text[match.start() : at])
    return "".join((*parts, _quoted(text[at:]), '"'))


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _end_of(text: str, at: int) -> int:
    """Return the position after the brace that closes an interpolation, or the end of the text."""
    depth = 1
    while at < len(text) and depth:
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        at += 1
    return at


STREAM_ID: Final = "JETSTREAM_STREAM_"
_REFUSED_DEFAULTS: Final = {"none": "max_ack_pending", "flow_control": "ack_wait"}
"""By ack policy of a push consumer, the provider's default that servers refuse there: its first versions had none."""
Config = dict[str, Any]
Made = tuple[AssetKey, Config]


def wanted_of(instance: TerraformInstance, faults: list[Fault], notes: list[str]) -> DesiredAsset | None:
    """Return the asset of a resource; if it has faults, add them and return None."""
    before = len(faults)
    config = filled(instance.body, SCHEMAS[instance.type], faults)
    if config.get("placement", {}).get("tags") and not config["placement"].get("cluster"):
        del config["placement"]["tags"]
        where = f"{instance.body.place.file}:{instance.body.place.line}: {instance.address}"
        notes.append(f"{where}: placement_tags are left out: the provider ignores them without placement_cluster")
    if not config.get("placement", True):
        del config["placement"]
    kind, make = _MAKERS[instance.type]
    try:
        made = make(config, instance.body, faults)
    except (UsageError, ValueError) as error:
        faults.append(Fault(instance.body.place, str(error)))
        return None
    if made is None or len(faults) > before or instance.body.unread:
        return None
    key, config = made
    return DesiredAsset(key, kind, without_server_made(without_labels(config)), instance.body.place, instance.protect)


def _stream(config: Config, body: Body, faults: list[Fault]) -> Made | None:
    republish = config.get("republish", {})
    if republish and not republish.get("src"):
        if republish.get("dest"):
            faults.append(Fault(body.place_of("republish_destination"), "republish_source is missing"))
        del config["republish"]
    if config.get("mirror") and config.get("sources"):
        faults.append(Fault(body.place_of("source"), "a stream has a mirror or sources, not both"))
    if not config.get("mirror"):
        config.pop("mirror_direct", None)
        if not config.get("subjects") and not config.get("sources") and "subjects" not in body.unread:
            faults.append(Fault(body.place_of("subjects"), "subjects are missing"))
    if config.get("persist_mode") == "default":
        del config["persist_mode"]
    return (AssetKey(config["name"]), config) if config.get("name") else None


def _consumer(config: Config, body: Body, faults: list[Fault]) -> Made | None:
    stream = str(body.get("stream_id", ""))
    if stream and not stream.startswith(STREAM_ID):
        reason = f"expected the id of a stream, such as jetstream_stream.ORDERS.id, got {stream!r}"
        faults.append(Fault(body.place_of("stream_id"), reason))
    _start(config, body, faults)
    _filter(config, body, faults)
    if config.get("priority_policy") == "none":
        del config["priority_policy"]
    if not config.get("deliver_subject"):
        config.pop("deliver_group", None)
    else:
        refused = _REFUSED_DEFAULTS.get(config.get("ack_policy", ""), "")
        if body.get(refused) is None:
            config.pop(refused, None)
    name = config.get("durable_name")
    return (AssetKey(stream.removeprefix(STREAM_ID), name), config) if name and stream else None


def _start(config: Config, body: Body, faults: list[Fault]) -> None:
    """Set the start of a consumer: exactly one of the attributes that give it."""
    given = [name for name in DELIVERIES if body.get(name) not in (None, False, 0, "", "false")]
    if len(given) == 1:
        config["deliver_policy"] = DELIVERIES[given[0]]
    elif given:
        faults.append(Fault(body.place_of(given[1]), f"only one of {', '.join(given)} can be given"))
    elif not body.unread & DELIVERIES.keys():
        faults.append(Fault(body.place, f"one of {', '.join(DELIVERIES)} is missing"))


def _filter(config: Config, body: Body, faults: list[Fault]) -> None:
    many = config.get("filter_subjects", [])
    if many and config.get("filter_subject"):
        faults.append(Fault(body.place_of("filter_subjects"), "filter_subject and filter_subjects exclude each other"))
    elif len(many) == 1:
        config["filter_subject"] = config.pop("filter_subjects")[0]


def _bucket(kind: Kind, config: Config) -> Made | None:
    if "bucket" not in config:
        return None
    stream = stream_fields(kind, config)
    return AssetKey(stream["name"]), stream


_MAKERS: Final[dict[str, tuple[Kind, Callable[[Config, Body, list[Fault]], Made | None]]]] = {
    "jetstream_stream": (Kind.STREAM, _stream),
    "jetstream_consumer": (Kind.CONSUMER, _consumer),
    "jetstream_kv_bucket": (Kind.KEY_VALUE, lambda config, body, faults: _bucket(Kind.KEY_VALUE, config)),
    "jetstream_obj_bucket": (Kind.OBJECT_STORE, lambda config, body, faults: _bucket(Kind.OBJECT_STORE, config)),
}


Resource = Mapping[str, Any]


def state_instances(document: Mapping[str, Any], file: str) -> Iterator[TerraformInstance]:
    """Return the JetStream resources of a state. Absent arguments have their default or zero there."""
    found = list(_shown(document)) or list(_stored(document))
    read = "planned_values" not in document
    for address, kind, values in found:
        if kind in SCHEMAS:
            body = _body(values, SCHEMAS[kind], Location(file, 0, address))
            if read and kind == "jetstream_stream":
                _in_seconds(body, "inactive_threshold")
            yield TerraformInstance(kind, address, body)


def _shown(document: Mapping[str, Any]) -> Iterator[tuple[str, str, Resource]]:
    whole = _object(document.get("values") or document.get("planned_values"))
    modules = [_object(whole.get("root_module"))]
    while modules:
        module = modules.pop(0)
        modules += _objects(module.get("child_modules"))
        for one in _objects(module.get("resources")):
            if one.get("mode", "managed") == "managed":
                yield str(one.get("address")), str(one.get("type")), _object(one.get("values"))


def _stored(document: Mapping[str, Any]) -> Iterator[tuple[str, str, Resource]]:
    for one in _objects(document.get("resources")):
        for instance in _objects(one.get("instances")):
            key = instance.get("index_key")
            index = "" if key is None else f"[{key}]" if isinstance(key, int) else f'["{key}"]'
            module = f"{one['module']}." if one.get("module") else ""
            if one.get("mode", "managed") == "managed":
                address = f"{module}{one.get('type')}.{one.get('name')}{index}"
                yield address, str(one.get("type")), _object(instance.get("attributes"))


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _objects(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _body(values: Resource, schema: Schema, place: Location) -> Body:
    """Return the values of a resource; empty ones count as absent."""
    body = Body(place)
    for name, value in values.items():
        known = schema.get(name)
        if isinstance(known, Nested):
            body.blocks[name] = [_body(one, known.schema, place) for one in _objects(value)]
        elif name not in ("id", "timeouts"):
            body.values[name] = value
    return body


def _in_seconds(body: Body, name: str) -> None:
    """Convert nanoseconds to seconds: the provider stores some fields in nanoseconds."""
    value = body.get(name, 0)
    if isinstance(value, int) and value >= SECOND:
        body.values[name] = value // SECOND


MAX_FILE_BYTES: Final = 32 * 1024 * 1024
_STATE_SUFFIXES: Final = (".json", ".tfstate")


def read_terraform(
    paths: Sequence[str],
    environ: Mapping[str, str],
    *,
    variables: Sequence[str] = (),
    variable_files: Sequence[str] = (),
) -> DocumentSet:
    """Return the assets of `.tf` and `.tf.json` files, of folders of them, and of states as JSON; a folder is a module.

    `variables` are `NAME=VALUE`, `variable_files` are `.tfvars`. Raises DocumentError with all that cannot be
    converted, UsageError for what cannot be read.
    """
    faults: list[Fault] = []
    notes: list[str] = []
    instances: list[TerraformInstance] = []
    files: list[str] = []
    for group in _groups(paths):
        files += map(str, group)
        if _is_state_file(group[0]):
            made, own_notes = _from_state(group[0])
        else:
            made, own_notes = _from_module(group, environ, variables, variable_files, faults)
        instances += made
        notes += own_notes
    wanted = _collected(instances, faults, notes)
    if faults:
        raise DocumentError(sorted(faults, key=lambda fault: (files.index(fault.place.file), fault.place.line)))
    return DocumentSet(wanted, files=tuple(files), notes=tuple(notes))


def _groups(paths: Sequence[str]) -> list[list[Path]]:
    """Return the files of each module: a folder's together, single named files together, each state by itself."""
    groups: list[list[Path]] = []
    named: list[Path] = []
    for path in map(Path, paths):
        if path.is_dir():
            inside = sorted([*path.glob("*.tf"), *path.glob(f"*{SUFFIX}")])
            if not inside:
                raise UsageError(f"{path}: no .tf file in this folder", hint="each folder of a configuration is named")
            groups.append(inside)
        elif _is_state_file(path):
            groups.append([path])
        else:
            named.append(path)
    return [*([named] if named else []), *groups]


def _is_state_file(path: Path) -> bool:
    return path.name.endswith(_STATE_SUFFIXES) and not path.name.endswith(SUFFIX)


def _from_module(
    files: Sequence[Path],
    environ: Mapping[str, str],
    variables: Sequence[str],
    variable_files: Sequence[str],
    faults: list[Fault],
) -> tuple[list[TerraformInstance], list[str]]:
    blocks: list[Block] = []
    for file in files:
        raw = read_bytes(file)
        whole, wrong = parse_json(str(file), raw, SCHEMAS) if file.name.endswith(SUFFIX) else parse(str(file), raw)
        blocks += whole.blocks
        faults += wrong
        faults += [
            Fault(attribute.place, f"{attribute.name} = … stands outside of any block")
            for attribute in whole.attributes
        ]
    if faults:
        return [], []  # follow-up faults of an unreadable file would mislead
    given = given_variables(blocks, files[0].parent, environ, variables, variable_files, faults)
    module = Module(blocks, given, faults)
    return list(module.instances()), passed_over(module)


def _from_state(file: Path) -> tuple[list[TerraformInstance], list[str]]:
    try:
        document = json.loads(read_bytes(file))
    except ValueError as error:
        raise UsageError(f"{file}: not JSON: {error}") from error
    if not (isinstance(document, dict) and "terraform_version" in document):
        raise UsageError(f"{file}: no state of Terraform", hint="`terraform show -json` writes one")
    return list(state_instances(document, str(file))), []


def read_bytes(file: Path) -> bytes:
    with file_errors(file, UsageError), file.open("rb") as opened:
        raw = opened.read(MAX_FILE_BYTES + 1)
    if len(raw) > MAX_FILE_BYTES:
        raise UsageError(f"{file}: larger than {MAX_FILE_BYTES // 2**20} MiB")
    return raw


def _collected(
    instances: Iterable[TerraformInstance], faults: list[Fault], notes: list[str]
) -> dict[AssetKey, DesiredAsset]:
    wanted: dict[AssetKey, DesiredAsset] = {}
    first: dict[AssetKey, Location] = {}
    for instance in instances:
        one = wanted_of(instance, faults, notes)
        if one is None:
            continue
        if one.key in wanted:
            faults.append(Fault(one.place, f"{one.key} stands twice, first at {first[one.key]}"))
            continue
        wanted[one.key], first[one.key] = one, one.place
    return wanted
