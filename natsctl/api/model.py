"""Base of the contract's models: the struct, Go's number types, and fields that are never left out.

A field with a plain default (0, "", None, False, an empty list) is left out of JSON while it holds that default, like
Go's `omitempty`. A field made with one of the factories below is always written, as `msgspec` never compares those. The
aliases carry in `extra` what a bare Python type cannot express: Go's type name (error texts quote it), and whether a
document for people may spell the value as a duration or a size; their descriptions are those of `natsctl schema`.
"""

from enum import StrEnum
from typing import Annotated, Any, ClassVar, Final

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
    """Base of records of which some fields are never shown: passwords, tokens, seeds."""

    UNSHOWN: ClassVar[tuple[str, ...]] = ()
    """Names of the fields that `repr` leaves out."""

    def __repr__(self) -> str:
        """Return the record as it was called, without what is secret."""
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
