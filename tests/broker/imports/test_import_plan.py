"""A plan of imports that grows by accounts says the same as one that is made of all at once."""

from __future__ import annotations

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


def test_accounts_that_import_from_each_other_are_added_together() -> None:
    one = AccountConfig("1", exports=(StreamExport("x"),), imports=(StreamImport("2", "y"),))
    two = AccountConfig("2", exports=(StreamExport("y"),), imports=(StreamImport("1", "x"),))
    grown = ImportPlan((HUB,))
    assert not grown.may_extend([one])
    assert grown.may_extend([one, two])
    finish(grown.extend([one, two]))
    assert told(grown) == told(ImportPlan((HUB, one, two)))


def test_account_that_is_known_or_named_makes_a_new_plan_necessary() -> None:
    plan = ImportPlan((HUB, AccountConfig("I", imports=(StreamImport("LATE", "x"),))))
    assert not plan.may_extend([AccountConfig("LATE", exports=(StreamExport("x"),))])
    assert not plan.may_extend([importer(3)]), "an export names it"
    assert not plan.may_extend([HUB])
