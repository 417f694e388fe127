"""Runs attacks and normal work side by side on a server of its own: ``make soak ARGS="--minutes 30"``.

Normal work: bystanders that GET, writers that record what was acknowledged, watchers that check the guarantees of watches, and, if
installed, kubectl and an operator written with kopf. Attacks, one after the other: stalled bodies, large bodies of all kinds, silent
connections, noise. The run lasts for a limited time. It fails if a bystander's request is not answered correctly, an acknowledged write
is lost, a watch repeats, loses or reorders an event, the server panics, a process is replaced, or memory or descriptors do not stay flat.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import itertools
import json
import os
import random
import re
import selectors
import shutil
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from kas.testing.server import KasServer  # noqa: E402

USERS = "m-token,mallory,u1\n"
NAMESPACE = "soak"
CONFIG_MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
MB = 1_000_000
GROWTH_MB = 100
LEFT = 8  # descriptors of one kind more than before all began, such as the files of what was loaded since
CAREFUL = 5  # of the watchers
# ":method: GET", ":scheme: https", ":path: /version" and ":authority: x", as HPACK writes them without its table.
GET_VERSION = b"\x82\x87\x04\x08/version\x01\x01x"


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """A frame of HTTP/2 (RFC 9113, 4.1)."""
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


class Soak:
    """The state that the threads share. ``wrong`` collects violations."""

    def __init__(self, server: KasServer, watchers: int, pause: float) -> None:
        self.server, self.watchers = server, watchers
        self.stop = threading.Event()
        self.wrong: list[str] = []
        self.counts: dict[str, int] = {}
        self.acknowledged: dict[str, str] = {}  # name -> the value that was acknowledged last
        self.slowest = 0.0
        self.pause = pause

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def dial(self, alpn: str = "http/1.1") -> ssl.SSLSocket:
        context = ssl.create_default_context(cafile=self.server.ca)
        context.set_alpn_protocols([alpn])
        return context.wrap_socket(socket.create_connection(("127.0.0.1", self.server.port), 60), server_hostname="127.0.0.1")

    def connect(self) -> http.client.HTTPSConnection:
        context = ssl.create_default_context(cafile=self.server.ca)
        return http.client.HTTPSConnection("127.0.0.1", self.server.port, timeout=60, context=context)

    def ask(
        self, c: http.client.HTTPSConnection, method: str, path: str, body: object = None, ctype: str = "application/json", token: str = ""
    ):
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        c.request(method, path, data, {"Authorization": f"Bearer {token or self.server.token}", "Content-Type": ctype})
        answer = c.getresponse()
        return answer.status, answer.read()

    # --- normal work

    def bystander(self) -> None:
        """Every GET is answered with the object."""
        c = self.connect()
        while not self.stop.is_set():
            start = time.monotonic()
            try:
                status, body = self.ask(c, "GET", f"{CONFIG_MAPS}/bystander")
                if status != 200 or json.loads(body)["data"] != {"a": "1"}:
                    self.wrong.append(f"a bystander got {status} {body[:200]!r}")
            except (OSError, http.client.HTTPException) as e:
                # A connection may end between two requests; then the request is made again, once.
                c.close()
                c = self.connect()
                try:
                    self.ask(c, "GET", f"{CONFIG_MAPS}/bystander")
                except (OSError, http.client.HTTPException) as again:
                    self.wrong.append(f"a bystander got no answer: {e!r}, {again!r}")
            self.slowest = max(self.slowest, time.monotonic() - start)
            self.count("bystander GETs")
            time.sleep(2 * self.pause)

    def writer(self, number: int) -> None:
        """Creates, updates and deletes; 409, 404 and 429 are answers, others are not."""
        c, rng = self.connect(), random.Random(number)
        for n in itertools.count():
            if self.stop.is_set():
                return
            name, value = f"w{number}-{rng.randrange(50)}", str(n)
            body = {"metadata": {"name": name, "labels": {"soak": "yes"}}, "data": {"v": value}}
            verb = rng.choice(("create", "update", "update", "delete"))
            try:
                if verb == "create":
                    status, text = self.ask(c, "POST", CONFIG_MAPS, body)
                elif verb == "update":
                    status, text = self.ask(c, "PUT", f"{CONFIG_MAPS}/{name}", body)
                else:
                    status, text = self.ask(c, "DELETE", f"{CONFIG_MAPS}/{name}")
            except (OSError, http.client.HTTPException):
                self.acknowledged.pop(name, None)  # nobody knows
                c.close()
                c = self.connect()
                continue
            if status in (200, 201):
                self.count("writes")
                if verb == "delete":
                    self.acknowledged[name] = ""
                else:
                    self.acknowledged[name] = value
            elif status not in (404, 409, 429):
                self.wrong.append(f"a {verb} was answered {status} {text[:200]!r}")
            time.sleep(self.pause)

    def crowd(self, size: int) -> None:
        """So many watches, read as events arrive; one that ends is started again."""
        head = (
            f"GET {CONFIG_MAPS}?watch=true&labelSelector=soak HTTP/1.1\r\nHost: x\r\n"
            f"Authorization: Bearer {self.server.token}\r\n\r\n"
        )  # fmt: skip
        with selectors.DefaultSelector() as waiting:
            while not self.stop.is_set():
                while len(waiting.get_map()) < size and not self.stop.is_set():
                    with contextlib.suppress(OSError):
                        s = self.dial()
                        s.sendall(head.encode())
                        s.setblocking(False)
                        waiting.register(s, selectors.EVENT_READ)
                for key, _ in waiting.select(0.2):
                    assert isinstance(key.fileobj, ssl.SSLSocket)
                    self._take(waiting, key.fileobj)
            for key in list(waiting.get_map().values()):
                key.fileobj.close()

    def _take(self, waiting: selectors.BaseSelector, s: ssl.SSLSocket) -> None:
        try:
            while data := s.recv(1 << 18):
                self.counts["events"] = self.counts.get("events", 0) + data.count(b"\n{")
        except ssl.SSLWantReadError:
            return
        except OSError:
            self.count("watches cut")
        waiting.unregister(s)
        s.close()

    def watch(self) -> None:
        """One watch after the other: each continues where the last one ended, and its events are compared with the last one's."""
        revision, state = "", {}
        while not self.stop.is_set():
            try:
                c = self.connect()
                if not revision:
                    _, body = self.ask(c, "GET", f"{CONFIG_MAPS}?labelSelector=soak")
                    listed = json.loads(body)
                    revision = listed["metadata"]["resourceVersion"]
                    state = {o["metadata"]["name"]: o["metadata"]["resourceVersion"] for o in listed["items"]}
                query = f"watch=true&labelSelector=soak&timeoutSeconds=30&resourceVersion={revision}"
                c.request("GET", f"{CONFIG_MAPS}?{query}", headers={"Authorization": f"Bearer {self.server.token}"})
                answer = c.getresponse()
                if answer.status != 200:  # who asks for too much at once is told to come again
                    self.count(f"watches answered with {answer.status}")
                    c.close()
                    self.stop.wait(1.0)
                    continue
                while line := answer.readline():
                    self.count("events that were checked")
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        revision = ""
                        break
                    revision = self.event(event, revision, state)
                c.close()
            except (OSError, http.client.HTTPException, ValueError):
                if not self.stop.is_set():
                    self.count("watches cut")

    def event(self, event: dict, revision: str, state: dict[str, str]) -> str:
        """Processes an event; violations go to ``wrong``. Returns its revision."""
        meta = event["object"]["metadata"]
        name, new = meta["name"], meta["resourceVersion"]
        if int(new) <= int(revision):
            self.wrong.append(f"a watch went from {revision} to {new}")
        if (event["type"] == "ADDED") is (name in state):
            self.wrong.append(f"{event['type']} of {name}, which was {'there' if name in state else 'not there'}")
        if event["type"] == "DELETED":
            state.pop(name, None)
        else:
            state[name] = new
        return new

    def kubectl(self) -> None:
        """As a person would."""
        program = shutil.which("kubectl")
        commands = (["get", "configmaps", "-o", "name"], ["get", "pods", "-A"], ["api-resources"], ["explain", "pod.spec"])
        for n, command in enumerate(itertools.cycle(commands)):
            if program is None or self.stop.is_set():
                return
            done = subprocess.run(
                [program, "--kubeconfig", self.server.kubeconfig, "-n", NAMESPACE, *command], capture_output=True, text=True, timeout=300,
                check=False, env={**os.environ, "HOME": str(self.server.directory), "NO_PROXY": "127.0.0.1"},
            )  # fmt: skip
            self.count("kubectl commands")
            if done.returncode:
                self.wrong.append(f"kubectl {' '.join(command)}: {done.stderr[-300:]}")
            self.stop.wait(1.0 + n % 3)

    def operator(self) -> None:
        """Objects that the operator of the tests has to mark as seen."""
        source = ROOT / "tests" / "clients" / "kopf_operator.py"
        command = [sys.executable, "-m", "kopf", "run", "-n", NAMESPACE, "--standalone", "-q", str(source)]
        env = {**os.environ, "KUBECONFIG": self.server.kubeconfig, "TRACE": str(self.server.directory / "trace"), "NO_PROXY": "127.0.0.1"}
        if subprocess.run([sys.executable, "-c", "import kopf"], capture_output=True, check=False).returncode:
            return
        process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            c = self.connect()
            for n in itertools.count():
                if self.stop.is_set():
                    return
                name = f"operated-{n}"
                with contextlib.suppress(OSError, http.client.HTTPException):
                    self.ask(c, "POST", CONFIG_MAPS, {"metadata": {"name": name, "labels": {"operated": "yes"}}, "data": {"word": "a"}})
                    until = time.monotonic() + 120
                    while b'"seen"' not in self.ask(c, "GET", f"{CONFIG_MAPS}/{name}")[1]:
                        if time.monotonic() > until:
                            self.wrong.append("the operator did not see an object within 120 s")
                            return
                        if self.stop.wait(0.2):
                            return
                    self.count("objects the operator saw")
                    self.ask(c, "DELETE", f"{CONFIG_MAPS}/{name}")
                    self.stop.wait(1.0)
                    continue
                c.close()
                c = self.connect()
        finally:
            process.terminate()
            process.wait(60)

    # --- attacks

    def attack(self) -> None:
        """One after the other, in a random order."""
        rng = random.Random(1)
        attacks: list[Callable[[random.Random], None]] = [
            self.stall, self.large, self.silent, self.noise, self.lists, self.resets, self.definitions,
        ]
        while not self.stop.is_set():
            one = rng.choice(attacks)
            with contextlib.suppress(OSError, http.client.HTTPException):
                one(rng)
            self.count(f"attacks: {one.__name__}")
            self.stop.wait(0.2)

    def stall(self, rng: random.Random) -> None:
        """Forty bodies that never end, with or without a credential."""
        token = rng.choice(("", "Authorization: Bearer m-token\r\n"))
        head = f"POST {CONFIG_MAPS} HTTP/1.1\r\nHost: x\r\n{token}Content-Type: application/json\r\nContent-Length: {3 * MB}\r\n\r\n"
        with contextlib.ExitStack() as stack:
            for _ in range(40):
                s = stack.enter_context(self.dial())
                s.settimeout(2)
                with contextlib.suppress(OSError):
                    s.sendall(head.encode() + b'{"data":{"k":"' + b"x" * rng.choice((10, 100_000, 2_900_000)))
            self.stop.wait(rng.choice((0.1, 5, 15)))

    def large(self, rng: random.Random) -> None:
        """A large body of some sort."""
        reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        n = rng.choice((1_000, 30_000, 100_000))
        path, ctype, body = rng.choice((
            (reviews, "application/yaml", b"- a\n" * (7 * n)),
            (reviews, "application/yaml", b"{a: " * min(n, 5000)),
            (reviews, "application/json", b"[" + b"1," * (10 * n) + b"1]"),
            (CONFIG_MAPS, "application/json", {"metadata": {"name": "x"}, "data": {f"k{i}": "v" for i in range(n)}}),
            (CONFIG_MAPS, "application/json", {"metadata": {"name": "x", "labels": {f"k{i}": "-" for i in range(n)}}}),
            (CONFIG_MAPS, "application/json", {"metadata": {"name": "x"}, **{f"u{i}": {"a": 1} for i in range(n)}}),
            (CONFIG_MAPS, "application/json", {"metadata": {"name": "x", "ownerReferences": [
                {"apiVersion": "v1", "kind": "Pod", "name": f"p{i}", "uid": str(i)} for i in range(n // 10)]}}),
        ))  # fmt: skip
        self.ask(self.connect(), "POST", f"{path}?dryRun=All", body, ctype, "m-token")

    def silent(self, rng: random.Random) -> None:
        """Connections that send nothing."""
        idle = [socket.create_connection(("127.0.0.1", self.server.port), 10) for _ in range(100)]
        idle += [self.dial() for _ in range(20)]
        self.stop.wait(rng.choice((0.1, 5)))
        for s in idle:
            s.close()

    def noise(self, rng: random.Random) -> None:
        """Random bytes, or half of a request."""
        with self.dial() as s:
            s.settimeout(1)
            half = b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * rng.randrange(500)
            s.sendall(rng.choice((half, rng.randbytes(rng.randrange(5000)))))
            s.recv(1000)

    def lists(self, rng: random.Random) -> None:
        """Lists of all objects that are requested and not read."""
        with self.dial() as s:
            s.sendall(f"GET /api/v1/configmaps HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {self.server.token}\r\n\r\n".encode())
            self.stop.wait(1)

    def resets(self, rng: random.Random) -> None:
        """Streams of HTTP/2 that are cancelled as soon as they were opened, pings and settings between them."""
        with self.dial("h2") as s:
            s.settimeout(5)
            s.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b""))
            for stream in range(1, 2 * rng.choice((100, 3000)), 2):
                s.sendall(frame(1, 5, stream, GET_VERSION) + frame(3, 0, stream, bytes((0, 0, 0, 8))))
                if stream % 100 == 1:
                    s.sendall(frame(6, 0, 0, b"12345678") + frame(4, 0, 0, b""))
            s.recv(1000)

    def definitions(self, rng: random.Random) -> None:
        """A wide custom resource definition and objects of it, created and deleted."""
        c, plural = self.connect(), f"soaks{rng.randrange(10_000)}"
        fields = {f"f{i}": {"type": "string", "pattern": f"^a{{1,{i + 1}}}$", "default": "a"} for i in range(rng.choice((10, 400)))}
        schema = {"type": "object", "properties": {"spec": {"type": "object", "default": {}, "properties": fields}}}
        definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        self.ask(c, "POST", definitions, {
            "metadata": {"name": f"{plural}.soak.example.com"},
            "spec": {"group": "soak.example.com", "scope": "Namespaced", "names": {"plural": plural, "kind": plural.capitalize()},
                     "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}]},
        })  # fmt: skip
        objects = f"/apis/soak.example.com/v1/namespaces/{NAMESPACE}/{plural}"
        for i in range(20):
            if self.stop.wait(0.1):
                break
            body = {"apiVersion": "soak.example.com/v1", "kind": plural.capitalize(), "metadata": {"name": f"x{i}"}}
            self.ask(c, "POST", objects, body)
        self.ask(c, "DELETE", f"{definitions}/{plural}.soak.example.com")

    # --- at the end

    def check_writes(self) -> None:
        """The last acknowledged write must be the stored one."""
        _, body = self.ask(self.connect(), "GET", f"{CONFIG_MAPS}?labelSelector=soak")
        stored = {o["metadata"]["name"]: o["data"]["v"] for o in json.loads(body)["items"]}
        for name, value in self.acknowledged.items():
            if stored.get(name, "") != value:
                self.wrong.append(f"{name} is {stored.get(name)!r}, acknowledged was {value!r}")


def processes(server: KasServer) -> list[int]:
    """The workers, and the TLS front if there is one."""
    front = server.front_pid()
    return [*server.worker_pids(), *([front] if front else [])]


def sample(pids: list[int]) -> tuple[float, int]:
    """(MB of memory of their own, open descriptors) of processes together."""
    memory, descriptors = 0.0, 0
    for pid in pids:
        found = re.search(r"RssAnon:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
        memory += int(found.group(1)) / 1024 if found else 0
        descriptors += len(os.listdir(f"/proc/{pid}/fd"))
    return memory, descriptors


def kinds(pids: list[int]) -> dict[str, int]:
    """How many descriptors of each kind processes have open together: sockets, pipes, eventfds, files by name."""
    found: dict[str, int] = {}
    for pid in pids:
        for fd in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                kind = re.sub(r":\[\d+\]$", "", os.readlink(fd))
                found[kind] = found.get(kind, 0) + 1
    return found


def left_over(pids: list[int], before: dict[str, int]) -> dict[str, int]:
    """The kinds of descriptors of which there are more than ``before`` by more than ``LEFT``, after all clients have disconnected and idle
    connections have had time to be closed."""
    until = time.monotonic() + 90
    while True:
        more = {kind: n - before.get(kind, 0) for kind, n in kinds(pids).items() if n - before.get(kind, 0) > LEFT}
        if not more or time.monotonic() > until:
            return more
        time.sleep(1)


def run(server: KasServer, args: argparse.Namespace) -> Soak:
    """Runs everything at the same time for the given duration."""
    soak = Soak(server, args.watchers, args.pause)
    c = soak.connect()
    soak.ask(c, "POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    soak.ask(c, "POST", CONFIG_MAPS, {"metadata": {"name": "bystander"}, "data": {"a": "1"}})
    roles = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/rolebindings"
    soak.ask(c, "POST", roles, {
        "metadata": {"name": "edit"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
        "subjects": [{"kind": "User", "name": "mallory", "apiGroup": "rbac.authorization.k8s.io"}],
    })  # fmt: skip
    work: list[tuple[Callable[..., None], tuple]] = [(soak.bystander, ()), (soak.bystander, ()), (soak.kubectl, ()), (soak.operator, ())]
    work += [(soak.writer, (n,)) for n in range(3)] + [(soak.watch, ())] * CAREFUL
    work += [(soak.crowd, (args.watchers - CAREFUL,))] + [(soak.attack, ())] * 2
    threads = [threading.Thread(target=f, args=a, daemon=True) for f, a in work]
    pids = processes(server)
    opened = kinds(pids)
    for t in threads:
        t.start()
    samples: list[tuple[float, int]] = []
    end, every = time.monotonic() + args.minutes * 60, max(2.0, args.minutes * 60 / 100)
    while time.monotonic() < end and server.process.poll() is None:
        soak.stop.wait(every)
        samples.append(sample([p for p in pids if os.path.exists(f"/proc/{p}")]))
        if args.verbose:
            print(f"{samples[-1][0]:7.0f} MB {samples[-1][1]:5} descriptors  {soak.counts}  {len(soak.wrong)} wrong", flush=True)
    soak.stop.set()
    for t in threads:
        t.join(60)
    soak.check_writes()
    replaced = set(processes(server)) != set(pids)
    if replaced:
        said = [line for line in server.output.splitlines() if "worker" in line or "front" in line]
        soak.wrong.append("\n".join(("a process was replaced", *said[-10:])))
    # Between the third and the last fifth, when each sort of attack has been there.
    fifth = max(1, len(samples) // 5)
    before, after = samples[2 * fifth : 3 * fifth] or samples, samples[-fifth:]
    memory = [statistics.median(s[0] for s in part) for part in (before, after)]
    print(f"memory {memory[0]:.0f} -> {memory[1]:.0f} MB, at most {max(s[0] for s in samples):.0f}; "
          f"at most {max(s[1] for s in samples)} descriptors; slowest GET of a bystander {soak.slowest * 1000:.0f} ms")
    if memory[1] - memory[0] > GROWTH_MB:
        soak.wrong.append(f"memory grew from {memory[0]:.0f} to {memory[1]:.0f} MB")
    if replaced:
        return soak  # other processes have other descriptors
    more = left_over(pids, opened)
    print(f"descriptors before {sum(opened.values())}, afterwards {sum(kinds(pids).values())}")
    if more:
        soak.wrong.append(f"descriptors that nobody closed: {more}")
    return soak


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--watchers", type=int, default=500)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--pause", type=float, default=0.005, help="seconds between two writes of one writer")
    parser.add_argument("--front", action="store_true", help="behind the TLS front, as with client certificates")
    parser.add_argument("--verbose", action="store_true", help="a line of numbers with each sample")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "tokens.csv").write_text(USERS)
        server = KasServer(Path(directory), "--token-auth-file", f"{directory}/tokens.csv", workers=args.workers).start()
        if args.front:
            server.stop()
            server.flags = (*server.flags, "--client-ca-file", f"{directory}/data/pki/ca.crt")  # which the first start made
            server.start()
        try:
            soak = run(server, args)
        finally:
            code = server.stop()
    if code:
        soak.wrong.append(f"the server ended with {code}")
    if panic := re.search(r"Traceback|panic", server.output):
        soak.wrong.append("the server panicked:\n" + server.output[max(0, panic.start() - 500) : panic.start() + 3000])
    held = [line for line in server.output.splitlines() if "the event loop was blocked" in line]
    print(", ".join(f"{n} {what}" for what, n in sorted(soak.counts.items())))
    working = [line for line in held if (said := re.search(r"([0-9.]+) s were processor time", line)) and float(said[1]) >= 1]
    print(f"the event loop was blocked for a second and more {len(held)} times, {len(working)} of them with a second of processor time")
    for text in [*working[:5], *soak.wrong[:20]]:
        print(text)
    print("FAIL" if soak.wrong else "PASS")
    return 1 if soak.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
