"""A process as on a cluster: pyspark and pyarrow are there, natsctl and what it depends on are not.

`python bare_process.py STAGE IN OUT` unpickles IN, does the stage, and pickles the result to OUT. Stages are those of
Spark: `create` makes sources of their class, `plan` asks each for a reader and its partitions, `read` runs all tasks,
`write` has the first write rows in a task and commits it.
"""

import importlib.abc
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ABSENT = (
    "natsctl", "pyspark_jetstream", "nats", "msgspec", "cramjam", "nkeys", "nacl", "numpy", "pandas", "yaml",
    "orjson",
)  # fmt: skip


TRIED: set[str] = set()
"""Of these, what something has tried to import."""


class Without(importlib.abc.MetaPathFinder):
    """Finds what another finder does, but not the modules that a cluster does not have."""

    def __init__(self, finder: Any) -> None:
        self._finder = finder

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name.split(".")[0] not in ABSENT:
            return self._finder.find_spec(name, path, target)
        TRIED.add(name)
        return None


def create(given: Any) -> Any:
    source_class, told = given
    sources = [source_class(options) for options in told]
    return [(source, source.schema()) for source in sources]


def plan(given: Any) -> Any:
    readers = [source.reader(schema) for source, schema in given]
    return [(reader.read, reader.partitions()) for reader in readers]


def read(given: Any) -> Any:
    batches = [[batch for part in partitions for batch in read_part(part)] for read_part, partitions in given]
    assert "pandas" not in TRIED, "it takes longer to import than many a read"
    return [[row for batch in each for row in batch.to_pylist()] for each in batches]


ROWS = b"""{"subject": "ORDERS.new", "value": "a", "headers": [{"key": "A", "value": "1"}], "n": 3}
{"subject": "ORDERS.new", "value": "b", "n": 2}
{"subject": "ORDERS.new", "value": "c", "n": 1}
"""


def write(given: Any) -> Any:
    import pyarrow as pa
    from pyarrow.json import read_json
    from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType

    source, _ = given[0]
    source.options["orderBy"] = "n"
    pair = StructType([StructField("key", StringType()), StructField("value", StringType())])
    kinds = {"subject": StringType(), "value": StringType(), "headers": ArrayType(pair), "n": LongType()}
    writer = source.writer(StructType([StructField(name, kind) for name, kind in kinds.items()]), False)
    writer.commit([writer.write(read_json(pa.py_buffer(ROWS)).to_batches())])
    assert "pandas" not in TRIED, "it takes longer to import than many a write"
    return "written"


STAGES: dict[str, Callable[[Any], Any]] = {"create": create, "plan": plan, "read": read, "write": write}


def main(stage: str, given: str, result: str) -> None:
    sys.meta_path[:] = [Without(finder) for finder in sys.meta_path]
    from pyspark.serializers import CloudPickleSerializer

    pickles = CloudPickleSerializer()
    found = STAGES[stage](pickles.loads(Path(given).read_bytes()))
    loaded = sorted({name.split(".")[0] for name in sys.modules} & set(ABSENT))
    assert not loaded, loaded
    Path(result).write_bytes(pickles.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
