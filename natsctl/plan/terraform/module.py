"""The files of one folder of Terraform: its variables, locals and resources, each worked out when it is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from natsctl.plan.asset import Place
from natsctl.plan.terraform.body import Body
from natsctl.plan.terraform.expression import Evaluator
from natsctl.plan.terraform.schema import CONSUMER, KV_BUCKET, OBJ_BUCKET, STREAM, Field, Schema
from natsctl.plan.terraform.syntax import Attribute, Block
from natsctl.plan.terraform.values import ExpressionError, Loop, Named, number_of, said, text_value, truth_of
from natsctl.plan.wanted import Fault

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
MOST: Final = 10_000
"""The most instances of one `count`."""


@dataclass(frozen=True, slots=True)
class Instance:
    """One resource, or one of those that `count` or `for_each` make; `address` is `TYPE.NAME["KEY"]`."""

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
        """Return the blocks of a type, in the order of the files."""
        return (block for block in self.blocks if block.type == kind)

    def evaluator(self, place: Place) -> Evaluator:
        """Return the evaluator of the expressions at a location."""
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
        declared = {one.name: one for one in block.attributes}
        if name in self.given:
            return _converted(self.given[name], declared.get("type"))
        if "default" not in declared:
            raise ExpressionError(f"the variable {name} has no value: give it with --var {name}=VALUE")
        return self.evaluator(block.place).value(declared["default"].value)

    def _local(self, name: str) -> Any:
        for block in self.of("locals"):
            for one in block.attributes:
                if one.name == name:
                    return self.evaluator(one.place).value(one.value)
        raise ExpressionError(f"there is no local {name}")

    def _resource(self, kind: str, name: str) -> Any:
        block = next((one for one in self.of("resource") if one.labels == (kind, name)), None)
        if block is None:
            raise ExpressionError(f"there is no resource {kind}.{name}")
        if kind not in SCHEMAS:
            raise ExpressionError(f"{kind}.{name} is no resource of JetStream: what it comes to is not known here")
        declared = {one.name for one in block.attributes}
        found = {key: _Resource(self, block, evaluator) for key, evaluator in self._rounds(block)}
        if "count" in declared:
            return list(found.values())
        return found if "for_each" in declared else found[""]

    def instances(self) -> Iterator[Instance]:
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
                yield Instance(block.labels[0], address, body, self._is_protected(block, evaluator))

    def _rounds(self, block: Block) -> list[tuple[Any, Evaluator]]:
        """Return the key of each instance of a resource, and the evaluator of its expressions.

        Raises ExpressionError.
        """
        plain = self.evaluator(block.place)
        asked = {one.name: one for one in block.attributes if one.name in ("count", "for_each")}
        if "count" in asked:
            number = number_of(plain.value(asked["count"].value))
            if isinstance(number, float) or not 0 <= number <= MOST:
                raise ExpressionError(f"count can not be {said(number)}", asked["count"].place)
            return [(at, plain.within(count=Loop("count", {"index": at}))) for at in range(number)]
        if "for_each" in asked:
            found = plain.value(asked["for_each"].value)
            pairs = sorted(_pairs(found, asked["for_each"].place).items())
            return [(key, plain.within(each=Loop("each", {"key": key, "value": value}))) for key, value in pairs]
        return [("", plain)]

    def _body(self, block: Block, evaluator: Evaluator, path: str) -> Body:
        body = Body(block.place._replace(path=path))
        for one in block.attributes:
            if one.name in body.values or one.name in body.unread:
                self.faults.append(Fault(body.place_of(one.name), f"{one.name} stands here twice"))
            if one.name in META:
                continue
            body.places[one.name] = one.place
            try:
                body.values[one.name] = evaluator.value(one.value)
            except ExpressionError as error:
                body.unread.add(one.name)
                where = (error.place or one.place)._replace(path=f"{path}.{one.name}")
                self.faults.append(Fault(where, str(error)))
        for inner in block.blocks:
            if inner.type not in META_BLOCKS:
                self._add_blocks(body, inner, evaluator)
        return body

    def _add_blocks(self, body: Body, block: Block, evaluator: Evaluator) -> None:
        """Add a block, or those of a dynamic one."""
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
        """Return whether Terraform may not destroy it."""
        said_so = [one for inner in block.blocks if inner.type == "lifecycle" for one in inner.attributes]
        try:
            return any(truth_of(evaluator.value(one.value)) for one in said_so if one.name == "prevent_destroy")
        except ExpressionError as error:
            where = (error.place or block.place)._replace(path=".".join((*block.labels, "prevent_destroy")))
            self.faults.append(Fault(where, str(error)))
            return False


class _Words(Named):
    """`var`, `local`, or the resources of a type."""

    def __init__(self, module: Module, kind: str) -> None:
        self._module = module
        self._kind = kind

    def attribute(self, name: str) -> Any:
        """Return the value of a name."""
        return self._module.worked_out(self._kind, name)


class _Resource(Named):
    """One resource, whose attributes are known as far as the files give or imply them."""

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


def _pairs(found: Any, place: Place) -> dict[str, Any]:
    """Return the pairs of `for_each`: a map, or texts that are keys and values at once."""
    if isinstance(found, dict):
        return found
    if isinstance(found, list) and all(isinstance(item, str) for item in found):
        return {item: item for item in found}
    raise ExpressionError(f"for_each goes over a map or a set of texts, got {said(found)}", place)


def _dynamic_rounds(block: Block, name: str, evaluator: Evaluator) -> list[Evaluator]:
    """Return the evaluator of a dynamic block's content for each round. Raises ExpressionError."""
    declared = {one.name: one for one in block.attributes}
    if "for_each" not in declared:
        raise ExpressionError("for_each is missing", block.place)
    found = evaluator.value(declared["for_each"].value)
    pairs = sorted(found.items()) if isinstance(found, dict) else [(item, item) for item in found or ()]
    word = _iterator(declared.get("iterator"), name)
    return [evaluator.within(**{word: Loop(word, {"key": key, "value": value})}) for key, value in pairs]


def _iterator(given: Attribute | None, name: str) -> str:
    return name if given is None else (given.value.text or b"").decode()


def _converted(value: Any, kind: Attribute | None) -> Any:
    """Return a value from outside, as text, in the type of the variable."""
    declared = "string" if kind is None else (kind.value.text or b"").decode().strip()
    if declared in ("string", '"string"'):
        return text_value(value) if isinstance(value, int | float | bool) else value
    return number_of(value) if declared == "number" and isinstance(value, str) else value


def _index(key: Any) -> str:
    if key == "":
        return ""
    return f"[{key}]" if isinstance(key, int) else f'["{key}"]'
