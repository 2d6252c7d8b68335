"""Examples for those who operate a server: unit, manifests, image, alert rules and dashboard."""

import asyncio
import json
import re
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from configparser import ConfigParser
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
import yaml

from natsctl.server.conf.config import read_config
from natsctl.server.instance import ServerInstance
from natsctl.server.log.lines import Log
from natsctl.server.options import ServerOptions
from natsctl.server.process.flags import parse_command_line
from tests.support.raw_client import RawClient
from tests.support.servers import quiet_ports
from tests.support.stored_version import api

CLONE = Path(__file__).parents[2]
EXAMPLES = CLONE / "examples"
METRIC = re.compile(r"\b(?:gnatsd|jetstream|natsctl|process)_\w+")


def alerts() -> list[dict]:
    (group,) = yaml.safe_load((EXAMPLES / "monitoring" / "alerts.yaml").read_text())["groups"]
    return group["rules"]


def panels() -> list[dict]:
    return json.loads((EXAMPLES / "monitoring" / "dashboard.json").read_text())["panels"]


@pytest.fixture(scope="module")
def metrics(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    async def scraped() -> str:
        async with serving(tmp_path_factory.mktemp("metrics")) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port_of("monitoring"))
            writer.write(b"GET /metrics HTTP/1.0\r\n\r\n")
            text = (await reader.read()).decode()
            writer.close()
            return text

    return set(re.findall(r"^# TYPE (\w+)", asyncio.run(scraped()), re.MULTILINE))


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[ServerInstance]:
    """A server with monitoring, a stream and a consumer."""
    options = ServerOptions(host="127.0.0.1", port=-1, http_port=-1, jetstream=True, store_dir=folder)
    async with ServerInstance(options, Log(quiet=True)) as server:
        client = await RawClient.connect(server.url)
        await api(client, "STREAM.CREATE.A", {"name": "A", "subjects": ["a"], "storage": "file"})
        consumer = {"stream_name": "A", "config": {"durable_name": "C", "ack_policy": "explicit"}}
        await api(client, "CONSUMER.DURABLE.CREATE.A.C", consumer)
        yield server
        await client.close()


def test_alerts_ask_for_metrics_that_a_server_has(metrics: set[str]) -> None:
    asked = {name for rule in alerts() for name in METRIC.findall(rule["expr"])}
    assert len(asked) > 15 and asked <= metrics


def test_the_dashboard_asks_for_metrics_that_a_server_has(metrics: set[str]) -> None:
    targets = [target["expr"] for panel in panels() for target in panel.get("targets", ())]
    asked = {name for expression in targets for name in METRIC.findall(expression)}
    assert len(asked) > 15 and asked <= metrics
    assert len({panel["id"] for panel in panels()}) == len(panels())


def expressions() -> list[dict]:
    targets = [target for panel in panels() for target in panel.get("targets", ())]
    assert all('instance=~"$instance"' in target["expr"] for target in targets)
    return [{**target, "expr": target["expr"].replace("$instance", ".*")} for target in targets]


@pytest.mark.docs
@pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not on PATH")
async def test_every_panel_has_data_of_a_server_that_prometheus_scrapes(tmp_path: Path) -> None:
    async with serving(tmp_path / "store") as server:
        target = f"127.0.0.1:{server.port_of('monitoring')}"
        async with scraping(tmp_path, target) as ask:
            async with asyncio.timeout(60):
                while float((await ask("count_over_time(up[1m]) and up == 1"))[0]["value"][1]) < 3:
                    await asyncio.sleep(0.2)
            for one in expressions():
                found = await ask(one["expr"])
                assert found, one["expr"]
                labels = set(re.findall(r"{{(\w+)}}", one["legendFormat"]))
                assert all(labels <= series["metric"].keys() for series in found), one["expr"]


Ask = Callable[[str], Awaitable[list[dict]]]


@asynccontextmanager
async def scraping(folder: Path, target: str) -> AsyncIterator[Ask]:
    """Yield what asks a Prometheus that scrapes `target` each second; it has answered for it once."""
    (port,) = quiet_ports(1)
    job = {"job_name": "nats", "static_configs": [{"targets": [target]}]}
    config = folder / "prometheus.yaml"
    config.write_text(yaml.safe_dump({"global": {"scrape_interval": "1s"}, "scrape_configs": [job]}))
    listen = [f"--web.listen-address=127.0.0.1:{port}", f"--storage.tsdb.path={folder / 'tsdb'}"]
    process = await asyncio.create_subprocess_exec(
        "prometheus", f"--config.file={config}", *listen, stderr=subprocess.DEVNULL
    )

    def answer(expression: str) -> list[dict]:
        query = urllib.parse.urlencode({"query": expression})
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/query?{query}", timeout=30) as response:
            return json.load(response)["data"]["result"]

    async def ask(expression: str) -> list[dict]:
        return await asyncio.to_thread(answer, expression)

    async def scraped() -> bool:
        with suppress(OSError):
            return bool(await ask("up == 1"))
        return False

    try:
        async with asyncio.timeout(60):
            while not await scraped():
                await asyncio.sleep(0.1)
        yield ask
    finally:
        process.kill()
        await process.wait()


