"""Quick starts of Spark for tests: one cache for all of them, with the archive of classes that `.ci/run` makes in it.

A start with the archive takes 5 s of CPU instead of 9, an executor half of its 6. A contributor makes it with
`XDG_CACHE_HOME=$PWD/.pytest_cache/spark natsctl spark warm`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from natsctl.spark.session.installation import SparkHome

CACHE_HOME: Final = Path(__file__).parents[2] / ".pytest_cache" / "spark"
"""XDG_CACHE_HOME of tests that start Spark. Those that start it in the background have one of their own each."""
_CACHES: Final = CACHE_HOME / "natsctl" / "spark"


def java_options() -> list[str]:
    """Return the options of a Java that runs PySpark's jars for a short time, as a driver does that natsctl starts."""
    from natsctl.spark.session.installation import choose_java
    from natsctl.spark.session.spark_options import QUICK
    from natsctl.spark.session.virtual_machine import class_data_options

    return [*QUICK, *class_data_options(choose_java(), _home(), caches=_CACHES)]


def spark_settings() -> dict[str, str]:
    """Return Spark's settings for quick executors, and for quick drivers that its own scripts start.

    Java ignores the archive unless its class path begins as it did when the archive was made. Spark's launcher puts
    other entries first, unless `extraClassPath` comes before them.
    """
    options, jars = " ".join(java_options()), f"{_home().jars}/*"
    return {
        f"spark.{process}.{name}": value
        for process in ("driver", "executor")
        for name, value in (("extraJavaOptions", options), ("extraClassPath", jars))
    }


def _home() -> SparkHome:
    from natsctl.spark.session.installation import installed_spark, quick_home

    return quick_home(installed_spark({}), _CACHES)
