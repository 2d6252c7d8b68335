from collections.abc import Iterator

import pytest

from tests.support.ocsp import World, world


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("ocsp")) as found:
        yield found
