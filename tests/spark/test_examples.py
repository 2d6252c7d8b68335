"""The examples of examples/spark do on small data what they say; they run as a person runs them, session and all."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import importlib.util
import json
import os
import pwd
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

import nats
import nats.errors
import pytest
import yaml

from natsctl.client.deadletters.capture import EVERY_STREAM, CaptureOptions, capture_config
from natsctl.spark.source.jetstream_api import JetStreamApi
from natsctl.testing.process import ServerProcess
from tests.spark.source.streams import make, messages
from tests.support import patient_client

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PG_TIMEOUT_S = 60
DELTA_TIMEOUT_S = 900
"""Another Spark starts three times, each in a minute on a busy machine."""
FOLDER = Path(__file__).parents[2] / "examples" / "spark"
WHERE = Path(__file__).parents[2] / "docs" / "spark-where.md"


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def publish(api: JetStreamApi, subject: str, body: str) -> int:
    return int(json.loads(api.link.request(subject, body.encode()).body)["seq"])


def stored(api: JetStreamApi, name: str) -> list[tuple[str, str]]:
    return [(subject, payload.decode()) for subject, _, payload in messages(api, name)]


def test_orders_become_parquet_by_day_and_come_back_once_and_in_order(
    spark: SparkSession, api: JetStreamApi, server: ServerProcess, tmp_path: Path
) -> None:
    make(api, "ORDERS", 0)
    make(api, "ORDERS_COPY", 0)
    for number in range(40):
        publish(api, f"ORDERS.eu.{number % 3}", f"order {number}")
    module, folder = example("orders_to_parquet"), str(tmp_path / "orders")
    module.to_parquet(spark, folder, servers=server.url)
    assert len([*Path(folder).glob("day=*")]) in (1, 2)
    for _ in range(2):
        module.from_parquet(spark, folder, servers=server.url)
    original = [(f"ORDERS_COPY.{subject.partition('.')[2]}", body) for subject, body in stored(api, "ORDERS")]
    copied = stored(api, "ORDERS_COPY")
    assert sorted(copied) == sorted(original)
    for subject in {subject for subject, _ in original}:
        assert [body for name, body in copied if name == subject] == [b for name, b in original if name == subject]


def test_totals_are_published_once_however_often_the_query_is_killed(
    spark: SparkSession, api: JetStreamApi, server: ServerProcess, tmp_path: Path
) -> None:
    make(api, "ORDERS", 0)
    make(api, "TOTALS", 0)
    orders = (("ann", 10.5, "10:00:05"), ("bob", 1.0, "10:00:59"), ("ann", 2.0, "10:00:30"), ("ann", 7.0, "10:02:30"))
    publish(api, "ORDERS.new", "no JSON")
    for customer, amount, at in orders:
        publish(api, "ORDERS.new", json.dumps({"customer": customer, "amount": amount, "at": f"2026-11-21T{at}Z"}))
    module, checkpoint = example("totals_by_customer"), tmp_path / "checkpoint"
    module.start(spark, str(checkpoint), servers=server.url).awaitTermination()
    ann = ("TOTALS.ann", '{"minute":"2026-11-21T10:00","orders":2,"amount":12.5}')
    bob = ("TOTALS.bob", '{"minute":"2026-11-21T10:00","orders":1,"amount":1.0}')
    assert sorted(stored(api, "TOTALS")) == [ann, bob]

    commits = checkpoint / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    (commits / str(last)).unlink()  # as if it was killed when all was published and nothing noted
    (commits / f".{last}.crc").unlink()
    publish(api, "ORDERS.new", json.dumps({"customer": "ann", "amount": 1.0, "at": "2026-11-21T10:04:00Z"}))
    module.start(spark, str(checkpoint), servers=server.url).awaitTermination()
    later = ("TOTALS.ann", '{"minute":"2026-11-21T10:02","orders":1,"amount":7.0}')
    assert sorted(stored(api, "TOTALS")) == sorted([ann, bob, later])


def test_dead_letters_have_the_contents_of_their_messages(
    spark: SparkSession, api: JetStreamApi, server: ServerProcess
) -> None:
    make(api, "ORDERS", 0)
    config = capture_config(EVERY_STREAM, CaptureOptions(copies=True))
    api.ask("STREAM.CREATE.DEADLETTERS", config)
    publish(api, "$DLQ.ORDERS.IMPATIENT.9.9", "not JSON")
    for number in range(3):
        publish(api, "ORDERS.new", f"order {number}")
    give_up(api, "ORDERS", 3)
    api.ask("STREAM.MSG.DELETE.ORDERS", {"seq": 2})
    letters = example("dead_letters").dead_letters(spark, servers=server.url)
    found = [(row.seq, row.deliveries, row.consumers, row.subject, row.value) for row in letters.collect()]
    assert found == [
        (1, 1, ["IMPATIENT"], "ORDERS.new", "order 0"),
        (2, 1, ["IMPATIENT"], None, None),
        (3, 1, ["IMPATIENT"], "ORDERS.new", "order 2"),
    ]


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    """The URI of a PostgreSQL of the machine's packages, in a folder of its own, on a socket."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not found or shutil.which("psql") is None:
        pytest.skip("PostgreSQL is not installed")
    as_user = {"user": "postgres", "group": "postgres"} if os.geteuid() == 0 else {}
    with tempfile.TemporaryDirectory(prefix="natsctl-pg-", dir="/tmp") as name:
        folder, bin_folder = Path(name), found[-1].parent
        if as_user:
            shutil.chown(folder, "postgres", "postgres")

        def run(*words: str) -> None:
            subprocess.run(words, check=True, cwd=folder, stdout=subprocess.DEVNULL, timeout=PG_TIMEOUT_S, **as_user)

        run(str(found[-1]), "-D", f"{folder}/data", "-U", "postgres", "-A", "trust", "--no-sync")
        settings = f"-k {folder} -c listen_addresses='' -c fsync=off"
        run(str(bin_folder / "pg_ctl"), "-D", f"{folder}/data", "-l", f"{folder}/log", "-w", "-o", settings, "start")
        yield f"postgres:///postgres?host={folder}&user=postgres"
        run(str(bin_folder / "pg_ctl"), "-D", f"{folder}/data", "-m", "immediate", "stop")


