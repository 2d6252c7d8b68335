"""A Spark job with executors of their own, TLS and a login by credentials; it keeps what Spark shows of it.

Plans and failures are printed; the pages and the REST answers of Spark's UI are written to a folder.
"""

import argparse
import sys
import urllib.request
from pathlib import Path

from pyspark.sql import SparkSession

from natsctl.spark.session.spark_options import SECRET_OPTIONS
from tests.support.spark_starts import spark_settings

PAGES = ("jobs/", "stages/", "environment/", "executors/", "SQL/", "StreamingQuery/")
ANSWERS = ("environment", "jobs", "stages", "sql?details=true&planDescription=true&length=100", "allexecutors")
MAX_EXECUTIONS = 20


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.support.spark_secrets_job", description=__doc__)
    parser.add_argument("--server", required=True)
    parser.add_argument(
        "--files", type=Path, required=True, help="ca.pem, client.pem, client.key, user.creds, password"
    )
    parser.add_argument("--out", type=Path, required=True, help="for events, pages, checkpoints and work of executors")
    return parser.parse_args()


def main() -> int:
    options = parsed()
    files, out = options.files, options.out
    settings: dict[str, bool | float | int | str | None] = {
        "spark.master": "local-cluster[1,1,512]",
        "spark.executor.memory": "512m",
        **spark_settings(),
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": str(out / "events"),
        "spark.ui.port": "0",
        "spark.driver.host": "127.0.0.1",
        "spark.log.level": "INFO",
        "spark.sql.redaction.options.regex": SECRET_OPTIONS,
    }
    builder = SparkSession.builder.config(map=settings)
    by_files = {
        "servers": options.server,
        "tlsCa": str(files / "ca.pem"),
        "tlsCert": str(files / "client.pem"),
        "tlsKey": str(files / "client.key"),
        "credentials": str(files / "user.creds"),
    }
    by_content = {
        "servers": options.server,
        "tlsCaContent": (files / "ca.pem").read_text(),
        "tlsCertContent": (files / "client.pem").read_text(),
        "tlsKeyContent": (files / "client.key").read_text(),
        "credentialsContent": (files / "user.creds").read_text(),
    }
    password = (files / "password").read_text()
    with builder.getOrCreate() as spark:
        for number, login in enumerate((by_files, by_content)):
            table = spark.read.format("jetstream").options(**login).load("ORDERS")
            table.explain("extended")
            print("rows", table.count())
            table.createOrReplaceTempView(f"orders{number}")
            spark.sql(f"SELECT subject, count(*) FROM orders{number} GROUP BY subject").show()
            table.selectExpr("'COPY.1' AS subject", "value").write.format("jetstream").options(**login).mode(
                "append"
            ).save("COPY")
            query = (
                spark.readStream.format("jetstream").options(startingOffsets="earliest", **login).load("ORDERS")
                .writeStream.format("parquet").option("checkpointLocation", str(out / f"checkpoint{number}"))
                .trigger(availableNow=True).start(str(out / f"rows{number}"))
            )  # fmt: skip
            query.awaitTermination()
            query.explain(extended=True)
        refused = dict(by_files, user="ann", password=password)
        del refused["credentials"]
        try:
            spark.read.format("jetstream").options(**refused).load("ORDERS").count()
        except Exception as failure:  # whatever Spark makes of it
            print("refused", failure)
        _keep_pages(spark, out / "pages")
    return 0


def _keep_pages(spark: SparkSession, folder: Path) -> None:
    folder.mkdir()
    url = spark.sparkContext.uiWebUrl or ""
    rest = f"api/v1/applications/{spark.sparkContext.applicationId}"
    executions = [f"SQL/execution/?id={number}" for number in range(MAX_EXECUTIONS)]
    for number, page in enumerate((*PAGES, *(f"{rest}/{answer}" for answer in ANSWERS), *executions)):
        with urllib.request.urlopen(f"{url.replace(url.split(':')[1], '//127.0.0.1')}/{page}") as answer:
            (folder / f"{number}.txt").write_bytes(page.encode() + b"\n" + answer.read())


if __name__ == "__main__":
    sys.exit(main())
