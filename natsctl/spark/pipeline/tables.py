"""Tables of earlier sessions: Spark's own catalog on one machine forgets them, their files stay.

A catalog in memory refuses to make a table where files are. So what a table was made by is kept beside the project, and
a new session makes the tables again that way with their files moved aside for the moment. A metastore would do, at
twelve more seconds of CPU for each start, and with one process at a time.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

from natsctl.client.whole_file import whole_file
from natsctl.spark.paths import local_path
from natsctl.spark.pipeline.project import Project
from natsctl.spark.sql.text import quote

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ASIDE: Final = ".aside-"
_WAREHOUSE: Final = "spark.sql.warehouse.dir"
_CATALOG: Final = "spark.sql.catalogImplementation"


def remember_tables(spark: SparkSession, project: Project) -> None:
    """Keep what makes each table that the catalog has, where the catalog will forget it."""
    if not _forgets(spark, project):
        return
    found = {}
    for row in spark.sql("SHOW TABLES").collect():
        if not row["isTemporary"]:
            found[row["tableName"]] = spark.sql(f"SHOW CREATE TABLE {quote(row['tableName'])}").collect()[0][0]
    project.state_folder.mkdir(parents=True, exist_ok=True)
    with whole_file(_kept(project)) as file:
        file.write(json.dumps(found, indent=1).encode())


def restore_tables(spark: SparkSession, project: Project) -> list[str]:
    """Make the tables again that an earlier session made and whose files are here; their names. Raises OSError."""
    if not _forgets(spark, project):
        return []
    kept = _kept(project)
    statements = json.loads(kept.read_text(encoding="utf-8")) if kept.is_file() else {}
    warehouse = tables_folder(spark, project)
    there = {row["tableName"] for row in spark.sql("SHOW TABLES").collect()}
    _clear_away(warehouse, {*statements, *there})
    return [name for name, made in statements.items() if name not in there and _restored(spark, warehouse, name, made)]


def tables_folder(spark: SparkSession, project: Project) -> Path:
    """Where the session has its tables, if that is on this machine, else where the project would have them."""
    return local_path(spark.conf.get(_WAREHOUSE) or "") or project.tables


def _restored(spark: SparkSession, warehouse: Path, name: str, statement: str) -> bool:
    """Make one table again; False where its files are gone, as somebody wants it anew."""
    folder, aside = warehouse / name, warehouse / f"{_ASIDE}{name}"
    if aside.is_dir():
        _back(aside, folder)  # of a session that was killed between two renames
    if not folder.is_dir():
        return False
    folder.rename(aside)
    try:
        spark.sql(statement)
    finally:
        _back(aside, folder)
    if "PARTITIONED BY" in statement:
        spark.sql(f"MSCK REPAIR TABLE {quote(name)}")
    return True


def _clear_away(warehouse: Path, known: set[str]) -> None:
    """Remove folders without data of tables that were made and not yet kept when a session was killed."""
    for folder in warehouse.iterdir() if warehouse.is_dir() else ():
        unknown = folder.is_dir() and folder.name not in known and not _is_hidden(folder)
        if unknown and all(_is_hidden(path) for path in folder.iterdir()):
            shutil.rmtree(folder)


def _is_hidden(path: Path) -> bool:
    """Whether it is no data for Spark."""
    return path.name.startswith((".", "_"))


def _back(aside: Path, folder: Path) -> None:
    if folder.is_dir():
        folder.rmdir()  # empty, as Spark has just made it
    aside.rename(folder)


def _kept(project: Project) -> Path:
    return project.state_folder / "tables.json"


def _forgets(spark: SparkSession, project: Project) -> bool:
    """Whether tables are in a catalog that ends with this session, and their files on this machine."""
    in_memory = spark.conf.get(_CATALOG, "in-memory") == "in-memory"
    default = project.catalog in (None, "spark_catalog") and project.database in (None, "default")
    return in_memory and default and local_path(spark.conf.get(_WAREHOUSE) or "") is not None