def test_orders_are_in_postgres_once_however_often_a_batch_is_done(
    spark: SparkSession, api: JetStreamApi, server: ServerProcess, tmp_path: Path, postgres: str
) -> None:
    make(api, "ORDERS", 0)
    customers = ["ann", "tab\there", 'x\n\\.\nDROP TABLE orders;\n"', "nul\0"]
    for number, customer in enumerate(customers):
        publish(api, "ORDERS.new", json.dumps({"customer": customer, "amount": number + 0.5}))
    publish(api, "ORDERS.new", "no JSON")
    module, checkpoint = example("orders_to_postgres"), tmp_path / "checkpoint"
    module.start(spark, str(checkpoint), postgres, servers=server.url).awaitTermination()
    (checkpoint / "commits" / "0").unlink()  # as if it was killed when all was merged and nothing noted
    (checkpoint / "commits" / ".0.crc").unlink()
    publish(api, "ORDERS.new", json.dumps({"customer": "bob"}))
    module.start(spark, str(checkpoint), postgres, servers=server.url).awaitTermination()
    rows = module.psql(postgres, "SELECT json_build_array(seq, customer, amount) FROM orders ORDER BY seq")
    found = [json.loads(line) for line in rows.splitlines()]
    expected = [[seq, each.replace("\0", "\ufffd"), seq - 0.5] for seq, each in enumerate(customers, 1)]
    assert found == [*expected, [5, None, None], [6, "bob", None]]


MAVEN = Path(pwd.getpwuid(os.getuid()).pw_dir) / ".m2/repository"
IVY = tuple(MAVEN.parents[1].glob(".ivy2*"))


def jar(place: str, pattern: str) -> Path:
    """The newest jar of that name that Maven, in a place of its repository, or Ivy has on this machine already."""
    jars = [found for folder in (MAVEN / place, *IVY) for found in folder.glob(f"**/*{pattern}.jar")]
    if not jars:
        pytest.skip(f"{pattern} is not on this machine; `mvn dependency:get` or spark.jars.packages brings it")
    return max(jars, key=lambda found: found.name)


