"""The files of a Terraform folder: variables, locals and resources."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from natsctl.api.errors import UsageError
from natsctl.api.locations import Location
from natsctl.desired.assets import Fault
from natsctl.desired.terraform.expressions import (
    AttributeSource,
    Evaluator,
    ExpressionError,
    Loop,
    number_of,
    said,
    text_value,
    truth_of,
)
from natsctl.desired.terraform.hcl import Attribute, Block, parse
from natsctl.desired.terraform.provider import CONSUMER, KV_BUCKET, OBJ_BUCKET, STREAM, Body, Field, Schema

SCHEMAS: Final[Mapping[str, Schema]] = {
    "jetstream_stream": STREAM,
    "jetstream_consumer": CONSUMER,
    "jetstream_kv_bucket": KV_BUCKET,
    "jetstream_obj_bucket": OBJ_BUCKET,
}
META: Final = frozenset(("depends_on", "provider", "count", "for_each"))
"""Arguments that every resource may have. The order of changes follows from the assets themselves."""
META_BLOCKS: Final = frozenset(("lifecycle", "timeouts", "connection", "provisioner"))
_IDS: Final = {
    "jetstream_stream": ("JETSTREAM_STREAM_", "name"),
    "jetstream_kv_bucket": ("JETSTREAM_KV_", "name"),
    "jetstream_obj_bucket": ("JETSTREAM_OBJ_", "name"),
}
MAX_LIMIT: Final = 10_000
"""The most instances of one `count`."""


@dataclass(frozen=True, slots=True)
class TerraformInstance:
    """One resource, or one instance made by `count` or `for_each`; `address` is `TYPE.NAME["KEY"]`."""

    type: str
    address: str
    body: Body
    protect: bool = False


@dataclass(slots=True)
class Module:
    """All blocks of a folder. `given` are the evaluated values of variables from outside."""

    blocks: list[Block]
    given: Mapping[str, Any] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    _known: dict[tuple[str, str], Any] = field(default_factory=dict)
    _open: list[tuple[str, str]] = field(default_factory=list)
    _scope: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._scope = {"var": _Words(self, "var"), "local": _Words(self, "local")}
        for kind in {block.labels[0] for block in self.of("resource") if block.labels}:
            self._scope.setdefault(kind, _Words(self, kind))

    def of(self, kind: str) -> Iterator[Block]:
        return (block for block in self.blocks if block.type == kind)

    def evaluator(self, place: Location) -> Evaluator:
        return Evaluator(place.file, self._scope)

    def worked_out(self, kind: str, name: str) -> Any:
        """Return the value of `var.NAME`, `local.NAME` or of the resource `TYPE.NAME`. Raises ExpressionError."""
        key = kind, name
        if key in self._known:
            return self._known[key]
        if key in self._open:
            raise ExpressionError(f"{kind}.{name} refers to itself")
        self._open.append(key)
        try:
            finders = {"var": self._variable, "local": self._local}
            found = finders[kind](name) if kind in finders else self._resource(kind, name)
        finally:
            self._open.pop()
        self._known[key] = found
        return found

    def _variable(self, name: str) -> Any:
        block = next((one for one in self.of("variable") if one.labels == (name,)), None)
        if block is None:
            raise ExpressionError(f"there is no variable {name}")
        declared = {attribute.name: attribute for attribute in block.attributes}
        if name in self.given:
            return _converted(self.given[name], declared.get("type"))
        if "default" not in declared:
            raise ExpressionError(f"the variable {name} has no value: give it with --var {name}=VALUE")
        return self.evaluator(block.place).value(declared["default"].value)

    def _local(self, name: str) -> Any:
        for block in self.of("locals"):
            for attribute in block.attributes:
                if attribute.name == name:
                    return self.evaluator(attribute.place).value(attribute.value)
        raise ExpressionError(f"there is no local {name}")

    def _resource(self, kind: str, name: str) -> Any:
        block = next((one for one in self.of("resource") if one.labels == (kind, name)), None)
        if block is None:
            raise ExpressionError(f"there is no resource {kind}.{name}")
        if kind not in SCHEMAS:
            raise ExpressionError(f"{kind}.{name} is not a JetStream resource: its value is not known here")
        declared = {attribute.name for attribute in block.attributes}
        found = {key: _Resource(self, block, evaluator) for key, evaluator in self._rounds(block)}
        if "count" in declared:
            return list(found.values())
        return found if "for_each" in declared else found[""]

    def instances(self) -> Iterator[TerraformInstance]:
        """Return every JetStream resource, evaluated; those without a value are added to the faults."""
        for block in self.of("resource"):
            if len(block.labels) != 2 or block.labels[0] not in SCHEMAS:
                continue
            try:
                rounds = self._rounds(block)
            except ExpressionError as error:
                where = (error.place or block.place)._replace(path=".".join(block.labels))
                self.faults.append(Fault(where, str(error)))
                continue
            for key, evaluator in rounds:
                address = ".".join(block.labels) + _index(key)
                body = self._body(block, evaluator, address)
                yield TerraformInstance(block.labels[0], address, body, self._is_protected(block, evaluator))

    def _rounds(self, block: Block) -> list[tuple[Any, Evaluator]]:
        """Return the key of each instance of a resource, and the evaluator of its expressions.

        Raises ExpressionError.
        """
        plain = self.evaluator(block.place)
        asked = {attribute.name: attribute for attribute in block.attributes if attribute.name in ("count", "for_each")}
        if "count" in asked:
            number = number_of(plain.value(asked["count"].value))
            if isinstance(number, float) or not 0 <= number <= MAX_LIMIT:
                raise ExpressionError(f"count cannot be {said(number)}", asked["count"].place)
            return [(at, plain.within(count=Loop("count", {"index": at}))) for at in range(number)]
        if "for_each" in asked:
            found = plain.value(asked["for_each"].value)
            pairs = sorted(_pairs(found, asked["for_each"].place).items())
            return [(key, plain.within(each=Loop("each", {"key": key, "value": value}))) for key, value in pairs]
        return [("", plain)]

    def _body(self, block: Block, evaluator: Evaluator, path: str) -> Body:
        body = Body(block.place._replace(path=path))
        for attribute in block.attributes:
            if attribute.name in body.values or attribute.name in body.unread:
                self.faults.append(Fault(body.place_of(attribute.name), f"{attribute.name} stands here twice"))
            if attribute.name in META:
                continue
            body.places[attribute.name] = attribute.place
            try:
                body.values[attribute.name] = evaluator.value(attribute.value)
            except ExpressionError as error:
                body.unread.add(attribute.name)
                where = (error.place or attribute.place)._replace(path=f"{path}.{attribute.name}")
                self.faults.append(Fault(where, str(error)))
        for inner in block.blocks:
            if inner.type not in META_BLOCKS:
                self._add_blocks(body, inner, evaluator)
        return body

    def _add_blocks(self, body: Body, block: Block, evaluator: Evaluator) -> None:
        name = block.labels[0] if block.type == "dynamic" and block.labels else block.type
        body.places.setdefault(name, block.place)
        if block.type != "dynamic":
            body.blocks.setdefault(name, []).append(self._body(block, evaluator, f"{body.place.path}.{name}"))
            return
        try:
            rounds = _dynamic_rounds(block, name, evaluator)
        except ExpressionError as error:
            where = (error.place or block.place)._replace(path=f"{body.place.path}.{name}")
            self.faults.append(Fault(where, str(error)))
            return
        contents = [one for one in block.blocks if one.type == "content"]
        for inner in rounds:
            made = [self._body(content, inner, f"{body.place.path}.{name}") for content in contents]
            body.blocks.setdefault(name, []).extend(made)

    def _is_protected(self, block: Block, evaluator: Evaluator) -> bool:
        said_so = [attribute for inner in block.blocks if inner.type == "lifecycle" for attribute in inner.attributes]
        try:
            return any(truth_of(evaluator.value(one.value)) for one in said_so if one.name == "prevent_destroy")
        except ExpressionError as error:
            where = (error.place or block.place)._replace(path=".".join((*block.labels, "prevent_destroy")))
            self.faults.append(Fault(where, str(error)))
            return False


class _Words(AttributeSource):
    """`var`, `local`, or the resources of a type."""

    def __init__(self, module: Module, kind: str) -> None:
        self._module = module
        self._kind = kind

    def attribute(self, name: str) -> Any:
        return self._module.worked_out(self._kind, name)


class _Resource(AttributeSource):
    """One resource, with the attributes that the files give or imply."""

    def __init__(self, module: Module, block: Block, evaluator: Evaluator) -> None:
        self._module = module
        self._block = block
        self._evaluator = evaluator

    def attribute(self, name: str) -> Any:
        """Return the given value, the default, or the id. Raises ExpressionError."""
        kind = self._block.labels[0]
        if name == "id":
            return self._id(kind)
        given = next((one for one in self._block.attributes if one.name == name), None)
        if given is not None:
            return Evaluator(given.place.file, self._evaluator.scope).value(given.value)
        known = SCHEMAS[kind].get(name)
        if not isinstance(known, Field):
            raise ExpressionError(f"{'.'.join(self._block.labels)} has no attribute {name}")
        return known.default

    def _id(self, kind: str) -> str:
        if kind == "jetstream_consumer":
            return f"{text_value(self.attribute('stream_id'))}_CONSUMER_{text_value(self.attribute('durable_name'))}"
        prefix, name = _IDS[kind]
        return prefix + text_value(self.attribute(name))


def _pairs(found: Any, place: Location) -> dict[str, Any]:
    """Return the pairs of `for_each`: a map, or texts that are keys and values at once."""
    if isinstance(found, dict):
        return found
    if isinstance(found, list) and all(isinstance(item, str) for item in found):
        return {item: item for item in found}
    raise ExpressionError(f"for_each goes over a map or a set of texts, got {said(found)}", place)


def _dynamic_rounds(block: Block, name: str, evaluator: Evaluator) -> list[Evaluator]:
    """Return the evaluator of a dynamic block's content for each round. Raises ExpressionError."""
    declared = {attribute.name: attribute for attribute in block.attributes}
    if "for_each" not in declared:
        raise ExpressionError("for_each is missing", block.place)
    found = evaluator.value(declared["for_each"].value)
    pairs = sorted(found.items()) if isinstance(found, dict) else [(item, item) for item in found or ()]
    word = _iterator(declared.get("iterator"), name)
    return [evaluator.within(**{word: Loop(word, {"key": key, "value": value})}) for key, value in pairs]


