"""`python -m natsctl.server`: the server process without the command line around it."""

import sys

from natsctl.server.process.process import main

sys.exit(main(sys.argv[1:]))