@pytest.mark.parametrize("package", ["avro", "protobuf"])
def test_records_of_a_schema_are_published_and_read(
    spark: SparkSession, api: JetStreamApi, server: ServerProcess, tmp_path: Path, package: str
) -> None:
    spark.sql(f"ADD JAR '{jar('org/apache/spark', f'spark-{package}_2.13-4*')}'")
    for name in ("ORDERS", "COPY"):
        make(api, name, 0)
    module, reach, descriptors = example(f"{package}_orders"), {"servers": server.url}, tmp_path / "order.desc"
    descriptors.write_bytes(descriptors_of((FOLDER / "order.proto").read_text()))
    schema = [str(descriptors)] * (package == "protobuf")
    rows = [(1, "ann", 2.5, None), (2, "bob", 4.0, "soon")]
    frame = spark.createDataFrame(rows, "seq bigint, customer string, amount double, note string")
    module.publish(frame.drop("seq") if schema else frame, *schema, "ORDERS", **reach)
    api.link.request("ORDERS.none", b"\xff")
    found = module.orders(spark, *schema, **reach)
    expected = {("ORDERS.ann", "ann", 2.5, None), ("ORDERS.bob", "bob", 4.0, "soon"), ("ORDERS.none", None, None, None)}
    assert {tuple(row)[1:] for row in found.collect()} == expected


def descriptors_of(text: str) -> bytes:
    """What `protoc --descriptor_set_out` writes of a file with one message of plain fields."""
    descriptor = importlib.import_module("google.protobuf.descriptor_pb2")
    kinds = {name: getattr(descriptor.FieldDescriptorProto, f"TYPE_{name.upper()}") for name in ("string", "double")}
    found = descriptor.FileDescriptorSet()
    file = found.file.add(name="order.proto", syntax="proto3")
    message = file.message_type.add(name=re.findall(r"^message (\w+)", text, re.MULTILINE)[0])
    for optional, kind, name, number in re.findall(r"^  (optional )?(\w+) (\w+) = (\d+);", text, re.MULTILINE):
        one = message.field.add(name=name, number=int(number), type=kinds[kind], label=1)
        if optional:
            one.proto3_optional, one.oneof_index = True, len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{name}")
    return bytes(found.SerializeToString())


@pytest.mark.spark
@pytest.mark.timeout(DELTA_TIMEOUT_S)
def test_a_stream_is_kept_in_delta_over_a_batch_that_is_done_again(
    api: JetStreamApi, server: ServerProcess, tmp_path: Path
) -> None:
    python = os.environ.get("NATSCTL_DELTA_PYTHON", "")
    if not python:
        pytest.skip("NATSCTL_DELTA_PYTHON names no Python with PySpark 4.0 to 4.2, for which Delta has a release")
    said = subprocess.run([python, "-c", "import pyspark; print(pyspark.__version__)"], capture_output=True, text=True)
    line = ".".join(said.stdout.split(".")[:2])
    jars = [jar("io/delta", f"delta-spark_{line}_2.13-*"), jar("io/delta", "delta-storage-*")]
    shutil.copy(FOLDER.parents[1] / "natsctl/spark/pyspark_jetstream.py", tmp_path)
    conf = {"extensions": "io.delta.sql.DeltaSparkSessionExtension"}
    conf["catalog.spark_catalog"] = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
    conf["shuffle.partitions"] = "2"
    words = ["--master local[2] --driver-memory 1g --jars", ",".join(map(str, jars))]
    words += [f"--conf spark.sql.{name}={value}" for name, value in conf.items()]
    words += ["--conf spark.databricks.delta.snapshotPartitions=1 --conf spark.ui.enabled=false pyspark-shell"]
    settings = {"PYSPARK_SUBMIT_ARGS": " ".join(words), "PYSPARK_PYTHON": python}
    settings["PYTHONPATH"] = f"{FOLDER.parents[1]}:{tmp_path}"
    command = [python, str(FOLDER / "orders_to_delta.py"), "--folder", str(tmp_path), "--servers", server.url]

    def newest() -> list[dict[str, object]]:
        done = subprocess.run(command, env={**os.environ, **settings}, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]
        return [json.loads(each) for each in done.stdout.splitlines()]

    make(api, "ORDERS", 0)
    for customer, amount in (("ann", 1.5), ("bob", 2.0), ("ann", 3.0)):
        publish(api, "ORDERS.new", json.dumps({"customer": customer, "amount": amount}))
    ann, bob = {"customer": "ann", "seq": 3, "amount": 3.0}, {"customer": "bob", "seq": 2, "amount": 2.0}
    assert newest() == [ann, bob]
    for name in ("all", "newest"):  # as if the driver was killed when all was stored and nothing noted
        (tmp_path / "checkpoints" / name / "commits" / "0").unlink()
        (tmp_path / "checkpoints" / name / "commits" / ".0.crc").unlink()
    publish(api, "ORDERS.new", json.dumps({"customer": "bob", "amount": 4.0}))
    newest()  # before Spark 4.2 a run that finds an unfinished batch does that one alone
    assert newest() == [ann, {"customer": "bob", "seq": 4, "amount": 4.0}]
    log = sorted((tmp_path / "all" / "_delta_log").glob("*.json"))
    added = [json.loads(line)["add"] for path in log for line in path.read_text().splitlines() if '"add"' in line]
    assert sum(json.loads(each["stats"])["numRecords"] for each in added) == 4


