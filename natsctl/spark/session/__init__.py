"""Sessions of Spark: the choice of Java and cluster, a quick start, and failures as natsctl's messages.

Nothing here imports PySpark until a session is opened.
"""

from natsctl.spark.session.sessions import open_session
from natsctl.spark.session.spark_options import SparkOptions

__all__ = ["SparkOptions", "open_session"]
