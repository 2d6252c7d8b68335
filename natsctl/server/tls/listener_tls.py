"""The TLS of a listener. One without TLS loads nothing of it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from natsctl.server.log.lines import Log
    from natsctl.server.options import TlsOptions
    from natsctl.server.tls.contexts import TlsContexts

RATE_WINDOW_S: Final = 1.0
"""The interval of `connection_rate_limit`."""


class ListenerTls:
    """The TLS of a listener's new connections; without TLS, `options` is None."""

    def __init__(self, options: TlsOptions | None, allow_non_tls: bool = False) -> None:
        self._contexts: TlsContexts
        self._stapled: TlsContexts | None = None
        self.options: TlsOptions | None = None
        self.allow_non_tls = False
        self.blocked = 0
        """Connections refused for the rate since the last log line about them."""
        self._window_end = 0.0
        self._taken = 0
        self.replace(options, allow_non_tls)

    def replace(
        self, options: TlsOptions | None, allow_non_tls: bool = False, contexts: TlsContexts | None = None
    ) -> None:
        """Use other options; raises TlsFileError, and then keeps the old ones.

        With `contexts`, made from those options before, no file is read and nothing is raised.
        """
        if options is not None:
            from natsctl.server.tls.contexts import TlsContexts

            self._contexts = contexts or TlsContexts(options)
        self._stapled = None
        self.options = options
        self.allow_non_tls = allow_non_tls

    def staple(self, contexts: TlsContexts | None) -> None:
        """Use contexts of the same options that staple, or none of them any more."""
        self._stapled = contexts

    @property
    def contexts(self) -> TlsContexts:
        return self._stapled or self._contexts

    def admits(self) -> bool:
        limit = self.options.connection_rate_limit if self.options is not None else 0
        if limit <= 0:
            return True
        now = time.monotonic()
        if now > self._window_end:
            self._taken, self._window_end = 0, now + RATE_WINDOW_S
        else:
            self._taken += 1
        if self._taken < limit:
            return True
        self.blocked += 1
        return False

    def log_blocked(self, log: Log) -> None:
        """Log the number of connections refused for the rate; called once a second while there are any."""
        blocked, self.blocked = self.blocked, 0
        if blocked:
            log.warn(f"Rejected {blocked} connections due to TLS rate limiting")
