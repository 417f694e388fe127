"""Random requests made from a seed: verbs, paths, queries, headers and bodies similar to valid ones."""

from __future__ import annotations

import gzip
import random
import urllib.parse
from typing import Any

from tests.robustness.fuzzing import (
    APPLY,
    CBOR,
    JSON,
    JSON_PATCH,
    NAMESPACE,
    PATCHES,
    PROTOBUF,
    YAML,
    Sample,
    below,
    body,
    extreme,
    mutated,
    operations,
)  # fmt: skip
from tests.robustness.fuzzwire import Asked

LIST_OPTIONS = (
    "labelSelector", "fieldSelector", "limit", "continue", "resourceVersion", "resourceVersionMatch", "allowWatchBookmarks",
    "sendInitialEvents", "shardSelector", "includeObject", "timeoutSeconds",
)  # fmt: skip
WRITE_OPTIONS = (
    "dryRun", "fieldManager", "fieldValidation", "force", "gracePeriodSeconds", "propagationPolicy", "orphanDependents",
    "ignoreStoreReadErrorWithClusterBreakingPotential", "preconditions.uid",
)  # fmt: skip
OTHER_OPTIONS = (
    "pretty", "timeout", "nope", "", "kind", "apiVersion", "container", "tailLines", "sinceTime", "sinceSeconds", "limitBytes", "previous",
    "timestamps", "stream", "insecureSkipTLSVerifyBackend", "command", "stdin", "stdout", "tty", "path", "ports", "verbose", "exclude",
    "hash", "debug", "includeRequestDetails", "access_token", "seconds",
)  # fmt: skip
QUERIES = LIST_OPTIONS + WRITE_OPTIONS + OTHER_OPTIONS
ARGUMENTS = (
    "", "a", "a=b", "a in (b", "a in (b,c),!d", "a notin ()", "a,,b", "!a", "a!=b,c", "a>1", "a<x", "metadata.name=f",
    "metadata.name=a\\,b", "metadata.namespace!=default", "status.phase=Running", "spec.nodeName=", "spec.s=a", "involvedObject.uid==x",
    "Exact", "NotOlderThan", "0", "1", "-1", "9" * 50, "9223372036854775807", "+1", "1_0", "1e3", " 1", "0x1", "All", "true", "false",
    "TRUE", "t", "Strict", "Warn", "Ignore", "Foreground", "Orphan", "Background", "Metadata", "None", "Object", "1s", "0s", "-1s",
    "9999999h", "\0", "\u2028", "x" * 200, "2020-01-01T00:00:00Z", "etcd", "ping", "Stdout", "All\n", "80,x",
    "shardRange(object.metadata.uid, '0x0', '0x1')", "shardRange(object.metadata.uid, '0x00000000', '0x80000000')", "shardRange(",
    "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiJhXHUwMDAwIn0", "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTEsInN0YXJ0IjoiYSJ9",
)  # fmt: skip
RAW_QUERIES = ("%zz", "a;b=c", "&&=&", "dryRun", "dryRun=All&dryRun=x", "limit=1&limit=x", "labelSelector=%ff", "pretty=1%00", "+", "=%",
"#")

