"""The door to nats-py: imports its core client without what JetStream adds to it.

`nats.aio.client` imports `nats.js` for two constructors that natsctl never calls and for the names of two headers,
and that is nearly half of the CPU time of the import. So `nats.js` is put in place as a module that runs its code
when something is first looked up in it: a message with a status header, or anyone's call of `jetstream()`, finds the
real one.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nats.aio.client import Client

_PACKAGE = "nats"
_LAZY = "nats.js"


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


def client_class() -> type[Client]:
    """nats-py's `Client`."""
    if _PACKAGE not in sys.modules:
        _import_with_lazy_jetstream()
    client: type[Client] = importlib.import_module("nats.aio.client").Client
    return client


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
    # An import statement that finds the module ready does not bind it in its package, so that is done here.
    importlib.import_module(_PACKAGE).js = module  # type: ignore[attr-defined]  # bound by a plain import
