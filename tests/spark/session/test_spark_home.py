"""The folders that Spark and Java are started from, and compiled modules."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from natsctl.spark.session import spark_home
from natsctl.spark.session.failures import ExtraMissingError
from natsctl.spark.session.java import choose_java
from natsctl.spark.session.spark_home import (
    compiled_imports,
    installed_spark,
    java_home,
    made_once,
    python_environment,
    quick_home,
)
from tests.spark.session.fakes import java, spark


@pytest.fixture
def package(bare: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed PySpark."""
    folder = spark(bare / "site" / "pyspark")
    monkeypatch.setattr(spark_home, "pyspark_folder", lambda: folder)
    return folder


def test_a_java_without_the_module_gets_every_other_word(bare: Path) -> None:
    java(bare / "home", "25", modules="java.base")
    made = java_home(choose_java(str(bare / "home"), {}), bare / "caches")
    words = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "a word", "$HOME", "--add-modules=java.sql"]
    done = subprocess.run([str(made / "bin" / "java"), *words], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["-Xmx1g", "a word", "$HOME", "--add-modules=java.sql"]
    assert (made / "release").read_text() == (bare / "home" / "release").read_text()


def test_a_java_with_the_module_is_its_own_home(bare: Path) -> None:
    java(bare / "home", "21", modules="java.base jdk.incubator.vector")
    assert java_home(choose_java(str(bare / "home"), {}), bare / "caches") == bare / "home"
    assert not (bare / "caches").exists()


def test_python_of_the_quick_home_is_the_installed_one(package: Path) -> None:
    home = quick_home(installed_spark({}))
    libraries = home.folder / "python" / "lib"
    assert (libraries / "pyspark.zip").resolve() == package.parent
    assert (libraries / "py4j-0.10.9.9-src.zip").read_bytes() == b"zip"
    assert (home.jars / "other.jar").read_bytes() == b"other"
    assert quick_home(installed_spark({})) == home


def test_another_version_has_another_home(package: Path) -> None:
    first = quick_home(installed_spark({}))
    (package / "jars" / "spark-core_2.13-4.3.0.jar").rename(package / "jars" / "spark-core_2.13-4.3.1.jar")
    second = quick_home(installed_spark({}))
    assert (first.version, second.version) == ("4.3.0", "4.3.1")
    assert first.folder != second.folder


def test_spark_home_counts_where_its_version_is_pysparks(package: Path, bare: Path) -> None:
    same, other = spark(bare / "same", "4.3.0"), spark(bare / "other", "3.5.1")
    assert installed_spark({"SPARK_HOME": str(same)}).folder == same
    assert installed_spark({"SPARK_HOME": str(other)}).folder == package
    assert installed_spark({"SPARK_HOME": str(bare / "nowhere")}).folder == package


def test_pyspark_without_jars_is_told(package: Path) -> None:
    for jar in (package / "jars").iterdir():
        jar.unlink()
    with pytest.raises(ExtraMissingError, match="pyspark with its jars") as failed:
        installed_spark({})
    assert failed.value.hint == "pip install 'natsctl[spark]'"


def test_of_two_who_make_a_folder_at_once_both_have_it_whole(tmp_path: Path) -> None:
    def make(folder: Path) -> None:
        for number in range(50):
            (folder / str(number)).write_text("x")

    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: made_once(tmp_path / "made", make), range(8)))
    assert set(made) == {tmp_path / "made"}
    assert len(list((tmp_path / "made").iterdir())) == 50
    assert [path.name for path in tmp_path.glob("*made*")] == ["made"]


def test_a_folder_that_can_not_be_made_leaves_nothing(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "begun").write_text("x")
        raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        made_once(tmp_path / "made", fail)
    assert list(tmp_path.glob("*made*")) == []


def test_without_a_cache_the_home_is_among_temporary_files_that_are_the_users_own(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    found = quick_home(installed_spark({}), tmp_path / "file" / "spark").folder
    assert found.is_relative_to(tmp_path / "temporary")
    assert (found / "jars").is_dir()
    found.parent.chmod(0o777)
    with pytest.raises(PermissionError):
        quick_home(installed_spark({}), tmp_path / "file" / "spark")


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
