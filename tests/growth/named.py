"""Families of requests that are known to be difficult, or that do not follow from the type tables: patches, managed fields, YAML,
protobuf, schemas, numbers, selectors, headers. Each makes its request of ``n``, and the objects that must be stored before."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tests.growth.serving import APPLY, JSON_PATCH, MERGE_PATCH, PROTOBUF, STRATEGIC, YAML, Sent

Made = Sent | tuple[list[Sent], Sent]
FAMILIES: dict[str, Callable[[int], Made]] = {}

NS = "/api/v1/namespaces/default"
MAPS, PODS, SERVICES = f"{NS}/configmaps", f"{NS}/pods", f"{NS}/services"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?dryRun=All"
REVIEW = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
DRY = "dryRun=All"
JSON = "application/json"


def family(name: str) -> Callable[[Callable[[int], Made]], Callable[[int], Made]]:
    def add(make: Callable[[int], Made]) -> Callable[[int], Made]:
        assert name not in FAMILIES
        FAMILIES[name] = make
        return make

    return add


def config_map(name: str = "", **more: Any) -> dict[str, Any]:
    meta = {"name": name} if name else {"generateName": "a"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {**meta, **more.pop("metadata", {})}, **more}


def pod(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"generateName": "a"}, "spec": {"containers": [{"name": "c", "image": "x", **spec.pop("container", {})}], **spec}}


def create(path: str, obj: Any, **more: Any) -> Sent:
    return Sent("POST", path, obj, **more)


def keys(n: int, value: Any = "v") -> dict[str, Any]:
    return {f"k{i}": value for i in range(n)}


# -- metadata and its errors

META: dict[str, Callable[[int], dict[str, Any]]] = {
    "owner references": lambda n: {
        "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": f"p{i}", "uid": f"u{i}"} for i in range(n)]
    },
    "owner references that all control": lambda n: {
        "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": f"p{i}", "uid": f"u{i}", "controller": True} for i in range(n)]
    },
    "labels": lambda n: {"labels": keys(n)},
    "bad labels": lambda n: {"labels": {f"-{i}": "" for i in range(n)}},
    "bad label values": lambda n: {"labels": keys(n, "-")},
    "a long label": lambda n: {"labels": {"a": "x" * (32 * n)}},
    "a long bad label": lambda n: {"labels": {"a": "-É" * (16 * n)}},
    "a long label key": lambda n: {"labels": {"x" * (32 * n): "a"}},
    "a long prefix of a label key": lambda n: {"labels": {"a." * (16 * n) + "/a": "a"}},
    "bad annotations": lambda n: {"annotations": {f"-{i}": "" for i in range(n)}},
    "a long annotation": lambda n: {"annotations": {"a": "\u2028<&>" * (8 * n)}},
    "finalizers": lambda n: {"finalizers": [f"a.b/x{i}" for i in range(n)]},
    "managed fields": lambda n: {"managedFields": [
        {"manager": f"m{i}", "operation": "Apply", "apiVersion": "v1", "time": "2024-01-02T03:04:05Z", "fieldsType": "FieldsV1",
         "fieldsV1": {"f:data": {f"f:k{i}": {}}}} for i in range(n)
    ]},
    "indexes in managed fields": lambda n: {"managedFields": [
        {"manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
         "fieldsV1": {"f:data": {f"i:{i}": {} for i in range(n)}}}
    ]},
}  # fmt: skip
for _name, _meta in META.items():
    FAMILIES[f"metadata: {_name}"] = lambda n, meta=_meta: create(MAPS, config_map(metadata=meta(n)))


# -- pods, services and policies

SPECS: dict[str, Callable[[int], dict[str, Any]]] = {
    "spread constraints": lambda n: {
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": f"k{i}", "whenUnsatisfiable": "DoNotSchedule"} for i in range(n)]
    },
    "tolerations": lambda n: {"tolerations": [{"key": f"k{i}", "operator": "Exists"} for i in range(n)]},
    "volumes": lambda n: {"volumes": [{"name": f"v{i}", "emptyDir": {}} for i in range(n)]},
    "pull secrets of no name": lambda n: {"imagePullSecrets": [{}] * n},
    "containers": lambda n: {"initContainers": [{"name": f"c{i}", "image": "x"} for i in range(n)]},
    "a long image": lambda n: {"container": {"image": "a/" * (16 * n)}},
    "a bad image": lambda n: {"container": {"image": "a" * (16 * n) + "@"}},
    "variables": lambda n: {"container": {"env": [{"name": f"E{i}", "value": f"$(E{i - 1})"} for i in range(n)]}},
    "ports": lambda n: {"container": {"ports": [{"containerPort": i % 60000 + 1} for i in range(n)]}},
    "port names": lambda n: {"container": {"ports": [{"containerPort": 1, "name": "a" * 16 + str(i)} for i in range(n)]}},
    "quantities": lambda n: {"container": {"resources": {"limits": {f"example.com/r{i}": f"{i}.5k" for i in range(n)}}}},
    "quantities with exponents": lambda n: {"container": {"resources": {"limits": {f"example.com/r{i}": "1e999" for i in range(n)}}}},
    "a quantity of many digits": lambda n: {"container": {"resources": {"limits": {"cpu": "9" * (32 * n)}}}},
    "a quantity of many zeros": lambda n: {"container": {"resources": {"limits": {"cpu": "0" * (32 * n) + "1"}}}},
    "affinity terms": lambda n: {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": f"k{i}", "labelSelector": {"matchLabels": {"a": f"b{i}"}}} for i in range(n)
    ]}}},
    "bad affinity values": lambda n: {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In", "values": [f"-{i}" for i in range(n)]}]}]
    }}}},
}  # fmt: skip
# Two lists that are searched for items of one another.
SPECS |= {
    "claims of a container": lambda n: {
        "resourceClaims": [{"name": f"c{i}", "resourceClaimName": "a"} for i in range(n // 2)],
        "container": {"resources": {"claims": [{"name": f"c{i}"} for i in range(n // 2)]}},
    },
    "claims of a container each": lambda n: {
        "resourceClaims": [{"name": f"c{i}", "resourceClaimName": "a"} for i in range(n // 2)],
        "initContainers": [
            {"name": f"i{i}", "image": "x", "resources": {"claims": [{"name": f"c{i}"}]}} for i in range(n // 2)
        ],
    },
    "claims of a container each that are not the pod's": lambda n: {
        "resourceClaims": [{"name": f"c{i}", "resourceClaimName": "a"} for i in range(n // 2)],
        "initContainers": [
            {"name": f"i{i}", "image": "x", "resources": {"claims": [{"name": f"d{i}"}]}} for i in range(n // 2)
        ],
    },
    "claims that are not the pod's": lambda n: {
        "resourceClaims": [{"name": f"c{i}", "resourceClaimName": "a"} for i in range(n // 2)],
        "container": {"resources": {"claims": [{"name": f"d{i}"} for i in range(n // 2)]}},
    },
    "mounts beside devices": lambda n: {
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "a"}}],
        "container": {
            "volumeMounts": [{"name": "v", "mountPath": f"/m{i}"} for i in range(n // 2)],
            "volumeDevices": [{"name": f"v{i}", "devicePath": f"/d{i}"} for i in range(n // 2)],
        },
    },
}  # fmt: skip
for _name, _spec in SPECS.items():
    FAMILIES[f"pod: {_name}"] = lambda n, spec=_spec: create(PODS, pod(**spec(n)))


@family("pod: AppArmor annotations beside containers")
def _(n: int) -> Made:
    key = "container.apparmor.security.beta.kubernetes.io/c"
    many = pod(initContainers=[{"name": f"c{i}", "image": "x"} for i in range(n)])
    many["metadata"]["annotations"] = {f"{key}{i}": "unconfined" for i in range(min(n // 4, 4000))}
    return create(PODS, many)


@family("quota: scopes beside resources")
def _(n: int) -> Made:
    spec = {"scopes": ["Terminating"] * n, "hard": {f"requests.a.b/r{i}": "1" for i in range(n)}}
    return create("/api/v1/namespaces/default/resourcequotas", {"metadata": {"generateName": "a"}, "spec": spec})


def _policy(*blocks: dict[str, Any]) -> Sent:
    rule = {"from": [{"ipBlock": block} for block in blocks]}
    spec = {"podSelector": {}, "ingress": [rule]}
    return create("/apis/networking.k8s.io/v1/namespaces/default/networkpolicies", {"metadata": {"generateName": "a"}, "spec": spec})


@family("network policy: except blocks")
def _(n: int) -> Made:
    return _policy({"cidr": "10.0.0.0/8", "except": [f"10.{i >> 16 & 255}.{i >> 8 & 255}.{i & 255}/32" for i in range(n)]})


@family("network policy: except blocks outside")
def _(n: int) -> Made:
    return _policy({"cidr": "10.0.0.0/8", "except": [f"11.{i >> 16 & 255}.{i >> 8 & 255}.{i & 255}/32" for i in range(n)]})


@family("service: ports")
def _(n: int) -> Made:
    ports = [{"name": f"p{i}", "port": i % 60000 + 1} for i in range(n)]
    return create(SERVICES, {"metadata": {"generateName": "a"}, "spec": {"ports": ports, "clusterIP": "None"}})


@family("storage class: equal topologies")
def _(n: int) -> Made:
    obj = {"metadata": {"generateName": "a"}, "provisioner": "a.b", "allowedTopologies": [{}] * n}
    return create("/apis/storage.k8s.io/v1/storageclasses", obj)


# -- JSON patches

POD_P = [create(PODS, {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "x"}]}})]
MAP_P = [create(MAPS, config_map("p", data={"a": "b"}))]
LONG_LIST = {"op": "add", "path": "/metadata/finalizers", "value": ["a.b/c"] * 100_000}


def _patch(n: int, *ops: dict[str, Any], start: Any = (), more: int = 1) -> Made:
    """A JSON patch with at most as many operations as are allowed."""
    body = [{"op": "add", "path": "/metadata/finalizers", "value": list(start)}, *list(ops) * min(n, 9990 // len(ops))]
    return POD_P, Sent("PATCH", f"{PODS}/p?{DRY}", body, JSON_PATCH)


PATCHES: dict[str, tuple[list[dict[str, Any]], Any]] = {
    "adds at the front": ([{"op": "add", "path": "/metadata/finalizers/0", "value": "a.b/x"}], ()),
    "adds at the end": ([{"op": "add", "path": "/metadata/finalizers/-", "value": "a.b/x"}], ()),
    "moves in a list": ([{"op": "move", "from": "/metadata/finalizers/0", "path": "/metadata/finalizers/-"}], ["a.b/x"] * 6000),
    "removes and adds at the front of a long list": (
        [{"op": "add", "path": "/metadata/finalizers/0", "value": "a"}, {"op": "remove", "path": "/metadata/finalizers/0"}],
        ["a.b/c"] * 100_000,
    ),
    "tests between changes": (
        [{"op": "add", "path": "/metadata/finalizers/0", "value": "a"}, {"op": "test", "path": "/metadata/finalizers/0", "value": "a"}],
        ["a.b/c"] * 6000,
    ),
    "copies of null": ([{"op": "copy", "from": "/status/x", "path": "/status/y"}], ()),
}
for _name, (_ops, _start) in PATCHES.items():
    FAMILIES[f"json patch: {_name}"] = lambda n, ops=_ops, start=_start: _patch(n, *ops, start=start)


@family("json patch: a deep path")
def _(n: int) -> Made:
    return MAP_P, Sent("PATCH", f"{MAPS}/p", [{"op": "add", "path": "/data" + "/a" * (16 * n), "value": 1}], JSON_PATCH)


@family("json patch: keys")
def _(n: int) -> Made:
    n = min(n, 10_000)
    return MAP_P, Sent("PATCH", f"{MAPS}/p?{DRY}", [{"op": "add", "path": f"/data/k{i}", "value": "v"} for i in range(n)], JSON_PATCH)


@family("merge patch: keys")
def _(n: int) -> Made:
    return MAP_P, Sent("PATCH", f"{MAPS}/p?{DRY}", {"data": keys(n)}, MERGE_PATCH)


# -- strategic merge


def _strategic(spec: dict[str, Any]) -> Made:
    return POD_P, Sent("PATCH", f"{PODS}/p?{DRY}", {"spec": spec}, STRATEGIC)


STRATEGICS: dict[str, Callable[[int], dict[str, Any]]] = {
    "list-map entries": lambda n: {"volumes": [{"name": f"v{i}", "emptyDir": {}} for i in range(n)]},
    "deletions": lambda n: {"volumes": [{"$patch": "delete", "name": f"v{i}"} for i in range(n)]},
    "orders": lambda n: {
        "$setElementOrder/volumes": [{"name": f"v{n - i}"} for i in range(n)],
        "volumes": [{"name": f"v{i + 1}", "emptyDir": {}} for i in range(n)],
    },
    "deletions from a primitive list": lambda n: {"$deleteFromPrimitiveList/finalizers": [f"f{i}" for i in range(n)]},
    "retained keys": lambda n: {"securityContext": {"$retainKeys": [f"k{i}" for i in range(n)]}},
    "equal entries": lambda n: {"volumes": [{"name": "v", "emptyDir": {}}] * n},
}
for _name, _spec in STRATEGICS.items():
    FAMILIES[f"strategic merge: {_name}"] = lambda n, spec=_spec: _strategic(spec(n))


# -- apply


def _apply(n: int, manager: str, value: str) -> Sent:
    return Sent("PATCH", f"{MAPS}/ssa?fieldManager={manager}", config_map("ssa", data=keys(n, value)), APPLY)


CLEAN = Sent("DELETE", f"{MAPS}/ssa")


@family("apply: new")
def _(n: int) -> Made:
    return [CLEAN], _apply(n, "one", "1")


@family("apply: conflicts")
def _(n: int) -> Made:
    return [CLEAN, _apply(n, "one", "1")], _apply(n, "two", "2")


@family("apply: conflicts below a long key")
def _(n: int) -> Made:
    return [CLEAN, _apply(n, "one", "1")], Sent(
        "PATCH", f"{MAPS}/ssa?fieldManager=two", config_map("ssa", metadata={"labels": {"l" * 60: "x"}}, data=keys(n, "3")), APPLY
    )


@family("apply: managers")
def _(n: int) -> Made:
    entries = META["managed fields"](n)["managedFields"]
    return [CLEAN, _apply(1, "one", "1"), Sent("PUT", f"{MAPS}/ssa", config_map("ssa", metadata={"managedFields": entries}))], _apply(
        50, "x", "2"
    )


@family("apply: list-map entries")
def _(n: int) -> Made:
    volumes = [{"name": f"v{i}", "emptyDir": {}} for i in range(n)]
    spec = {"containers": [{"name": "c", "image": "x"}], "volumes": volumes}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "applied"}, "spec": spec}
    return Sent("PATCH", f"{PODS}/applied?fieldManager=x&{DRY}", body, APPLY)


# -- YAML


HEAD = "apiVersion: v1\nkind: ConfigMap\nmetadata: {generateName: a}\ndata:\n"
YAMLS: dict[str, Callable[[int], str]] = {
    "items": lambda n: "- a\n" * (8 * n),
    "keys": lambda n: HEAD + "".join(f"  k{i}: v\n" for i in range(2 * n)),
    "repeated keys": lambda n: HEAD + "  k: v\n" * (4 * n),
    "anchors": lambda n: "".join(f"a{i}: &a{i} x\n" for i in range(2 * n)),
    "aliases": lambda n: "a: &a x\nb: [" + "*a, " * (8 * n) + "*a]\n",
    "an alias of a growing list": lambda n: "a: &a [" + "x, " * 100 + "x]\nb: [" + "*a, " * n + "*a]\n",
    "flow": lambda n: "a: [" + "b, " * (8 * n) + "c]\n",
    "nesting": lambda n: "a: " + "[" * (16 * n),
    "indentation": lambda n: "".join(" " * i + f"k{i}:\n" for i in range(min(n, 900))),
    "question marks": lambda n: "? " * (16 * n),
    "dashes": lambda n: "- " * (16 * n),
    "merges": lambda n: "a: &a {b: c}\nd: {<<: [" + "*a, " * (8 * n) + "*a]}",
    "a folded text": lambda n: "a: >\n" + "  word word\n" * (4 * n),
    "a quoted text": lambda n: 'a: "' + "\\u0041" * (8 * n) + '"\n',
    "a number": lambda n: "a: " + "9" * (32 * n) + "\n",
    "base 60": lambda n: "a: 1" + ":59" * (16 * n) + "\n",
    "comments": lambda n: "# comment\n" * (4 * n) + "a: b\n",
    "documents": lambda n: "---\na: b\n" * (4 * n),
    "binary": lambda n: "a: !!binary " + "QUFB" * (8 * n) + "\n",
}
for _name, _text in YAMLS.items():
    FAMILIES[f"yaml: {_name}"] = lambda n, text=_text: create(MAPS, text(n), ctype=YAML)
FAMILIES["yaml: items for a review"] = lambda n: create(REVIEW, "- a\n" * (8 * n), ctype=YAML)


# -- JSON text


JSONS: dict[str, Callable[[int], str]] = {
    "nesting": lambda n: '{"a":' * (4 * n),
    "repeated keys": lambda n: '{"data":{' + ",".join(['"k":"v"'] * (4 * n)) + "}}",
    "unknown fields": lambda n: '{"metadata":{"generateName":"a"},' + ",".join(f'"u{i}":1' for i in range(2 * n)) + "}",
    "unknown fields below a long key": lambda n: '{"metadata":{"generateName":"a"},"binaryData":{"' + "k" * (16 * n) + '":{'
    + ",".join(f'"u{i}":1' for i in range(n)) + "}}}",
    "escapes": lambda n: '{"metadata":{"name":"' + "\\u00e9" * (8 * n) + '"}}',
    "a number": lambda n: '{"metadata":{"generation":' + "9" * (32 * n) + "}}",
    "a fraction": lambda n: '{"metadata":{"generation":0.' + "9" * (32 * n) + "}}",
    "white space": lambda n: " \n" * (32 * n) + '{"metadata":{"generateName":"a"}}',
}  # fmt: skip
for _name, _text in JSONS.items():
    FAMILIES[f"json: {_name}"] = lambda n, text=_text: create(f"{MAPS}?fieldValidation=Strict", text(n))


@family("json: fields said again and again, far down")
def _(n: int) -> Made:
    depth = min(n, 150)
    schema = '{"not":' * depth + "{" + '"title":"a",' * n + '"type":"object"}' + "}" * depth
    return create(f"{CRDS}&fieldValidation=Ignore", f'{{"spec":{{"versions":[{{"schema":{{"openAPIV3Schema":{schema}}}}}]}}}}')


@family("json: unknown fields in many items, as warnings")
def _(n: int) -> Made:
    return create(f"{PODS}?fieldValidation=Warn", pod(tolerations=[{"operator": "Exists", f"u{i}": 1} for i in range(n)]))


# -- protobuf


def _varint(v: int) -> bytes:
    out = bytearray()
    while v > 127:
        out.append(v & 127 | 128)
        v >>= 7
    return bytes([*out, v])


def _field(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _message(raw: bytes) -> bytes:
    meta = _field(1, b"v1") + _field(2, b"ConfigMap")
    return b"k8s\0" + _field(1, meta) + _field(2, _field(1, _field(2, b"a")) + raw)


def _nested(n: int) -> bytes:
    raw = b""
    for _ in range(min(n, 3000)):
        raw = _field(1, raw)
    return raw


PROTOBUFS: dict[str, Callable[[int], bytes]] = {
    "map entries": lambda n: b"".join(_field(2, _field(1, f"k{i}".encode()) + _field(2, b"v")) for i in range(2 * n)),
    "equal map entries": lambda n: _field(2, _field(1, b"k") + _field(2, b"v")) * (4 * n),
    "unknown fields": lambda n: _field(99, b"x") * (4 * n),
    "unknown numbers": lambda n: b"".join(_varint((i % 100_000 + 50) << 3) + b"\1" for i in range(4 * n)),
    "metadata in pieces": lambda n: _field(1, _field(11, _field(1, b"a") + _field(2, b"b"))) * n,
    "nesting": _nested,
}
for _name, _raw in PROTOBUFS.items():
    FAMILIES[f"protobuf: {_name}"] = lambda n, raw=_raw: create(MAPS, _message(raw(n)), ctype=PROTOBUF)


# -- reads


def _selected(**query: str) -> Sent:
    from urllib.parse import urlencode

    return Sent("GET", f"{MAPS}?{urlencode(query)}")


READS: dict[str, Callable[[int], Sent]] = {
    "label terms": lambda n: _selected(labelSelector=",".join(f"a{i}=b" for i in range(n))),
    "label values": lambda n: _selected(labelSelector="a in (" + ",".join(f"b{i}" for i in range(n)) + ")"),
    "bad label terms": lambda n: _selected(labelSelector="a=b," * n + "!!"),
    "label parentheses": lambda n: _selected(labelSelector="a in " + "(" * (8 * n)),
    "field terms": lambda n: _selected(fieldSelector=",".join(f"metadata.name!=b{i}" for i in range(n))),
    "field escapes": lambda n: _selected(fieldSelector="metadata.name=" + "\\," * (8 * n)),
    "continue": lambda n: _selected(**{"continue": "A" * (16 * n)}),
    "a numeric limit": lambda n: _selected(limit="1" * (16 * n)),
    "a resourceVersion": lambda n: _selected(resourceVersion="9" * (16 * n)),
    "pairs": lambda n: Sent("GET", f"{MAPS}?" + "&".join(f"a{i}=b" for i in range(2 * n))),
    "percent signs": lambda n: Sent("GET", f"{MAPS}?x=" + "%41" * (8 * n)),
    "path segments": lambda n: Sent("GET", NS + "/a" * (16 * n)),
    "a path of slashes": lambda n: Sent("GET", "/" * (32 * n)),
    "a name": lambda n: Sent("GET", f"{MAPS}/" + "a" * (32 * n)),
    "Accept clauses": lambda n: Sent("GET", MAPS, accept=", ".join(f"application/x{i};q=0.5" for i in range(n))),
    "Accept parameters": lambda n: Sent("GET", MAPS, accept="application/json" + "".join(f";a{i}=b" for i in range(n))),
    "headers": lambda n: Sent("GET", MAPS, headers=tuple((f"x-{i}", "v") for i in range(n))),
    "repeated headers": lambda n: Sent("GET", MAPS, headers=(("x-a", "v"),) * n),
    "an agent": lambda n: Sent("POST", MAPS, config_map(), headers=(("user-agent", "a\x01é" * (8 * n)),)),
    "impersonated groups": lambda n: Sent(
        "GET", MAPS, headers=(("impersonate-user", "u"), *(("impersonate-group", f"g{i}") for i in range(n)))
    ),
    "impersonation extras": lambda n: Sent(
        "GET", MAPS, headers=(("impersonate-user", "u"), *((f"impersonate-extra-k{i}", "v") for i in range(n)))
    ),
    "an origin": lambda n: Sent("GET", MAPS, headers=(("origin", "http://" + "a." * (16 * n)),)),
    "a bearer token": lambda n: Sent("GET", MAPS, headers=(("authorization", "Bearer " + "a." * (16 * n)),)),
    "subprotocols": lambda n: Sent("GET", MAPS, headers=(("sec-websocket-protocol", "a, " * (8 * n)), ("upgrade", "websocket"))),
    "conditions on an answer": lambda n: Sent("GET", "/openapi/v3", headers=(("if-none-match", '"a", ' * (8 * n)),)),
}  # fmt: skip
for _name, _read in READS.items():
    FAMILIES[f"read: {_name}"] = _read


# -- custom resource definitions


def _crd(schema: dict[str, Any], **version: Any) -> dict[str, Any]:
    one = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": schema}}}}
    spec = {"group": "x.io", "names": {"plural": "foos", "kind": "Foo"}, "scope": "Namespaced", "versions": [one | version]}
    return {"metadata": {"name": "foos.x.io"}, "spec": spec}


def _chain(n: int, inner: dict[str, Any] | None = None, **at_each: Any) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": inner} if inner else {"type": "string"}
    for _ in range(min(n, 150)):
        schema = {"type": "object", "properties": {"a": schema}, **at_each}
    return schema


ANY = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
SCHEMAS: dict[str, Callable[[int], dict[str, Any]]] = {
    "allOf around a default": lambda n: {**ANY, "default": {"a": 1}, "allOf": [{"required": ["a"]}] * n},
    "anyOf of properties around a default": lambda n: {
        "type": "object", "properties": keys(n, {"type": "string"}), "default": keys(n, "x"),
        "anyOf": [{"properties": {f"k{i}": {"minLength": 1}}} for i in range(n)],
    },
    "items required of a default": lambda n: {
        "type": "array", "items": {**ANY, "required": [f"r{i}" for i in range(n)]}, "default": [{}] * n,
    },
    "enum": lambda n: {"type": "string", "enum": [f"e{i}" for i in range(n)]},
    "enum and a default": lambda n: {"type": "string", "enum": [f"e{i}" for i in range(n)], "default": f"e{n - 1}"},
    "enum of items of a default": lambda n: {
        "type": "array", "items": {"type": "string", "enum": [f"e{i}" for i in range(n)]}, "default": [f"e{i}" for i in range(n)],
    },
    "enum that items of a default miss": lambda n: {
        "type": "array", "items": {"type": "string", "enum": [f"e{i}" for i in range(n)]}, "default": [f"f{i}" for i in range(n)],
    },
    "properties": lambda n: {"type": "object", "properties": keys(n, {"type": "string"})},
    "properties below a long name": lambda n: {"type": "object", "properties": {
        "p" * (16 * n): {"type": "object", "properties": keys(n, {"type": "wrong"})}
    }},
    "properties with defaults": lambda n: {"type": "object", "properties": keys(n, {"type": "string", "default": "a"}), "default": {}},
    "required": lambda n: {"type": "object", "required": [f"r{i}" for i in range(n)]},
    "nesting": lambda n: _chain(n),
    "defaults around a wide schema": lambda n: _chain(50, keys(n, {"type": "string"}), default={}),
    "defaults around defaults": lambda n: _chain(n, default={}),
    "a pattern and a default": lambda n: {"type": "string", "pattern": "^(a+)+$", "default": "a" * (32 * n) + "b"},
    "a long pattern": lambda n: {"type": "string", "pattern": "ab" * (16 * n)},
    "a pattern of parentheses": lambda n: {"type": "string", "pattern": "(" * (32 * n)},
    "a pattern of closed parentheses": lambda n: {"type": "string", "pattern": "(" * (16 * n) + "a" + ")" * (16 * n)},
    "a repetition": lambda n: {"type": "string", "pattern": "a{" + "9" * (32 * n) + "}"},
    "patterns": lambda n: {"type": "object", "properties": {f"k{i}": {"type": "string", "pattern": f"^a{i}(b|c)*$"} for i in range(n)}},
    "list map keys": lambda n: {
        "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [f"k{i}" for i in range(n)],
        "items": {"type": "object", "properties": keys(n, {"type": "string"}), "required": [f"k{i}" for i in range(n)]},
    },
    "rules": lambda n: {"type": "object", "properties": {"a": {"type": "string", "maxLength": 5}}, "x-kubernetes-validations": [
        {"rule": f"self.a != '{i}'", "message": "x"} for i in range(n)
    ]},
    "rules over properties": lambda n: {"type": "object", "properties": keys(n, {"type": "string", "maxLength": 5}),
        "x-kubernetes-validations": [{"rule": f"self.k{i} != ''", "message": "x"} for i in range(n)]},
    "a long rule": lambda n: {"type": "object", "properties": {"a": {"type": "string", "maxLength": 5}}, "x-kubernetes-validations": [
        {"rule": " && ".join(f"self.a != '{i}'" for i in range(n)), "message": "x"}
    ]},
    "a wrong type at every level": lambda n: {"type": "object", "properties": keys(n, {"type": "wrong", "nullable": 1})},
}  # fmt: skip
for _name, _schema in SCHEMAS.items():
    FAMILIES[f"schema: {_name}"] = lambda n, schema=_schema: create(CRDS, _crd(schema(n)))
FAMILIES["definition: columns"] = lambda n: create(CRDS, _crd({"type": "object"}, additionalPrinterColumns=[
    {"name": f"c{i}", "type": "string", "jsonPath": ".spec.a"} for i in range(n)
]))  # fmt: skip
FAMILIES["definition: a long column path"] = lambda n: create(CRDS, _crd({"type": "object"}, additionalPrinterColumns=[
    {"name": "c", "type": "string", "jsonPath": ".a" * (8 * n) + "[" + "9" * n + "]"}
]))  # fmt: skip


@family("definition: versions")
def _(n: int) -> Made:
    obj = _crd({"type": "object"})
    first = obj["spec"]["versions"][0]
    obj["spec"]["versions"] += [{**first, "name": f"v{i}", "storage": False} for i in range(2, n)]
    return create(CRDS, obj)


# -- webhooks, policies, roles, reviews

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
RULE = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}


def _webhook(name: str = "a.b.c", **more: Any) -> dict[str, Any]:
    base = {"name": name, "clientConfig": {"url": "https://a.example/"}, "sideEffects": "None", "admissionReviewVersions": ["v1"]}
    return base | {"rules": [RULE]} | more


def _hooks(*hooks: dict[str, Any]) -> Sent:
    return create(f"{ADMISSION}/validatingwebhookconfigurations?{DRY}", {"metadata": {"generateName": "a"}, "webhooks": list(hooks)})


FAMILIES["webhooks: hooks"] = lambda n: _hooks(*(_webhook(f"a{i}.b.c") for i in range(n)))
FAMILIES["webhooks: rules"] = lambda n: _hooks(_webhook(rules=[{**RULE, "resources": [f"r{i}"]} for i in range(n)]))
FAMILIES["webhooks: resources of a rule"] = lambda n: _hooks(_webhook(rules=[{**RULE, "resources": [f"r{i}/s" for i in range(n)]}]))
FAMILIES["webhooks: conditions"] = lambda n: _hooks(_webhook(
    matchConditions=[{"name": f"c{i}", "expression": f"object.metadata.name != '{i}'"} for i in range(n)]
))  # fmt: skip


def _admission_policy(**spec: Any) -> Sent:
    spec = {"matchConstraints": {"resourceRules": [RULE]}, "validations": [{"expression": "true"}]} | spec
    return create(f"{ADMISSION}/validatingadmissionpolicies?{DRY}", {"metadata": {"name": "a"}, "spec": spec})


FAMILIES["policy: validations"] = lambda n: _admission_policy(
    validations=[{"expression": f"object.metadata.name != '{i}'"} for i in range(n)]
)
FAMILIES["policy: variables"] = lambda n: _admission_policy(
    variables=[{"name": f"v{i}", "expression": f"variables.v{i - 1}" if i else "1"} for i in range(n)]
)
FAMILIES["policy: a long expression"] = lambda n: _admission_policy(
    validations=[{"expression": " && ".join(f"object.metadata.name != '{i}'" for i in range(n))}]
)
FAMILIES["policy: parentheses"] = lambda n: _admission_policy(validations=[{"expression": "(" * (8 * n)}])
FAMILIES["policy: a number"] = lambda n: _admission_policy(validations=[{"expression": "1" * (8 * n) + " > 2"}])
FAMILIES["policy: a pattern"] = lambda n: _admission_policy(validations=[{"expression": "'a'.matches('" + "(" * n + "')"}])

ROLES = f"/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles?{DRY}"


def _role(rules: list[dict[str, Any]]) -> Sent:
    return create(ROLES, {"metadata": {"generateName": "a"}, "rules": rules})


FAMILIES["rbac: rules"] = lambda n: _role([{"verbs": ["get"], "apiGroups": [""], "resources": [f"r{i}"]} for i in range(n)])
FAMILIES["rbac: resources of a rule"] = lambda n: _role([{"verbs": ["get"], "apiGroups": [""], "resources": [f"r{i}" for i in range(n)]}])
FAMILIES["rbac: names of a rule"] = lambda n: _role(
    [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": [f"n{i}" for i in range(n)]}]
)
FAMILIES["rbac: rules of somebody with few rights"] = lambda n: create(
    ROLES, {"metadata": {"generateName": "a"}, "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": [f"r{i}"]} for i in range(n)]},
    headers=(("impersonate-user", "mallory"),),
)
FAMILIES["review: a selector"] = lambda n: create(REVIEW, {"spec": {"resourceAttributes": {
    "verb": "list", "resource": "pods", "labelSelector": {"rawSelector": ",".join(f"a{i}" for i in range(n))}
}}})  # fmt: skip
FAMILIES["review: requirements"] = lambda n: create(REVIEW, {"spec": {"resourceAttributes": {
    "verb": "list", "resource": "pods",
    "labelSelector": {"requirements": [{"key": f"a{i}", "operator": "In", "values": ["b"]} for i in range(n)]},
}}})  # fmt: skip
FAMILIES["review: groups"] = lambda n: create(
    "/apis/authorization.k8s.io/v1/subjectaccessreviews",
    {"spec": {"user": "u", "groups": [f"g{i}" for i in range(n)], "nonResourceAttributes": {"path": "/", "verb": "get"}}},
)
FAMILIES["review: a token"] = lambda n: create("/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": "a." * (16 * n)}})
FAMILIES["delete: options"] = lambda n: Sent("DELETE", f"{MAPS}/none", json.dumps({"dryRun": ["All"] * n}))


@family("list: a selector against as many labels")
def _(n: int) -> Made:
    """Two lists that are walked together, not nested."""
    stored = [Sent("DELETE", f"{MAPS}/labelled"), create(MAPS, config_map("labelled", metadata={"labels": keys(n)}))]
    return stored, Sent("GET", f"{MAPS}?labelSelector=" + ",".join(f"k{i}!%3Dx" for i in range(n)))


@family("stateful sets: claims of wrong names beside volumes")
def _(n: int) -> Made:
    claims, volumes = [{"metadata": {"name": f"A{i}"}} for i in range(n)], [{"name": f"v{i}", "emptyDir": {}} for i in range(n)]
    meta = {"labels": {"a": "b"}}
    template = {"metadata": meta, "spec": {"containers": [{"name": "c", "image": "x"}], "volumes": volumes}}
    spec = {"serviceName": "a", "selector": {"matchLabels": {"a": "b"}}, "volumeClaimTemplates": claims, "template": template}
    return create(f"/apis/apps/v1/namespaces/default/statefulsets?{DRY}", {"metadata": {"name": "a"}, "spec": spec})


@family("definitions: keys of a map that are not among those required")
def _(n: int) -> Made:
    items = {"type": "object", "properties": {f"k{i}": {"type": "string"} for i in range(n)}, "required": [f"r{i}" for i in range(n)]}
    listed = {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [f"k{i}" for i in range(n)], "items": items}
    spec = {
        "group": "keys.example.com", "scope": "Namespaced", "names": {"plural": "keys", "kind": "Key"},
        "versions": [{"name": "v1", "served": True, "storage": True,
                      "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": listed}}}}],
    }  # fmt: skip
    return create(CRDS, {"metadata": {"name": "keys.keys.example.com"}, "spec": spec})