def test_the_manifest_for_kubernetes_starts_what_its_image_has() -> None:
    service, job = manifest()
    pod = job["spec"]["template"]
    (driver,) = pod["spec"]["containers"]
    assert service["spec"]["selector"] == pod["metadata"]["labels"]
    conf = dict(word.removeprefix("--conf=").split("=", 1) for word in driver["args"] if word.startswith("--conf="))
    assert conf["spark.kubernetes.container.image"] == driver["image"]
    assert conf["spark.driver.host"] == service["metadata"]["name"]
    assert [conf["spark.driver.port"], conf["spark.driver.blockManager.port"]] == [
        str(port["port"]) for port in service["spec"]["ports"]
    ]
    mounted = {each["name"] for each in driver["volumeMounts"]}
    assert mounted == {each["name"] for each in pod["spec"]["volumes"]}
    image = (FOLDER / "kubernetes" / "Dockerfile").read_text()
    assert re.search(r"^FROM apache/spark:(\S+)-python3$", image, re.MULTILINE)
    assert "natsctl" in image


def manifest() -> tuple[dict[str, Any], dict[str, Any]]:
    """The Service and the Job of the example for Kubernetes."""
    service, job = yaml.safe_load_all((FOLDER / "kubernetes" / "orders.yaml").read_text())
    return service, job


def test_the_manifest_for_kubernetes_has_only_fields_of_its_api(spark: SparkSession) -> None:
    service, job = manifest()
    java = cast(Any, spark)._jvm
    models = {"Service": service, "batch.v1.Job": job}
    for name, document in models.items():
        model = java.java.lang.Class.forName(f"io.fabric8.kubernetes.api.model.{name}")
        assert unknown_fields(spark, document, model) == []
        serialization = java.io.fabric8.kubernetes.client.utils.Serialization
        assert json.loads(serialization.asJson(serialization.unmarshal(json.dumps(document), model))) == document
    job["spec"]["template"]["spec"]["containers"][0]["argument"] = "-v"
    assert unknown_fields(spark, job, model) == ["spec.template.spec.containers.0.argument"]


def unknown_fields(spark: SparkSession, document: dict[str, Any], model: Any) -> list[str]:
    """The fields of a document that its model, a class of the Kubernetes client in Spark's jars, does not have."""
    mapper = cast(Any, spark)._jvm.com.fasterxml.jackson.databind.ObjectMapper()

    def look(node: Any, kind: Any, path: str) -> Iterator[str]:
        if kind.isContainerType():
            for key, value in node.items() if isinstance(node, dict) else enumerate(node):
                yield from look(value, kind.getContentType(), f"{path}{key}.")
        elif isinstance(node, dict):
            properties = mapper.getSerializationConfig().introspect(kind).findProperties()
            known = {each.getName(): each.getPrimaryType() for each in properties}
            for key, value in node.items():
                yield from look(value, known[key], f"{path}{key}.") if key in known else [f"{path}{key}"]

    return [*look(document, mapper.constructType(model), "")]


