"""A plan of imports that grows by accounts says the same as one that is made of all at once."""

from natsctl.api.subject_index import finish
from natsctl.broker.imports.account_config import (
    AccountConfig,
    ServiceExport,
    ServiceImport,
    StreamExport,
    StreamImport,
)
from natsctl.broker.imports.import_plan import ImportPlan

HUB = AccountConfig("HUB", exports=(StreamExport("e.>"), ServiceExport("ask.*"), StreamExport("p.>", accounts=("A3",))))


def importer(number: int) -> AccountConfig:
    return AccountConfig(
        f"A{number}",
        exports=(StreamExport(f"own{number}.>"),),
        imports=(
            StreamImport("HUB", f"e.{number}"),
            StreamImport("HUB", "p.x"),
            ServiceImport("HUB", "ask.a", f"ask{number}"),
            StreamImport("HUB", "nothing"),
        ),
    )


def told(plan: ImportPlan) -> object:
    return plan.streams, plan.services, sorted(map(str, plan.problems))


def test_plan_that_grows_says_the_same() -> None:
    configs = [AccountConfig("B", exports=(StreamExport("b"),)), *(importer(number) for number in (1, 2))]
    grown = ImportPlan((HUB,))
    for config in configs:
        assert grown.may_extend([config])
        finish(grown.extend([config]))
    assert told(grown) == told(ImportPlan((HUB, *configs)))
