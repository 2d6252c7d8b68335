"""`natsctl server watch api`: what is asked of JetStream."""

from natsctl.cli.verbs import Verb

VERBS = (Verb("requests, req", "server.watch.requests:requests", answer="cli.server.shapes:Activity*"),)
