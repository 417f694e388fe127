"""The cost of a request when there are many objects that do not concern it, or that it must search.

Of each kind of which a tenant or an administrator may create any number, some objects are created, then four times as many, and again. A
request that they do not concern must cost the same however many there are; the first request after a change of one of them, and a request
that is compared with all of them, may cost in proportion. Costs are measured as in ``test_growth``, with the same limits: a fault by CPU
time is counted in instructions before the test fails.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.growth.counting import CONFIRMED_S, confirmed, repeated
from tests.growth.serving import InProcess, Sent

pytestmark = pytest.mark.timeout(CONFIRMED_S)
SIZES = (100, 400, 1600)
MOST_EXPONENT = 1.2
SAME, SLACK_S = 1.6, 30e-6  # up to this factor a cost counts as the same, where it is measured in tens of microseconds
# The limit for a request after a change, however it grew: a nested loop over 1,600 takes hundreds of milliseconds.
HARMLESS_S = 0.01
AGAIN = repeated(6)

GROUP = "rbac.authorization.k8s.io"
RBAC, NS = f"/apis/{GROUP}/v1", "/api/v1/namespaces/default"
ADMISSION, FLOW = "/apis/admissionregistration.k8s.io/v1", "/apis/flowcontrol.apiserver.k8s.io/v1"
SECRETS = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["secrets"]}
MAPS = {**SECRETS, "resources": ["configmaps"]}

Make = Callable[[int], Sent]


class Family(NamedTuple):
    """The objects to create, by number; requests that must cost the same however many there are, and requests that may cost in proportion.
    """

    made: tuple[Make, ...]
    same: tuple[Sent, ...]
    linear: tuple[Sent, ...] = ()


def posts(path: str, make: Callable[[int], dict[str, Any]], name: str = "o{}") -> Make:
    def made(i: int) -> Sent:
        obj = make(i)
        return Sent("POST", path, {**obj, "metadata": {"name": name.format(i), **obj.get("metadata", {})}})

    return made


def create(path: str, **fields: Any) -> Sent:
    return Sent("POST", f"{path}?dryRun=All", {"metadata": {"generateName": "a"}, **fields})


def by(user: str, sent: Sent) -> Sent:
    return Sent(sent.method, sent.path, sent.body, headers=(("impersonate-user", user),))


def user(name: str) -> list[dict[str, str]]:
    return [{"kind": "User", "apiGroup": GROUP, "name": name}]


def binding(kind: str, subject: str) -> Callable[[int], dict[str, Any]]:
    return lambda i: {"roleRef": {"apiGroup": GROUP, "kind": kind, "name": f"o{i}"}, "subjects": user(subject.format(i))}


def rules(i: int) -> dict[str, Any]:
    return {"rules": [{"apiGroups": [""], "resources": ["pods"], "resourceNames": [f"p{i}"], "verbs": ["get"]}]}


def flow(subject: Callable[[int], dict[str, Any]], resource: str) -> Callable[[int], dict[str, Any]]:
    return lambda i: {"spec": {
        "priorityLevelConfiguration": {"name": "global-default"}, "matchingPrecedence": 5000,
        "rules": [{"subjects": [subject(i)], "resourceRules": [
            {"verbs": ["*"], "apiGroups": ["*"], "resources": [resource.format(i)], "namespaces": ["*"]}]}],
    }}  # fmt: skip


def webhook(rule: dict[str, Any], **more: Any) -> Callable[[int], dict[str, Any]]:
    return lambda i: {"webhooks": [{
        "name": f"a{i}.b.c", "clientConfig": {"url": "https://127.0.0.1:1/x"}, "sideEffects": "None", "failurePolicy": "Ignore",
        "admissionReviewVersions": ["v1"], "rules": [rule], **more,
    }]}  # fmt: skip


NOWHERE = {"namespaceSelector": {"matchLabels": {"none": "x"}}}
CONTAINER = {"name": "c", "image": "x"}
GET, MAP = Sent("GET", f"{NS}/configmaps/none"), create(f"{NS}/configmaps")
POD = create(f"{NS}/pods", spec={"containers": [CONTAINER]})
CLAIM = create(f"{NS}/persistentvolumeclaims", spec={"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1"}}})
INGRESS = create("/apis/networking.k8s.io/v1/namespaces/default/ingresses", spec={
    "defaultBackend": {"service": {"name": "a", "port": {"number": 1}}}
})  # fmt: skip
SERVICE = create(f"{NS}/services", spec={"ports": [{"port": 1}]})
BIND = create(f"{RBAC}/namespaces/default/rolebindings", roleRef={"apiGroup": GROUP, "kind": "ClusterRole", "name": "view"},
              subjects=user("u1"))  # fmt: skip
APIS = Sent("GET", "/apis")
AGGREGATED = Sent("GET", "/apis", accept="application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
DOCUMENTS = [Sent("GET", path) for path in ("/openapi/v2", "/openapi/v3", "/openapi/v3/apis/example.com/v1")]
GONE = Sent("GET", "/apis/none.example.org/v1")


def review(name: str) -> Sent:
    attributes = {"namespace": "default", "verb": "get", "resource": "configmaps"}
    return Sent("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", {"spec": {"user": name, "resourceAttributes": attributes}})


RULES = by("mallory", Sent("POST", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", {"spec": {"namespace": "default"}}))
ROLES, BINDINGS = f"{RBAC}/namespaces/default/roles", f"{RBAC}/namespaces/default/rolebindings"

FAMILIES: dict[str, Family] = {
    "roles, each bound to another": Family(
        (posts(ROLES, rules), posts(BINDINGS, binding("Role", "u{}"))), (GET, MAP, by("u1", GET), review("u1"), BIND)
    ),
    "roles, all bound to one": Family(
        (posts(ROLES, rules), posts(BINDINGS, binding("Role", "mallory"))), (GET, by("mallory", GET), review("mallory")), (RULES,)
    ),
    "cluster roles, each bound to another": Family(
        (posts(f"{RBAC}/clusterroles", rules), posts(f"{RBAC}/clusterrolebindings", binding("ClusterRole", "u{}"))),
        (GET, MAP, by("u1", GET), review("u1"), BIND),
    ),
    "cluster roles, all bound to one": Family(
        (posts(f"{RBAC}/clusterroles", rules), posts(f"{RBAC}/clusterrolebindings", binding("ClusterRole", "mallory"))),
        (GET, by("mallory", GET), review("mallory")), (RULES,),
    ),
    "cluster roles that are gathered": Family(
        (posts(f"{RBAC}/clusterroles", lambda i: {**rules(i), "metadata": {"labels": {f"{GROUP}/aggregate-to-view": "true"}}}),),
        (GET, MAP, review("u1")),
    ),
    "quotas of pods": Family((posts(f"{NS}/resourcequotas", lambda i: {"spec": {"hard": {"pods": "9999"}}}),), (GET,), (MAP, POD)),
    "limit ranges": Family(
        (posts(f"{NS}/limitranges", lambda i: {"spec": {"limits": [{"type": "Container", "max": {"cpu": "9"}}]}}),),
        (GET, MAP), (POD, CLAIM),
    ),
    "namespaces": Family((posts("/api/v1/namespaces", lambda i: {}),), (GET, MAP, POD)),
    "service accounts": Family((posts(f"{NS}/serviceaccounts", lambda i: {}),), (GET, MAP, POD)),
    "secrets": Family((posts(f"{NS}/secrets", lambda i: {}),), (GET, MAP, POD)),
    "config maps": Family((posts(f"{NS}/configmaps", lambda i: {"metadata": {"labels": {"a": f"v{i}"}}}),), (GET, MAP)),
    "pods": Family((posts(f"{NS}/pods", lambda i: {"spec": {"containers": [CONTAINER]}}),), (GET, POD)),
    "nodes": Family((posts("/api/v1/nodes", lambda i: {}),), (GET, POD)),
    "priority classes": Family((posts("/apis/scheduling.k8s.io/v1/priorityclasses", lambda i: {"value": i}),), (GET,), (POD,)),
    "runtime classes": Family((posts("/apis/node.k8s.io/v1/runtimeclasses", lambda i: {"handler": "x"}),), (GET, POD)),
    "storage classes that are the default": Family(
        (posts("/apis/storage.k8s.io/v1/storageclasses", lambda i: {
            "provisioner": "x", "metadata": {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}}),),
        (GET, MAP), (CLAIM,),
    ),
    "ingress classes that are the default": Family(
        (posts("/apis/networking.k8s.io/v1/ingressclasses", lambda i: {
            "spec": {"controller": "x.y/z"}, "metadata": {"annotations": {"ingressclass.kubernetes.io/is-default-class": "true"}}}),),
        (GET, MAP), (INGRESS,),
    ),
    "volumes": Family((posts("/api/v1/persistentvolumes", lambda i: {
        "spec": {"capacity": {"storage": "1"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/a"}}}),), (GET, CLAIM)),
    "disruption budgets": Family((posts("/apis/policy/v1/namespaces/default/poddisruptionbudgets", lambda i: {
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"none": "x"}}}}),), (GET, POD)),
    "leases": Family((posts("/apis/coordination.k8s.io/v1/namespaces/default/leases", lambda i: {}),), (GET, MAP)),
    "endpoint slices": Family((posts("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", lambda i: {
        "metadata": {"labels": {"kubernetes.io/service-name": "x"}}, "addressType": "IPv4", "endpoints": []}),), (GET, SERVICE)),
    "ranges of service addresses": Family((posts("/apis/networking.k8s.io/v1/servicecidrs", lambda i: {
        "spec": {"cidrs": [f"10.{100 + i // 256}.{i % 256}.0/24"]}}),), (GET, MAP), (SERVICE,)),
    "device classes": Family((posts("/apis/resource.k8s.io/v1/deviceclasses", lambda i: {}),), (GET, MAP), (POD,)),
    "flow schemas of others": Family(
        (posts(f"{FLOW}/flowschemas", flow(lambda i: {"kind": "User", "user": {"name": f"u{i}"}}, "*")),), (GET, MAP, by("u1", GET))
    ),
    "flow schemas of everybody": Family(
        (posts(f"{FLOW}/flowschemas", flow(lambda i: {"kind": "Group", "group": {"name": "system:authenticated"}}, "z{}")),), (GET, MAP)
    ),
    "priority levels": Family((posts(f"{FLOW}/prioritylevelconfigurations", lambda i: {
        "spec": {"type": "Limited", "limited": {"nominalConcurrencyShares": 1, "limitResponse": {"type": "Reject"}}}}),), (GET,)),
    "webhooks about others": Family((posts(f"{ADMISSION}/validatingwebhookconfigurations", webhook(SECRETS)),), (GET, MAP)),
    "webhooks that mutate others": Family((posts(f"{ADMISSION}/mutatingwebhookconfigurations", webhook(SECRETS)),), (GET, MAP)),
    "webhooks of other namespaces": Family(
        (posts(f"{ADMISSION}/validatingwebhookconfigurations", webhook(MAPS, **NOWHERE)),), (GET, POD), (MAP,)
    ),
    "policies about others": Family((posts(f"{ADMISSION}/validatingadmissionpolicies", lambda i: {
        "spec": {"matchConstraints": {"resourceRules": [SECRETS]}, "validations": [{"expression": "true"}]}}),), (GET, MAP)),
    "bindings of no policy": Family((posts(f"{ADMISSION}/validatingadmissionpolicybindings", lambda i: {
        "spec": {"policyName": f"p{i}", "validationActions": ["Deny"]}}),), (GET, MAP)),
    "policies that mutate others": Family((posts(f"{ADMISSION}/mutatingadmissionpolicies", lambda i: {
        "spec": {
            "reinvocationPolicy": "Never", "failurePolicy": "Fail", "matchConstraints": {"resourceRules": [SECRETS]},
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": "[JSONPatch{op: 'remove', path: '/a'}]"}}],
        }}),), (GET, MAP)),
    "API services": Family((posts("/apis/apiregistration.k8s.io/v1/apiservices", lambda i: {"spec": {
        "group": f"g{i}.example.com", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 10,
        "service": {"name": "x", "namespace": "default"}, "insecureSkipTLSVerify": True,
    }}, "v1.g{}.example.com"),), (GET, MAP, GONE), (APIS, AGGREGATED)),
    "definitions": Family((posts("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", lambda i: {"spec": {
        "group": "example.com", "scope": "Namespaced", "names": {"plural": f"w{i}s", "singular": f"w{i}", "kind": f"W{i}"},
        "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}],
    }}, "w{}s.example.com"),), (GET, MAP, GONE), (APIS, AGGREGATED, *DOCUMENTS)),
}  # fmt: skip


class Measured:
    """A family's server; ``count`` objects of each kind exist."""

    def __init__(self, family: Family, server: InProcess) -> None:
        self.family, self.server, self.count = family, server, 0

    def grow(self, count: int) -> None:
        """Creates objects up to this number."""
        while self.count < count:
            self.one_more()
        self.server.loop.run_until_complete(_idle())

    def one_more(self) -> None:
        """Creates one more object of each kind."""
        for make in self.family.made:
            status, body = self.server.ask(make(self.count))
            assert status == 201, body
        self.count += 1

    def warm(self, sent: Sent) -> float:
        """The cost of a request that was made before."""
        self.server.cost(sent)
        return min(self.server.cost(sent)[0] for _ in range(AGAIN))

    def changed(self, sent: Sent) -> float:
        """The cost of a request after one more object was created."""
        costs = []
        for _ in range(3):
            self.one_more()
            costs.append(self.server.cost(sent)[0])
        return min(costs)


