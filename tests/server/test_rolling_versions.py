"""A rolling upgrade from one version's server to another's on the same etcd, and back, behind a balancer that asks for /readyz.

The new server serves other APIs (``--runtime-config``). The clients are kubectl, a kopf operator, and a cache that is fed with protobuf.
kubectl and the cache see no error. kopf rarely sees one: persistent connections end while they have no request, or with the answer. What
remains is a connection that ends just when a request is sent, and the 429 of a server that finds no idle moment (upstream's answer with
``--shutdown-send-retry-after``). kopf logs each, retries, and misses nothing.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kas.testing.server import KasServer
from kas.types.scheme import builtin_kind, decode_protobuf, open_envelope
from tests import prerequisites
from tests.aggregator.certificates import Authority
from tests.controllers.waiting import until
from tests.etcd import Etcd
from tests.server.test_rolling import CONFIG_MAPS, TOKEN, Balancer, Caller

prerequisites.module("kopf")

pytestmark = [pytest.mark.client, pytest.mark.long]

OLDER = "--runtime-config=batch/v1=false,autoscaling/v2=false"
NEWER = "--runtime-config=admissionregistration.k8s.io/v1beta1=true,resource.k8s.io/v1beta1=true"
PROTOBUF = "application/vnd.kubernetes.protobuf"
OPERATOR = Path(__file__).parents[1] / "clients" / "kopf_operator.py"



class Setup:
    """An etcd, and the files and flags that servers and clients share."""

    def __init__(self, directory: Path, etcd: Etcd) -> None:
        self.directory, self.ca = directory, Authority(directory, "serving")
        certificate, key = self.ca.issue("server", ["127.0.0.1", "localhost"])
        tokens = directory / "tokens"
        tokens.write_text(f'{TOKEN},admin,uid,"system:masters"\n')
        self.flags = (
            "--storage-backend=etcd3", f"--etcd-servers={etcd.url}", "--advertise-address=127.0.0.1", f"--tls-cert-file={certificate}",
            f"--tls-private-key-file={key}", f"--token-auth-file={tokens}", "--shutdown-delay-duration=3s",
        )  # fmt: skip

    def server(self, name: str, more: str) -> KasServer:
        return KasServer(self.directory / name, *self.flags, more)

    def kubeconfig(self, port: int) -> str:
        file = self.directory / "kubeconfig"
        cluster = {"server": f"https://127.0.0.1:{port}", "certificate-authority": str(self.ca.file)}
        context = {"cluster": "c", "user": "u", "namespace": "default"}
        file.write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "x", "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": {"token": TOKEN}}], "contexts": [{"name": "x", "context": context}],
        }))  # fmt: skip
        return str(file)


def fields(message: bytes) -> dict[int, bytes]:
    """Returns the fields of a protobuf message that has only length-delimited ones."""
    found, at = {}, 0
    while at < len(message):
        number, size, shift, at = message[at] >> 3, 0, 0, at + 1
        while True:
            size |= (message[at] & 127) << shift
            shift, at = shift + 7, at + 1
            if message[at - 1] < 128:
                break
        found[number] = message[at : at + size]
        at += size
    return found


class Cache(threading.Thread):
    """ConfigMaps by name, listed once and then followed by watches, all in protobuf. ``failed`` has errors from which it could not
    continue."""

    def __init__(self, port: int, ca: str) -> None:
        super().__init__(daemon=True)
        self._port, self._context = port, ssl.create_default_context(cafile=ca)
        self._type = builtin_kind("", "v1", "ConfigMap").type
        self.objects: dict[str, dict] = {}
        self.failed: list[BaseException] = []
        self.lists, self.watches, self.revision = 0, 0, 0

    def run(self) -> None:
        try:
            with self._asked("", PROTOBUF) as answer:
                self.lists += 1
                kind = builtin_kind("", "v1", "ConfigMapList").type
                found = decode_protobuf(kind, open_envelope(answer.read())[2])
            self.revision = int(found["metadata"]["resourceVersion"])
            self.objects = {obj["metadata"]["name"]: obj for obj in found.get("items") or ()}
            while "last" not in self.objects:
                with self._asked(f"?watch=1&resourceVersion={self.revision}", f"{PROTOBUF};stream=watch") as answer:
                    self.watches += 1
                    while head := answer.read(4):
                        self._take(answer.read(int.from_bytes(head, "big")))
                        if "last" in self.objects:
                            break
        except BaseException as e:
            self.failed.append(e)

    @contextlib.contextmanager
    def _asked(self, query: str, accept: str) -> Iterator[http.client.HTTPResponse]:
        connection = http.client.HTTPSConnection("127.0.0.1", self._port, context=self._context, timeout=60)
        with contextlib.closing(connection):
            connection.request("GET", CONFIG_MAPS + query, headers={"Authorization": f"Bearer {TOKEN}", "Accept": accept})
            answer = connection.getresponse()
            assert answer.status == 200, answer.read()
            yield answer

    def _take(self, frame: bytes) -> None:
        event = fields(frame)
        what, raw = event[1].decode(), fields(event[2])[1]
        _, kind, message, _ = open_envelope(raw)
        assert kind == "ConfigMap", (what, kind, message)
        obj = decode_protobuf(self._type, message)
        revision = int(obj["metadata"]["resourceVersion"])
        assert revision > self.revision
        self.revision = revision
        if what == "DELETED":
            del self.objects[obj["metadata"]["name"]]
        else:
            self.objects[obj["metadata"]["name"]] = obj


class Kubectl(threading.Thread):
    """Applies, reads and deletes until it is stopped. ``failed`` has the errors."""

    def __init__(self, kubeconfig: str, home: Path) -> None:
        super().__init__(daemon=True)
        self._env = {**os.environ, "KUBECONFIG": kubeconfig, "HOME": str(home)}
        self._program = prerequisites.program("kubectl", "kubectl")
        self.ended, self.turns, self.failed = threading.Event(), 0, list[str]()

    def run(self) -> None:
        while not self.ended.is_set() and not self.failed:
            made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "applied"}, "data": {"turn": str(self.turns)}}
            self._do("apply", "-f", "-", given=json.dumps(made))
            if self._do("get", "configmap", "applied", "-o", "jsonpath={.data.turn}") != str(self.turns):
                self.failed.append(f"turn {self.turns}: not what was applied")
            if self.turns % 3 == 2:
                self._do("delete", "configmap", "applied")
            self.turns += 1

    def _do(self, *args: str, given: str = "") -> str:
        done = subprocess.run([self._program, *args], input=given, env=self._env, capture_output=True, text=True, timeout=120)
        if done.returncode or done.stderr:
            self.failed.append(f"{' '.join(args)}: {done.returncode} {done.stderr}")
        return done.stdout


class Operated:
    """Creates objects for a kopf operator, and checks what it made of them."""

    def __init__(self, call: Caller) -> None:
        self._call, self.turns = call, 0

    def turn(self, cache: Cache) -> None:
        self.turns += 1
        name = f"operated{self.turns}"
        word = {"metadata": {"name": name, "labels": {"operated": "yes"}}, "data": {"word": name}}
        assert self._call("POST", CONFIG_MAPS, word) == 201
        until(lambda: cache.failed or seen(cache, name) == f"created with {name}")


def seen(cache: Cache, name: str) -> str:
    return (cache.objects.get(name, {}).get("data") or {}).get("seen", "")


def serves(port: int, ca: str, path: str) -> bool:
    return Caller(port, ca)("GET", path) == 200


def test_servers_of_two_versions_replace_one_another_under_their_clients(tmp_path: Path) -> None:
    log = tmp_path / "kopf.log"
    with contextlib.ExitStack() as stack:
        setup = Setup(tmp_path, stack.enter_context(Etcd(tmp_path)))
        ca = str(setup.ca.file)
        older, newer = (stack.enter_context(setup.server(name, more)) for name, more in (("older", OLDER), ("newer", NEWER)))
        only_older, only_newer = "/apis/batch/v1/jobs", "/apis/resource.k8s.io/v1beta1/resourceclaims"
        assert not serves(older.port, ca, only_older) and serves(newer.port, ca, only_older)
        assert not serves(older.port, ca, only_newer) and serves(newer.port, ca, only_newer)
        newer.stop()
        balancer = stack.enter_context(Balancer([older.port, newer.port], ca))
        until(lambda: balancer.ready[older.port])
        kubeconfig = setup.kubeconfig(balancer.port)
        out = stack.enter_context(log.open("w"))
        operator = subprocess.Popen(
            [sys.executable, "-m", "kopf", "run", "--standalone", "-n", "default", str(OPERATOR)],
            env={**os.environ, "KUBECONFIG": kubeconfig, "TRACE": str(tmp_path / "trace")}, stdout=out, stderr=out,
        )  # fmt: skip
        stack.callback(operator.wait)
        stack.callback(operator.terminate)
        kubectl, cache = Kubectl(kubeconfig, tmp_path), Cache(balancer.port, ca)
        stack.callback(kubectl.ended.set)
        kubectl.start()
        cache.start()
        operated = Operated(Caller(balancer.port, ca))
        operated.turn(cache)
        for comes, goes in ((newer, older), (older, newer)):
            comes.start()
            until(lambda comes=comes: balancer.ready[comes.port])
            turns = kubectl.turns
            operated.turn(cache)
            assert goes.stop() == 0
            operated.turn(cache)
            until(lambda turns=turns: kubectl.failed or kubectl.turns > turns + 2)
        kubectl.ended.set()
        kubectl.join(120)
        assert Caller(balancer.port, ca)("POST", CONFIG_MAPS, {"metadata": {"name": "last"}}) == 201
        cache.join(60)
        assert kubectl.failed == [] and kubectl.turns > 4
        assert cache.failed == [] and cache.lists == 1 and cache.watches > 2, (cache.failed, cache.lists, cache.watches)
        assert operated.turns == 5 and all(seen(cache, f"operated{i}") == f"created with operated{i}" for i in range(1, 6))
        told = log.read_text()
        errors = [line for line in told.splitlines() if "ERROR" in line or "WARNING" in line]
        assert operator.poll() is None and "Traceback" not in told, told[-4000:]
        ends = "The apiserver is shutting down", "Server disconnected"  # persistent connection: an answer, or its end crossed a request
        assert all("#1/9 failed; will retry" in line and any(end in line for end in ends) for line in errors), errors
