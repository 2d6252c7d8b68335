"""Every case of permissions and limits with what the offender sees: the table that tests run and docs show."""

from __future__ import annotations

from typing import Final

from tests.support.permission_table.case import Case
from tests.support.permission_table.jetstream_verbs import JETSTREAM_VERBS
from tests.support.permission_table.limits import LIMITS
from tests.support.permission_table.logging_in import LOGGING_IN
from tests.support.permission_table.publishing import ANSWERING, PUBLISHING
from tests.support.permission_table.subscribing import SUBSCRIBING

TABLE: Final[dict[str, tuple[Case, ...]]] = {
    "Publishing": PUBLISHING,
    "Subscribing": SUBSCRIBING,
    "Answering": ANSWERING,
    "JetStream, verb by verb": JETSTREAM_VERBS,
    "Limits": LIMITS,
    "Logging in": LOGGING_IN,
}
"""Cases by what they are about."""