def _iterator(given: Attribute | None, name: str) -> str:
    return name if given is None else (given.value.text or b"").decode()


def _converted(value: Any, kind: Attribute | None) -> Any:
    declared = "string" if kind is None else (kind.value.text or b"").decode().strip()
    if declared in ("string", '"string"'):
        return text_value(value) if isinstance(value, int | float | bool) else value
    return number_of(value) if declared == "number" and isinstance(value, str) else value


def _index(key: Any) -> str:
    if key == "":
        return ""
    return f"[{key}]" if isinstance(key, int) else f'["{key}"]'


_ENVIRONMENT: Final = "TF_VAR_"
_TEXTUAL: Final = frozenset(("", "string", "number", "bool", "any"))
"""Types of variables with literal values on the command line."""


def given_variables(
    blocks: Sequence[Block],
    folder: Path,
    environ: Mapping[str, str],
    variables: Sequence[str],
    variable_files: Sequence[str],
    faults: list[Fault],
) -> dict[str, Any]:
    """Return variables by name. Raises UsageError for a file that cannot be read or a malformed `NAME=VALUE`."""
    declared = {block.labels[0]: block for block in blocks if block.type == "variable" and block.labels}
    given: dict[str, Any] = {}
    for name in declared:
        if _ENVIRONMENT + name in environ:
            given[name] = _worded(declared[name], environ[_ENVIRONMENT + name])
    automatic = [folder / "terraform.tfvars", folder / "terraform.tfvars.json", *sorted(folder.glob("*.auto.tfvars*"))]
    for file in [*(path for path in automatic if path.is_file()), *map(Path, variable_files)]:
        given |= _from_file(file, faults)
    for text in variables:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError(f"--var {text}: expected NAME=VALUE")
        if name not in declared:
            raise UsageError(f"--var {name}: there is no such variable in these files")
        given[name] = _worded(declared[name], value)
    return given


