"""What the commands about contexts print with -j."""

from __future__ import annotations

from msgspec import field

from natsctl.api.model import Duration, Model
from natsctl.client.contexts.file import Keys


class Reached(Model, kw_only=True):
    """What a server said to a connection that a context made."""

    url: str
    server_name: str
    version: str
    rtt: Duration


class Context(Keys, kw_only=True):
    """A context; secrets are hidden unless --show-secrets is given."""

    name: str
    selected: bool
    path: str
    connection: Reached | None = None
    fault: str = ""


class Checked(Model, kw_only=True):
    """Whether a context can be used, and why not."""

    name: str
    valid: bool
    fault: str = field(default_factory=str)
    connection: Reached | None = None


class Removed(Model, kw_only=True):
    """A context that was removed, or that was absent already."""

    name: str
    removed: bool


class Unselected(Model, kw_only=True):
    """The context that was the selected one, "" without one."""

    name: str