AGGREGATED = [f"{JSON};g=apidiscovery.k8s.io;v={v};as=APIGroupDiscoveryList" for v in ("v2", "v2beta1", "v3")]
ACCEPTS = (
    JSON, PROTOBUF, YAML, CBOR, "*/*", "application/*", "text/html", "text/plain", "", f"{JSON};as=Table;v=v1;g=meta.k8s.io",
    f"{PROTOBUF};as=Table;v=v1;g=meta.k8s.io", f"{CBOR};as=Table;v=v1;g=meta.k8s.io", f"{JSON};as=Table;v=v2;g=meta.k8s.io",
    f"{JSON};as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", f"{YAML};as=PartialObjectMetadata;v=v1;g=meta.k8s.io", f"{JSON};as=x",
    f"{PROTOBUF};as=PartialObjectMetadata;v=v1;g=meta.k8s.io", f"{CBOR};as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
    f"{JSON};stream=watch", "application/cbor-seq", "application/json;pretty=1", "application/json;charset=latin1",
    "application/com.github.proto-openapi.spec.v2@v1.0+protobuf", "application/com.github.proto-openapi.spec.v3@v1.0+protobuf",
    "application/openmetrics-text;version=1.0.0", "application/json;profile=nopeer", *AGGREGATED,
)  # fmt: skip
QUALITIES = ("", ";q=0", ";q=0.1", ";q=1.000", ";q=x", ";q=1.0001", ";q=-1", ";q=", "; q = 0.5", ";Q=.5")
HEADERS = (
    ("Impersonate-User", ("a", "system:serviceaccount:default:default", "system:node:node1", "", "\xff")),
    ("Impersonate-Group", ("system:masters", "a", "")), ("Impersonate-Extra-a%2fb", ("c", "")), ("Impersonate-Extra-%zz", ("c",)),
    ("Impersonate-Uid", ("u",)),
    ("Accept-Encoding", ("gzip", "br", "gzip;q=0", "*", "identity;q=0", "gzip;q=x, *;q=0", "deflate, gzip;q=1.0, *;q=0.5")),
    ("If-None-Match", ('"a"', "*", 'W/"a", "b"', '"')), ("If-Match", ('"a"', "*")),
    ("If-Modified-Since", ("x", "Mon, 30 Nov 2026 06:00:00 GMT")),
    ("User-Agent", ("", "kubectl/v1.36", "x" * 500, "\xe4\\\"'")), ("Audit-ID", ("a", "\xe4" * 70, "")),
    ("Range", ("bytes=0-1", "bytes=-1", "bytes=9-1", "bytes=0-0,2-3,x", "x")), ("Origin", ("https://x", "null", "")),
    ("Traceparent", ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "00-x", "ff-" + "0" * 32 + "-" + "0" * 16 + "-01", "")),
    ("Tracestate", ("a=b", "=,,", "a" * 600)), ("Baggage", ("a=b;c", "=")), ("Cookie", ("a=b", ";;=")),
    ("X-Forwarded-For", ("1.2.3.4", "x", "::1, 1.2.3.4,, ")), ("X-Forwarded-Host", ("a", "\xff")), ("X-Forwarded-Proto", ("http", "x")),
    ("X-Forwarded-Uri", ("/a", "x")), ("X-Real-Ip", ("1.2.3.4", "x")), ("Forwarded", ("for=1.2.3.4;proto=https", "for=")), ("Via",
    ("1.1 x",)),
    ("X-Remote-User", ("admin",)), ("X-Remote-Group", ("system:masters",)), ("X-Remote-Extra-A", ("b",)),
    ("Access-Control-Request-Method", ("POST",)), ("Expect", ("100-continue", "x", "")), ("Max-Forwards", ("0", "x")), ("Te", ("trailers",
    "x")),
    ("Content-Encoding", ("gzip", "identity", "deflate", "gzip, gzip", "")), ("X-HTTP-Method-Override", ("DELETE",)),
    ("Authorization", ("Bearer x", "Basic eDp5", "x", "Bearer", "", "Bearer a.b.c", "Negotiate x", "Bearer " + "x" * 5000)),
    ("Content-Language", ("x",)), ("Kubectl-Command", ("a",)), ("X-Stream-Protocol-Version", ("v4.channel.k8s.io",)),
    ("Peer-Kube-Apiserver", ("1",)), ("X-Kubernetes-Peer", ("true",)), ("Warning", ("299 - x",)), ("Date", ("x",)),
)  # fmt: skip
PROTOCOLS = ("", "base64.binary.k8s.io", "v5.channel.k8s.io", "SPDY/3.1+portforward.k8s.io", "base64url.bearer.authorization.k8s.io.eA",
"x,y")
SUBRESOURCES = (
    "status", "scale", "eviction", "binding", "token", "approval", "ephemeralcontainers", "resize", "finalize", "log", "exec", "attach",
    "portforward", "proxy", "proxy/x/y", "proxy/%2e%2e/%00", "nope", "status/nope",
)  # fmt: skip
# Fields without which requests fail early.
STREAMED = {
    "exec": {"container": "a", "command": "x", "stdout": "true"}, "attach": {"container": "a", "stdout": "true"},
    "portforward": {"ports": "80"}, "log": {"container": "a"},
}  # fmt: skip
PROPER = {
    "eviction": ("POST",), "binding": ("POST",), "token": ("POST",), "log": ("GET",), "exec": ("GET", "POST"), "attach": ("GET", "POST"),
    "portforward": ("GET", "POST"), "proxy": ("GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"), "finalize": ("PUT",),
}  # fmt: skip
VERBS = (*("POST", "PUT", "GET", "DELETE") * 5, *("PATCH",) * 9, "HEAD", "OPTIONS", "TRACE", "CONNECT", "X")
NOBODY = ("nobody", "%2e%2e", "a%2fb", "%00", "A", "%ff", "x" * 300, "..", "%E2%80%A8", ";", "*")
TORN = ("/", "//", "%2f", "..", "%", ";", "watch/", "proxy/", "x", "?", "%00", "\xe4", "[", "~")
ELSEWHERE = (
    "/", "/api", "/apis", "/api/v1", "/api/v2", "/apis/apps", "/apis/apps/v1", "/apis/apps/v9", "/apis/x", "/apis/fuzz.example.com",
    "/apis/fuzz.example.com/v1", "/apis/fuzz.example.com/v3", "/version", "/openapi", "/openapi/v2", "/openapi/v3", "/openapi/v3/api/v1",
    "/openapi/v3/apis/apps/v1", "/openapi/v3/apis/fuzz.example.com/v1", "/openapi/v3/version", "/openapi/v3/apis/x/v1", "/healthz",
    "/livez",
    "/readyz", "/livez/ping", "/readyz/etcd", "/healthz/x", "/metrics", "/metrics/slis", "/metrics/x", "/logs", "/logs/", "/logs/x",
    "/debug/pprof", "/debug/pprof/", "/debug/pprof/threads", "/debug/pprof/heap", "/debug/pprof/x", "/debug/flags", "/debug/flags/v",
    "/debug/api_priority_and_fairness/dump_priority_levels", "/debug/api_priority_and_fairness/dump_queues",
    "/debug/api_priority_and_fairness/dump_requests", "/configz", "/statusz", "/flagz", "/.well-known/openid-configuration",
    "/openid/v1/jwks",
    "/api/v1/pods", "/apis/apps/v1/deployments", "/apis/fuzz.example.com/v1/things", "/api/v1/componentstatuses",
    "/api/v1/componentstatuses/etcd-0", "/api/v1/namespaces//pods", "/api/v1/namespaces/a/b/c/d/e", "/api/v1/watch", "/api/v1/proxy",
    "/apis/apps/v1/watch/deployments", "/api/v1/proxy/nodes/a", "/swagger.json", "/index.html", "/apis/v1",
    "/apis/metrics.k8s.io/v1beta1/nodes",
    "/api/v1/namespaces/ns1/pods/fuzz-pod/log", "/api/v1/namespaces/ns1/pods/fuzz-pod/exec", "/api/v1/namespaces/ns1/pods/fuzz-pod/attach",
    "/api/v1/namespaces/ns1/pods/fuzz-pod/portforward", "/api/v1/namespaces/ns1/pods/http:fuzz-pod:80/proxy/a",
    "/api/v1/namespaces/ns1/pods/https:fuzz-pod:x/proxy", "/api/v1/nodes/fuzz-node/proxy/a", "/api/v1/nodes/fuzz-node:10250/proxy",
    "/api/v1/nodes/https:node1:/proxy", "/api/v1/namespaces/ns1/services/https:service1:x/proxy/a", "/apis/foo.com/as2",
    "/apis/foo.com/as2/x",
)  # fmt: skip
OPTIONS = ("gracePeriodSeconds", "preconditions", "propagationPolicy", "orphanDependents", "dryRun", "nope", "kind", "apiVersion")
OTHER_TYPES = (
    "", "text/plain", JSON, APPLY, "application/json; charset=x", "application/json;", "application/json, application/yaml", "/", "*/*",
    "application/x-www-form-urlencoded", "multipart/form-data; boundary=", "application/merge-patch+yaml", CBOR, "application/cbor-seq",
    "\xff",
)  # fmt: skip
# Without these, or with other values in them, nothing else is served; every other deleted object is created again.
CHANGE = ("PUT", "PATCH", "DELETE")
KEPT = ("namespaces", "customresourcedefinitions", "apiservices", "nodes")


