"""Every case of permissions and limits is seen the same by a client of natsctl's server and of the reference."""

from pathlib import Path

import pytest

from natsctl.testing.process import Kind
from tests.support.conf_server import ConfServer
from tests.support.permission_table import TABLE
from tests.support.permission_table.case import Case, differences
from tests.support.permission_table.document import document

CASES = [case for cases in TABLE.values() for case in cases]
SHARED = [case for case in CASES if case.users]
OWN = [case for case in CASES if not case.users]
KINDS = ["natsctl", "reference"]


def run(cases: list[Case], config: str, folder: Path, kind: Kind) -> list[str]:
    with ConfServer(folder, kind, config, "-js", "-sd", str(folder)) as process:
        found = [fault for case in cases for fault in differences(case, process.url)]
    log = process.log()
    lines = [line for line in log.splitlines() if "[ERR]" in line]
    logged = [case.log for case in cases if case.log]
    found += [f"not in the log: {text}" for text in logged if not any(line.endswith(f" - {text}") for line in lines)]
    found += [f"a secret is in the log: {secret}" for secret in ("secret-", "igRjN11Z3BPB") if secret in log]
    return found


def test_the_document_shows_the_table() -> None:
    page = Path(__file__).parents[2] / "docs" / "permissions.md"
    assert page.read_text() == document(), "python -m tests.support.permission_table > docs/permissions.md"


@pytest.mark.parametrize("kind", KINDS)
def test_every_case_of_users_ends_as_the_table_says(kind: Kind, tmp_path: Path) -> None:
    users = "\n".join(case.users for case in SHARED)
    assert run(SHARED, f"authorization {{ timeout: 30, users: [\n{users}\n] }}", tmp_path / "all", kind) == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", OWN, ids=[case.claim for case in OWN])
def test_every_case_of_a_server_ends_as_the_table_says(case: Case, kind: Kind, tmp_path: Path) -> None:
    assert run([case], case.config, tmp_path / "own", kind) == []
