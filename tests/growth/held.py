"""Families in which what is sent is compared with what is stored or held: roles with the rights of their creator, pods with limits, quotas
and accounts of their namespace, groups with bindings, audiences with those of a token, volumes of a pod whose tokens a node requests.

Each has a namespace of its own, so that its objects do not affect other families.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

from kas.types.scheme import BUILTIN
from tests.growth.named import CRDS, FAMILIES, Made, create, family
from tests.growth.serving import MERGE_PATCH, InProcess, Sent
from tests.growth.verbs import NAME, Ask, nothing, store

GROUP = "rbac.authorization.k8s.io"
RBAC = f"/apis/{GROUP}/v1"
CONTAINER = {"name": "c", "image": "x"}
MOST_GROUPS = 4096  # which cost next to nothing
MOST_AUDIENCES = 1024  # of a token that is not too long to be parsed


def by(name: str, sent: Sent, *groups: str) -> Sent:
    sent.headers = (("impersonate-user", name), *(("impersonate-group", group) for group in groups))
    return sent


def space(name: str) -> tuple[str, list[Sent]]:
    """The path of a namespace, and the request that creates it if it does not exist."""
    path = f"/api/v1/namespaces/{name}"
    default = create(f"{path}/serviceaccounts", {"metadata": {"name": "default"}})
    return path, [create("/api/v1/namespaces", {"metadata": {"name": name}}), default]


def anew(path: str, name: str, obj: dict[str, Any]) -> list[Sent]:
    """Deletes the object of an earlier size and creates it again."""
    return [Sent("DELETE", f"{path}/{name}"), create(path, {"metadata": {"name": name, **obj.pop("metadata", {})}, **obj})]


# -- rights

ABOUT_ROLES = {"verbs": ["*"], "apiGroups": [GROUP], "resources": ["roles", "clusterroles"]}


def held(name: str, rules: list[dict[str, Any]], subjects: list[dict[str, Any]] | None = None) -> list[Sent]:
    """A ClusterRole with these rules, and its binding, to ``name`` unless another user is given."""
    subjects = subjects or [{"kind": "User", "apiGroup": GROUP, "name": name}]
    ref = {"apiGroup": GROUP, "kind": "ClusterRole", "name": name}
    return [
        *anew(f"{RBAC}/clusterroles", name, {"rules": [*rules, ABOUT_ROLES]}),
        *anew(f"{RBAC}/clusterrolebindings", name, {"roleRef": ref, "subjects": subjects}),
    ]


def granting(name: str, rules: list[dict[str, Any]]) -> Sent:
    return by(name, create(f"{RBAC}/clusterroles?dryRun=All", {"metadata": {"name": "granted"}, "rules": rules}))


def names_of(letter: str, n: int, kinds: int = 0) -> list[dict[str, Any]]:
    """Rules about one name each, of one resource or of several in turn."""
    return [
        {"verbs": ["get"], "apiGroups": [""], "resources": [f"r{i % kinds}" if kinds else "pods"], "resourceNames": [f"{letter}{i}"]}
        for i in range(n)
    ]


def paths(n: int, path: str) -> list[dict[str, Any]]:
    return [{"verbs": [f"v{i}"], "nonResourceURLs": [path.format(i)]} for i in range(n)]


def groups(n: int) -> list[dict[str, Any]]:
    return [{"kind": "Group", "apiGroup": GROUP, "name": f"g{i}"} for i in range(n)]


def review(user: str, names: list[str]) -> Sent:
    attributes = {"verb": "get", "resource": "pods", "namespace": "default", "name": "none"}
    spec = {"user": user, "groups": names, "resourceAttributes": attributes}
    return create("/apis/authorization.k8s.io/v1/subjectaccessreviews", {"spec": spec})


RIGHTS: dict[str, Callable[[int], Made]] = {
    "rules that are held": lambda n: (held("one", names_of("n", n)), granting("one", names_of("n", n)[::-1])),
    "rules that are held by other names": lambda n: (held("one", names_of("n", n, 20)), granting("one", names_of("m", n, 20))),
    "paths that are held": lambda n: (held("one", paths(n, "/a*")), granting("one", paths(n, "/ab{}"))),
    "groups of one binding": lambda n: (held("one", names_of("n", 9), groups(n)), review("u", [f"g{i}" for i in range(n)])),
    "groups of none": lambda n: (held("one", names_of("n", 9), groups(n := min(n, MOST_GROUPS))), review("u", [f"h{i}" for i in range(n)])),
}  # fmt: skip
for _name, _made in RIGHTS.items():
    FAMILIES[f"held: {_name}"] = _made


@family("held: rules that are told")
def _(n: int) -> Made:
    sent = create("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", {"spec": {"namespace": "default"}})
    sent.beside = len(json.dumps(rules := names_of("n", n)))
    return held("one", rules), by("one", sent)


# -- limits, quotas and accounts of a namespace


def pod(path: str, **spec: Any) -> Sent:
    return create(f"{path}/pods?dryRun=All", {"metadata": {"generateName": "a"}, "spec": {"containers": [CONTAINER], **spec}})


@family("held: ratios of resources that no container names")
def _(n: int) -> Made:
    path, made = space("limits")
    limits = [{"type": "Container", "maxLimitRequestRatio": {f"example.com/r{i}": "1" for i in range(n)}}]
    made += anew(f"{path}/limitranges", "l", {"spec": {"limits": limits}})
    return made, pod(path, containers=[{"name": f"c{i}", "image": "x"} for i in range(n)])


@family("held: a quota of as many resources")
def _(n: int) -> Made:
    path, made = space("quotas")
    made += anew(f"{path}/resourcequotas", "q", {"spec": {"hard": {f"requests.example.com/r{i}": "9999999" for i in range(n)}}})
    limits = [{"limits": {f"example.com/r{i}": "1"}} for i in range(n)]
    return made, pod(path, containers=[{"name": f"c{i}", "image": "x", "resources": limits[i]} for i in range(n)])


@family("held: secrets that an account may mount")
def _(n: int) -> Made:
    path, made = space("accounts")
    names = [{"name": f"s{i}"} for i in range(n)]
    meta = {"annotations": {"kubernetes.io/enforce-mountable-secrets": "true"}}
    made += anew(f"{path}/serviceaccounts", "own", {"metadata": meta, "secrets": names, "imagePullSecrets": names})
    volumes = [{"name": f"v{i}", "secret": {"secretName": f"s{n - 1 - i}"}} for i in range(n)]
    return made, pod(path, serviceAccountName="own", volumes=volumes, imagePullSecrets=names[::-1])


@family("pod: sidecars before init containers of other resources")
def _(n: int) -> Made:
    sidecars = [
        {"name": f"s{i}", "image": "x", "restartPolicy": "Always", "resources": {"limits": {f"example.com/r{i}": "1"}}} for i in range(n)
    ]
    others = [{"name": f"i{i}", "image": "x"} for i in range(n)]
    return pod("/api/v1/namespaces/default", initContainers=[*sidecars, *others], resources={"limits": {"cpu": "1"}})


@family("definition: versions in another order")
def _(n: int) -> Made:
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"a": {"type": "string"}}}}
    versions = [{"name": f"v{i}", "served": True, "storage": i == 1, "schema": schema} for i in range(1, n + 1)]
    names = {"plural": "turned", "kind": "Turned"}
    spec = {"group": "turned.io", "names": names, "scope": "Namespaced", "versions": versions}
    path, query = CRDS.split("?")
    stored = create(path, {"metadata": {"name": "turned.turned.io"}, "spec": {**spec, "versions": versions[:1]}})
    grown = Sent("PATCH", f"{path}/turned.turned.io", {"spec": {"versions": versions}}, MERGE_PATCH)
    return [stored, grown], Sent("PATCH", f"{path}/turned.turned.io?{query}", {"spec": {"versions": versions[::-1]}}, MERGE_PATCH)


@family("certificate request: names and organizations")
def _(n: int) -> Made:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    subject = [x509.NameAttribute(x509.NameOID.ORGANIZATION_NAME, f"o{i}") for i in range(n)]
    alternatives = x509.SubjectAlternativeName([x509.DNSName(f"a{i}.example") for i in range(n)])
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(subject)).add_extension(alternatives, critical=False)
    pem = builder.sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    spec = {"request": base64.b64encode(pem).decode(), "signerName": "kubernetes.io/kubelet-serving", "usages": ["server auth"]}
    return create("/apis/certificates.k8s.io/v1/certificatesigningrequests?dryRun=All", {"metadata": {"name": "c"}, "spec": spec})


# -- requests that need values that the server generated

OWN: dict[str, Callable[[InProcess], Ask]] = {}


def own(name: str) -> Callable[[Callable[[InProcess], Ask]], Callable[[InProcess], Ask]]:
    def add(of: Callable[[InProcess], Ask]) -> Callable[[InProcess], Ask]:
        OWN[name] = of
        return of

    return add


@own("audiences of a token against those asked about")
def _(server: InProcess) -> Ask:
    def ask(n: int) -> tuple[Callable[[], None], Sent] | None:
        if n > MOST_AUDIENCES:
            return None
        audiences = [f"a{i}" for i in range(n)]
        _, answer = server.ask(create("/api/v1/namespaces/default/serviceaccounts/default/token", {"spec": {"audiences": audiences}}))
        asked = [*(f"b{i}" for i in range(64 * n)), "a0"]
        spec = {"token": answer["status"]["token"], "audiences": asked}
        return nothing, create("/apis/authentication.k8s.io/v1/tokenreviews", {"spec": spec})

    return ask


@own("volumes of a pod whose node asks for a token")
def _(server: InProcess) -> Ask:
    pods = BUILTIN.resource("", "v1", "pods")

    def ask(n: int) -> tuple[Callable[[], None], Sent]:
        volumes = [{"name": f"v{i}", "persistentVolumeClaim": {"claimName": f"none{i}"}} for i in range(n)]
        stored = {"metadata": {"name": NAME}, "spec": {"nodeName": "n1", "containers": [CONTAINER], "volumes": volumes}}
        spec = {"audiences": ["other"], "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": NAME, "uid": "u"}}
        sent = create("/api/v1/namespaces/default/serviceaccounts/default/token", {"spec": spec})

        def prepare() -> None:
            store(server, pods, stored)

        sent.beside = len(json.dumps(stored))
        return prepare, by("system:node:n1", sent, "system:nodes", "system:masters")

    return ask
