"""What may be said about a session of Spark."""

from __future__ import annotations

import re
from dataclasses import dataclass

from natsctl.api.errors import UsageError

LOCAL = "local[*]"
"""All cores of this machine, within one process."""

MANY_MESSAGES = 3_000_000
"""From so many on it pays to have Java compile once more what runs for each: 5 s of CPU, and 1.7 us less for each."""

_LOCAL_MASTER = re.compile(r"local(\[[^\]]*\])?")
_MASTERS = ("spark://", "yarn", "k8s://")


@dataclass(frozen=True)
class SparkOptions:
    """Where Spark runs and what it is told; an empty `master` is this machine, or the server that runs in background.

    `remote` is the URL of a Spark Connect server (sc://host:port), `conf` what spark-submit takes as --conf. `messages`
    is how many are to be read, as far as that is known: a Java that is started suits it.
    """

    master: str = ""
    remote: str = ""
    java: str = ""
    conf: tuple[tuple[str, str], ...] = ()
    messages: int = 0

    def check(self) -> None:
        """Raises UsageError where the values cannot be meant together, or at all."""
        if self.master and self.remote:
            raise UsageError(
                "--master and --remote exclude each other", hint="sc:// goes with --remote, all else with --master"
            )
        if self.remote and not self.remote.startswith("sc://"):
            raise UsageError(
                f"--remote {self.remote}: expected sc://host:port", hint="spark:// and yarn go with --master"
            )
        if self.master.startswith("sc://"):
            raise UsageError(
                f"--master {self.master} is a Spark Connect server", hint=f"give it as --remote {self.master}"
            )
        if self.master and not (self.is_local or self.master.startswith(_MASTERS)):
            raise UsageError(
                f"--master {self.master} is no master of Spark",
                hint="local[N], spark://host:7077, yarn or k8s://https://host:port",
            )

    @property
    def is_local(self) -> bool:
        """Whether Spark runs in one process on this machine."""
        return not self.remote and _LOCAL_MASTER.fullmatch(self.master or LOCAL) is not None

    @property
    def settings(self) -> dict[str, str]:
        """`conf` by key, the last of several."""
        return dict(self.conf)


def parse_conf(words: list[str] | None) -> tuple[tuple[str, str], ...]:
    """The pairs of `--conf KEY=VALUE`. Raises UsageError."""
    pairs = []
    for text in words or ():
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"--conf {text}: expected KEY=VALUE", hint="such as --conf spark.driver.memory=4g")
        pairs.append((key.strip(), value))
    return tuple(pairs)
