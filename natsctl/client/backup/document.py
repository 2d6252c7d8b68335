"""What natsctl's own documents about backups are made of."""

from __future__ import annotations

from natsctl.api.model import Model


class Document(Model, omit_defaults=False):
    """Base of them: every field is always there, so that a script need not ask whether it is."""