def made(seed: int, known: list[Sample]) -> Asked:
    """Returns the request of a seed."""
    rnd = random.Random(seed)
    if rnd.random() < 0.1:
        return _elsewhere(rnd, known)
    sample = rnd.choice(known)
    verb = "POST" if sample.only_posted and rnd.random() < 0.95 else rnd.choice(VERBS)
    sub, form = "", sample
    if not sample.only_posted and rnd.random() < 0.25:
        sub = rnd.choice(sample.subresources if sample.subresources and rnd.random() < 0.8 else SUBRESOURCES)
        form = below(sample, sub)
        if rnd.random() < 0.8:
            verb = rnd.choice(PROPER.get(sub, ("GET", "PUT", "PATCH")))
    headers = _accept(rnd)
    value, ctype = _value(rnd, seed, verb, form, bool(sub), known)
    data = body(rnd, form, value, ctype) if verb in ("POST", "PUT", "PATCH", "DELETE") or rnd.random() < 0.05 else b""
    if data:
        headers["Content-Type"] = ctype if rnd.random() < 0.95 else rnd.choice(OTHER_TYPES)
    data = _more_headers(rnd, verb, headers, data, upgrade=0.6 if sub in STREAMED else 0.1)
    single = bool(sub) or verb in ("PUT", "PATCH") or (verb != "POST" and rnd.random() < 0.6) or rnd.random() < 0.1
    path = sample.path
    if single and not sample.only_posted:
        path += "/" + (sample.name if rnd.random() < 0.9 else rnd.choice(NOBODY))
    if sub:
        path += f"/{sub}"
    if rnd.random() < 0.05:
        at = rnd.randrange(len(path))
        path = path[:at] + rnd.choice(TORN) + path[at + rnd.randrange(3) :]
    dry = rnd.random() < {"GET": 0.0, "HEAD": 0.0, "DELETE": 0.9}.get(verb, 0.6)
    if verb in CHANGE and (sample.resource in KEPT or (verb == "DELETE" and not single)):
        dry = True
    return Asked(verb, path + _query(rnd, verb, path, dry), headers, data)