async def _idle() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[InProcess]:
    running = InProcess(tmp_path / "data")
    status, body = running.ask(Sent("POST", f"{NS}/serviceaccounts", {"metadata": {"name": "default"}}))
    assert status in (201, 409), body
    yield running
    running.close()


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_requests_beside_many_objects(request: pytest.FixtureRequest, server: InProcess, name: str) -> None:
    assert not confirmed(request.node.nodeid, "\n".join(_faults(server, FAMILIES[name])))


def _faults(server: InProcess, family: Family) -> list[str]:
    measured = Measured(family, server)
    few: list[float] = []
    before: list[list[float]] = []
    for count in SIZES:
        measured.grow(count)
        if not few:
            few = [measured.warm(sent) for sent in family.same]
        before.append([measured.changed(sent) for sent in (*family.same, *family.linear)])
    faults = []
    for sent, cost in zip(family.same, few, strict=True):
        now = [measured.warm(sent)]
        while min(now) > SAME * cost + SLACK_S and len(now) < AGAIN:
            now.append(measured.warm(sent))
        if min(now) > SAME * cost + SLACK_S:
            faults.append(f"{sent.method} {sent.path}: {cost * 1e6:.0f} µs beside {SIZES[0]}, {min(now) * 1e6:.0f} beside {measured.count}")
    for i, sent in enumerate((*family.same, *family.linear)):
        least, now = max(before[1][i], before[0][i]), [before[2][i]]
        while _exponent(least, min(now)) > MOST_EXPONENT and len(now) < 2 * AGAIN:
            # Requests that do not concern the objects show by how much the machine is slower than it was.
            slower = max(1.0, measured.warm(family.same[0]) / few[0])
            now.append(measured.changed(sent) / slower)
        if _exponent(least, min(now)) > MOST_EXPONENT:
            faults.append(f"{sent.method} {sent.path} after a change: {least * 1e3:.1f} ms beside {SIZES[1]}, {min(now) * 1e3:.1f}")
    return faults


def _exponent(less: float, more: float) -> float:
    """The exponent by which costs grow between the last two sizes; 0 where they are harmless."""
    return 0.0 if more < HARMLESS_S else math.log(more / less) / math.log(SIZES[2] / SIZES[1])
