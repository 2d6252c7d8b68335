"""natsctl and nats-server accept and refuse the same configuration files, but for differences with a reason."""

import subprocess
from pathlib import Path

import pytest

from natsctl.server.conf.config import read_config
from natsctl.server.conf.syntax import ConfError
from natsctl.server.options import ServerOptions
from natsctl.testing.process import reference_binary
from tests.server.conf.agreement_files import ACCEPTED, ACCEPTED_HERE_ALONE, REFUSED, REFUSED_HERE_ALONE

REFERENCE = reference_binary()


def accepted(path: Path) -> bool:
    try:
        read_config(path, ServerOptions(), {})
    except ConfError as error:
        assert str(error).startswith(f"{path}:"), "an error names its file and line"
        return False
    return True


def accepted_by_reference(path: Path) -> bool:
    assert REFERENCE is not None
    done = subprocess.run([REFERENCE, "-t", "-c", str(path)], capture_output=True, text=True, timeout=60, check=False)
    return done.returncode == 0


@pytest.mark.parametrize("text", [*ACCEPTED, *ACCEPTED_HERE_ALONE])
def test_good_files_are_accepted(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.conf").write_text(text)
    read_config(tmp_path / "x.conf", ServerOptions(), {})


@pytest.mark.parametrize("text", [*REFUSED, *REFUSED_HERE_ALONE])
def test_bad_files_are_refused_with_file_and_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.conf").write_text(text)
    assert not accepted(tmp_path / "x.conf")


@pytest.mark.reference
def test_the_reference_thinks_the_same_of_each_file(tmp_path: Path) -> None:
    expected = dict.fromkeys((*ACCEPTED, *REFUSED_HERE_ALONE), True)
    expected |= dict.fromkeys((*REFUSED, *ACCEPTED_HERE_ALONE), False)
    found = {}
    for text in expected:
        (tmp_path / "x.conf").write_text(text)
        found[text] = accepted_by_reference(tmp_path / "x.conf")
    assert {text: ok for text, ok in found.items() if ok is not expected[text]} == {}