def _from_file(file: Path, faults: list[Fault]) -> dict[str, Any]:
    try:
        raw = file.read_bytes()
        if file.name.endswith(".json"):
            return dict(json.loads(raw))
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror or error}") from error
    except (ValueError, TypeError) as error:
        raise UsageError(f"{file}: expected an object of variables in JSON") from error
    whole, wrong = parse(str(file), raw)
    if wrong:
        raise UsageError("\n".join(str(fault) for fault in wrong))
    given = {}
    for attribute in whole.attributes:
        try:
            given[attribute.name] = Evaluator(str(file), {}).value(attribute.value)
        except ExpressionError as error:
            raise UsageError(f"{error.place or attribute.place}: {error}") from error
    return given


def _worded(declared: Block, text: str) -> Any:
    """Return a value of the command line: text for a plain type, an expression for a list or a map."""
    kind = (
        next((attribute.value.text or b"" for attribute in declared.attributes if attribute.name == "type"), b"")
        .decode()
        .strip()
    )
    if kind in _TEXTUAL:
        return text
    whole, wrong = parse("--var", f"value = {text}\n".encode())
    if wrong or not whole.attributes:
        raise UsageError(f"--var {declared.labels[0]}: {text!r} is no {kind}")
    try:
        return Evaluator("--var", {}).value(whole.attributes[0].value)
    except ExpressionError as error:
        raise UsageError(f"--var {declared.labels[0]}: {error}") from error


