"""Flags that commands on Spark share: where Spark runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

if TYPE_CHECKING:
    from natsctl.spark.session import SparkOptions

Master = Annotated[
    str,
    typer.Option(
        "--master",
        metavar="URL",
        help="where Spark runs: local[N], spark://host:7077, yarn [the one of natsctl spark start, else local]",
        show_default=False,
    ),
]
Remote = Annotated[
    str, typer.Option("--remote", metavar="URL", help="Spark Connect server, sc://host:port", show_default=False)
]
JavaPath = Annotated[
    str,
    typer.Option("--java", metavar="PATH", help="Java to run Spark on, 17 or newer (NATSCTL_JAVA)", show_default=False),
]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="KEY=VALUE", help="a Spark setting; may be repeated", show_default=False),
]


class SparkFlags(NamedTuple):
    """Options of Spark for a command: a bundle of flags for commands."""

    master: Master = ""
    remote: Remote = ""
    java: JavaPath = ""
    conf: Conf = None

    @property
    def options(self) -> SparkOptions:
        """Return the flags as options of a session. Raises UsageError."""
        from natsctl.spark.session.spark_options import SparkOptions, parse_conf

        options = SparkOptions(self.master, self.remote, self.java, parse_conf(self.conf))
        options.check()
        return options