def test_each_alert_has_its_part_of_the_page() -> None:
    page = (CLONE / "docs" / "alerts.md").read_text()
    names = [rule["alert"] for rule in alerts()]
    assert re.findall(r"^## (\w+)$", page, re.MULTILINE) == names
    for rule in alerts():
        assert rule["annotations"]["runbook"] == f"docs/alerts.md#{rule['alert'].lower()}"
        assert rule["labels"]["severity"] in ("critical", "warning", "info")


@pytest.mark.docs
@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not on PATH")
def test_promtool_accepts_the_rules_and_every_expression_of_the_dashboard(tmp_path: Path) -> None:
    rules = [{"record": f"panel:{at}", "expr": one["expr"]} for at, one in enumerate(expressions())]
    path = tmp_path / "panels.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    for checked in (path, EXAMPLES / "monitoring" / "alerts.yaml"):
        done = subprocess.run(["promtool", "check", "rules", str(checked)], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        assert checked != path or f"{len(rules)} rules found" in done.stdout


def test_the_unit_starts_the_server_as_a_user_of_its_own() -> None:
    unit = ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(EXAMPLES / "systemd" / "natsctl.service")
    service = unit["Service"]
    program, *words = service["ExecStart"].split()
    assert program == "/usr/bin/natsctl" and words[:2] == ["server", "run"]
    assert service["Type"] == "notify" and service["User"] == "natsctl" and int(service["WatchdogSec"]) > 0
    assert words[words.index("-sd") + 1] == f"/var/lib/{service['StateDirectory']}"


@pytest.mark.docs
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    text = (EXAMPLES / "systemd" / "natsctl.service").read_text()
    path = tmp_path / "natsctl.service"
    path.write_text(re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", text, flags=re.MULTILINE))
    done = subprocess.run(["systemd-analyze", "verify", str(path)], capture_output=True, text=True)
    assert done.returncode == 0 and "natsctl.service" not in done.stderr, done.stderr


def test_the_manifests_start_a_server_with_a_configuration_that_it_accepts(tmp_path: Path) -> None:
    config, service, stateful = yaml.safe_load_all((EXAMPLES / "kubernetes" / "natsctl.yaml").read_text())
    path = tmp_path / "nats.conf"
    path.write_text(config["data"]["nats.conf"])
    options = read_config(path, ServerOptions(), {})
    pod = stateful["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["args"][:2] == ["server", "run"]
    given = [str(path) if word.startswith("/etc/natsctl") else word for word in container["args"][2:]]
    assert parse_command_line(given, {}).options.http_port == options.http_port == 8222
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert ports == {"client": options.port, "monitor": options.http_port}
    assert {each["targetPort"] for each in service["spec"]["ports"]} == ports.keys()
    mounted = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    volumes = {each["name"] for each in pod["volumes"]}
    claimed = {each["metadata"]["name"] for each in stateful["spec"]["volumeClaimTemplates"]}
    assert mounted.keys() == volumes | claimed
    assert str(options.store_dir) == mounted["data"]
    assert options.lame_duck_duration_s < pod["terminationGracePeriodSeconds"]
    assert parse_command_line(container["lifecycle"]["preStop"]["exec"]["command"][3:], {}).signal == "ldm=1"
    labels = stateful["spec"]["template"]["metadata"]["labels"]
    assert labels == service["spec"]["selector"] == stateful["spec"]["selector"]["matchLabels"]


def test_the_image_runs_the_server_and_checks_itself() -> None:
    text = (EXAMPLES / "image" / "Containerfile").read_text()
    assert json.loads(re.findall(r"^ENTRYPOINT (.*)$", text, re.MULTILINE)[0]) == ["natsctl"]
    command = json.loads(re.findall(r"^CMD (.*)$", text, re.MULTILINE)[0])
    assert parse_command_line(command[2:], {}).options.jetstream and command[:2] == ["server", "run"]
    assert "USER 1000:1000" in text and "VOLUME /data" in text


def test_the_services_of_the_compose_file_use_files_that_are_there() -> None:
    folder = EXAMPLES / "compose"
    services = yaml.safe_load((folder / "compose.yaml").read_text())["services"]
    for service in services.values():
        if build := service.get("build"):
            assert (folder / build["context"] / build["dockerfile"]).is_file()
        for volume in service["volumes"]:
            source = volume.split(":")[0]
            assert not source.startswith(".") or (folder / source).is_dir()
    prometheus = yaml.safe_load((EXAMPLES / "monitoring" / "prometheus.yaml").read_text())
    (job,) = prometheus["scrape_configs"]
    assert job["static_configs"][0]["targets"] == ["nats:8222"] and "nats" in services
    assert all(f'job="{job["job_name"]}"' in rule["expr"] for rule in alerts() if "process_" in rule["expr"])
