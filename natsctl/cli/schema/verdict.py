"""Validation of a document: the first value that is not of a kind, by path and reason, and unknown keys."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from natsctl.cli.schema.documents import Documents
from natsctl.cli.schema.kinds import kinds
from natsctl.cli.schema.shapes import Verdict

_FAULT = re.compile(r"(?P<reason>.*?)(?: - at `(?P<path>.*)`)?", re.DOTALL)


def judge(document: Any, id: str) -> Verdict:
    """Return the verdict about a parsed JSON document."""
    bare = id.removesuffix("[]")
    kind: Any = kinds()[bare]
    if kind is Documents:
        return Documents.judge(document)
    try:
        msgspec.convert(document, list[kind] if bare != id else kind)
    except msgspec.ValidationError as failure:
        found = _FAULT.fullmatch(str(failure))
        reason, path = (found["reason"], found["path"] or "$") if found else (str(failure), "$")
        return Verdict(id=id, valid=False, path=path, reason=reason.replace("`", ""), unknown=[])
    items = document if bare != id else [document]
    unknown = [path for item in items for path in _unknown(item, msgspec.inspect.type_info(kind), "$")]
    return Verdict(id=id, valid=True, path="", reason="", unknown=unknown)


def _unknown(value: Any, kind: Any, path: str) -> Iterator[str]:
    """Yield the paths of keys that the type does not have."""
    if isinstance(kind, msgspec.inspect.Metadata):
        kind = kind.type
    if isinstance(kind, msgspec.inspect.UnionType):
        structured = [
            one for one in kind.types if isinstance(one, msgspec.inspect.StructType | msgspec.inspect.ListType)
        ]
        kind = structured[0] if len(structured) == 1 else kind
    if isinstance(kind, msgspec.inspect.StructType) and isinstance(value, dict):
        fields = {field.encode_name: field.type for field in kind.fields}
        for key, below in value.items():
            if key in fields:
                yield from _unknown(below, fields[key], f"{path}.{key}")
            elif key != kind.tag_field:
                yield f"{path}.{key}"
    elif isinstance(kind, msgspec.inspect.ListType) and isinstance(value, list):
        for at, below in enumerate(value):
            yield from _unknown(below, kind.item_type, f"{path}[{at}]")
    elif isinstance(kind, msgspec.inspect.DictType) and isinstance(value, dict):
        for key, below in value.items():
            yield from _unknown(below, kind.value_type, f"{path}.{key}")
