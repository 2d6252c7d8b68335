"""How Spark is started for a session: with which Java, from where, and with what options."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace

from natsctl.spark.session.class_data import class_data_options
from natsctl.spark.session.java import choose_java
from natsctl.spark.session.local_settings import (
    QUICK,
    application_settings,
    memory_option,
    process_environment,
)
from natsctl.spark.session.options import SparkOptions
from natsctl.spark.session.quick_python import python_environment
from natsctl.spark.session.spark_home import installed_spark, quick_home
from natsctl.spark.session.virtual_machine import Launch


def launch_of(options: SparkOptions, environment: Mapping[str, str] | None = None) -> Launch:
    """The Java process of a session that answers soon. Raises JavaUnsuitable, ExtraMissing, OSError.

    On this machine it takes the archive of classes where there is one.
    """
    environment = os.environ if environment is None else environment
    launch = lasting_launch(options, environment)
    if not options.is_local:
        return launch
    return replace(
        launch, options=[*launch.options, *QUICK, *class_data_options(launch.java, launch.home, launch.before)]
    )


def lasting_launch(options: SparkOptions, environment: Mapping[str, str] | None = None) -> Launch:
    """The same for work of minutes and more, which Java compiles better. Raises as `launch_of`."""
    environment = os.environ if environment is None else environment
    java = choose_java(options.java, environment)
    home = quick_home(installed_spark(environment))
    settings = application_settings(options)
    flags = [memory_option(settings), *settings.get("spark.driver.extraJavaOptions", "").split()]
    for_python = python_environment(environment) if options.is_local else dict(environment)
    return Launch(
        java,
        home,
        flags,
        settings,
        process_environment(options, home.folder, for_python),
        class_path(options, environment),
    )


def class_path(options: SparkOptions, environment: Mapping[str, str]) -> tuple[str, ...]:
    """The folders of settings that stand before Spark's jars: the user's own, and those of Hadoop for a cluster."""
    names = ["SPARK_CONF_DIR", *(() if options.is_local else ("HADOOP_CONF_DIR", "YARN_CONF_DIR"))]
    folders = [environment[name] for name in names if environment.get(name)]
    if not environment.get("SPARK_CONF_DIR") and (home := environment.get("SPARK_HOME")):
        folders.insert(0, os.path.join(home, "conf"))  # noqa: PTH118  # a word of a class path
    return tuple(folder for folder in folders if os.path.isdir(folder))  # noqa: PTH112
