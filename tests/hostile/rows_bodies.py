"""Rows of bodies in every format, and of credentials."""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any

from tests.hostile.attacker import JSON, MIB, PROTOBUF, YAML, Attacker
from tests.hostile.rows import posts, row

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"

# -- bodies

posts("gzip: a bomb", 400, 413, 415, 422, make=lambda: gzip.compress(bytes(200 * MIB), 1)[: 2 * MIB], query="")
posts("YAML: a million anchors", 400, 422, make=lambda: b"".join(b"- &a%d x\n" % i for i in range(150_000)), ctype=YAML)
posts("YAML: a text of 3 MB", 400, 422, make=lambda: b"a: '" + b"x " * 1_450_000 + b"'", ctype=YAML)
posts("YAML: comments", 400, 422, make=lambda: b"# x\n" * 700_000 + b"a: b", ctype=YAML)
posts("YAML: flow", 400, make=lambda: b"[" + b"a," * 400_000 + b"]", ctype=YAML, to=REVIEWS, query="")
posts("JSON: texts of escapes", 400, make=lambda: b'["' + b"\\u00e9" * 480_000 + b'"]')
posts("JSON: numbers", 400, make=lambda: b"[" + b"1e1," * 700_000 + b"1]", to=REVIEWS, query="")
posts("JSON: the same key", 201, 400, make=lambda: b'{"metadata":{"generateName":"x"}' + b',"data":{}' * 250_000 + b"}")


def pod(**container: Any) -> dict[str, Any]:
    return {"metadata": {"generateName": "x"}, "spec": {"containers": [{"name": "c", "image": "i", **container}]}}


posts("pod: 60,000 variables", 201, 403, make=lambda: pod(env=[{"name": f"E{i}", "value": "v"} for i in range(60_000)]), to="pods")
posts("pod: 20,000 ports", 201, 403, 422, make=lambda: pod(ports=[{"containerPort": 1 + i % 60_000} for i in range(20_000)]), to="pods")
posts("unknown fields: 100,000", 201, make=lambda: {"metadata": {"generateName": "u"}, **{f"u{i}": {"a": 1} for i in range(100_000)}})
posts(
    "unknown fields: long ones", 400, query="?dryRun=All&fieldValidation=Strict",
    make=lambda: {"metadata": {"generateName": "u"}, **{f"u{i}" + "x" * 10_000: 1 for i in range(280)}},
)  # fmt: skip


# -- bodies that are expensive to validate, allocate for or answer

def service(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"generateName": "x"}, "spec": {"ports": [{"port": 1}], "selector": {"a": "b"}, **spec}}


@row("services: 50,000 node ports", 201, 504)
def _(a: Attacker) -> None:
    ports = [{"name": f"p{i}", "port": 1 + i} for i in range(50_000)]
    a.post(f"/api/v1/namespaces/{a.room}/services?dryRun=All", service(type="NodePort", ports=ports), times=2)


@row("services: 100,000 external addresses", 201)
def _(a: Attacker) -> None:
    ips = [f"1.{i >> 16}.{i >> 8 & 255}.{i & 255}" for i in range(100_000)]
    a.post(f"/api/v1/namespaces/{a.room}/services?dryRun=All", service(externalIPs=ips), times=2)


@row("reviews: a selector of 250,000 terms", 201)
def _(a: Attacker) -> None:
    asked = {"verb": "list", "resource": "pods", "labelSelector": {"rawSelector": ",".join(f"a{i}=b" for i in range(250_000))}}
    a.post(REVIEWS, {"spec": {"resourceAttributes": asked}}, times=2)


@row("deletes: options of 3 MB", 400, 404)
def _(a: Attacker) -> None:
    for body, ctype in ((b"- a\n" * 700_000, YAML), (json.dumps({f"k{i}": 1 for i in range(200_000)}), JSON)):
        a.many((("DELETE", f"{a.maps}/nothing", body, ctype) for _ in range(2)), 2)


# -- protobuf

def field(number: int, data: bytes) -> bytes:
    """Returns a field of bytes."""
    out, n = bytes([number << 3 | 2]), len(data)
    while n > 127:
        out, n = out + bytes([n & 127 | 128]), n >> 7
    return out + bytes([n]) + data


def envelope(kind: str, raw: bytes) -> bytes:
    return b"k8s\0" + field(1, field(1, b"v1") + field(2, kind.encode())) + field(2, raw)


posts("JSON: empty containers", 413, to="pods", make=lambda: {"metadata": {"generateName": "x"}, "spec": {"containers": [{}] * 900_000}})
META = field(1, field(2, b"x"))  # generateName
EMPTY = field(2, field(2, b"") * 1_000_000)
posts("protobuf: empty containers", 400, 403, 413, 422, make=lambda: envelope("Pod", META + EMPTY), to="pods", ctype=PROTOBUF)
posts("protobuf: empty entries", 201, 400, 422, make=lambda: envelope("ConfigMap", META + field(2, b"") * 1_000_000), ctype=PROTOBUF)
posts("protobuf: unknown fields", 201, 400, make=lambda: envelope("ConfigMap", META + b"\x78\x01" * 1_000_000), ctype=PROTOBUF)
OWNERS = field(1, field(2, b"x") + field(13, b"") * 900_000)
posts("protobuf: owners", 400, 413, 422, make=lambda: envelope("ConfigMap", OWNERS), ctype=PROTOBUF)


# -- credentials

@row("credentials: never the same token", 401)
def _(a: Attacker) -> None:
    for i in range(200):
        a.ask("GET", "/version", Authorization=f"Bearer t{i}" + "x" * 4000)


@row("credentials: web tokens of 100 kB", 401, 431, 0)
def _(a: Attacker) -> None:
    for part in ("A" * 100_000, "." * 100_000, "eyJhbGciOiJub25lIn0." + "e30" * 30_000 + "."):
        a.ask("GET", "/version", Authorization=f"Bearer {part}")


@row("credentials: signatures that nobody made", 401)
def _(a: Attacker) -> None:
    def part(value: Any) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    claims = part({"iss": "https://kubernetes.default.svc", "aud": ["https://kubernetes.default.svc"], "sub": "system:serviceaccount:a:b"})
    for i in range(100):
        head = part({"alg": "RS256", "kid": f"k{i}" if i % 2 else "x" * 4000})
        a.ask("GET", "/version", Authorization=f"Bearer {head}.{claims}.{i:0342d}")


@row("credentials: two thousand groups to be impersonated")
def _(a: Attacker) -> None:
    a.raw(8, a.head("GET", "/version", "Impersonate-User: x", *(f"Impersonate-Group: g{i}" for i in range(2000))))


@row("reviews: a subject of 50,000 groups", 201)
def _(a: Attacker) -> None:
    spec = {"user": "x", "groups": [f"g{i}" for i in range(50_000)], "resourceAttributes": {"verb": "get", "resource": "pods"}}
    a.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", {"spec": spec})


@row("reviews: a token of 2 MB", 201, 400)
def _(a: Attacker) -> None:
    a.post("/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": "x." * MIB}})
