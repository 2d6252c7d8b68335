"""How Spark is started for a session: with which Java, from where, and with what options."""

from __future__ import annotations

import os
from collections.abc import Mapping

from natsctl.spark.session.class_data import class_data_options
from natsctl.spark.session.java import choose_java
from natsctl.spark.session.local_settings import (
    QUICK,
    application_settings,
    memory_option,
    process_environment,
)
from natsctl.spark.session.options import MANY_MESSAGES, SparkOptions
from natsctl.spark.session.quick_python import python_environment
from natsctl.spark.session.spark_home import installed_spark, quick_home
from natsctl.spark.session.virtual_machine import Launch


def launch_of(options: SparkOptions, environment: Mapping[str, str] | None = None) -> Launch:
    """The Java process of a session that answers soon, unless it has much to read.

    It takes the archive of classes where there is one. That also goes for the driver of a cluster, which plans and
    waits while others do the work. What the user says of the JIT wins. Raises JavaUnsuitable, ExtraMissing, OSError.
    """
    environment = os.environ if environment is None else environment
    java = choose_java(options.java, environment)
    home = quick_home(installed_spark(environment))
    settings = application_settings(options)
    before = class_path(options, environment)
    users = settings.get("spark.driver.extraJavaOptions", "").split()
    compilers = () if options.is_local and options.messages >= MANY_MESSAGES else QUICK
    flags = [*compilers, memory_option(settings), *users, *class_data_options(java, home, before)]
    for_python = python_environment(environment) if options.is_local else dict(environment)
    return Launch(java, home, flags, settings, process_environment(options, home.folder, for_python), before)


def class_path(options: SparkOptions, environment: Mapping[str, str]) -> tuple[str, ...]:
    """The folders of settings that stand before Spark's jars: the user's own, and those of Hadoop for a cluster."""
    names = ["SPARK_CONF_DIR", *(() if options.is_local else ("HADOOP_CONF_DIR", "YARN_CONF_DIR"))]
    folders = [environment[name] for name in names if environment.get(name)]
    if not environment.get("SPARK_CONF_DIR") and (home := environment.get("SPARK_HOME")):
        folders.insert(0, os.path.join(home, "conf"))  # noqa: PTH118  # a word of a class path
    return tuple(folder for folder in folders if os.path.isdir(folder))  # noqa: PTH112