def _value(rnd: random.Random, seed: int, verb: str, form: Sample, sub: bool, known: list[Sample]) -> tuple[Any, str]:
    """Returns the value of a body, and its format."""
    ctype = rnd.choice((JSON, JSON, YAML, PROTOBUF, CBOR))
    value = mutated(rnd, form.obj, known)
    if verb == "PATCH":
        ctype = rnd.choice(PATCHES)
        if ctype == JSON_PATCH:
            value = operations(rnd, form.obj)
        elif rnd.random() < 0.4 and isinstance(value, dict) and value:
            value = {key: value[key] for key in rnd.sample(sorted(value, key=str), rnd.randrange(1, len(value) + 1))}
    elif verb == "DELETE":
        value = {"kind": "DeleteOptions", "apiVersion": "v1", "dryRun": ["All"], rnd.choice(OPTIONS): extreme(rnd)}
    if verb == "POST" and not sub and isinstance(value, dict) and isinstance(meta := value.get("metadata"), dict) and rnd.random() < 0.6:
        meta["name"] = f"f{seed}"  # one that does not exist yet
    return value, ctype


def _accept(rnd: random.Random) -> dict[str, str]:
    """Returns an Accept header: none, one format, or several with weights."""
    if rnd.random() < 0.6:
        return {}
    if rnd.random() < 0.6:
        return {"Accept": rnd.choice(ACCEPTS if rnd.random() < 0.5 else ACCEPTS[:5])}
    return {"Accept": rnd.choice((",", ", ")).join(rnd.choice(ACCEPTS) + rnd.choice(QUALITIES) for _ in range(rnd.randrange(1, 4)))}


