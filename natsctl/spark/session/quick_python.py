"""Python's part of a quick start: compiled modules where they can be kept, and no pandas where nobody needs it."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from natsctl.spark.session.caches import cache_folder
from natsctl.spark.session.spark_home import pyspark_folder

_PREFIX = "PYTHONPYCACHEPREFIX"
_WRITE_NONE = "PYTHONDONTWRITEBYTECODE"
_OF_NUMPY = ("NumpyScalarConverter", "NumpyArrayConverter")


def compiled_folder(environment: Mapping[str, str]) -> Path | None:
    """Where compiled modules are kept for Spark's Python processes; None where PySpark was installed with its own.

    Not every installer compiles, and not everyone may write beside what was installed. Each of a query's four or five
    Python processes would compile PySpark anew.
    """
    if environment.get(_PREFIX) or (pyspark_folder() / "__pycache__").is_dir():
        return None
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return cache_folder(environment) / f"compiled-{version}"


def python_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment for Spark's Python processes on this machine."""
    found = dict(environment)
    if (folder := compiled_folder(environment)) is not None:
        found.pop(_WRITE_NONE, None)
        found[_PREFIX] = str(folder)
    return found


@contextlib.contextmanager
def compiled_imports(environment: Mapping[str, str]) -> Iterator[None]:
    """The same for what this process imports meanwhile, of which no garbage is collected: there is next to none."""
    folder = compiled_folder(environment)
    before, collected = (sys.pycache_prefix, sys.dont_write_bytecode), gc.isenabled()
    if folder is not None:
        sys.pycache_prefix, sys.dont_write_bytecode = str(folder), False
    gc.disable()  # a tenth of the time
    try:
        yield
    finally:
        sys.pycache_prefix, sys.dont_write_bytecode = before
        if collected:
            gc.enable()


def ask_numpy_of_numpy_only() -> None:
    """Spare every session an import of PySpark's tests, and with them pandas: half of what PySpark costs at its start.

    PySpark asks of each value that goes to Java whether it is one of numpy's, and imports all of that to find out.
    """
    from py4j.protocol import INPUT_CONVERTER

    INPUT_CONVERTER[:] = [_OnlyNumpy(one) if type(one).__name__ in _OF_NUMPY else one for one in INPUT_CONVERTER]


class _OnlyNumpy:
    """A converter that is asked of numpy's values only."""

    def __init__(self, converter: Any) -> None:
        self._converter = converter
        self.convert = converter.convert

    def can_convert(self, value: object) -> bool:
        """Whether the converter takes it."""
        return type(value).__module__.partition(".")[0] == "numpy" and bool(self._converter.can_convert(value))
