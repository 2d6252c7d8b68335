"""What `sql` prints with `-j`."""

from __future__ import annotations

from typing import Any

from natsctl.api.model import Model

Rows = list[dict[str, Any]]
"""The rows of an answer by column: bytes as text where they are UTF-8, else as `{"base64": …}`; times as RFC 3339."""


class Explained(Model, kw_only=True):
    """How a query is answered: by Spark, or by the server, which is asked for counts alone."""

    spark: bool
    plan: str
