"""What PySpark is spared at its start."""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from typing import Any

import pytest

from natsctl.spark.session import quick_python
from natsctl.spark.session.quick_python import compiled_imports, python_environment

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")


def test_modules_are_compiled_into_the_cache_where_the_installer_did_not(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quick_python, "pyspark_folder", lambda: bare / "pyspark")
    environment = {"XDG_CACHE_HOME": str(bare), "PYTHONDONTWRITEBYTECODE": "1"}
    found = python_environment(environment)
    assert found["PYTHONPYCACHEPREFIX"].startswith(f"{bare}/natsctl/spark/compiled-3.")
    assert "PYTHONDONTWRITEBYTECODE" not in found
    before = sys.pycache_prefix, sys.dont_write_bytecode
    with compiled_imports(environment):
        assert (sys.pycache_prefix, sys.dont_write_bytecode) == (found["PYTHONPYCACHEPREFIX"], False)
        assert not gc.isenabled()
    assert gc.isenabled()
    assert (sys.pycache_prefix, sys.dont_write_bytecode) == before
    (bare / "pyspark" / "__pycache__").mkdir(parents=True)
    assert python_environment(environment) == environment


def test_numpys_converters_see_numpys_values_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    import numpy
    from py4j import protocol

    asked: list[Any] = []

    class NumpyScalarConverter:
        convert = staticmethod(lambda value, client: value.item())

        def can_convert(self, value: object) -> bool:
            asked.append(value)
            return True

    other = object()
    monkeypatch.setattr(protocol, "INPUT_CONVERTER", [NumpyScalarConverter(), other])
    quick_python.ask_numpy_of_numpy_only()
    first, second = protocol.INPUT_CONVERTER
    assert second is other
    assert not first.can_convert("text")
    assert asked == []
    assert first.can_convert(numpy.int64(3))
    assert first.convert(numpy.int64(3), None) == 3
