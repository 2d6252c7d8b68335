"""What the README and docs/spark.md show of Spark does what they say: the lines and the programs themselves are run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.functions import col
from pyspark.sql.functions import sum as sum_of

from natsctl.cli.main import run as run_main
from natsctl.spark import json_table
from natsctl.testing.process import ServerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
GUIDE = ROOT / "docs" / "spark.md"
CONSOLE = re.compile(r"```console\n(.*?)```", re.DOTALL)
PYTHON = re.compile(r"```python\n(.*?)```", re.DOTALL)


@pytest.fixture
def orders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServerProcess]:
    """A server with the stream that documents speak of; commands run in an empty folder."""
    with ServerProcess(tmp_path / "server") as process:
        monkeypatch.setenv("NATS_URL", process.url)
        monkeypatch.chdir(tmp_path)
        assert run_main(["stream", "add", "ORDERS", "--subjects", "ORDERS.>", "--defaults"]) == 0
        assert run_main(["stream", "add", "COPY", "--subjects", "COPY.>", "--defaults"]) == 0
        assert run_main(["stream", "add", "TOTALS", "--subjects", "TOTALS.>", "--defaults"]) == 0
        for number in range(12):
            body = f'{{"id": {number}, "total": 1.5}}'
            assert run_main(["pub", f"ORDERS.{number % 2}.paid", body, "--wait"]) == 0
        yield process


def section(path: Path, title: str) -> str:
    return path.read_text(encoding="utf-8").partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def run_program(text: str, server: ServerProcess, **known: object) -> dict[str, object]:
    """What a program of a document leaves behind; the server, which Spark was started without, is named to it."""
    named = text.replace('.format("jetstream")', f'.format("jetstream").option("servers", "{server.url}")')
    named = re.sub(r"(json_table\(spark.*)\)", rf'\1, servers="{server.url}")', named)
    assert named != text
    exec(compile(named, "document", "exec"), found := dict(known))
    return found


def test_the_lines_and_the_program_of_the_readme_work(
    spark: SparkSession, orders: ServerProcess, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    text = section(README, "Streams on Spark")
    first, _ = CONSOLE.findall(text)  # the second is about pipelines, in tests/cli/pipeline
    queries = first.splitlines()
    assert len(queries) == 3
    capsys.readouterr()
    said = []
    for line in queries:
        words = shlex.split(line, comments=True)
        assert run_main([*words[1:], "-j"]) == 0, capsys.readouterr().err
        said.append(capsys.readouterr().out)
    assert '"ORDERS.1.paid"' in said[0]
    assert '{\\"id\\": 8' in said[1]
    assert (tmp_path / "orders.parquet").is_file()
    (program,) = PYTHON.findall(text)
    run_program(program, orders)
    assert "|ORDERS.0.paid|    6|" in capsys.readouterr().out


def test_the_programs_of_the_guide_work(
    spark: SparkSession, orders: ServerProcess, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (first_page,) = PYTHON.findall(section(GUIDE, "Five minutes"))
    run_program(first_page.replace("/tmp/", f"{tmp_path}/"), orders)
    shown = capsys.readouterr().out
    assert "|ORDERS.1.paid|       9.0|" in shown
    assert "12 messages in Parquet" in shown
    plain, payments = PYTHON.findall(section(GUIDE, "Read"))
    assert run_program(plain, orders, spark=spark)["payments"].count() == 12  # type: ignore[attr-defined]  # a frame
    frame = run_program(payments, orders, spark=spark)["payments"]
    assert sum(row.value.total for row in frame.collect()) == 18.0  # type: ignore[attr-defined]  # a frame
    write, updates = PYTHON.findall(section(GUIDE, "Write"))
    source = spark.read.format("jetstream").options(servers=orders.url).load("ORDERS")
    for _ in range(2):
        run_program(write, orders, orders=source)
    copy = spark.read.format("jetstream").options(servers=orders.url).load("COPY")
    assert {(row.subject, row["count"]) for row in copy.groupBy("subject").count().collect()} == {
        ("COPY.ORDERS.0.paid", 6),
        ("COPY.ORDERS.1.paid", 6),
    }
    schema = "id bigint, total double"
    payments = json_table(spark, "ORDERS", schema, streaming=True, servers=orders.url, startingOffsets="earliest")
    totals = payments.groupBy(col("value.id").alias("customer")).agg(sum_of("value.total").alias("amount"))
    query = run_program(updates.replace("/data/", f"{tmp_path}/"), orders, totals=totals)["query"]
    query.processAllAvailable()  # type: ignore[attr-defined]  # a query
    query.stop()  # type: ignore[attr-defined]  # a query
    assert spark.read.format("jetstream").options(servers=orders.url).load("TOTALS").count() == 12
