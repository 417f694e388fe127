"""What fuzzing over HTTP sends: an object of every kind and subresource, changed at random by a seed, in every format."""

from __future__ import annotations

import copy
import json
import random
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


class Sample(NamedTuple):
    """An object, and where it is served: the path of its collection, or the path to post to. Without a type it has no protobuf form."""

    obj: dict[str, Any]
    path: str
    type: Any = None
    subresources: tuple[str, ...] = ()
    only_posted: bool = False

    @property
    def name(self) -> str:
        return str(self.obj["metadata"]["name"])

    @property
    def resource(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]


def _root(resource: Resource) -> str:
    root = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
    return f"{root}/namespaces/{NAMESPACE}" if resource.namespaced else root


def samples() -> list[Sample]:
    """Returns an object of every stored built-in kind, a definition, custom resources of its versions, and objects that can only be
    posted."""
    out = [DEFINITION, *CUSTOM, NODE, POD]
    for vector in files.lines("etcd-samples"):
        given = vector["in"]
        resource = BUILTIN.resource(given["group"], given["version"], given["resource"])
        if resource is None:
            continue
        obj = {"apiVersion": resource.api_version, "kind": given["kind"], **given["object"]}
        out.append(Sample(obj, f"{_root(resource)}/{resource.resource}", resource.type, tuple(resource.subresources)))
    for api_version, name, spec in POSTED:
        group, _, version = api_version.rpartition("/")
        resource = BUILTIN.resource(group, version, name)
        assert resource is not None, name
        obj = {"apiVersion": api_version, "kind": resource.kind, "metadata": {"name": "pod1"}, **spec}
        out.append(Sample(obj, f"{_root(resource)}/{name}", resource.type, only_posted=True))
    return out


def below(sample: Sample, name: str) -> Sample:
    """Returns what is written to a subresource of an object: a form of its own, or the object."""
    if name not in OF_SUBRESOURCES:
        return sample
    obj = OF_SUBRESOURCES[name]
    kind = BUILTIN.known(*_gv(obj), obj["kind"])
    return sample._replace(obj={**obj, "metadata": {"name": sample.name, "namespace": NAMESPACE}}, type=kind.type)


def _gv(obj: dict[str, Any]) -> tuple[str, str]:
    group, _, version = obj["apiVersion"].rpartition("/")
    return group, version


ATTRIBUTES = {"namespace": NAMESPACE, "verb": "get", "group": "apps", "resource": "deployments", "subresource": "scale", "name": "a"}
POSTED = (
    ("v1", "bindings", {"target": {"kind": "Node", "name": "node1"}}),
    ("authentication.k8s.io/v1", "selfsubjectreviews", {}),
    ("authentication.k8s.io/v1", "tokenreviews", {"spec": {"token": "a.b.c", "audiences": ["x"]}}),
    (
        "authorization.k8s.io/v1", "subjectaccessreviews",
        {"spec": {"user": "u", "groups": ["g"], "extra": {"a": ["b"]}, "uid": "1", "resourceAttributes": {
            **ATTRIBUTES, "labelSelector": {"requirements": [{"key": "a", "operator": "In", "values": ["b"]}]},
            "fieldSelector": {"rawSelector": "a=b"},
        }}},
    ),
    ("authorization.k8s.io/v1", "localsubjectaccessreviews", {"spec": {"user": "u", "resourceAttributes": ATTRIBUTES}}),
    ("authorization.k8s.io/v1", "selfsubjectaccessreviews", {"spec": {"nonResourceAttributes": {"path": "/x", "verb": "get"}}}),
    ("authorization.k8s.io/v1", "selfsubjectrulesreviews", {"spec": {"namespace": NAMESPACE}}),
)  # fmt: skip
OF_SUBRESOURCES: dict[str, dict[str, Any]] = {
    "scale": {"kind": "Scale", "apiVersion": "autoscaling/v1", "spec": {"replicas": 2}},
    "eviction": {
        "kind": "Eviction", "apiVersion": "policy/v1",
        "deleteOptions": {"gracePeriodSeconds": 1, "preconditions": {"uid": "a", "resourceVersion": "1"}, "propagationPolicy": "Orphan"},
    },
    "binding": {"kind": "Binding", "apiVersion": "v1", "target": {"kind": "Node", "name": "node1", "apiVersion": "v1"}},
    "token": {
        "kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1",
        "spec": {"audiences": ["a"], "expirationSeconds": 600, "boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "pod1"}},
    },
}  # fmt: skip

# A node whose address does not answer, and a pod on it: streams and proxies get as far as dialling.
NODE = Sample(
    {
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "fuzz-node"},
        "status": {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}, {"type": "Hostname", "address": "localhost"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 1}},
        },
    },
    "/api/v1/nodes", BUILTIN.known("", "v1", "Node").type, ("proxy", "status"),
)  # fmt: skip
POD = Sample(
    {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "fuzz-pod", "labels": {"a": "b"}, "annotations": {"c": "d"}},
        "spec": {
            "nodeName": "fuzz-node", "containers": [
                {"name": "a", "image": "i", "ports": [{"containerPort": 80}], "env": [{"name": "E", "value": "v"}]},
                {"name": "b", "image": "i", "volumeMounts": [{"name": "v", "mountPath": "/v"}]},
            ],
            "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Mi"}}], "tolerations": [{"key": "a", "operator": "Exists"}],
        },
    },
    f"/api/v1/namespaces/{NAMESPACE}/pods", BUILTIN.known("", "v1", "Pod").type,
    ("attach", "binding", "ephemeralcontainers", "eviction", "exec", "log", "portforward", "proxy", "resize", "status"),
)  # fmt: skip

