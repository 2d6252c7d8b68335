"""What PySpark is spared at its start."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from natsctl.spark.session import spark_home
from natsctl.spark.session.spark_home import compiled_imports, python_environment

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")


def test_modules_are_compiled_into_the_cache_where_the_installer_did_not(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_home, "pyspark_folder", lambda: bare / "pyspark")
    environment = {"XDG_CACHE_HOME": str(bare), "PYTHONDONTWRITEBYTECODE": "1"}
    found = python_environment(environment)
    assert found["PYTHONPYCACHEPREFIX"].startswith(f"{bare}/natsctl/spark/compiled-3.")
    assert "PYTHONDONTWRITEBYTECODE" not in found
    before = sys.pycache_prefix, sys.dont_write_bytecode
    with compiled_imports(environment):
        assert (sys.pycache_prefix, sys.dont_write_bytecode) == (found["PYTHONPYCACHEPREFIX"], False)
    assert (sys.pycache_prefix, sys.dont_write_bytecode) == before
    (bare / "pyspark" / "__pycache__").mkdir(parents=True)
    assert python_environment(environment) == environment
