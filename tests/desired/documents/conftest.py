"""Documents in temporary files, read with or without faults."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from natsctl.desired.assets import DocumentSet
from natsctl.desired.documents import load_documents, read_documents

Read = Callable[..., DocumentSet]
Faults = list[tuple[int, str, str]]
Told = Callable[..., Faults]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def load(text: str | bytes, name: str = "set.yaml", environ: Mapping[str, str] = {}, **options: str) -> DocumentSet:
        path = tmp_path / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return load_documents([str(path)], environ, **options)

    return load


@pytest.fixture
def told(tmp_path: Path) -> Told:
    def faults(
        text: str | bytes, name: str = "set.yaml", environ: Mapping[str, str] = {}
    ) -> list[tuple[int, str, str]]:
        path = tmp_path / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        _, found = read_documents([str(path)], environ)
        assert all(fault.place.file == str(path) for fault in found)
        return [(fault.place.line, fault.place.path, fault.reason) for fault in found]

    return faults
