"""Write the page."""

import sys

from tests.support.permission_table.document import document

sys.stdout.write(document())