def _more_headers(rnd: random.Random, verb: str, headers: dict[str, str], data: bytes, upgrade: float = 0.1) -> bytes:
    """Adds a few more headers; returns the body as they describe it."""
    for _ in range(rnd.choice((0, 0, 0, 1, 2, 3))):
        name, values = rnd.choice(HEADERS)
        headers[name] = rnd.choice(values)
    if "Impersonate-Group" in headers or "Impersonate-Uid" in headers:
        headers.setdefault("Impersonate-User", "a")
    if headers.get("Content-Encoding") == "gzip" and rnd.random() < 0.7:
        data = gzip.compress(data, 1)
    if verb == "GET" and rnd.random() < upgrade:
        headers |= {"Connection": "Upgrade", "Upgrade": rnd.choice(("websocket", "websocket", "WebSocket", "SPDY/3.1", "h2c", "x"))}
        headers["Sec-WebSocket-Version"] = rnd.choice(("13", "13", "8", "x"))
        headers["Sec-WebSocket-Key"] = rnd.choice(("dGhlIHNhbXBsZSBub25jZQ==", "x"))
        if protocol := rnd.choice(PROTOCOLS):
            headers["Sec-WebSocket-Protocol"] = protocol
    return data


def _query(rnd: random.Random, verb: str, path: str, dry: bool) -> str:
    query = {rnd.choice(QUERIES): rnd.choice(ARGUMENTS) for _ in range(rnd.choice((0, 0, 1, 2, 3)))}
    if "fieldManager" not in query and verb == "PATCH":
        query["fieldManager"] = "fuzz"
    if dry:
        query["dryRun"] = "All"
    if rnd.random() < 0.6:
        query |= STREAMED.get(path.rpartition("/")[2], {})
    if verb == "GET" and rnd.random() < 0.005:  # each takes a second
        query["watch"] = "1"
    if "watch" in query or "watch" in path:
        query["timeoutSeconds"] = "1"
    if query.get("resourceVersion", "0").lstrip("+").strip() not in ("", "0", "1", "-1"):
        query["resourceVersion"] = rnd.choice(("0", "1", "-1", "x", ""))  # a future revision is waited for
    more = "&" + rnd.choice(RAW_QUERIES) if rnd.random() < 0.03 and not dry else ""
    return ("?" if "?" not in path else "&") + urllib.parse.urlencode(query) + more


def _elsewhere(rnd: random.Random, known: list[Sample]) -> Asked:
    """Returns a path that belongs to no object, or to a kind in all namespaces, or the old form of a watch."""
    path = rnd.choice(ELSEWHERE)
    if rnd.random() < 0.2:
        path = rnd.choice(known).path.replace(f"/namespaces/{NAMESPACE}", "", 1)
    if rnd.random() < 0.03:
        head, _, tail = rnd.choice(known).path.partition("/v")
        path = f"{head}/v{tail.replace('/', '/watch/', 1)}"
    path += rnd.choice(("", "", "", "", "/", "//", "/x", "%20", "/..", "/%2e%2e/x"))
    if rnd.random() < 0.1:
        at = rnd.randrange(1, len(path) + 1)
        path = path[:at] + rnd.choice(TORN) + path[at + rnd.randrange(3) :]
    verb = "GET" if rnd.random() < 0.8 else rnd.choice(VERBS)
    headers = _accept(rnd)
    data = rnd.randbytes(rnd.randrange(20)) if verb in ("POST", "PATCH") else b""
    if data:
        headers["Content-Type"] = rnd.choice((JSON, *OTHER_TYPES))
    data = _more_headers(rnd, verb, headers, data)
    return Asked(verb, path + _query(rnd, verb, path, verb != "GET"), headers, data)
