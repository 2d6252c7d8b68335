"""`python -m natsctl.server`: the server process without the command line around it."""

import sys

from natsctl.server.process import import_msgspec

import_msgspec()
from natsctl.server.process.process import main  # noqa: E402  # after the quick import of msgspec

sys.exit(main(sys.argv[1:]))
