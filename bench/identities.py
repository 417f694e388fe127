"""Measures what a request costs by its credential: a GET through the whole chain of an in-process server, without sockets.

    .venv/bin/python bench/identities.py [--rounds 40] [--requests 500]

A RoleBinding among 1,000 in the namespace allows each identity; tokens and certificates are known from an earlier request. ``403`` has a
token and no binding. Four servers are compared, in slices by turns: the default; one with ``--enable-priority-and-fairness=false``
(max-in-flight); and two with an audit log of level Metadata, one in batches of 400 and one in mode blocking, with a write for each line.
The figures are CPU of this process in µs a request, with one loop iteration for each: the minimum of all slices and their median.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from kas import kinds  # noqa: E402
from kas.auth.authn.x509 import Certificates  # noqa: E402
from kas.request.http import Request, Response  # noqa: E402
from tests import pki  # noqa: E402
from tests.auth.issuer import Issuer  # noqa: E402
from tests.server.whole import World  # noqa: E402

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
BINDINGS = 1000
POLICY = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "Metadata"}], "omitStages": ["RequestReceived"]}


class Asked:
    """One server and the requests that are compared on it."""

    def __init__(self, directory: Path, **flags: Any) -> None:
        directory.mkdir()
        authority = pki.authority("ca")
        authority.write(directory, "ca")
        self.issuer = Issuer(directory, authority)
        self.loop = asyncio.new_event_loop()
        ca = str(directory / "ca.crt")
        issuer = {"oidc_issuer_url": self.issuer.url, "oidc_client_id": "client", "oidc_ca_file": ca}
        data = directory / "data"
        data.mkdir()
        self.world = self.loop.run_until_complete(self._begun(data, client_ca_file=ca, **issuer, **flags))
        self.admin = b"Bearer " + self.world.token.encode()
        shown = Certificates(pki.issue([("CN", "jane"), ("O", "dev")], authority).ders)
        self.peer = SimpleNamespace(certificates=shown)
        self._fill()
        accounts = "/api/v1/namespaces/default/serviceaccounts/{}/token"
        lasting = {"spec": {"expirationSeconds": 36000}}
        tokens = [self.call("POST", accounts.format(name), lasting)["status"]["token"] for name in ("sa", "no")]
        self.identities: dict[str, tuple[bytes, Any, int]] = {
            "anonymous": (b"", None, 200), "certificate": (b"", self.peer, 200), "service account": (tokens[0].encode(), None, 200),
            "OIDC": (self.issuer.token(groups=[f"team-{i}" for i in range(10)]).encode(), None, 200),
            "403": (tokens[1].encode(), None, 403),
        }  # fmt: skip
        self.issuer_known()

    async def _begun(self, directory: Path, **flags: Any) -> World:
        return World(directory, loop=self.loop, **flags)

    async def closed(self) -> None:
        auditor = self.world.server.auditor
        if auditor is not None:
            await auditor.close(5.0)
        self.world.close()

    def issuer_known(self) -> None:
        """Lets the loop run until the issuer has answered and every credential is known."""
        for name, (_, _, status) in self.identities.items():
            until = time.monotonic() + 30
            while (got := self.answer(self.request(name)).status) != status:
                if time.monotonic() > until:
                    raise RuntimeError(f"{name}: {got}")
                self.loop.run_until_complete(asyncio.sleep(0.1))

    def answer(self, req: Request) -> Response:
        async def ask() -> Response:
            result = self.world.server.chain(req)
            return result if isinstance(result, Response) else await result

        return self.loop.run_until_complete(ask())

    def call(self, method: str, path: str, body: Any = None) -> Any:
        headers = [(b"host", b"127.0.0.1"), (b"authorization", self.admin), (b"content-type", b"application/json")]
        got = self.answer(Request(method, path, "", headers, json.dumps(body).encode()))
        if got.status not in (200, 201):
            raise RuntimeError(f"{path}: {got.status} {got.body!r}")
        return json.loads(got.body)

    def _fill(self) -> None:
        for name in ("sa", "no"):
            self.call("POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": name}})
        self.call("POST", CONFIGMAPS, {"metadata": {"name": "one"}, "data": {f"k{i}": "x" * 40 for i in range(32)}})
        rules = [{"verbs": ["get"], "apiGroups": [""], "resources": ["configmaps"]}]
        self.call("POST", f"{RBAC}/roles", {"metadata": {"name": "r"}, "rules": rules})
        group = "rbac.authorization.k8s.io"
        users = [{"kind": "User", "apiGroup": group, "name": n} for n in ("system:anonymous", "jane", f"{self.issuer.url}#jane")]
        subjects = [*users, {"kind": "ServiceAccount", "namespace": "default", "name": "sa"}]
        ref = {"apiGroup": group, "kind": "Role", "name": "r"}
        for i in range(BINDINGS):
            own = [subjects[i - BINDINGS]] if i >= BINDINGS - len(subjects) else [{"kind": "User", "apiGroup": group, "name": f"u{i}"}]
            self.call("POST", f"{RBAC}/rolebindings", {"metadata": {"name": f"b{i}"}, "roleRef": ref, "subjects": own})

    def request(self, name: str) -> Request:
        token, peer, _ = self.identities[name]
        headers = [(b"host", b"127.0.0.1:6443"), (b"user-agent", b"bench/1.0"), (b"accept", b"application/json")]
        if token:
            headers.append((b"authorization", b"Bearer " + token))
        req = Request("GET", f"{CONFIGMAPS}/one", "", headers)
        req.client, req.peer = "127.0.0.1", peer
        return req

    def slice(self, name: str, count: int) -> float:
        """µs of CPU a request."""
        requests, chain = [self.request(name) for _ in range(count)], self.world.server.chain

        async def run() -> float:
            before = time.process_time()
            for req in requests:
                chain(req)
                await asyncio.sleep(0)  # seats are given back when the loop comes around
            return (time.process_time() - before) * 1e6 / count

        return self.loop.run_until_complete(run())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--requests", type=int, default=500)
    args = parser.parse_args()
    kinds.install()
    with tempfile.TemporaryDirectory() as tmp:
        directory = Path(tmp)
        (directory / "policy.yaml").write_text(json.dumps(POLICY))
        audit = {"audit_policy_file": str(directory / "policy.yaml")}
        servers = {
            "": Asked(directory / "a"),
            "max-in-flight: ": Asked(directory / "b", enable_priority_and_fairness=False),
            "audit, batch: ": Asked(
                directory / "c", audit_log_path=str(directory / "batch.log"), audit_log_mode="batch", audit_log_batch_max_size=400, **audit
            ),
            "audit, blocking: ": Asked(directory / "d", audit_log_path=str(directory / "blocking.log"), **audit),
        }  # fmt: skip
        compared = ("anonymous", "service account")
        rows = [(server, name) for server in servers for name in servers[""].identities if not server or name in compared]
        found: dict[tuple[str, str], list[float]] = {row: [] for row in rows}
        for _ in range(args.rounds):
            for server, name in rows:
                servers[server].issuer_known()  # what is remembered for ten seconds only
                found[server, name].append(servers[server].slice(name, args.requests))
        for (server, name), took in found.items():
            print(f"{server + name:32} {min(took):8.2f} {median(took):8.2f}")
        for asked in servers.values():
            asked.loop.run_until_complete(asked.closed())
            asked.loop.close()


if __name__ == "__main__":
    main()