SCHEMA = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object", "required": ["n"],
            "x-kubernetes-validations": [{"rule": "self.n < 100 || has(self.s)", "message": "n"}, {"rule": "self.n >= oldSelf.n"}],
            "properties": {
                "n": {"type": "integer", "minimum": 0, "default": 1}, "s": {"type": "string", "maxLength": 20, "pattern": "^[a-z]*$"},
                "x": {"x-kubernetes-int-or-string": True}, "replicas": {"type": "integer", "format": "int32"},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}, "f": {"type": "number", "nullable": True},
                "map": {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "string", "format": "date-time"}}},
                "list": {
                    "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                    "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}, "v": {"type": "boolean"}}},
                },
                "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string", "enum": ["a", "b"]}},
                "template": {"type": "object", "x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True},
            },
        },
        "status": {"type": "object", "properties": {"replicas": {"type": "integer"}, "selector": {"type": "string"}}},
    },
}  # fmt: skip
DEFINITION = Sample(
    {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "things.fuzz.example.com"},
        "spec": {
            "group": "fuzz.example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing", "categories": ["all"]},
            "versions": [
                {
                    "name": name, "served": True, "storage": name == "v1", "schema": {"openAPIV3Schema": SCHEMA},
                    "subresources": {"status": {}, "scale": {
                        "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
                        "labelSelectorPath": ".status.selector",
                    }},
                    "additionalPrinterColumns": [{"name": "N", "type": "integer", "jsonPath": ".spec.n"}],
                    "selectableFields": [{"jsonPath": ".spec.s"}],
                }
                for name in ("v1", "v2")
            ],
        },
    },
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    BUILTIN.known("apiextensions.k8s.io", "v1", "CustomResourceDefinition").type,
    ("status",),
)  # fmt: skip
CUSTOM = [
    Sample(
        {
            "apiVersion": f"fuzz.example.com/{version}", "kind": "Thing", "metadata": {"name": f"thing-{version}", "labels": {"a": "b"}},
            "spec": {
                "n": 1, "s": "a", "x": "5", "replicas": 1, "free": {"a": [1, {"b": None}]}, "f": 1.5, "set": ["a"],
                "map": {"a": ["2020-01-01T00:00:00Z"]}, "list": [{"k": "a", "v": True}, {"k": "b"}],
                "template": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"a": "b"}},
            },
            "status": {"replicas": 1, "selector": "a=b"},
        },
        f"/apis/fuzz.example.com/{version}/namespaces/{NAMESPACE}/things", None, ("scale", "status"),
    )
    for version in ("v1", "v2")
]  # fmt: skip


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
    """Yields the path of everything in an object."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        yield (*at, key)
        yield from places(item, (*at, key))


def extreme(rnd: random.Random) -> Any:
    """Returns a random extreme value, which the caller may change."""
    return copy.deepcopy(rnd.choice(EXTREMES))


def mutated(rnd: random.Random, obj: Any, others: list[Sample]) -> Any:
    """Returns a copy with other values in a few places."""
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
    """Returns a JSON pointer."""
    return "".join("/" + str(key).replace("~", "~0").replace("/", "~1") for key in path)


def operations(rnd: random.Random, obj: Any) -> list[Any]:
    """Returns a JSON patch with operations on an object's places and on others."""
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
    """Returns JSON, with surrogates unescaped."""
    return json.dumps(value).encode()


def body(rnd: random.Random, sample: Sample, value: Any, ctype: str) -> bytes:
    """Returns a value in a format: in YAML as a writer of its own writes it, in protobuf what that can express; both are sometimes
    damaged."""
    if ctype in (YAML, APPLY) and rnd.random() < 0.7:
        whole = yaml.safe_dump(value, allow_unicode=rnd.random() < 0.5, default_flow_style=rnd.choice((None, True, False))).encode(
            "utf-8", "surrogatepass"
        )
    elif ctype in (CBOR, APPLY_CBOR):
        try:
            whole = cbor.encode(value)
        except (ValueError, OverflowError, AttributeError):
            whole = cbor.encode(sample.obj)
    elif ctype == PROTOBUF and sample.type is not None:
        obj = sample.obj
        plain = decode(sample.type, obj)[0]
        whole = encode_protobuf(sample.type, plain, api_version=obj["apiVersion"], kind=obj["kind"])
        return damaged(rnd, whole, rnd.randrange(4))
    else:
        whole = text(value)
    return damaged(rnd, whole, 1) if rnd.random() < 0.08 else whole


def damaged(rnd: random.Random, data: bytes, times: int) -> bytes:
    """Returns data with bytes changed, removed and inserted."""
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
