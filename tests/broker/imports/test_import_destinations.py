"""Service imports with stars, placeholders and functions in the local subject, and where their requests go."""

import itertools
import random
import subprocess
from pathlib import Path
from typing import Final

import pytest

from natsctl.api.subject_transform import SubjectMapping
from natsctl.api.subjects import has_wildcard
from natsctl.broker.imports.mappings import pattern_of, swapped
from natsctl.server.process.process import main
from natsctl.testing.process import ServerProcess, reference_binary
from tests.support import tiers
from tests.support.operators import Visitor

TOKENS: Final = (
    "*", "$1", "$2", "$3", "$0", "$9", "$x", "b", "{{wildcard(1)}}", "{{Wildcard(2)}}", "{{partition(2,1)}}",
    "{{x()}}",
)  # fmt: skip
SOURCES: Final = ("a.*", "*.a.*", "*.*.*", "a.*.>", "a.>", "a.b")


@pytest.mark.parametrize(
    ("source", "local", "request_on", "goes_to"),
    [
        ("*.a.*", "z.$2.$1", "z.x.y", "y.a.x"),
        ("*.a.*", "z.a.$1.$1", "z.a.x.y", "x.a.x"),
        ("*.a.*", "z.$1.$2.$1", "z.x.y.v", None),
        ("*.a", "z.$0", "z.$0", None),
        ("*.*.*", "z.$2.$3.$1", "z.x.y.v", "y.v.x"),
    ],
)
def test_a_request_goes_where_nats_server_sends_it(
    source: str, local: str, request_on: str, goes_to: str | None
) -> None:
    back = swapped(source, local)
    made = (
        None
        if back is None
        else SubjectMapping.compile(pattern_of(local), back, literal=False).apply(request_on.encode())
    )
    assert made == (None if goes_to is None else goes_to.encode())


def config(imports: list[tuple[str, str]]) -> str:
    """A nats.conf with these imports, of subjects in a space of their own each."""
    rows = [
        f'{{service: {{account: A, subject: "s{number}.{source}"}}, to: "l{number}.{local}"}}'
        for number, (source, local) in enumerate(imports)
    ]
    exports = ", ".join(f'{{service: "s{number}.>"}}' for number in range(len(imports)))
    return (
        f"accounts {{ A {{ users: [{{user: a, password: p}}], exports: [{exports}] }}\n"
        f"B {{ users: [{{user: b, password: p}}], imports: [{', '.join(rows)}] }} }}\n"
    )


def drawn(seed: int) -> list[tuple[str, str]]:
    chance = random.Random(f"imports {seed}")
    found = []
    for _ in range(40):
        source = chance.choice(SOURCES)
        tokens = [chance.choice(TOKENS) for _ in range(chance.randint(1, 4))]
        found.append((source, ".".join([*tokens, ">"] if source.endswith(">") and chance.random() < 0.9 else tokens)))
    return found


@pytest.mark.parametrize("seed", tiers.seeds(2, 50))
def test_no_import_is_an_exception(seed: int, tmp_path: Path) -> None:
    for one in drawn(seed):
        (tmp_path / "nats.conf").write_text(config([one]))
        assert main(["-t", "-c", str(tmp_path / "nats.conf")]) in (0, 1)


@pytest.mark.reference
@pytest.mark.parametrize("seed", tiers.seeds(2, 20))
def test_imports_are_accepted_and_lead_where_they_do_in_nats_server(seed: int, tmp_path: Path) -> None:
    file, accepted, differing = tmp_path / "nats.conf", [], []
    for one in drawn(seed):
        file.write_text(config([one]))
        theirs = subprocess.run([str(reference_binary()), "-t", "-c", str(file)], capture_output=True, timeout=60)
        if (theirs.returncode == 0) != (main(["-t", "-c", str(file)]) == 0):
            differing.append((one, theirs.stderr))
        elif theirs.returncode == 0:
            accepted.append(one)
    assert differing == []
    file.write_text(config(accepted))
    seen = {}
    for kind in ("natsctl", "reference"):
        with ServerProcess(tmp_path / kind, kind, "-c", str(file)) as process:
            seen[kind] = [led(process.url, number, *one) for number, one in enumerate(accepted)]
    assert {
        one: (ours, theirs) for one, ours, theirs in zip(accepted, *seen.values(), strict=True) if ours != theirs
    } == {}


def led(url: str, number: int, source: str, local: str) -> list[bytes]:
    """The subjects on which the exporting account receives a request on an imported subject."""
    service, client = Visitor(url), Visitor(url)
    service.show(user="a", **{"pass": "p"})
    client.show(user="b", **{"pass": "p"})
    service.say(b"SUB s%d.> 1\r\n" % number)
    values, shown = itertools.cycle("xyv"), pattern_of(local) if has_wildcard(source) else local
    tokens = [next(values) if token == "*" else "t.u" if token == ">" else token for token in shown.split(".")]
    client.say(f"PUB l{number}.{'.'.join(tokens)} 0\r\n\r\n".encode())
    heard = service.say(b"")
    service.close()
    client.close()
    return [line.split(b" ")[1] for line in heard if line.startswith((b"MSG", b"HMSG"))]
