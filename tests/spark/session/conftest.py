"""Nothing of this machine: no Java but those that a test makes, and caches of its own."""

from pathlib import Path

import pytest

from natsctl.spark.session import installation as java_room


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for a test, on a machine without any Java."""
    monkeypatch.setattr(java_room, "_SYSTEM_FOLDERS", (str(tmp_path / "system"),))
    monkeypatch.setattr(java_room, "_packaged", lambda: None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path
