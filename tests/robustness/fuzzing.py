"""What fuzzing over HTTP shares: the answers with 5xx that are upstream's, too, and requests made by a seed from objects of every kind."""

from __future__ import annotations

import copy
import gzip
import json
import random
import re
import urllib.parse
from collections.abc import Iterator
from typing import Any, NamedTuple

import yaml

from kas.types import cbor
from kas.types.scheme import BUILTIN, Resource, decode, encode_protobuf
from tests.vectors import files

JSON, YAML, PROTOBUF, CBOR = "application/json", "application/yaml", "application/vnd.kubernetes.protobuf", "application/cbor"
JSON_PATCH, MERGE, STRATEGIC = "application/json-patch+json", "application/merge-patch+json", "application/strategic-merge-patch+json"
APPLY, APPLY_CBOR = "application/apply-patch+yaml", "application/apply-patch+cbor"
PATCHES = [JSON_PATCH, MERGE, STRATEGIC, APPLY, APPLY_CBOR]
NAMESPACE = "ns1"


class Explained(NamedTuple):
    """A 5xx that may come: its code, what its text contains, and why it is right."""

    code: int
    text: str
    why: str


EXPLAINED = (
    Explained(500, "failed to create RequestInfo", "a path such as /api/v1/watch/ that cannot be read as a request"),
    Explained(500, "resourceVersion should not be set on objects to be created", "a POST that names a revision"),
    Explained(500, r'^(?!.*"reason").*strconv\.ParseUint: parsing', "a revision that is no number, which the storage complains of"),
    Explained(500, "failed to create typed patch object", "an apply of what the schema has not, or has otherwise"),
    Explained(500, "failed to convert (new|patch|live) object", "an apply, or an update after one, of what the schema has otherwise"),
    Explained(500, "unable to find api field in struct|unknown patch type", "a strategic merge patch that asks for what the type has not"),
    Explained(500, r"expected a \[\]interface|element types are not identical|declared merge key", "one of another form than the object's"),
    Explained(500, "no preferred addresses found", "a proxy to a node that has said no address"),
    Explained(500, "failed to allocate a", "a Service or an address when no ServiceCIDR is left, or none of its family"),
    Explained(500, "Missing or unknown service|no endpoints available|address not allowed", "a proxy to what is not there"),
    Explained(501, "", "verbs and forms nobody implements"),
    Explained(502, "", "proxies to what does not speak HTTP"),
    Explained(503, "", "proxies, nodes and services that are not there"),
    Explained(504, "", "a revision of the future that did not come, or a node that does not answer"),
)  # fmt: skip


def explained(code: int, text: str) -> bool:
    """Whether an answer is none with 5xx, or one of those that upstream gives."""
    return code < 500 or any(e.code == code and re.search(e.text, text, re.S) for e in EXPLAINED)


class Sample(NamedTuple):
    """An object of a kind, and where it is served."""

    resource: Resource
    obj: dict[str, Any]
    path: str

    @property
    def name(self) -> str:
        return str(self.obj["metadata"]["name"])


def samples() -> list[Sample]:
    """One of every built-in kind that is served by default."""
    out = []
    for vector in files.lines("etcd-samples"):
        given = vector["in"]
        resource = BUILTIN.resource(given["group"], given["version"], given["resource"])
        if resource is None:
            continue
        root = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
        place = f"/namespaces/{NAMESPACE}" if resource.namespaced else ""
        obj = {"apiVersion": resource.api_version, "kind": given["kind"], **given["object"]}
        out.append(Sample(resource, obj, f"{root}{place}/{resource.resource}"))
    return out


