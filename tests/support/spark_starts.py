"""Quick starts of Spark for tests: one cache for all of them, with the archive of classes that `.ci/run` makes in it.

A start with the archive takes 5 s of CPU instead of 9, an executor half of its 6. A contributor makes it with
`XDG_CACHE_HOME=$PWD/.pytest_cache/spark natsctl spark warm`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

CACHE_HOME: Final = Path(__file__).parents[2] / ".pytest_cache" / "spark"
"""XDG_CACHE_HOME of tests that start Spark. Those that start it in the background have one of their own each."""
_CACHES: Final = CACHE_HOME / "natsctl" / "spark"


def java_options() -> list[str]:
    """Return the options of a Java that runs PySpark's jars for a short time, as a driver does that natsctl starts."""
    from natsctl.spark.session.installation import choose_java, installed_spark, quick_home
    from natsctl.spark.session.spark_options import QUICK
    from natsctl.spark.session.virtual_machine import class_data_options

    return [*QUICK, *class_data_options(choose_java(), quick_home(installed_spark({}), _CACHES), caches=_CACHES)]
