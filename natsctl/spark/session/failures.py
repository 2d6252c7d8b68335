"""The failures of starting Spark: each with what was found and what to do."""

from __future__ import annotations

from natsctl.api.errors import NatsctlError

INSTALL_SPARK = "pip install 'natsctl[spark]'"
INSTALL_PIPELINES = "pip install 'natsctl[pipelines]'"


class ExtraMissing(NatsctlError):
    """A package that natsctl does not bring by itself is not installed."""

    def __init__(self, what: str, package: str, install: str = INSTALL_SPARK) -> None:
        super().__init__(f"{what} needs {package}, which is not installed", hint=install)


class JavaUnsuitable(NatsctlError):
    """There is no Java, or none that this Spark runs on."""


class SparkStartFailed(NatsctlError):
    """Spark's process ended, or said nothing in time; `log` is what it wrote."""

    def __init__(self, text: str, log: str = "", *, hint: str = "") -> None:
        super().__init__(text, hint=hint)
        self.log = log
