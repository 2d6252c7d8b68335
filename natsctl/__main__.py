"""`python -m natsctl`: the same as the `natsctl` command."""

from natsctl.cli.main import main

main()
