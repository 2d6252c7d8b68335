"""What documents say, or what is wrong with them and where: the texts of cases.yaml.

Where it is meant to change, `python -m tests.desired.documents.test_cases` writes it anew: read what differs.
"""

import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from natsctl.desired.documents import read_documents
from tests.desired.sets import write_cases

FILE = Path(__file__).with_name("cases.yaml")
CASES: dict[str, dict[str, Any]] = yaml.load(FILE.read_text(), Loader=yaml.CSafeLoader)


def said(case: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The faults of a text, or else its assets with their lines; and the notes."""
    path = folder / case.get("file", "set.yaml")
    path.write_text(case["text"])
    found, faults = read_documents([str(path)], case.get("environ", {}))
    told: dict[str, Any] = {}
    for one in faults:
        reason = one.reason.replace(f"{folder}/", "")
        told.setdefault("faults", []).append(f"{one.place.line}: {one.place.path}: {reason}")
    for key, one in found.wanted.items() if not faults else ():
        switches = {name: True for name in ("protect", "create_only") if getattr(one, name)}
        told.setdefault("assets", {})[str(key)] = {"line": one.place.line, **switches, "config": one.config}
    told |= {"notes": [note.replace(f"{folder}/", "") for note in found.notes]} if found.notes else {}
    return told | ({"owner": found.owner} if found.owner else {})


@pytest.mark.parametrize("name", CASES)
def test_a_text_is_read_as_expected(name: str, tmp_path: Path) -> None:
    found, expected = said(CASES[name], tmp_path), CASES[name]["said"]
    assert found == expected and list(found.get("assets", ())) == list(expected.get("assets", ()))


if __name__ == "__main__":
    for case in CASES.values():
        with tempfile.TemporaryDirectory() as folder:
            case["said"] = said(case, Path(folder))
    write_cases(FILE, CASES)