_ADVICE: Final = {
    "provider": "the server and the login are given by --server, --creds or a context (natsctl context add)",
    "terraform": "documents need no backend: the state is read from the server",
    "output": "natsctl stream info and consumer info show the values, with -j for programs",
    "module": "convert the folder of the module by itself, with its variables as --var",
    "data": "its result is not known here",
    "import": "what exists is adopted by natsctl apply",
    "moved": "what exists is known by its name",
    "removed": "natsctl apply --prune removes assets that are no longer in the documents",
    "check": "natsctl plan and diff show the differences",
}
_READ: Final = frozenset(("resource", "variable", "locals"))


def passed_over(module: Module) -> list[str]:
    """Return a note for every block that is skipped, in the order of the files."""
    return [f"{block.place.file}:{block.place.line}: {text}" for block in module.blocks for text in _ignored_of(block)]


def _ignored_of(block: Block) -> Iterator[str]:
    name = " ".join((block.type, *block.labels))
    if block.type == "resource" and block.labels:
        yield from _resource(block)
    elif block.type in _ADVICE:
        yield f"{name} is passed over: {_ADVICE[block.type]}"
    elif block.type not in _READ:
        yield f"{name} is passed over: it is not known here"


def _resource(block: Block) -> Iterator[str]:
    name, kind = ".".join(block.labels), block.labels[0]
    if kind == "jetstream_kv_entry":
        yield f"{name} is passed over: documents hold no keys, put it with natsctl kv put BUCKET KEY VALUE"
    elif kind not in SCHEMAS:
        known = "documents do not hold it" if kind.startswith("jetstream_") else "it is no resource of JetStream"
        yield f"{name} is passed over: {known}"
    ignored = any(attribute.name == "ignore_changes" for inner in block.blocks for attribute in inner.attributes)
    if ignored and kind in SCHEMAS:
        yield f"{name}: ignore_changes is passed over: a document is the whole configuration"