EXTREMES: list[Any] = [
    None, True, False, 0, -1, 1, 2**31, -(2**31) - 1, 2**63, 2**70, 1.5, 1e308, -0.0, "", "a", "A_b", "-", ".", "..", "/", "a/b", "\0",
    "\u2028", "\U0001f4a9", "\ud800", "9" * 400, "1e400", "100m", "1Ei", "0.1n", "2020-01-01T00:00:00Z", "9999-99-99T99:99:99Z", "1h",
    "::1", "10.0.0.1/33", "default", "kubernetes", "Always", "*", "$(x)", "x" * 300, [], {}, [[]], [{}], [None], {"": None},
    {"a": {"a": {"a": 1}}}, [1, "a", {}], {"$patch": "replace"}, {"$patch": "delete"}, {"matchLabels": {"a": "b"}},
    {"matchExpressions": [{"key": "a", "operator": "x"}]}, {"name": "a"},
]  # fmt: skip
NAMES = (
    "metadata", "spec", "status", "name", "namespace", "uid", "resourceVersion", "generation", "labels", "annotations", "finalizers",
    "kind", "apiVersion", "managedFields", "ownerReferences", "deletionTimestamp", "creationTimestamp", "generateName", "template",
    "selector", "items", "$patch", "$retainKeys", "$setElementOrder/containers", "nope", "Spec", "", "a.b/c",
)  # fmt: skip


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of everything in an object."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        yield (*at, key)
        yield from places(item, (*at, key))


def extreme(rnd: random.Random) -> Any:
    """One of them, to be changed as one likes."""
    return copy.deepcopy(rnd.choice(EXTREMES))


def mutated(rnd: random.Random, obj: Any, others: list[Sample]) -> Any:
    """A copy with something else in a few places."""
    out = copy.deepcopy(obj)
    for _ in range(rnd.choice((0, 1, 1, 1, 2, 3, 6))):
        found = list(places(out))
        if not found:
            break
        path = rnd.choice(found)
        at = out
        for key in path[:-1]:
            at = at[key]
        last = path[-1]
        match rnd.randrange(7):
            case 0:
                del at[last]
            case 1 if isinstance(at, list):
                at.insert(rnd.randrange(len(at) + 1), copy.deepcopy(at[last]))
            case 1 | 2 if isinstance(at, dict):
                at[rnd.choice(NAMES)] = extreme(rnd)
            case 3:
                other = rnd.choice(others).obj
                at[last] = copy.deepcopy(_at(other, rnd.choice(list(places(other)))))
            case 4:
                at[last] = [at[last]] if rnd.random() < 0.5 else {rnd.choice(NAMES): at[last]}
            case _:
                at[last] = extreme(rnd)
    return out


def _at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def pointer(path: tuple[Any, ...]) -> str:
    """A JSON pointer."""
    return "".join("/" + str(key).replace("~", "~0").replace("/", "~1") for key in path)


def operations(rnd: random.Random, obj: Any) -> list[Any]:
    """A JSON patch about an object's places, and others."""
    found = [pointer(p) for p in places(obj)] + ["", "/", "/nope", "/metadata/labels/-", "/spec/-", "/~2", "/metadata/99999999999999999999"]
    out: list[Any] = []
    for _ in range(rnd.randrange(4)):
        op = {"op": rnd.choice(("add", "remove", "replace", "move", "copy", "test", "x")), "path": rnd.choice(found)}
        if rnd.random() < 0.8:
            op["value"] = extreme(rnd)
        if rnd.random() < 0.5:
            op["from"] = rnd.choice(found)
        out.append(op if rnd.random() < 0.95 else extreme(rnd))
    return out


def text(value: Any) -> bytes:
    """JSON, with surrogates as they are."""
    return json.dumps(value).encode()


def body(rnd: random.Random, sample: Sample, value: Any, ctype: str) -> bytes:
    """A value in a form; in YAML as its own writer does it, in protobuf what can be said in it, both damaged now and then."""
    if ctype in (YAML, APPLY) and rnd.random() < 0.7:
        whole = yaml.safe_dump(value, allow_unicode=rnd.random() < 0.5, default_flow_style=rnd.choice((None, True, False))).encode(
            "utf-8", "surrogatepass"
        )
    elif ctype in (CBOR, APPLY_CBOR):
        try:
            whole = cbor.encode(value)
        except (ValueError, OverflowError, AttributeError):
            whole = cbor.encode(sample.obj)
    elif ctype == PROTOBUF:
        resource = sample.resource
        plain = decode(resource.type, sample.obj)[0]
        whole = encode_protobuf(resource.type, plain, api_version=resource.api_version, kind=resource.kind)
        return damaged(rnd, whole, rnd.randrange(4))
    else:
        whole = text(value)
    return damaged(rnd, whole, 1) if rnd.random() < 0.08 else whole


