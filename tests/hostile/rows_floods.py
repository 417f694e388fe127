"""Rows of kubelets, pods and services that answer without end, and of clients that read this, or do not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from kas.testing.server import KasServer
from tests import prerequisites
from tests.hostile import flooder
from tests.hostile.attacker import MERGE, Attacker
from tests.hostile.flooder import FLOODS
from tests.hostile.rows import row
from tests.hostile.rows_upgrades import UPGRADE

FLOODED_S = 2.0
AT_ONCE = 8
SPDY = ("Connection: Upgrade", "Upgrade: SPDY/3.1", "X-Stream-Protocol-Version: v4.channel.k8s.io", "Content-Length: 0")


def flooding(a: Attacker, host: str) -> int:
    """The port of the flooder."""
    pki = a.server.data_dir / "pki"
    command = [sys.executable, str(Path(flooder.__file__)), host, str(pki / "apiserver.crt"), str(pki / "apiserver.key")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    output, port = process.stdout, int(process.stdout.readline())

    def end() -> None:
        process.kill()
        process.wait()
        output.close()

    a.cleaned.append(end)
    return port


def flooded(a: Attacker) -> None:
    """A node named as the room, with a pod ``p`` on it, whose kubelet floods."""
    host = prerequisites.global_address()
    port = flooding(a, host)
    a.ask("POST", "/api/v1/nodes", {"metadata": {"name": a.room}})
    a.cleaned.append(lambda: a.ask("DELETE", f"/api/v1/nodes/{a.room}"))
    status = {"addresses": [{"type": "InternalIP", "address": host}], "daemonEndpoints": {"kubeletEndpoint": {"Port": port}}}
    a.ask("PATCH", f"/api/v1/nodes/{a.room}/status", {"status": status}, MERGE)
    spec = {"nodeName": a.room, "containers": [{"name": "c", "image": "i"}], "automountServiceAccountToken": False}
    a.ask("POST", f"/api/v1/namespaces/{a.room}/serviceaccounts", {"metadata": {"name": "default"}})
    a.ask("POST", a.pods, {"metadata": {"name": "p"}, "spec": spec})


def taken(a: Attacker, head: bytes, connections: int, taking: bool) -> None:
    """Sends the request on many connections of another process, which reads the answers as fast as they arrive, or not at all."""
    script = str(Path(flooder.__file__).with_name("taker.py"))
    command = [sys.executable, script, str(a.server.port), str(a.server.ca), str(connections), str(FLOODED_S), "take" if taking else ""]
    subprocess.run(command, input=head, check=True, timeout=120)


def _add(name: str, taking: bool) -> None:
    @row(f"floods: {name}, {'taken' if taking else 'that nobody takes'}", 200, 201, 409)
    def _(a: Attacker) -> None:
        flooded(a)
        if name == "spdy":
            head = a.head("POST", f"{a.pods}/p/exec?command=x&stdout=1", *SPDY)
        else:
            head = a.head("GET", f"/api/v1/nodes/{a.room}/proxy/{name}", *(UPGRADE if name.startswith("ws") else ()))
        taken(a, head, AT_ONCE if taking else 4 * AT_ONCE, taking)


for _name in FLOODS:
    for _taking in (True, False):
        _add(_name, _taking)


def aggregated(a: Attacker) -> str:
    """Registers an aggregated API server that floods."""
    group = f"{a.room}.flood.example.com"
    services, name = "/apis/apiregistration.k8s.io/v1/apiservices", f"v1.{group}"
    port = flooding(a, "127.0.0.1")
    a.ask("POST", f"/api/v1/namespaces/{a.room}/services", {
        "metadata": {"name": "flood"}, "spec": {"type": "ExternalName", "externalName": "localhost"}})  # fmt: skip
    a.ask("POST", services, {"metadata": {"name": name}, "spec": {
        "group": group, "version": "v1", "groupPriorityMinimum": 10, "versionPriority": 10, "insecureSkipTLSVerify": True,
        "service": {"namespace": a.room, "name": "flood", "port": port}}})  # fmt: skip
    a.cleaned.append(lambda: a.ask("DELETE", f"{services}/{name}"))
    while a.ask("GET", f"/apis/{group}/v1") != 200:
        a.codes.pop()
    return f"/apis/{group}/v1"


def _of_a_server(name: str, taking: bool) -> None:
    @row(f"floods of an API server: {name}, {'taken' if taking else 'that nobody takes'}", 200, 201, 409)
    def _(a: Attacker) -> None:
        path = aggregated(a)
        upgrade = SPDY if name == "spdy" else UPGRADE if name.startswith("ws") else ()
        head = a.head("POST" if name == "spdy" else "GET", f"{path}/{name}", *upgrade)
        taken(a, head, AT_ONCE if taking else 4 * AT_ONCE, taking)


for _name in ("chunks", "heads", "informational", "ws-small", "ws-pieces", "spdy"):
    for _taking in (True, False):
        _of_a_server(_name, _taking)


def sent_heads(server: KasServer, *more: str) -> None:
    """Sends 6,000 heads of 12 kB at once, from another process. All are answered, except by a front, which closes connections of unknown
    clients."""
    script = str(Path(flooder.__file__).with_name("heads.py"))
    command = [sys.executable, script, str(server.port), str(server.ca), "60", "100", "12000", "1", *more]
    ended = subprocess.run(command, check=True, timeout=240, capture_output=True, text=True)
    assert server.front_pid() or int(ended.stdout) == 6_000, f"{ended.stdout}{ended.stderr[-1000:]}"


def _heads(name: str, *more: str) -> None:
    @row(f"6,000 heads of 12 kB at once on 60 connections, {name}")
    def _(a: Attacker) -> None:
        sent_heads(a.server, *more)


# Heads with one unknown credential are compared with another server: test_control.py.
_heads("each of another nobody knows", "another")
_heads("of nobody", "none")
_heads("of nobody, of HTTP/1.1", "h1", "none")
