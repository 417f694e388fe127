"""More families: headers of requests, lists of one object whose items are compared, and table rows that show lists."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

from tests.growth.named import ADMISSION, DRY, FAMILIES, MAPS, NS, PODS, RULE, Made, config_map, create, keys, pod
from tests.growth.serving import APPLY, MERGE_PATCH, Sent

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


# -- heads


def head(name: str, value: Callable[[int], str], path: str = MAPS) -> Callable[[int], Sent]:
    return lambda n: Sent("GET", path, headers=((name, value(n)),))


def impersonating(more: Callable[[int], tuple[tuple[str, str], ...]]) -> Callable[[int], Sent]:
    return lambda n: Sent("GET", MAPS, headers=(("impersonate-user", "u"), *more(n)))


def forged(n: int) -> Sent:
    token = base64.urlsafe_b64encode(json.dumps({"v": "meta.k8s.io/v1", "rv": 1, "start": "a/" * (8 * n)}).encode()).decode().rstrip("=")
    return Sent("GET", f"{MAPS}?limit=1&continue={token}")


HEADS: dict[str, Callable[[int], Sent]] = {
    "encodings": head("accept-encoding", lambda n: ", ".join(f"x{i};q=0.{i % 10}" for i in range(n))),
    "encodings that are none": head("accept-encoding", lambda n: ";,=" * (8 * n)),
    "cookies": head("cookie", lambda n: "; ".join(f"c{i}=v" for i in range(n))),
    "an agent of slashes": head("user-agent", lambda n: "a/" * (16 * n)),
    "a trace": head("tracestate", lambda n: ",".join(f"k{i}=v" for i in range(n))),
    "an audit id": head("audit-id", lambda n: "a" * (32 * n)),
    "addresses it was forwarded for": head("x-forwarded-for", lambda n: ", ".join("10.0.0.1" for _ in range(n))),
    "conditions on discovery": lambda n: Sent("GET", "/apis", accept=DISCOVERY, headers=(("if-none-match", 'W/"a", ' * (8 * n)),)),
    "forms of discovery": lambda n: Sent(
        "GET", "/apis", accept=", ".join(f"application/json;g=apidiscovery.k8s.io;v=v{i};as=APIGroupDiscoveryList" for i in range(n))
    ),
    "forms of discovery that are none": lambda n: Sent("GET", "/api", accept="application/json;" * (4 * n)),
    "parameters of a type": lambda n: Sent("POST", MAPS, config_map(), ctype="application/json" + "".join(f"; a{i}=b" for i in range(n))),
    "a quoted parameter of a type": lambda n: Sent("POST", MAPS, config_map(), ctype='application/json; a="' + '\\"' * (8 * n)),
    "impersonated extras of one name": impersonating(lambda n: (("impersonate-extra-k", "v"),) * n),
    "an escaped name of an extra": impersonating(lambda n: (("impersonate-extra-" + "%41" * (8 * n), "v"),)),
    "commands": lambda n: Sent("GET", f"{PODS}/none/exec?" + "&".join(f"command=c{i}" for i in range(n))),
    "containers to attach to": lambda n: Sent("GET", f"{PODS}/none/attach?" + "&".join("container=c" for _ in range(n))),
    "lines of a log": lambda n: Sent("GET", f"{PODS}/none/log?tailLines=" + "1" * (16 * n)),
    "ports to forward": lambda n: Sent("GET", f"{PODS}/none/portforward?" + "&".join(f"ports={i}" for i in range(n))),
    "a time of a log": lambda n: Sent("GET", f"{PODS}/none/log?sinceTime=2024-01-01T00:00:00." + "1" * (16 * n) + "Z"),
    "dry runs": lambda n: Sent("POST", f"{MAPS}?" + "&".join("dryRun=All" for _ in range(n)), config_map()),
    "a field manager": lambda n: Sent("POST", f"{MAPS}?{DRY}&fieldManager=" + "%C3%A9" * (8 * n), config_map()),
    "a forged continue token": forged,
    "values of a selector that are none": lambda n: Sent(
        "GET", f"{MAPS}?labelSelector=a+notin+(" + ",".join(f"-{i}" for i in range(n)) + ")"
    ),
    "fields that are no selector": lambda n: Sent("GET", f"{MAPS}?fieldSelector=" + ",".join(f"spec.a{i}=b" for i in range(n))),
}  # fmt: skip
for _name, _head in HEADS.items():
    FAMILIES[f"head: {_name}"] = _head


# -- rows of tables

META = {"metadata": {"name": "table"}}
TEMPLATE = {"metadata": {"labels": {"a": "b"}}}


def containers(n: int) -> dict[str, Any]:
    return {"containers": [{"name": f"c{i}", "image": f"i{i}"} for i in range(n)]}


def workload(n: int) -> dict[str, Any]:
    return {"selector": {"matchLabels": {"a": "b"}}, "template": {**TEMPLATE, "spec": containers(n)}}


def selecting(n: int) -> dict[str, Any]:
    more = [{"key": f"k{i}", "operator": "In", "values": ["b", "c"]} for i in range(n)]
    return {"matchLabels": {"a": "b"}, "matchExpressions": more}


def slices(n: int) -> dict[str, Any]:
    ports = [{"name": f"p{i}", "port": 1} for i in range(min(n, 100))]
    endpoints = [{"addresses": [f"10.0.{i >> 8 & 255}.{i & 255}"]} for i in range(min(n, 1000))]
    return {"addressType": "IPv4", "endpoints": endpoints, "ports": ports}


ROWS: dict[str, tuple[str, Callable[[int], dict[str, Any]]]] = {
    "deployments of containers": ("/apis/apps/v1/namespaces/default/deployments", lambda n: {"spec": workload(n)}),
    "daemon sets by selectors": (
        "/apis/apps/v1/namespaces/default/daemonsets",
        lambda n: {"spec": {"selector": {"matchLabels": keys(n)}, "template": {"metadata": {"labels": keys(n)}, "spec": containers(1)}}},
    ),
    "jobs of containers": ("/apis/batch/v1/namespaces/default/jobs", lambda n: {
        "spec": {"template": {"spec": {**containers(n), "restartPolicy": "Never"}}}
    }),
    "ingresses of hosts": ("/apis/networking.k8s.io/v1/namespaces/default/ingresses", lambda n: {
        "spec": {"defaultBackend": {"service": {"name": "a", "port": {"number": 1}}}, "rules": [{"host": f"h{i}.a"} for i in range(n)]}
    }),
    "policies by selectors": (
        "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies", lambda n: {"spec": {"podSelector": selecting(n)}}
    ),
    "endpoint slices": ("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", slices),
    "endpoints": (f"{NS}/endpoints", lambda n: {"subsets": [{"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 1}]}] * n}),
    "roles": ("/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings", lambda n: {
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": f"u{i}"} for i in range(n)],
    }),
    "volumes of modes": ("/api/v1/persistentvolumes", lambda n: {"spec": {
        "capacity": {"storage": "1"}, "accessModes": ["ReadWriteOnce", "ReadOnlyMany"] * n, "hostPath": {"path": "/a"},
    }}),
}  # fmt: skip


def _row(path: str, make: Callable[[int], dict[str, Any]]) -> Callable[[int], Made]:
    return lambda n: ([Sent("DELETE", f"{path}/table"), create(path, {**META, **make(n)})], Sent("GET", f"{path}/table", accept=TABLE))


for _name, (_path, _make) in ROWS.items():
    FAMILIES[f"row: {_name}"] = _row(_path, _make)


def _told(path: str, stored: dict[str, Any], status: Callable[[int], dict[str, Any]]) -> Callable[[int], Made]:
    """The row of what was stored with this status."""

    def made(n: int) -> Made:
        patch = Sent("PATCH", f"{path}/told/status", {"status": status(n)}, ctype=MERGE_PATCH)
        stored_ = {"metadata": {"name": "told"}, **stored}
        gone = Sent("DELETE", f"{path}/told?gracePeriodSeconds=0")
        return [gone, create(path, stored_), patch], Sent("GET", f"{path}/told", accept=TABLE)

    return made


NODE: dict[str, Callable[[int], dict[str, Any]]] = {
    "addresses": lambda n: {"addresses": [{"type": "InternalIP", "address": f"10.0.0.{i}"} for i in range(n)]},
    "conditions": lambda n: {"conditions": [{"type": f"t{i}", "status": "True"} for i in range(n)]},
}
for _name, _status in NODE.items():
    FAMILIES[f"row: nodes of {_name}"] = _told("/api/v1/nodes", {}, _status)
FAMILIES["row: pods of containers that wait"] = _told(PODS, {"spec": containers(1)}, lambda n: {"containerStatuses": [
    {"name": "c0", "image": "x", "imageID": "x", "ready": False, "restartCount": i, "state": {"waiting": {"reason": "a"}}} for i in range(n)
]})  # fmt: skip
FAMILIES["row: pods of containers that end"] = _told(PODS, {"spec": containers(1)}, lambda n: {"initContainerStatuses": [
    {"name": "c0", "image": "x", "imageID": "x", "ready": False, "restartCount": i,
     "state": {"terminated": {"exitCode": 0, "finishedAt": "2024-01-02T03:04:05Z"}}} for i in range(n)
], "conditions": [{"type": f"t{i}", "status": "True", "reason": "a"} for i in range(n)]})  # fmt: skip
FAMILIES["row: services of addresses"] = _told(f"{NS}/services", {"spec": {"type": "LoadBalancer", "ports": [{"port": 1}]}}, lambda n: {
    "loadBalancer": {"ingress": [{"ip": f"10.0.{i >> 8 & 255}.{i & 255}"} for i in range(n)]}
})  # fmt: skip


# -- lists of one object whose items are compared

CLAIMS = f"/apis/resource.k8s.io/v1/namespaces/default/resourceclaims?{DRY}"
JOBS = f"/apis/batch/v1/namespaces/default/jobs?{DRY}"
EXACTLY = {"exactly": {"deviceClassName": "a"}}


def claim(**devices: Any) -> Sent:
    return create(CLAIMS, {"metadata": {"generateName": "a"}, "spec": {"devices": devices}})


def job(**spec: Any) -> Sent:
    template = {"spec": {**containers(1), "restartPolicy": "Never"}}
    return create(JOBS, {"metadata": {"generateName": "a"}, "spec": {"template": template, **spec}})


def asked(n: int) -> list[dict[str, Any]]:
    return [{"name": f"r{i}", **EXACTLY} for i in range(n)]


def names(n: int, letter: str = "r") -> list[str]:
    return [f"{letter}{i}" for i in range(n)]


FAMILIES |= {
    "claim: constraints on all requests": lambda n: claim(requests=asked(n), constraints=[{"requests": names(n), "matchAttribute": "a/b"}]),
    "claim: constraints on none of them": lambda n: claim(
        requests=asked(n), constraints=[{"requests": names(n, "s"), "matchAttribute": "a/b"}]
    ),
    "claim: configurations of all requests": lambda n: claim(
        requests=asked(n), config=[{"requests": [f"r{i}"], "opaque": {"driver": "a", "parameters": {}}} for i in range(n)]
    ),
    "claim: alternatives": lambda n: claim(
        requests=[{"name": "a", "firstAvailable": [{"name": f"r{i}", "deviceClassName": "a"} for i in range(n)]}],
        constraints=[{"requests": [f"a/r{i}" for i in range(n)], "matchAttribute": "a/b"}],
    ),
    "slice: devices of counters": lambda n: create(f"/apis/resource.k8s.io/v1/resourceslices?{DRY}", {
        "metadata": {"generateName": "a"}, "spec": {
            "driver": "a", "pool": {"name": "a", "resourceSliceCount": 1}, "allNodes": True,
            "devices": [
                {"name": f"d{i}", "consumesCounters": [{"counterSet": "s", "counters": keys(8, {"value": "1"})}]} for i in range(n)
            ],
        },
    }),
    "slice: attributes of a device": lambda n: create(f"/apis/resource.k8s.io/v1/resourceslices?{DRY}", {
        "metadata": {"generateName": "a"}, "spec": {
            "driver": "a", "pool": {"name": "a", "resourceSliceCount": 1}, "allNodes": True,
            "devices": [{"name": "d", "attributes": keys(n, {"int": 1}), "capacity": keys(n, {"value": "1"})}],
        },
    }),
    "job: rules of failure": lambda n: job(podFailurePolicy={"rules": [
        {"action": "Ignore", "onExitCodes": {"containerName": f"c{i}", "operator": "In", "values": [1, 2, 3]}} for i in range(n)
    ]}),
    "job: exit codes": lambda n: job(podFailurePolicy={"rules": [
        {"action": "Ignore", "onExitCodes": {"operator": "In", "values": list(range(1, n + 1))}}
    ]}),
    "job: indexes of success": lambda n: job(
        completionMode="Indexed", completions=100_000, parallelism=10, backoffLimitPerIndex=1,
        successPolicy={"rules": [{"succeededIndexes": ",".join(str(2 * i) for i in range(n))}]},
    ),
    "autoscaler: metrics": lambda n: create(f"/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers?{DRY}", {
        "metadata": {"generateName": "a"}, "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"}, "maxReplicas": 2,
            "metrics": [{"type": "ContainerResource", "containerResource": {
                "name": "cpu", "container": f"c{i}", "target": {"type": "Utilization", "averageUtilization": 1}}} for i in range(n)],
            "behavior": {"scaleUp": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 1}] * n}},
        },
    }),
    "network policy: peers and ports": lambda n: create(f"/apis/networking.k8s.io/v1/namespaces/default/networkpolicies?{DRY}", {
        "metadata": {"generateName": "a"}, "spec": {"podSelector": {}, "ingress": [{
            "from": [{"podSelector": {"matchLabels": {"a": f"b{i}"}}} for i in range(n)],
            "ports": [{"port": i % 60000 + 1} for i in range(n)],
        }]},
    }),
    "network policy: values of a selector": lambda n: create(f"/apis/networking.k8s.io/v1/namespaces/default/networkpolicies?{DRY}", {
        "metadata": {"generateName": "a"},
        "spec": {"podSelector": {"matchExpressions": [{"key": "a", "operator": "NotIn", "values": names(n)}]}},
    }),
    "disruption budget: a selector": lambda n: create(f"/apis/policy/v1/namespaces/default/poddisruptionbudgets?{DRY}", {
        "metadata": {"generateName": "a"}, "spec": {"maxUnavailable": 1, "selector": selecting(n)},
    }),
    "flow schema: rules and subjects": lambda n: create(f"/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas?{DRY}", {
        "metadata": {"generateName": "a"}, "spec": {"priorityLevelConfiguration": {"name": "exempt"}, "matchingPrecedence": 5, "rules": [{
            "subjects": [{"kind": "User", "user": {"name": f"u{i}"}} for i in range(n)],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": [f"/a{i}" for i in range(n)]}],
        }]},
    }),
    "policy: conditions, annotations and variables": lambda n: create(f"{ADMISSION}/validatingadmissionpolicies?{DRY}", {
        "metadata": {"generateName": "a"}, "spec": {
            "matchConstraints": {"resourceRules": [{**RULE, "resourceNames": names(n)}]}, "validations": [{"expression": "true"}],
            "auditAnnotations": [{"key": f"k{i}", "valueExpression": "'a'"} for i in range(min(n, 40))],
            "matchConditions": [{"name": f"c{i}", "expression": "true"} for i in range(n)],
        },
    }),
    "binding: a selector of parameters": lambda n: create(f"{ADMISSION}/validatingadmissionpolicybindings?{DRY}", {
        "metadata": {"generateName": "a"}, "spec": {
            "policyName": "a", "validationActions": ["Deny"], "paramRef": {"selector": selecting(n), "parameterNotFoundAction": "Deny"},
            "matchResources": {
                "namespaceSelector": selecting(n), "excludeResourceRules": [{**RULE, "resources": [f"r{i}"]} for i in range(n)],
            },
        },
    }),
    "mutating policy: patches": lambda n: create(f"{ADMISSION}/mutatingadmissionpolicies?{DRY}", {
        "metadata": {"generateName": "a"}, "spec": {
            "matchConstraints": {"resourceRules": [RULE]}, "reinvocationPolicy": "Never", "failurePolicy": "Fail",
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": "[JSONPatch{op: 'remove', path: '/a'}]"}}] * n,
        },
    }),
    "cluster role: aggregation": lambda n: create(f"/apis/rbac.authorization.k8s.io/v1/clusterroles?{DRY}", {
        "metadata": {"generateName": "a"}, "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": f"b{i}"}} for i in range(n)]},
    }),
    "certificate request: usages": lambda n: create(f"/apis/certificates.k8s.io/v1/certificatesigningrequests?{DRY}", {
        "metadata": {"generateName": "a"}, "spec": {
            "request": base64.b64encode(b"-----BEGIN CERTIFICATE REQUEST-----\n" * n).decode(), "signerName": "a.b/c",
            "usages": ["client auth", "digital signature"] * n,
        },
    }),
    "pod: label keys that match and that do not": lambda n: create(f"{PODS}?{DRY}", pod(affinity={"podAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [{
            "topologyKey": "a", "labelSelector": {}, "matchLabelKeys": names(n),
            "mismatchLabelKeys": [f"m{i}" for i in range(n)],
        }]
    }})),
    "pod: gates": lambda n: create(f"{PODS}?{DRY}", pod(schedulingGates=[{"name": f"g{i}"} for i in range(n)])),
    "pod: hosts": lambda n: create(f"{PODS}?{DRY}", pod(hostAliases=[{"ip": "10.0.0.1", "hostnames": names(n)}] * 2)),
    "pod: resizes": lambda n: create(f"{PODS}?{DRY}", pod(container={
        "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "NotRequired"}] * n,
        "restartPolicyRules": [{"action": "Restart", "exitCodes": {"operator": "In", "values": list(range(n))}}],
    })),
    "pod: sources of a volume": lambda n: create(f"{PODS}?{DRY}", pod(volumes=[{"name": "v", "projected": {"sources": [
        {"configMap": {"name": f"m{i}", "items": [{"key": "a", "path": f"p{i}"}]}} for i in range(n)
    ]}}])),
}  # fmt: skip


def _applied(manager: str, items: list[str]) -> Sent:
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "sets", "finalizers": items}}
    return Sent("PATCH", f"{MAPS}/sets?fieldManager={manager}&force=true", json.dumps(obj), ctype=APPLY)


def _emptied() -> list[Sent]:
    return [Sent("PATCH", f"{MAPS}/sets", {"metadata": {"finalizers": None}}, ctype=MERGE_PATCH), Sent("DELETE", f"{MAPS}/sets")]


FAMILIES["apply: a set"] = lambda n: (_emptied(), _applied("a", [f"a.b/x{i}" for i in range(n)]))
FAMILIES["apply: a set that another has in another order"] = lambda n: (
    [*_emptied(), _applied("a", [f"a.b/x{i}" for i in range(n)])], _applied("b", [f"a.b/x{i}" for i in reversed(range(n))])
)
FAMILIES["apply: nothing of what was a set"] = lambda n: ([*_emptied(), _applied("a", [f"a.b/x{i}" for i in range(n)])], _applied("a", []))


# -- requests of pods, compared with a quota and the limits of a namespace

LIMITED = "/api/v1/namespaces/limited"
LIMITS = [
    create("/api/v1/namespaces", {"metadata": {"name": "limited"}}),
    create(f"{LIMITED}/serviceaccounts", {"metadata": {"name": "default"}}),
    create(f"{LIMITED}/limitranges", {"metadata": {"name": "a"}, "spec": {"limits": [{"type": "Pod", "max": {"example.com/r0": "1"}}]}}),
    create(f"{LIMITED}/resourcequotas", {"metadata": {"name": "a"}, "spec": {"hard": {"requests.example.com/r0": "9"}}}),
]  # fmt: skip


def asking(n: int, **more: Any) -> list[dict[str, Any]]:
    """Containers that each request a resource of their own."""
    each = [{f"example.com/r{i}": "1"} for i in range(n)]
    return [{"name": f"s{i}", "image": "x", "resources": {"requests": of, "limits": of}, **more} for i, of in enumerate(each)]


def _ending(n: int) -> Made:
    """An update that makes the server count the usage of a pod with so many containers and statuses again: it marks the pod as
    terminating."""
    run = [{"name": f"s{i}", "image": "x", "imageID": "", "ready": True, "restartCount": 0, "resources": {}} for i in range(n)]
    stored = {"metadata": {"name": "run"}, "spec": {"containers": asking(n)}}
    status = Sent("PATCH", f"{LIMITED}/pods/run/status", {"status": {"containerStatuses": run}}, ctype=MERGE_PATCH)
    ends = Sent("PATCH", f"{LIMITED}/pods/run?{DRY}", {"spec": {"activeDeadlineSeconds": 5}}, ctype=MERGE_PATCH)
    return [*LIMITS, Sent("DELETE", f"{LIMITED}/pods/run?gracePeriodSeconds=0"), create(f"{LIMITED}/pods", stored), status], ends


FAMILIES["limited pod: containers"] = lambda n: (LIMITS, create(f"{LIMITED}/pods?{DRY}", pod(initContainers=asking(n))))
FAMILIES["limited pod: sidecars"] = lambda n: (
    LIMITS, create(f"{LIMITED}/pods?{DRY}", pod(initContainers=asking(n, restartPolicy="Always")))
)  # fmt: skip
FAMILIES["limited pod: statuses"] = _ending
