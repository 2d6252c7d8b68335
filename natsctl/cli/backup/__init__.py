"""`natsctl backup` and `natsctl restore`: everything of an account, as files."""

from natsctl.cli.verbs import Verb

VERBS: tuple[Verb, ...] = ()
