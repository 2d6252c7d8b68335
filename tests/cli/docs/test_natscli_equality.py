"""Each row of docs/natscli.md marked *same* is run with `nats` and natsctl on one server, and compared.

tests/support/natscli_equality.py runs and compares the lines of natscli_cases.yaml.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from natsctl.testing.process import ServerProcess
from tests.support.command_pages import ROOT
from tests.support.natscli_equality import (
    CONFIG,
    Facts,
    Group,
    Pair,
    groups_of,
    rows_of_page,
)
from tests.support.servers import Cluster

GROUPS = list(groups_of(yaml.safe_load(Path(__file__).with_name("natscli_cases.yaml").read_text())))
FACTS = Facts(json.loads((ROOT / "tests/cli/natscli-0.5.1.json").read_text()))
PAGE = rows_of_page((ROOT / "docs/natscli.md").read_text())
ROWS = 1419
"""Rows marked *same*, at least."""
TRIES = 3
"""How often a row marked as different is tried: some depend on whether a message has arrived when the tool ends."""


def used() -> set[str]:
    return set().union(*(FACTS.rows_of(case.line) for group in GROUPS for case in group.cases))


def without_a_line(page: dict[str, str]) -> set[str]:
    """The rows of a page that are marked *same* and that no line uses."""
    return {row for row, kind in page.items() if kind == "same"} - used()


def test_every_row_marked_same_has_a_line() -> None:
    assert sum(kind == "same" for kind in PAGE.values()) >= ROWS
    assert without_a_line(PAGE) == set()


@pytest.fixture(scope="module")
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("equality")
    (folder / "nats.conf").write_text(f"server_name: one\n{CONFIG}")
    with ServerProcess(folder / "server", request.param, "-c", str(folder / "nats.conf")) as server:
        yield Pair(folder, server)


@pytest.fixture(scope="module")
def clustered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("equality")
    with Cluster(folder, CONFIG) as cluster:
        yield Pair(folder, cluster.servers[0])


def named(*kinds: str, cluster: bool = False) -> list[object]:
    return [
        pytest.param(*([kind] if kind else []), group, id=f"{kind}-{group.name}".strip("-").replace(" ", "-"))
        for kind in kinds
        for group in GROUPS
        if group.cluster is cluster and (kind != "natsctl" or group.ours)
    ]


@pytest.mark.exact
@pytest.mark.timeout(300)
@pytest.mark.reference("nats")
@pytest.mark.parametrize(("pair", "group"), named("reference", "natsctl"), indirect=["pair"])
def test_lines_do_the_same_with_both_tools(pair: Pair, group: Group) -> None:
    run(pair, group)


@pytest.mark.exact
@pytest.mark.timeout(300)
@pytest.mark.live
@pytest.mark.reference("nats")
@pytest.mark.parametrize("group", named("", cluster=True))
def test_lines_about_clusters_do_the_same_with_both_tools(clustered: Pair, group: Group) -> None:
    run(clustered, group)


def run(pair: Pair, group: Group) -> None:
    pair.begin(group)
    found = pair.compare_all(group)
    assert not found, "\n".join(f"{line}\n  " + "\n  ".join(faults) for line, faults in found.items())
    # These rows are marked as different: with the mark *same*, each of these lines would fail above.
    for case in group.differs:
        assert any(pair.compare(case, group, settled=False) for _ in range(TRIES)), case.line
