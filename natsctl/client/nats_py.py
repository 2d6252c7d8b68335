"""The door to nats-py: its core client, client/short_client.py, without what JetStream adds to it.

`nats.aio.client` imports `nats.js` for two constructors that natsctl never calls and for the names of two headers,
and that is nearly half of the CPU time of the import. So `nats.js` is put in place as a module that runs its code
when something is first looked up in it: a message with a status header, or anyone's call of `jetstream()`, finds the
real one. It also looks up its own version in the metadata of what is installed, which costs more than all the rest;
the name of the folder that holds them has it too.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import os
import sys
import types
from collections.abc import Iterator
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from natsctl.client.short_client import ShortClient

_PACKAGE = "nats"
_LAZY = "nats.js"
_METADATA = "importlib.metadata"


class _OnFirstUse(types.ModuleType):
    """A module whose code runs when a name is missed in it.

    importlib's LazyLoader runs it on any access, and the import statement itself looks at `__spec__`.
    """

    def __getattr__(self, name: str) -> Any:
        self.__class__ = types.ModuleType  # type: ignore[assignment]  # from here on it is a plain module
        spec = self.__spec__
        if spec is not None and spec.loader is not None:
            spec.loader.exec_module(self)
        return getattr(self, name)


@functools.cache
def client_class() -> type[ShortClient]:
    """nats-py's `Client` with the short way."""
    if _PACKAGE not in sys.modules:
        _import_with_lazy_jetstream()
    short: type[ShortClient] = importlib.import_module("natsctl.client.short_client").ShortClient
    return short


def failure_class() -> type[Exception]:
    """The base of what nats-py raises."""
    client_class()
    failure: type[Exception] = importlib.import_module("nats.errors").Error
    return failure


def _import_with_lazy_jetstream() -> None:
    package = PathFinder.find_spec(_PACKAGE)
    found = PathFinder.find_spec(_LAZY, package.submodule_search_locations) if package else None
    if found is None:
        importlib.import_module(_PACKAGE)
        return
    module = importlib.util.module_from_spec(found)
    module.__class__ = _OnFirstUse
    sys.modules[_LAZY] = module
    with _versions_by_folder():
        package_module = importlib.import_module(_PACKAGE)
    # An import statement that finds the module ready does not bind it in its package, so that is done here.
    package_module.js = module  # type: ignore[attr-defined]  # bound by a plain import


@contextlib.contextmanager
def _versions_by_folder() -> Iterator[None]:
    """Put a module with `version` alone in place of importlib.metadata, unless that is loaded already."""
    if _METADATA in sys.modules:
        yield
        return
    module = types.ModuleType(_METADATA)
    module.version = installed_version  # type: ignore[attr-defined]  # all that nats-py takes of it
    sys.modules[_METADATA] = module
    try:
        yield
    finally:
        del sys.modules[_METADATA]


def installed_version(name: str) -> str:
    """The version of a distribution, by the folder of its metadata; raises LookupError."""
    start, end = f"{name.replace('-', '_')}-", ".dist-info"
    for folder in sys.path:
        with contextlib.suppress(OSError):
            for entry in os.listdir(folder or "."):  # noqa: PTH208  # a Path for each name is the cost that is saved
                if entry.startswith(start) and entry.endswith(end):
                    return entry[len(start) : -len(end)]
    raise LookupError(name)
