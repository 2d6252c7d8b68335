"""Write the page."""

import sys

from natsctl.testing.permission_table.document import document

sys.stdout.write(document())
