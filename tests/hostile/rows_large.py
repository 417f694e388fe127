"""Rows of large data outside of bodies: selectors, lists and watches of large objects, bindings, requests, quotas."""

from __future__ import annotations

import base64
import datetime

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.derkeys import COSTLY, HUGE, algorithm, element, integer, pem
from tests.hostile.attacker import CRDS, MERGE, Attacker, definition
from tests.hostile.rows import row
from tests.hostile.rows_lists import let_mallory_watch, watching

TABLE, METADATA = (f"application/json;as={kind};v=v1;g=meta.k8s.io" for kind in ("Table", "PartialObjectMetadataList"))
FORMS = ("application/json", "application/yaml", "application/vnd.kubernetes.protobuf", TABLE, METADATA)


@row("watches: events for 500 of 100 terms each", 201)
def _(a: Attacker) -> None:
    let_mallory_watch(a)
    with watching(a, 5, "labelSelector=" + ",".join(f"a{j}x%d!%3Db" for j in range(100))):
        labels = {f"k{i}": "v" for i in range(20)}
        a.many((("POST", a.maps, {"metadata": {"generateName": "e", "labels": labels}}) for _ in range(10)), 2)


@row("owners: a thousand that are nowhere, of one object among 500", 201)
def _(a: Attacker) -> None:
    a.many((("POST", a.maps, {"metadata": {"generateName": "o"}}) for _ in range(500)), 8)
    refs = [{"apiVersion": "v1", "kind": "ConfigMap", "name": f"o{i}", "uid": f"{i:08d}-0000-0000-0000-000000000000"} for i in range(1000)]
    for _ in range(3):
        a.ask("POST", a.maps, {"metadata": {"generateName": "x", "ownerReferences": refs}})
        refs = [{**ref, "uid": ref["uid"][::-1]} for ref in refs]


@row("selectors: 50 kB of them against 20,000 labels", 201, 200)
def _(a: Attacker) -> None:
    a.ask("POST", a.maps, {"metadata": {"name": "l", "labels": {f"k{i}": "v" for i in range(20_000)}}})
    terms = ",".join(f"z{i}!%3Db" for i in range(4500))
    a.many((("GET", f"{a.maps}?labelSelector={terms}") for _ in range(8)), 4)


@row("definitions: a large one, listed and watched in every form", 200, 201)
def _(a: Attacker) -> None:
    fields = {f"f{i}": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}} for i in range(5000)}
    a.ask("POST", CRDS, definition("listed", {"type": "object", "properties": fields}))
    a.cleaned.append(lambda: a.ask("DELETE", f"{CRDS}/listed.rows.example.com"))
    for form in FORMS:
        a.ask("GET", CRDS, Accept=form)
    for form in FORMS[2:3]:
        a.ask("GET", f"{CRDS}?watch=true&timeoutSeconds=1&resourceVersion=0", Accept=form)


@row("lists: of 1 MiB in every form, and deleted as YAML", 200, 201)
def _(a: Attacker) -> None:
    data = {f"k{i}": "v" * 20 for i in range(5000)}
    a.many(("POST", a.maps, {"metadata": {"generateName": "f"}, "data": data}) for _ in range(5))
    for form in FORMS:
        a.ask("GET", a.maps, Accept=form)
    a.ask("DELETE", a.maps, Accept="application/yaml")


@row("documents: OpenAPI of one group's definitions", 200, 201)
def _(a: Attacker) -> None:
    fields = {f"f{i}": {"type": "object", "properties": {"a": {"type": "string"}}} for i in range(1000)}
    for i in range(4):
        a.define(f"shown{i}", {"type": "object", "properties": fields})
    a.many((("GET", "/openapi/v3/apis/rows.example.com/v1") for _ in range(8)), 4)


@row("certificates: requests of 10,000 organisations", 200, 201, 403, 422)
def _(a: Attacker) -> None:
    names = x509.Name([x509.NameAttribute(x509.NameOID.ORGANIZATION_NAME, f"o{i}") for i in range(10_000)])
    made = x509.CertificateSigningRequestBuilder().subject_name(names).sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
    request = base64.b64encode(made.public_bytes(serialization.Encoding.PEM)).decode()
    path = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
    for signer in ("kubernetes.io/kube-apiserver-client", "kubernetes.io/kube-apiserver-client-kubelet"):
        spec = {"request": request, "signerName": signer, "usages": ["client auth", "digital signature"]}
        a.post(path, {"metadata": {"generateName": "r", "labels": {"room": a.room}}, "spec": spec}, times=2)
    a.cleaned.append(lambda: a.ask("DELETE", f"{path}?labelSelector=room%3D{a.room}"))


