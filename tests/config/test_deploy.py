"""The files of ``docs/deploy`` name flags, variables and servers that exist."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from kas.config.flags import BY_NAME
from kas.testing.server import KasServer
from tests.conftest import Client
from tests.etcd import Etcd

DEPLOY = Path(__file__).parents[2] / "docs" / "deploy"
EXTRAS = tomllib.loads((DEPLOY.parents[1] / "pyproject.toml").read_text())["project"]["optional-dependencies"].keys()


def flags(text: str) -> set[str]:
    """Returns the flags of kas' command."""
    return set(re.findall(r"--([a-z0-9-]+)=", text[text.index("kas serve") :]))


@pytest.mark.parametrize("name", ["kas.service", "compose.yaml"])
def test_flags_exist(name: str) -> None:
    text = "".join(line for line in (DEPLOY / name).read_text().splitlines(True) if not line.startswith("#"))
    found = flags(text)
    assert {"storage-backend", "etcd-servers", "shutdown-delay-duration"} <= found <= BY_NAME.keys()


@pytest.mark.parametrize("name", ["kas.service", "compose.yaml"])
def test_a_load_balancer_on_another_host_reaches_the_servers(name: str) -> None:
    assert re.search(r"^ .*--bind-address=(\S+)", (DEPLOY / name).read_text(), re.M)[1] == "0.0.0.0"


def test_the_container_uses_its_volume() -> None:
    text = (DEPLOY.parents[1] / "Dockerfile").read_text()
    command = json.loads(re.search(r"^ENTRYPOINT (.*)$", text, re.M)[1])
    assert command[:2] == ["kas", "serve"]
    given = dict(flag.removeprefix("--").split("=") for flag in command[2:])
    assert given.keys() <= BY_NAME.keys()
    assert f"VOLUME {given['data-dir']}\n" in text
    assert set(re.search(r"/src\[(.*?)\]", text)[1].split(",")) <= EXTRAS


def test_variables_of_the_units_are_in_their_files() -> None:
    asked = set(re.findall(r"\$\{(\w+)\}", (DEPLOY / "kas.service").read_text()))
    assert asked == set(re.findall(r"^(\w+)=", (DEPLOY / "kas.env").read_text(), re.M))


def test_three_servers_and_members_are_behind_the_load_balancer() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    assert sorted(services) == ["balancer", "etcd-1", "etcd-2", "etcd-3", "kas-1", "kas-2", "kas-3"]
    for number in (1, 2, 3):
        assert services[f"etcd-{number}"]["environment"]["ETCD_INITIAL_CLUSTER"].count("http") == 3
    config = (DEPLOY / "haproxy.cfg").read_text()
    assert set(re.findall(r"\$\{(\w+)\}", config)) == set(services["balancer"]["environment"])
    assert "uri /readyz" in config


def test_composes_instructions_give_one_administrator_for_all_servers(tmp_path: Path) -> None:
    """Its commands, except docker's, and the servers' flags."""
    text = (DEPLOY / "compose.yaml").read_text()
    pki, once = tmp_path / "docs" / "deploy" / "pki", tmp_path / "once"
    with KasServer(tmp_path, "--storage-backend=lmdb") as server:
        token = server.token
    shutil.move(server.data_dir, once)
    commands = "\n".join(re.findall(r"^#   ((?:mkdir|cp|echo) .*)$", text, re.M))
    pki.parent.mkdir(parents=True)
    subprocess.run(["sh", "-ec", commands], cwd=tmp_path, check=True)
    command = yaml.safe_load(text)["services"]["kas-1"]["command"][0].partition("kas serve ")[2]
    given = dict(flag.removeprefix("--").split("=", 1) for flag in command.replace("/pki/", f"{pki}/").split() if "=" in flag)
    with Etcd(tmp_path) as etcd:
        own = {"etcd-servers": etcd.url, "bind-address": "127.0.0.1", "advertise-address": "127.0.0.1", "shutdown-delay-duration": "0s"}
        flags = [f"--{name}={value}" for name, value in (given | own).items() if name not in ("data-dir", "secure-port")]
        with KasServer(tmp_path / "a", *flags) as one, KasServer(tmp_path / "b", *flags) as two:
            for each in (one, two):
                client = Client(each)
                client.session.verify, client.session.headers["Authorization"] = str(once / "pki" / "ca.crt"), f"Bearer {token}"
                assert client("GET", "/api/v1/namespaces")[0] == 200
