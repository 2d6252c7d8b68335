"""The wheel that users install: the package alone, without the rig of its own tests."""

from __future__ import annotations

import subprocess
import sys
from email.parser import Parser
from pathlib import Path
from zipfile import ZipFile

import pytest

CLONE = Path(__file__).parents[1]
FOR_TESTS_OF_USERS = {
    "__init__",
    "certificates",
    "clock",
    "jet",
    "jetstream",
    "machine",
    "disk_image",
    "process",
    "simdisk",
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> ZipFile:
    """The wheel of this clone."""
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)], cwd=CLONE, check=True
    )
    [path] = folder.iterdir()
    return ZipFile(path)


def test_it_holds_the_package_and_nothing_else_of_the_clone(wheel: ZipFile) -> None:
    top = {name.partition("/")[0] for name in wheel.namelist()}
    assert {name for name in top if not name.endswith(".dist-info")} == {"natsctl", "pyspark_jetstream.py"}


def test_of_the_tools_for_tests_it_holds_those_for_users(wheel: ZipFile) -> None:
    paths = [Path(name) for name in wheel.namelist() if name.startswith("natsctl/testing/")]
    assert {path.stem for path in paths if path.suffix == ".py"} == FOR_TESTS_OF_USERS


def test_it_is_typed_and_names_its_licence_and_version(wheel: ZipFile) -> None:
    from natsctl import __version__

    [metadata] = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    about = Parser().parsestr(wheel.read(metadata).decode())
    assert (about["License-Expression"], about["Version"]) == ("Apache-2.0", __version__)
    assert "natsctl/py.typed" in wheel.namelist()
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in wheel.namelist())


def test_pytest_is_needed_by_extras_alone(wheel: ZipFile) -> None:
    [metadata] = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    needs = Parser().parsestr(wheel.read(metadata).decode()).get_all("Requires-Dist", [])
    of_pytest = [need.partition(";") for need in needs if need.startswith("pytest")]
    assert of_pytest and all("extra ==" in when for _, _, when in of_pytest)
