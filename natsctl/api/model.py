"""Base of the contract's models: the struct, Go's number types, fields that are never left out, and a type's shape.

A field with a plain default (0, "", None, False, an empty list) is left out of JSON while it holds that default, like
Go's `omitempty`. A field made with one of the factories below is always written, as `msgspec` never compares those. The
aliases add in `extra` details that a bare Python type cannot express: Go's type name (quoted by error texts), whether
documents may spell the value as a duration or a size; `natsctl schema` shows their descriptions.

The shape of a model is read once per type: the base of strict decoding and of reading documents.
"""

from __future__ import annotations

from enum import Enum, StrEnum
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Final, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from natsctl.api.times import ZERO_TIME

INT64_MAX: Final = 2**63 - 1
INT64_MIN: Final = -(2**63)
UINT64_MAX: Final = 2**64 - 1

Int = Annotated[int, Meta(extra={"go": "int"})]
Int64 = Annotated[int, Meta(extra={"go": "int64"})]
Uint64 = Annotated[int, Meta(extra={"go": "uint64"})]
Duration = Annotated[int, Meta(description="nanoseconds", extra={"go": "time.Duration", "human": "duration"})]
Size32 = Annotated[int, Meta(description="bytes", extra={"go": "int32", "human": "size"})]
Size64 = Annotated[int, Meta(description="bytes", extra={"go": "int64", "human": "size"})]
SizeInt = Annotated[int, Meta(description="bytes", extra={"go": "int", "human": "size"})]
Time = Annotated[
    str,
    Meta(description="RFC 3339", extra_json_schema={"format": "date-time"}, extra={"go": "time.Time", "human": "time"}),
]


class Model(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Base of every JSON object of the contract: attributes equal keys, field order is key order."""


class Confidential(msgspec.Struct, frozen=True):
    """Base of records with secret fields that are never shown: passwords, tokens, seeds."""

    UNSHOWN: ClassVar[tuple[str, ...]] = ()
    """Names of the fields that `repr` leaves out."""

    def __repr__(self) -> str:
        """Return the record as it was called, without secrets."""
        shown = (name for name in self.__struct_fields__ if name not in self.UNSHOWN)
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"


class WireEnum(StrEnum):
    """Base of every enumeration: the value is the text on the wire."""


def zero() -> int:
    """Return 0, for a number that is always written."""
    return 0


def blank() -> str:
    """Return the empty text, for a text that is always written."""
    return ""


def off() -> bool:
    """Return False, for a flag that is always written."""
    return False


def zero_time() -> str:
    """Return Go's zero time, for a time that is always written."""
    return ZERO_TIME


def new_list() -> list[Any]:
    """Return a new empty list, for a list that is always written (`list` itself would mean omitempty)."""
    return []


# Names of nats-server's types that differ from ours; its error texts quote them.
_GO_NAMES: Final = {
    "StreamCreateRequest": "StreamConfigRequest",
    "StreamUpdateRequest": "StreamConfigRequest",
    "StreamNamesRequest": "JSApiStreamNamesRequest",
    "StreamListRequest": "JSApiStreamListRequest",
    "StreamInfoRequest": "JSApiStreamInfoRequest",
    "StreamPurgeRequest": "JSApiStreamPurgeRequest",
    "StreamMsgGetRequest": "JSApiMsgGetRequest",
    "StreamMsgDeleteRequest": "JSApiMsgDeleteRequest",
    "StreamSnapshotRequest": "JSApiStreamSnapshotRequest",
    "StreamRestoreRequest": "JSApiStreamRestoreRequest",
    "ConsumerCreateRequest": "CreateConsumerRequest",
    "ConsumersRequest": "JSApiConsumersRequest",
    "ConsumerPauseRequest": "JSApiConsumerPauseRequest",
    "ConsumerUnpinRequest": "JSApiConsumerUnpinRequest",
    "ConsumerResetRequest": "JSApiConsumerResetRequest",
    "PullRequest": "JSApiConsumerGetNextRequest",
    "LeaderStepdownRequest": "JSApiLeaderStepdownRequest",
    "StreamRemovePeerRequest": "JSApiStreamRemovePeerRequest",
    "PagedRequest": "ApiPagedRequest",
    "SubjectTransform": "SubjectTransformConfig",
}
_EMBEDDED: Final = frozenset({"StreamConfig", "PagedRequest"})
_POINTERS: Final = frozenset({"StreamSource"})


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """One type: `kind` is int, bool, str, bytes, enum, list, dict or struct; `human` is duration, size, time or ""."""

    kind: str
    go: str
    human: str = ""
    python: Any = None
    item: Shape | None = None
    fields: dict[str, ShapeField] = {}

    def elements(self) -> Shape:
        """Return the shape of a container's values."""
        assert self.item is not None
        return self.item


class ShapeField(msgspec.Struct, frozen=True):
    """One key of a struct; `embedded` is the name of the Go struct it comes from when that is embedded."""

    shape: Shape
    embedded: str = ""


@cache
def shape_of(model: type[Model]) -> Shape:
    """Return the shape of a model."""
    name = model.__name__
    hints = get_type_hints(model, include_extras=True)
    fields = {
        key: ShapeField(_shape(hints[attribute]), _embedded_in(model, attribute))
        for attribute, key in zip(model.__struct_fields__, model.__struct_encode_fields__, strict=True)
    }
    return Shape(kind="struct", go=f"server.{_GO_NAMES.get(name, name)}", python=model, fields=fields)


def _embedded_in(model: type[Model], attribute: str) -> str:
    """Return the Go name of the embedded struct that declares `attribute`, or nothing."""
    for base in model.__mro__[1:]:
        if base.__name__ in _EMBEDDED and attribute in base.__struct_fields__:  # type: ignore[attr-defined]  # a Model
            return _GO_NAMES.get(base.__name__, base.__name__)
    return ""


def _shape(hint: Any, extra: dict[str, str] | None = None) -> Shape:
    """Return the shape of a type hint; None in a union is left out, as Go ignores null."""
    extra = extra or {}
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _shape(args[0], args[1].extra)
    if origin in (Union, UnionType):
        wanted = [arg for arg in args if arg is not NoneType]
        return _shape(wanted[0], extra)
    if origin is list:
        item = _shape(args[0])
        pointer = "*" if item.kind == "struct" and item.python.__name__ in _POINTERS else ""
        return Shape(kind="list", go=f"[]{pointer}{item.go}", item=item)
    if origin is dict:
        item = _shape(args[1])
        return Shape(kind="dict", go=f"map[string]{item.go}", item=item)
    if issubclass(hint, Enum):
        return Shape(kind="enum", go="", python=hint)
    if issubclass(hint, Model):
        return shape_of(hint)
    names = {int: "int", bool: "bool", str: "string", bytes: "[]uint8"}
    return Shape(kind=hint.__name__, go=extra.get("go", names[hint]), human=extra.get("human", ""))
