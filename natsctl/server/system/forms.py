"""What a request of the system account may say: the options of its endpoint, and which servers it is meant for."""

from __future__ import annotations

from enum import IntEnum
from functools import cache
from typing import TYPE_CHECKING, Any, Final, get_args, get_origin, get_type_hints

import msgspec

from natsctl.api.shapes import Field, Shape
from natsctl.api.strict import DecodeError, read_plain

if TYPE_CHECKING:
    from natsctl.broker.broker import Broker

__all__ = ["DecodeError", "Form", "NoOptions", "ServerFilter"]

_FILTER: Final = "EventFilterOptions"
_KINDS: Final[dict[Any, tuple[str, str]]] = {str: ("str", "string"), bool: ("bool", "bool"), int: ("int", "int")}


class ServerFilter(msgspec.Struct, kw_only=True):
    """Which servers a request is meant for; what is empty asks for nothing."""

    server_name: str = ""
    cluster: str = ""
    host: str = ""
    exact_match: bool = False
    tags: list[str] = []
    domain: str = ""

    def leaves_out(self, broker: Broker) -> bool:
        """Return whether the request is not meant for this server; without `exact_match` a part of a name will do."""
        options = broker.options
        here = ((self.server_name, broker.server_name), (self.host, options.host), (self.cluster, ""))
        if any(wanted and (wanted != name if self.exact_match else wanted not in name) for wanted, name in here):
            return True
        if any(tag.lower() not in options.tags for tag in self.tags):
            return True
        return bool(self.domain) and self.domain != options.domain


class NoOptions(msgspec.Struct):
    """The options of an endpoint that has none."""


class Form(msgspec.Struct, frozen=True):
    """The body of one kind of request; `name` and `part` are what error texts call it and its options."""

    name: str
    part: str = ""
    options: type[msgspec.Struct] = NoOptions

    def read(self, body: bytes) -> tuple[ServerFilter, Any]:
        """Return what a body asks for; an empty one asks for nothing. Raises DecodeError with Go's text."""
        given = read_plain(body, _shape(self)) if body else {}
        return _filled(ServerFilter, given), _filled(self.options, given)


def _filled(model: type[msgspec.Struct], given: dict[str, Any]) -> Any:
    """Return a model of what was given for it; types were checked, while ranges are the endpoint's to judge."""
    names = zip(model.__struct_encode_fields__, model.__struct_fields__, strict=True)
    return model(**{attribute: given[key] for key, attribute in names if key in given})


@cache
def _shape(form: Form) -> Shape:
    fields: dict[str, Field] = {}
    for model, part in ((form.options, form.part), (ServerFilter, _FILTER)):
        hints = get_type_hints(model, include_extras=True)
        for key, attribute in zip(model.__struct_encode_fields__, model.__struct_fields__, strict=True):
            fields[key] = Field(_value_shape(hints[attribute]), part)
    return Shape(kind="struct", go=f"server.{form.name}", fields=fields)


def _value_shape(hint: Any) -> Shape:
    if get_origin(hint) is list:
        item = _value_shape(get_args(hint)[0])
        return Shape(kind="list", go=f"[]{item.go}", item=item)
    extra = getattr(hint, "__metadata__", None)
    if extra:
        return Shape(kind="int", go=extra[0].extra["go"])
    if issubclass(hint, IntEnum):
        return Shape(kind="int", go="int")
    kind, go = _KINDS[hint]
    return Shape(kind=kind, go=go)
