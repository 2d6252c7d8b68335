"""What natsctl's engine answered when nats-server answered the same, as fingerprints of four digits a note.

The default tier compares the engine with `tests/jetstream/recorded/*.json` and needs no nats-server. A run of the tier
`reference` compares the engine with nats-server, and writes the fingerprints where both agree. So a change of an answer
fails the default tier, and either the tier `reference` fails too, or it records the new answer.
"""

import functools
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Final
from unittest import mock

from natsctl.api.versions import SERVER_VERSION
from tests.support import differential

FOLDER: Final = Path(__file__).parents[1] / "jetstream" / "recorded"
DIGITS: Final = 4

Notes = Sequence[object]


def in_one_version(work: Callable[[], Notes]) -> Notes:
    """Return the notes of `work`, whatever version of nats-server is on PATH."""
    with mock.patch.object(differential, "reference_version", lambda: SERVER_VERSION):
        return work()


@functools.cache
def recorded(table: str) -> dict[str, str]:
    path = FOLDER / f"{table}.json"
    known: dict[str, str] = json.loads(path.read_text()) if path.exists() else {}
    return known


def assert_as_recorded(table: str, name: str, work: Callable[[], Notes], every: int = 1) -> None:
    """Compare the engine's notes, which may be one of `every` so many, with those that nats-server confirmed."""
    notes, known = in_one_version(work), recorded(table).get(name, "")
    found = list(map(_fingerprint, notes))
    expected = [known[at : at + DIGITS] for at in range(0, len(known), DIGITS * every)]
    changed = [at for at, digits in enumerate(found) if expected[at : at + 1] != [digits]]
    texts = [f"note {at}: {notes[at]!a:.2000}" for at in changed[:3]]
    hint = f"{name} is not as recorded. `pytest -m reference tests/jetstream` compares and records it."
    assert found == expected, "\n".join([hint, f"{len(found)} notes, {len(expected)} recorded", *texts])


def record(table: str, works: Mapping[str, Callable[[], Notes]], names: Collection[str]) -> None:
    """Record notes of the engine that nats-server has confirmed, and forget what is not in `names` any more."""
    found = {name: "".join(map(_fingerprint, in_one_version(work))) for name, work in works.items()}
    if found.items() <= recorded(table).items() and recorded(table).keys() <= set(names):
        return
    import fcntl  # only where nats-server runs: Windows has none

    with (FOLDER / f"{table}.json").open("a+") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)  # other workers write here too
        file.seek(0)
        merged: dict[str, str] = {**json.loads(file.read() or "{}"), **found}
        file.truncate(0)
        kept = {name: digits for name, digits in merged.items() if name in names}
        file.write(json.dumps(kept, indent=0, sort_keys=True) + "\n")


def _fingerprint(note: object) -> str:
    return blake2b(ascii(note).encode(), digest_size=DIGITS // 2).hexdigest()


def unknown(table: str, names: Iterable[str]) -> set[str]:
    """Return names that are recorded and no longer exist, or exist and are not recorded."""
    return recorded(table).keys() ^ set(names)