@row("bindings: of 20,000 subjects, changed and deleted", 200, 201)
def _(a: Attacker) -> None:
    path, group = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{a.room}/rolebindings", "rbac.authorization.k8s.io"
    subjects = [{"kind": "User", "name": f"u{i}", "apiGroup": group} for i in range(20_000)]
    role = {"apiGroup": group, "kind": "ClusterRole", "name": "view"}
    a.ask("POST", path, {"metadata": {"name": "b"}, "roleRef": role, "subjects": subjects})
    for i in range(4):
        a.ask("PATCH", f"{path}/b", {"metadata": {"labels": {"a": str(i)}}}, "application/merge-patch+json")
    a.ask("DELETE", f"{path}/b")


@row("quotas: of 20,000 amounts", 200, 201)
def _(a: Attacker) -> None:
    path = f"/api/v1/namespaces/{a.room}/resourcequotas"
    hard = {f"count/r{i}.example.com": "1" for i in range(20_000)}
    a.ask("POST", path, {"metadata": {"name": "q"}, "spec": {"hard": hard}})
    a.many((("POST", a.maps, {"metadata": {"generateName": "q"}}) for _ in range(6)), 4)


@row("lists: page by page, one object each", 200, 201)
def _(a: Attacker) -> None:
    a.many((("POST", a.maps, {"metadata": {"generateName": "p"}}) for _ in range(100)), 8)
    a.many((("GET", f"{a.maps}?limit=1", None, "application/json") for _ in range(200)), 8)
    for form in FORMS:
        a.ask("GET", f"{a.maps}?limit=1", Accept=form)


@row("pods: small ones that admission makes large", 200, 201, 409, 413, 422)
def _(a: Attacker) -> None:
    namespace = f"/api/v1/namespaces/{a.room}"
    secrets = [{"name": f"s{i}"} for i in range(60_000)]
    a.ask("POST", f"{namespace}/serviceaccounts", {"metadata": {"name": "many"}, "imagePullSecrets": secrets})
    small = {"metadata": {"generateName": "p"}, "spec": {"serviceAccountName": "many", "containers": [{"name": "c", "image": "i"}]}}
    a.many((("POST", a.pods, small) for _ in range(6)), 4)
    limits = [{"type": "Container", "default": {f"example.com/r{i}": "1" for i in range(10_000)}}]
    a.ask("POST", f"{namespace}/limitranges", {"metadata": {"name": "l"}, "spec": {"limits": limits}})
    crowd = {**small["spec"], "containers": [{"name": f"c{i}", "image": "i"} for i in range(400)]}
    a.many((("POST", a.pods, {"metadata": {"generateName": "p"}, "spec": spec}) for spec in (crowd, small["spec"]) * 3), 4)
    a.ask("DELETE", f"{namespace}/limitranges/l")


@row("pods: 20,000 containers under a level, 10,000 resources under a quota", 200, 201, 403, 409, 413)
def _(a: Attacker) -> None:
    namespace = f"/api/v1/namespaces/{a.room}"
    labels = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn", "audit")}
    a.ask("PATCH", namespace, {"metadata": {"labels": labels}}, MERGE)
    a.ask("POST", f"{namespace}/serviceaccounts", {"metadata": {"name": "n"}})
    containers = [{"name": f"c{i}", "image": "i"} for i in range(20_000)]
    a.post(a.pods, {"metadata": {"generateName": "p"}, "spec": {"serviceAccountName": "n", "containers": containers}})
    a.ask("PATCH", namespace, {"metadata": {"labels": dict.fromkeys(labels)}}, MERGE)
    a.ask("POST", f"{namespace}/resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "100"}}})
    amounts = {f"example.com/r{i}": "1" for i in range(10_000)}
    containers = [{"name": "c", "image": "i", "resources": {"limits": amounts, "requests": amounts}}]
    a.post(a.pods, {"metadata": {"generateName": "p"}, "spec": {"serviceAccountName": "n", "containers": containers}})


@row("tokens: for 100,000 audiences", 201, 409)
def _(a: Attacker) -> None:
    a.ask("POST", f"/api/v1/namespaces/{a.room}/serviceaccounts", {"metadata": {"name": "n"}})
    a.post(f"/api/v1/namespaces/{a.room}/serviceaccounts/n/token", {"spec": {"audiences": [f"a{i}" for i in range(100_000)]}})


@row("secrets: keys in whose numbers primes could be looked for", 201)
def _(a: Attacker) -> None:
    key, name, now = ec.generate_private_key(ec.SECP256R1()), x509.Name([]), datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + datetime.timedelta(days=1))
    certificate = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    others = (element(0x30, integer(0) + algorithm(*numbers) + element(4, integer(5))) for numbers in COSTLY.values())
    for private in (HUGE, *others):
        data = {"tls.crt": certificate, "tls.key": pem(private)}
        secret = {"type": "kubernetes.io/tls", "data": {k: base64.b64encode(v).decode() for k, v in data.items()}}
        a.ask("POST", a.maps.replace("configmaps", "secrets"), {"metadata": {"generateName": "k"}, **secret})
