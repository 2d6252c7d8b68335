"""The versions that this server reports, to clients and to persons."""

from typing import Final

from natsctl import __version__

PROTOCOL_VERSION: Final = "2.10.29"
"""The reference version whose behaviour clients may expect; they gate features on it."""


def version_line() -> str:
    """Return what `-v` prints; its beginning is what the clients' test suites parse."""
    return f"nats-server: v{PROTOCOL_VERSION} (natsctl {__version__})"
