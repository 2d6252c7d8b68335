"""Which flows fill the tables that are files, and what Spark would leave out of those without a word.

A log in the folder of a table tells its batches by their numbers alone; Spark passes over one whose number is there. So
rows would be missing where two flows fill one table, or where a flow begins anew beside what another one left.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from natsctl.spark.pipeline.checkpoints import Progress
from natsctl.spark.pipeline.faults import Fault

FILE_FORMATS: Final = ("parquet", "orc", "json", "csv", "text", "avro", "xml")
"""What Spark writes with such a log."""
_LOG: Final = "_spark_metadata"
_DEFAULT: Final = "default"

TableName = tuple[str, str]
"""A database and a table in it, in small letters."""


@dataclass(frozen=True)
class Filling:
    """A flow, the table that it fills, and where that is said."""

    flow: str
    table: TableName
    file: str
    line: int


def table_name(parts: Iterable[str], database: str | None) -> TableName:
    """The table that the parts of a name mean, where it is in that database unless they say otherwise."""
    found = [part.lower() for part in parts]
    return (found[-2] if len(found) > 1 else (database or _DEFAULT).lower(), found[-1])


def shared(fillings: Iterable[Filling]) -> Iterator[Fault]:
    """The flows into tables that have another one: their own, of their name, or one before it."""
    first: dict[TableName, Filling] = {}
    for each in sorted(fillings, key=lambda each: each.flow.lower() != each.table[1]):
        before = first.setdefault(each.table, each)
        if before != each:
            text = (
                f"{each.flow}: {each.table[1]} has the flow {before.flow}; rows of a second one would be missing there"
            )
            yield Fault(each.file, each.line, text, "make them one flow by UNION ALL, or two tables")


def left_by_others(fillings: Iterable[Filling], tables: Path, flows: Iterable[Progress]) -> Iterator[Fault]:
    """The flows into tables of that folder whose batches go beyond what the flows have begun."""
    begun = {(each.folder.parents[2].name, each.target, each.flow): each.begun for each in flows}
    known = {tuple(part.lower() for part in key): batch for key, batch in begun.items()}
    logged = dict(_logged(tables))
    for each in fillings:
        if logged.get(each.table, -1) > known.get((*each.table, each.flow.lower()), -1):
            name = each.table[1]
            why = "its checkpoint is gone, or its name is new"
            text = f"{each.flow}: {name} has batches that this flow has not made: {why}"
            yield Fault(each.file, each.line, text, f"--full-refresh {name} fills it anew")


def _logged(tables: Path) -> Iterator[tuple[TableName, int]]:
    """The last batch of each table that has a log."""
    for log in [*tables.glob(f"*/{_LOG}"), *tables.glob(f"*.db/*/{_LOG}")]:
        table = log.parent
        database = table.parent.name.removesuffix(".db") if table.parent != tables else _DEFAULT
        numbers = (path.name.removesuffix(".compact") for path in log.iterdir())
        yield (database.lower(), table.name.lower()), max((int(one) for one in numbers if one.isdigit()), default=-1)