def damaged(rnd: random.Random, data: bytes, times: int) -> bytes:
    """Bytes changed, taken out and put in."""
    out = bytearray(data)
    for _ in range(times):
        at = rnd.randrange(len(out) + 1)
        match rnd.randrange(3):
            case 0 if at < len(out):
                out[at] = rnd.randrange(256)
            case 1:
                del out[at : at + rnd.randrange(1, 9)]
            case _:
                out[at:at] = rnd.randbytes(rnd.randrange(1, 9))
    return bytes(out)


QUERIES = (
    "labelSelector", "fieldSelector", "limit", "continue", "resourceVersion", "resourceVersionMatch", "allowWatchBookmarks",
    "sendInitialEvents", "pretty", "includeObject", "dryRun", "fieldManager", "fieldValidation", "force", "gracePeriodSeconds",
    "propagationPolicy", "orphanDependents", "shardSelector", "timeout", "ignoreStoreReadErrorWithClusterBreakingPotential",
    "container", "follow", "tailLines", "sinceTime", "command", "stdin", "path", "ports", "nope",
)  # fmt: skip
ARGUMENTS = (
    "", "a", "a=b", "a in (b", "a,,b", "!a", "a!=b,c", "metadata.name=f", "metadata.namespace!=default", "status.phase=Running",
    "spec.nodeName=", "Exact", "NotOlderThan", "0", "1", "-1", "9" * 50, "+1", "1_0", "1e3", " 1", "All", "true", "false", "Strict",
    "Warn", "Ignore", "Foreground", "Orphan", "Background", "Metadata", "None", "Object", "%00", "%ff", "\u2028", "x" * 200,
    "shardRange(object.metadata.uid, '0x0', '0x1')", "shardRange(", "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiJhXHUwMDAwIn0",
)  # fmt: skip
ACCEPTS = (
    JSON, PROTOBUF, YAML, CBOR, "*/*", "text/html", "", f"{JSON};as=Table;v=v1;g=meta.k8s.io", f"{PROTOBUF};as=Table;v=v1;g=meta.k8s.io",
    f"{JSON};as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", f"{YAML};as=PartialObjectMetadata;v=v1;g=meta.k8s.io", f"{JSON};as=x",
    f"{JSON};stream=watch", "application/json;q=x, */*;q=0.1",
)  # fmt: skip
HEADERS = (
    ("Impersonate-User", ("a", "system:serviceaccount:default:default", "", "\xff")), ("Impersonate-Group", ("system:masters", "a")),
    ("Impersonate-Extra-a%2fb", ("c",)), ("Impersonate-Uid", ("u",)), ("Accept-Encoding", ("gzip", "br", "gzip;q=0", "*")),
    ("If-None-Match", ('"a"', "*")), ("User-Agent", ("", "kubectl/v1.36", "x" * 500)), ("Audit-ID", ("a", "\xe4" * 70)),
    ("Range", ("bytes=0-1",)), ("Origin", ("https://x", "null")),
    ("Traceparent", ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "00-x")), ("Cookie", ("a=b",)),
    ("X-Forwarded-For", ("1.2.3.4", "x")), ("X-Remote-User", ("admin",)), ("Access-Control-Request-Method", ("POST",)),
    ("Content-Encoding", ("gzip", "identity", "deflate")), ("X-HTTP-Method-Override", ("DELETE",)),
    ("Authorization", ("Bearer x", "Basic eDp5", "x")),
)  # fmt: skip
UPGRADE = {
    "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}  # fmt: skip
SUBRESOURCES = (
    "status", "scale", "eviction", "binding", "token", "approval", "ephemeralcontainers", "resize", "finalize", "log", "exec", "attach",
    "portforward", "proxy", "proxy/x/y", "nope", "status/nope",
)  # fmt: skip
VERBS = (*("POST", "PUT", "GET", "DELETE") * 2, *("PATCH",) * 4, "HEAD", "OPTIONS", "TRACE", "X")


OPTIONS = ("gracePeriodSeconds", "preconditions", "propagationPolicy", "orphanDependents", "dryRun", "nope")
OTHER_TYPES = ("", "text/plain", JSON, APPLY, "application/json; charset=x")


class Asked(NamedTuple):
    """A request."""

    verb: str
    path: str
    headers: dict[str, str]
    body: bytes


def made(seed: int, known: list[Sample]) -> Asked:
    """The request of a seed."""
    rnd = random.Random(seed)
    sample = rnd.choice(known)
    verb = rnd.choice(VERBS)
    headers = {"Accept": rnd.choice(ACCEPTS)} if rnd.random() < 0.5 else {}
    value, ctype = mutated(rnd, sample.obj, known), rnd.choice((JSON, JSON, YAML, PROTOBUF, CBOR))
    if verb == "PATCH":
        ctype = rnd.choice(PATCHES)
        if ctype == JSON_PATCH:
            value = operations(rnd, sample.obj)
        elif rnd.random() < 0.4 and isinstance(value, dict) and value:
            value = {key: value[key] for key in rnd.sample(sorted(value, key=str), rnd.randrange(1, len(value) + 1))}
    elif verb == "DELETE":
        value = {"kind": "DeleteOptions", "apiVersion": "v1", "dryRun": ["All"], rnd.choice(OPTIONS): extreme(rnd)}
    if verb == "POST" and isinstance(value, dict) and isinstance(meta := value.get("metadata"), dict) and rnd.random() < 0.6:
        meta["name"] = f"f{seed}"  # one that is not there yet
    data = body(rnd, sample, value, ctype) if verb in ("POST", "PUT", "PATCH", "DELETE") or rnd.random() < 0.05 else b""
    if data:
        headers["Content-Type"] = ctype if rnd.random() < 0.95 else rnd.choice(OTHER_TYPES)
    for _ in range(rnd.choice((0, 0, 0, 1, 2))):
        name, values = rnd.choice(HEADERS)
        headers[name] = rnd.choice(values)
    if headers.get("Content-Encoding") == "gzip" and rnd.random() < 0.7:
        data = gzip.compress(data, 1)
    if verb == "GET" and rnd.random() < 0.1:
        headers |= UPGRADE
    return Asked(verb, _path(rnd, sample, verb), headers, data)


def _path(rnd: random.Random, sample: Sample, verb: str) -> str:
    path = sample.path
    single = verb in ("PUT", "PATCH") or (verb != "POST" and rnd.random() < 0.6) or rnd.random() < 0.1
    if single:
        path += "/" + (sample.name if rnd.random() < 0.9 else rnd.choice(("nobody", "%2e%2e", "a%2fb", "%00", "A", "%ff", "x" * 300)))
        if rnd.random() < 0.3:
            of_it = sorted(sample.resource.subresources)
            path += "/" + rnd.choice(of_it if of_it and rnd.random() < 0.7 else SUBRESOURCES)
    if rnd.random() < 0.05:
        at = rnd.randrange(len(path))
        path = path[:at] + rnd.choice(("/", "//", "%2f", "..", "%", ";", "watch/", "proxy/", "x", "?")) + path[at + rnd.randrange(3) :]
    query = {rnd.choice(QUERIES): rnd.choice(ARGUMENTS) for _ in range(rnd.choice((0, 0, 1, 2, 3)))}
    if "fieldManager" not in query and verb == "PATCH":
        query["fieldManager"] = "fuzz"
    if verb == "DELETE" or (verb != "GET" and rnd.random() < 0.6):
        query["dryRun"] = "All"
    if verb == "GET" and rnd.random() < 0.02:
        query |= {"watch": "1", "timeoutSeconds": "1"}
    if query.get("resourceVersion", "0").lstrip("+").strip() not in ("", "0", "-1"):
        query["resourceVersion"] = rnd.choice(("0", "-1", "x", ""))  # a future one is waited for
    query.pop("follow", None)
    return path + ("?" if "?" not in path else "&") + urllib.parse.urlencode(query)