def submitted(
    spark: SparkSession, arguments: list[str], environment: dict[str, str]
) -> tuple[str, str, dict[str, str]]:
    """The class that spark-submit would run with those arguments, the arguments of that class, and the settings."""
    java = cast(Any, spark)._jvm
    scala = java.scala.jdk.javaapi.CollectionConverters
    words, variables = java.java.util.ArrayList(), java.java.util.HashMap()
    for word in arguments:
        words.add(word)
    for name, value in environment.items():
        variables.put(name, value)
    immutable = getattr(getattr(getattr(java.scala.collection.immutable, "Map$"), "MODULE$"), "from")
    parsed = java.org.apache.spark.deploy.SparkSubmitArguments(
        scala.asScala(words).toSeq(), immutable(scala.asScala(variables))
    )
    nothing = getattr(getattr(java.scala, "None$"), "MODULE$")
    prepared = java.org.apache.spark.deploy.SparkSubmit().prepareSubmitEnvironment(parsed, nothing)
    pairs = (pair.split("=", 1) for pair in prepared._3().toDebugString().splitlines())
    return prepared._4(), prepared._1().mkString(" "), dict(pairs)


def test_spark_submit_resolves_the_job_for_kubernetes(spark: SparkSession) -> None:
    _, job = manifest()
    (driver,) = job["spec"]["template"]["spec"]["containers"]
    main, arguments, conf = submitted(spark, driver["args"], {})
    assert (main, arguments) == ("org.apache.spark.deploy.PythonRunner", "file:/jobs/orders.py null")
    assert (conf["spark.master"], conf["spark.submit.deployMode"]) == ("k8s://https://kubernetes.default.svc", "client")
    given = dict(word.removeprefix("--conf=").split("=", 1) for word in driver["args"] if word.startswith("--conf="))
    assert given.items() <= conf.items()


def test_spark_submit_resolves_the_command_for_yarn(spark: SparkSession) -> None:
    (recipe,) = re.findall(r"^HADOOP_CONF_DIR=.*\n.*--master yarn .*$", WHERE.read_text(), re.MULTILINE)
    words = shlex.split(recipe.replace("\\\n", " "))
    at = words.index("spark-submit")
    environment = dict(word.split("=", 1) for word in words[:at])
    main, arguments, conf = submitted(spark, words[at + 1 :], environment)
    assert main == "org.apache.spark.deploy.PythonRunner"
    assert arguments == f"file:{Path.cwd()}/orders_to_parquet.py null hdfs:///orders"
    assert conf["spark.yarn.dist.archives"] == f"file:{Path.cwd()}/environment.tar.gz#environment"
    words[words.index("client")] = "cluster"
    main, arguments, _ = submitted(spark, words[at + 1 :], environment)
    assert main == "org.apache.spark.deploy.yarn.YarnClusterApplication"
    assert arguments.endswith("--class org.apache.spark.deploy.PythonRunner --arg hdfs:///orders")


def give_up(api: JetStreamApi, name: str, number: int) -> None:
    """Have a consumer fetch so many messages, acknowledge none, and the server report that it gives them up."""
    config = {"durable_name": "IMPATIENT", "ack_policy": "explicit", "max_deliver": 1, "ack_wait": 200_000_000}
    api.create_consumer(name, "IMPATIENT", config)

    async def fetch_until_told() -> None:
        client = await patient_client.connect(api.link.settings.urls[0])
        consumer = await client.jetstream().pull_subscribe_bind("IMPATIENT", name)
        fetched = 0
        while fetched < number:
            fetched += len(await consumer.fetch(number - fetched, timeout=10))
        while api.stream_info("DEADLETTERS")["state"]["messages"] < number + 1:
            with contextlib.suppress(nats.errors.TimeoutError):
                await consumer.fetch(1, timeout=0.3)
        await client.close()

    asyncio.run(fetch_until_told())
