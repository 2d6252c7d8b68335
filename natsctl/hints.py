"""Names of `typing` for the modules that short commands import: typing takes a quarter of the start of an empty Python.

Type checkers see typing's own. At run time a NamedTuple is a namedtuple, `Annotated[KIND, …]` has its parts in
`__origin__` and `__metadata__`, as typing's has, and the other names mean nothing: modules that use them postpone
annotations (PEP 563). This one imports nothing of natsctl, because Spark carries it to executors that have no natsctl.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import *  # noqa: F403  # a re-export that type checkers follow
else:

    class Generic:
        def __class_getitem__(cls, _):
            return cls

    Any = AnyStr = ClassVar = Final = IO = NoReturn = Protocol = Self = TypeAlias = Generic

    class Annotated:
        def __class_getitem__(cls, parts):
            made = cls()
            made.__origin__, *made.__metadata__ = parts
            return made

    class NamedTupleMeta(type):
        def __new__(cls, name, bases, body):
            if not bases:
                return super().__new__(cls, name, bases, body)
            from collections import namedtuple

            fields = list(body.get("__annotations__", ()))
            defaults = [body.pop(field) for field in fields if field in body]
            made = namedtuple(name, fields, defaults=defaults, module=body.pop("__module__"))
            for key, value in body.items():
                setattr(made, key, value)
            return made

    class NamedTuple(metaclass=NamedTupleMeta):
        pass

    def TypeVar(name, **_):
        return Generic

    def cast(kind, value):
        return value
