"""Sessions of Spark: which Java, how it is started quickly, which cluster, and how its failures are told.

Nothing here imports PySpark until a session is opened.
"""

from natsctl.spark.session.opened import open_session
from natsctl.spark.session.options import SparkOptions

__all__ = ["SparkOptions", "open_session"]
