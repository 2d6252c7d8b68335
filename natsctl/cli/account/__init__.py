"""`natsctl account`: what the account holds and may hold."""

from natsctl.cli.verbs import Verb

VERBS = (Verb("info, nfo, i", "account.info:info", answer="AccountInfoAnswer"),)
