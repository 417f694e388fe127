"""A recorded conversation with a server with recorded flags: requests with all kinds of credentials."""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import json
import re
import ssl
import time
from pathlib import Path
from typing import Any

import jwt

from kas.testing.server import KasServer
from tests.security import audited
from tests.security.files import Files
from tests.security.normal import HEADERS, Normal, parts
from tests.security.stored import EtcdValues, Values, b64, described
from tests.security.stubs import AUTHORITY, SERVING, Stub

ADMIN = {"token": "admin-token"}
LIMIT_S = 120.0
READY_TRIES = 300
NOT_READY_S = 5.0  # how long a server is observed that must not become ready
LONG = "x" * 450_000
PAUSE_S = 0.2  # between attempts of a step that is repeated, as recorded


class Session:
    """``start(*flags)`` starts a server; ``directory`` is for its files. A context manager: the stubs that the server calls end with it."""

    def __init__(self, setup: dict[str, Any], directory: Path, start) -> None:
        self.files = Files(directory)
        self._contexts: dict[str | None, ssl.SSLContext] = {}
        self._saved: dict[str, Any] = {}
        self._namespace = "none"
        self._audited: bool = setup.get("audited", False)
        self._audits: dict[str, audited.AuditIDs] = {}
        self._stubs: dict[str, Stub] = {}
        self._background: list[http.client.HTTPSConnection] = []
        stubs, files = setup.get("stubs") or {}, {**setup["files"]}
        if stubs:
            files = {"stub-ca.crt": AUTHORITY, "stub.crt": SERVING, **files}
        late = [name for name, what in files.items() if "${url" in json.dumps(what)]  # they contain the addresses of the stubs
        for name in (n for n in files if n not in late):
            self.files.put(name, files[name], self.fill)
        self._stubs = {name: Stub(spec, self.files) for name, spec in stubs.items()}
        for name in late:
            self.files.put(name, files[name], self.fill)
        self._plugins: list[Any] = []
        for plugin in setup.get("kms", ()):
            from tests.security.kms import Plugin

            self._plugins.append(Plugin(directory / plugin["socket"], bytes.fromhex(plugin["key"]), plugin["keyID"]).start())
        self.server: KasServer = start(*map(self.fill, setup["flags"]))
        for step in setup.get("ready") or ():
            self._step({"poll": READY_TRIES, **step}, Normal({}), "")

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        for stub in self._stubs.values():
            stub.close()
        for plugin in self._plugins:
            plugin.stop()

    def fill(self, text: str) -> str:
        """Replaces ``${…}``: dir, url (also of a stub), ns, long, a file as base64 or text, a path into saved values."""

        def value(match: re.Match[str]) -> str:
            key = match.group(1)
            if key in ("dir", "ns", "url"):
                return {"dir": str(self.files.directory), "ns": self._namespace, "url": self.server.url if key == "url" else ""}[key]
            if key == "long":
                return LONG
            name, _, path = key.partition(":")
            if name == "url":
                return self._stubs[path].url
            if name == "pem1":  # as the inside of a JSON string
                return json.dumps(self.files.path(path).read_text())[1:-1]
            if name == "b64":
                return base64.b64encode(self.files.path(path).read_bytes()).decode()
            if name not in self._saved:
                return match.group()
            v = self._saved[name]
            for part in path.split("."):
                v = v[int(part)] if isinstance(v, list) else v.get(part) if isinstance(v, dict) else None
            return v if isinstance(v, str) else json.dumps(v)

        return re.sub(r"\$\{([^}]*)\}", value, text)

    def run(self, case: dict[str, Any]) -> list[dict[str, Any]]:
        """Returns the answers of a case, one for each step, normalized."""
        self._namespace = "s" + hashlib.sha1(case["id"].encode()).hexdigest()[:8]
        self._saved = {}
        normal = Normal({
            **{stub.url: f"<url:{name}>" for name, stub in self._stubs.items()}, self._namespace: "<ns>",
            str(self.files.directory): "<dir>", f"127.0.0.1:{self.server.port}": "<server>",
        })  # fmt: skip
        ids, out = audited.AuditIDs(case["id"], self.files.directory), []
        self._audits[case["id"]] = ids
        try:
            for i, step in enumerate(case["in"]["steps"]):
                done = self._looked(step, case["out"][i], ids, normal)
                own = "" if done is not None or not step.get("aid", self._audited) else ids.of(i)
                out.append(self._step(step, normal, own) if done is None else done)
        finally:
            while self._background:
                self._background.pop().close()
        return out

    def late(self) -> list[str]:
        """Returns the cases with more lines in the log than when they were read."""
        path = self.files.path("audit.log")
        return [f"{case}: {late} more events" for case, ids in self._audits.items() if (late := ids.late(path))]

    def _looked(
        self, step: dict[str, Any], recorded: dict[str, Any], ids: audited.AuditIDs, normal: Normal
    ) -> dict[str, Any] | None:
        """Returns the result of a step that is no request, where ``recorded`` was the result; None for a request."""
        if "sleep" in step:
            time.sleep(step["sleep"])
        for action in ("write", "restart", "etcd", "put"):
            if action in step:
                found: dict[str, Any] = getattr(self, f"_{action}")(step)
                return found
        if step.get("background"):
            self._background.append(self._send(step, ""))
            time.sleep(step.get("after", 0.3))
            return {}
        if "take" in step:
            take = self._stubs[step["take"]].take
            if step.get("events"):
                return ids.sent(take, step, recorded, normal)
            asked = audited.asked_at_least(take, step.get("atLeast", 0))
            return {} if step.get("drain") else {"asked": [normal.value(a) for a in asked]}
        if step.get("audit"):
            return ids.file(self.files.path("audit.log"), step, recorded, normal)
        return audited.files(self.files.directory, step["files"]) if "files" in step else None

    def _write(self, step: dict[str, Any]) -> dict[str, Any]:
        for name, what in step["write"].items():
            self.files.put(name, what, self.fill)
        return {"written": sorted(step["write"])}

    def _restart(self, step: dict[str, Any]) -> dict[str, Any]:
        self.server.stop()
        self.server.start()
        until = time.monotonic() + min(step.get("within", LIMIT_S), NOT_READY_S if "within" in step else LIMIT_S)
        while True:
            ready = self._request({"method": "GET", "path": "/readyz"}, "")[0] == 200
            if ready or time.monotonic() >= until:
                return {"ready": ready}
            time.sleep(PAUSE_S)

    def _values(self) -> Values | EtcdValues:
        servers = [flag.partition("=")[2] for flag in self.server.flags if flag.startswith("--etcd-servers=")]
        return EtcdValues(servers[0]) if servers else Values(self.server.data_dir, self.files.path("e.yaml"))

    def _etcd(self, step: dict[str, Any]) -> dict[str, Any]:
        value = self._values().value(self.fill(step["etcd"]))
        if "save" in step:
            self._saved[step["save"]] = b64(value or b"")
        return described(value)

    def _put(self, step: dict[str, Any]) -> dict[str, Any]:
        self._values().put(self.fill(step["put"]), base64.b64decode(self.fill(step["value"])))
        return {}

    def _step(self, step: dict[str, Any], normal: Normal, audit_id: str) -> dict[str, Any]:
        for left in range(step.get("poll", 1) - 1, -1, -1):
            status, headers, data = self._request(step, audit_id)
            if left == 0 or status == step.get("until", 200):
                break
            time.sleep(PAUSE_S)
        try:
            body = json.loads(data)
        except ValueError:
            body = data.decode("utf-8", "replace")
        if "save" in step:
            self._saved[step["save"]] = body
        if step.get("only") == "status":
            return {"status": status}
        out: dict[str, Any] = {"status": status, "headers": {k: normal.text(headers[k]) for k in HEADERS if k in headers}}
        if step.get("pf"):
            out["flow"] = self._flow(headers)
        if step.get("only") == "headers":
            return out
        if "columns" in step:
            rows = [[cell.strip() for cell in line.split(",")] for line in str(body).splitlines()]
            rows = rows[:1] + sorted(row for row in rows[1:] if row[0] == step.get("match", row[0]))
            out["body"] = rows[:1] if step["columns"] == 1 else [[normal.text(row[i]) for i in step["columns"]] for row in rows]
            return out
        picked = body
        for part in step.get("pick", "").split("/") if "pick" in step else ():
            picked = picked.get(part) if isinstance(picked, dict) else None
        out["body"] = normal.value(picked)
        if "jwt" in step:
            token = body
            for part in step["jwt"].split("."):
                token = token.get(part) if isinstance(token, dict) else None
            out["jwt"] = normal.jwt(token)
        return out

    def _flow(self, headers: dict[str, str]) -> dict[str, Any]:
        """Returns the names of the FlowSchema and the priority level that an answer names by uid."""
        out = {}
        for key, header, resource in (
            ("flowSchema", "x-kubernetes-pf-flowschema-uid", "flowschemas"),
            ("priorityLevel", "x-kubernetes-pf-prioritylevel-uid", "prioritylevelconfigurations"),
        ):
            _, _, data = self._request({"method": "GET", "path": f"/apis/flowcontrol.apiserver.k8s.io/v1/{resource}"}, "")
            names = {o["metadata"]["uid"]: o["metadata"]["name"] for o in json.loads(data)["items"]}
            out[key] = names.get(headers.get(header, ""))
        return out

    def _request(self, step: dict[str, Any], audit_id: str) -> tuple[int, dict[str, str], bytes]:
        c = self._send(step, audit_id)
        try:
            r = c.getresponse()
            got: dict[str, str] = {}
            for name, value in r.getheaders():
                got[name.lower()] = f"{got[name.lower()]} || {value}" if name.lower() in got else value
            # Of an endless answer, the first lines; then the client disconnects.
            return r.status, got, b"".join(r.readline() for _ in range(step["lines"])) if "lines" in step else r.read()
        finally:
            c.close()

    def _send(self, step: dict[str, Any], audit_id: str) -> http.client.HTTPSConnection:
        """Opens a connection and sends the step's request."""
        cred = step.get("cred", ADMIN) or {}
        headers = [("Accept", step.get("accept", "application/json"))]
        if "token" in cred:
            headers.append(("Authorization", "Bearer " + self.fill(cred["token"])))
        if "jwt" in cred:
            headers.append(("Authorization", "Bearer " + self._sign(cred["jwt"])))
        body = step.get("body")
        if body is not None:
            body = self.fill(body if isinstance(body, str) else json.dumps(_moments(body))).encode()
            headers += [("Content-Type", step.get("ctype", "application/json")), ("Content-Length", str(len(body)))]
        elif step["method"] in ("POST", "PUT", "PATCH"):
            headers.append(("Content-Length", "0"))
        headers += [("User-Agent", "replay"), *((k, self.fill(v)) for k, v in step.get("headers", ()))]
        if audit_id:
            headers.append(("Audit-ID", audit_id))
        c = http.client.HTTPSConnection("127.0.0.1", self.server.port, context=self._context(cred.get("cert")), timeout=LIMIT_S)
        try:
            c.putrequest(step["method"], self.fill(step["path"]), skip_accept_encoding=True)
            for name, value in headers:
                c.putheader(name, value)
            c.endheaders(body)
        except BaseException:
            c.close()
            raise
        return c

    def _context(self, shown: str | None) -> ssl.SSLContext:
        if shown not in self._contexts:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # without the system's CAs, which take longest to load
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            if shown is not None:
                context.load_cert_chain(self.files.path(shown), self.files.path(shown).with_suffix(".key"))
            self._contexts[shown] = context
        return self._contexts[shown]

    def _sign(self, recipe: dict[str, Any]) -> str:
        """Returns a token made by a recipe: another one's header and claims, with changes."""
        header, claims = parts(self.fill(recipe["from"])) if "from" in recipe else ({}, {})
        algorithm = recipe.get("alg") or header.get("alg") or "RS256"
        header |= {"alg": algorithm, **({"kid": recipe["kid"]} if recipe.get("kid") else {}), **recipe.get("header", {})}
        if header.get("kid") == "":
            del header["kid"]
        for key in ("claims", "set"):
            claims |= json.loads(self.fill(json.dumps(_moments(recipe.get(key) or {}))))
        for name in recipe.get("unset") or ():
            claims.pop(name, None)
        key = self.files.path(recipe["key"]).read_bytes() if recipe.get("key") else b""
        if algorithm.startswith("HS"):
            return _hmac(header, claims, key or b"secret")
        kid = header.pop("kid", None)
        return jwt.encode(claims, key or None, algorithm, {**header, **({"kid": kid} if kid is not None else {})})


def _hmac(header: dict[str, Any], claims: dict[str, Any], key: bytes) -> str:
    """Signs with a PEM file as if it were a secret, which a good library refuses to do."""
    def b64(data: bytes) -> str:
        return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

    signed = b64(json.dumps(header).encode()) + "." + b64(json.dumps(claims).encode())
    return f"{signed}.{b64(hmac.new(key, signed.encode(), hashlib.sha256).digest())}"


def _moments(v: Any) -> Any:
    """Replaces ``now+60`` by a number of seconds."""
    if isinstance(v, dict):
        return {k: _moments(x) for k, x in v.items()}
    if isinstance(v, list):
        return [_moments(x) for x in v]
    match = re.fullmatch(r"now([+-]\d+)?", v) if isinstance(v, str) else None
    return int(time.time()) + int(match.group(1) or 0) if match else v
