"""How nats-py is imported: without what it needs only to learn its own version."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys

import pytest

from natsctl.client.nats_py import installed_version

PROGRAM = """
import sys
from natsctl.client.nats_py import client_class
client_class()
assert "importlib.metadata" not in sys.modules
import importlib.metadata, nats.aio.client
assert nats.aio.client.__version__ == importlib.metadata.version("nats-py")
"""


def test_nats_py_knows_its_version_and_the_real_metadata_can_be_imported_after_it() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_version_is_that_of_what_is_installed() -> None:
    assert installed_version("nats-py") == importlib.metadata.version("nats-py")
    with pytest.raises(LookupError):
        installed_version("no-such-package")
