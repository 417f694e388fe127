"""Large answers are built off the event loop, in every format and at every place; small ones are not handed to threads."""

from __future__ import annotations

import asyncio
import base64
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from kas.admission import quota_usage, versioned
from kas.auth.tokens import Signer
from kas.auth.user import UserInfo
from kas.endpoints import listpages, metrics, patching, respond
from kas.endpoints.served import GROWN
from kas.endpoints.subresources import eviction, named, token
from kas.endpoints.write import answer
from kas.extensions import Extensions
from kas.kinds.authorization import accessreview
from kas.meta.offload import LARGE as LARGE_BYTES
from kas.meta.offload import POOL, is_large
from kas.observe import metricmessages
from kas.registry import generic, pipeline, write
from kas.registry.rest import ObjectList, VirtualResource
from kas.store.lmdb import store as lmdbstore
from kas.types import conversion
from tests.filters.requests import request
from tests.growth.serving import InProcess, Sent

TABLE, METADATA = (f"application/json;as={kind};v=v1;g=meta.k8s.io" for kind in ("Table", "PartialObjectMetadataList"))
JSON, YAML, PROTOBUF = "application/json", "application/yaml", "application/vnd.kubernetes.protobuf"
NS = "/api/v1/namespaces/default"
SMALL, LARGE = f"{NS}/configmaps", "/api/v1/namespaces/kube-public/configmaps"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings"


def definition(fields: int) -> dict[str, Any]:
    texts = {f"f{i}": {"type": "string", "description": "x" * 20} for i in range(fields)}
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": texts}}}
    return {
        "metadata": {"name": "many.beside.example.com"},
        "spec": {
            "group": "beside.example.com", "scope": "Namespaced", "names": {"plural": "many", "kind": "Many"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }  # fmt: skip


class Kept:
    """A program's virtual resource: two objects in one namespace, 2,000 in another; one with as many fields as its name says."""

    def get(self, ctx: Any, name: str) -> dict[str, Any]:
        return {"metadata": {"name": name, "namespace": ctx.namespace}, "spec": {f"f{i}": "x" * 10 for i in range(int(name))}}

    def list(self, ctx: Any) -> ObjectList:
        count = 2 if ctx.namespace == "default" else 2000
        return ObjectList([{**self.get(ctx, "3"), "metadata": {"name": f"n{i}", "namespace": ctx.namespace}} for i in range(count)], "5")

    def delete(self, ctx: Any, obj: dict[str, Any]) -> None:
        pass


VIRTUAL = VirtualResource("virtual.example.com", "v1", "kepts", "Kept", Kept())
KEPT, MANY = (f"/apis/virtual.example.com/v1/namespaces/{ns}/kepts" for ns in ("default", "kube-public"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    running = InProcess(Path(tmp_path_factory.mktemp("beside")) / "data", Extensions(resources=(VIRTUAL,)))
    data = {f"k{i}": "v" * 10 for i in range(4000)}
    for made in (
        Sent("POST", "/api/v1/namespaces", {"metadata": {"name": "kube-public"}}),
        Sent("POST", SMALL, {"metadata": {"name": "a"}}),
        Sent("POST", LARGE, {"metadata": {"name": "a"}, "data": data}),
        Sent("POST", CRDS, definition(3000)),
    ):
        status, body = running.ask(made)
        assert status in (201, 409), body
    yield running
    running.close()


def handed(server: InProcess, sent: Sent, status: int = 200) -> int:
    """Returns how many pieces of work a request handed to threads."""
    before = POOL.done
    assert server.ask(sent)[0] == status
    return POOL.done - before


@pytest.mark.parametrize("accept", [YAML, TABLE, METADATA])
def test_lists_that_are_encoded(server: InProcess, accept: str) -> None:
    assert not handed(server, Sent("GET", SMALL, accept=accept))
    assert bool(handed(server, Sent("GET", LARGE, accept=accept))) is (accept != METADATA)  # those are copied from the store
    assert handed(server, Sent("GET", f"{LARGE}?fieldSelector=metadata.name%3Da", accept=accept)) or accept == METADATA


def test_yaml_is_large_from_8_kib_on(server: InProcess) -> None:
    """Writing YAML takes a millisecond for each KiB, reading a quarter of that. With a limit of 64 KiB it held the loop for 60 ms."""
    ns = "/api/v1/namespaces/yaml"
    maps, obj = f"{ns}/configmaps", {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"a": "x" * 9000}}
    assert server.ask(Sent("POST", "/api/v1/namespaces", {"metadata": {"name": "yaml"}}))[0] == 201
    text = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %b}\ndata: {a: " + b"x" * 9000 + b"}\n"
    assert not handed(server, Sent("POST", maps, obj), 201)
    assert handed(server, Sent("POST", maps, text % b"b", YAML), 201)
    assert handed(server, Sent("POST", f"{maps}?dryRun=All", {**obj, "metadata": {"name": "c"}}, accept=YAML), 201)
    assert not handed(server, Sent("GET", f"{maps}/a")) and not handed(server, Sent("GET", f"{maps}/a", accept=PROTOBUF))
    assert handed(server, Sent("GET", f"{maps}/a", accept=YAML)) == 1
    assert handed(server, Sent("GET", maps, accept=YAML)) == 1
    patch = "application/merge-patch+json"
    assert not handed(server, Sent("PATCH", f"{maps}/a", {"data": {"b": "c"}}, patch))
    assert handed(server, Sent("PATCH", f"{maps}/a", {"data": {"b": "d"}}, patch, YAML)) == 1
    apply = "application/apply-patch+yaml"
    assert not handed(server, Sent("PATCH", f"{maps}/a?fieldManager=m&force=true", obj, apply))
    assert handed(server, Sent("PATCH", f"{maps}/b?fieldManager=m&force=true", text % b"b", apply))
    # Text that looks like JSON and is read as YAML takes longest, as do invalid JSON and repeated names.
    for begins in (b'{"kind": ConfigMap', b'{"kind": "ConfigMap", "kind": "ConfigMap"'):
        flow = begins + b', "apiVersion": "v1", "metadata": {"name": "b"}, "data": {"a": "%b"}}' % (b"x" * 9000)
        assert handed(server, Sent("PATCH", f"{maps}/b?fieldManager=m&force=true", flow, apply))
    assert handed(server, Sent("DELETE", f"{maps}?dryRun=All", accept=YAML))
    review = {"spec": {"nonResourceAttributes": {"path": "/" + "x" * 9000, "verb": "get"}}}
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    assert handed(server, Sent("POST", path, review, accept=YAML), 201) and not handed(server, Sent("POST", path, review), 201)


def test_yaml_with_aliases_is_large_whatever_its_length(server: InProcess) -> None:
    """166 bytes stand for 66,000 nodes, which held the loop for 30 ms."""
    ns = "/api/v1/namespaces/aliases"
    assert server.ask(Sent("POST", "/api/v1/namespaces", {"metadata": {"name": "aliases"}}))[0] == 201
    text = b'apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {a: &a x, b: *a}\n'
    assert not handed(server, Sent("POST", f"{ns}/configmaps?dryRun=All", text.replace(b"*a", b"z"), YAML), 201)
    assert handed(server, Sent("POST", f"{ns}/configmaps", text, YAML), 201)
    assert handed(server, Sent("PUT", f"{ns}/configmaps/a", text, YAML))
    assert handed(server, Sent("PATCH", f"{ns}/configmaps/a?fieldManager=m&force=true", text, "application/apply-patch+yaml"))
    said = b"&{*"
    assert not handed(server, Sent("PUT", f"{ns}/configmaps/a", {"metadata": {"name": "a"}, "data": {"a": said.decode()}}))
    options = b"gracePeriodSeconds: &a 0\npreconditions: {uid: u}\nx: *a\n"
    assert handed(server, Sent("DELETE", f"{ns}/configmaps/a", options, YAML), 409)
    review = b"spec: {nonResourceAttributes: {path: &a /x, verb: *a}}\n"
    assert handed(server, Sent("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review, YAML), 201)
    deployment = {"metadata": {"name": "d"}, "spec": {
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}}
    apps = "/apis/apps/v1/namespaces/aliases/deployments"
    assert server.ask(Sent("POST", apps, deployment))[0] == 201
    scale = b"apiVersion: autoscaling/v1\nkind: Scale\nmetadata: {name: d, namespace: aliases}\nspec: {replicas: &a 2}\nx: *a\n"
    assert handed(server, Sent("PUT", f"{apps}/d/scale", scale, YAML))


@pytest.mark.parametrize("accept", [JSON, YAML, PROTOBUF, TABLE, METADATA])
def test_lists_that_are_converted(server: InProcess, accept: str) -> None:
    assert handed(server, Sent("GET", CRDS, accept=accept))


def test_watches(server: InProcess) -> None:
    assert handed(server, Sent("GET", f"{CRDS}?watch=true&resourceVersion=0&timeoutSeconds=1", accept=PROTOBUF))


def test_deletes_of_collections(server: InProcess) -> None:
    assert not handed(server, Sent("DELETE", f"{SMALL}?dryRun=All", accept=YAML))
    assert handed(server, Sent("DELETE", f"{LARGE}?dryRun=All", accept=YAML)) > 1


@pytest.mark.parametrize("accept", [JSON, YAML, TABLE, METADATA])
def test_virtual_resources(server: InProcess, accept: str) -> None:
    assert not handed(server, Sent("GET", KEPT, accept=accept))
    assert handed(server, Sent("GET", MANY, accept=accept)) == 2  # selected, and encoded
    assert handed(server, Sent("GET", f"{MANY}?limit=1", accept=accept)) == 1
    if accept in (JSON, YAML):
        assert [handed(server, Sent("GET", f"{KEPT}/{n}", accept=accept)) for n in (3, 20_000)] == [0, 1]


def test_deletes_of_virtual_collections_are_built_off_the_loop_as_lists_are(server: InProcess) -> None:
    status, body = server.ask(Sent("DELETE", MANY))
    assert status == 200 and len(body["items"]) == 2000
    assert handed(server, Sent("DELETE", KEPT)) == 0 < handed(server, Sent("DELETE", MANY))


def test_objects_that_become_large_when_written() -> None:
    assert not is_large({"a": "x" * (LARGE_BYTES - 100), "b": [1, None, True, {}]})
    for large in ("x" * LARGE_BYTES, {"a": {"b": ["x" * LARGE_BYTES]}}, list(range(LARGE_BYTES)), [{"a": "12"}] * (LARGE_BYTES // 8)):
        assert is_large(large)


def test_long_selectors(server: InProcess) -> None:
    terms = ",".join(f"k{i}" for i in range(5000))
    assert not handed(server, Sent("GET", f"{SMALL}?labelSelector=a"))
    for query in (f"?labelSelector={terms}", f"?labelSelector={terms}&watch=true&timeoutSeconds=1"):
        assert handed(server, Sent("GET", SMALL + query)) == 1
    status, body = server.ask(Sent("GET", f"{SMALL}?labelSelector={terms},-"))
    assert status == 400 and body["reason"] == "BadRequest"


def test_reads_at_old_revisions(server: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    from kas.endpoints import listing

    status, body = server.ask(Sent("GET", SMALL))
    assert status == 200
    then = body["metadata"]["resourceVersion"]
    for i in range(4):
        server.ask(Sent("POST", SMALL, {"metadata": {"name": f"later{i}"}}))
    monkeypatch.setattr(listing, "WRITES_BEFORE_REST", 2)
    for accept in (JSON, YAML, PROTOBUF, TABLE):
        assert server.ask(Sent("GET", f"{SMALL}?resourceVersion={then}&resourceVersionMatch=Exact", accept=accept))[0] == 200
    status, found = server.ask(Sent("GET", f"{SMALL}?resourceVersion={then}&resourceVersionMatch=Exact"))
    assert found["items"] == body["items"] and found["metadata"]["resourceVersion"] == then


@pytest.mark.parametrize("accept", [JSON, YAML, PROTOBUF, TABLE, METADATA])
def test_selections_from_many_objects(server: InProcess, monkeypatch: pytest.MonkeyPatch, accept: str) -> None:
    """Each page, also of a watch's initial state and of a collection to delete: a match may be thousands of keys away."""
    collection = f"{NS}/secrets"
    for i in range(400):
        server.ask(Sent("POST", collection, {"metadata": {"name": f"s{i}", "labels": {"odd": str(i % 2)}}}))
    scanned: list[bool] = []
    scan = lmdbstore._engine.scan

    def seen(*args: Any) -> Any:
        if args[5] is not None:
            scanned.append(threading.current_thread() is threading.main_thread())
        return scan(*args)

    monkeypatch.setattr(lmdbstore._engine, "scan", seen)
    for query in ("", "&limit=7", "&limit=150"):
        few = server.ask(Sent("GET", f"{collection}?labelSelector=odd%3D1{query}", accept=accept))
        assert few[0] == 200 and True in scanned
        scanned.clear()
        monkeypatch.setattr(listpages, "SELECTED_FROM", 300)
        many = server.ask(Sent("GET", f"{collection}?labelSelector=odd%3D1{query}", accept=accept))
        if accept == TABLE:  # rows contain ages
            few, many = ([row["object"] for row in body["rows"]] for _, body in (few, many))
        assert few == many and scanned and set(scanned) == {False}
        assert not server.ask(Sent("GET", f"{collection}?labelSelector=odd%3D2"))[1]["items"]
        scanned.clear()
        monkeypatch.setattr(listpages, "SELECTED_FROM", 500)
    monkeypatch.setattr(listpages, "SELECTED_FROM", 300)
    first = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=1"
    assert server.ask(Sent("GET", f"{collection}?labelSelector=odd%3D1&{first}"))[0] == 200
    assert scanned and set(scanned) == {False}
    scanned.clear()
    assert server.ask(Sent("DELETE", f"{collection}?labelSelector=odd"))[0] == 200
    assert scanned and set(scanned) == {False} and not server.ask(Sent("GET", collection))[1]["items"]


def test_bindings_of_many_subjects(server: InProcess) -> None:
    group = "rbac.authorization.k8s.io"
    subjects = [{"kind": "User", "name": f"user-{i}", "apiGroup": group} for i in range(3000)]
    role = {"apiGroup": group, "kind": "ClusterRole", "name": "cluster-admin"}
    body = {"metadata": {"name": "many"}, "roleRef": role, "subjects": subjects}
    assert server.ask(Sent("POST", RBAC, body))[0] == 201
    review = {"spec": {"user": "user-2999", "resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "default"}}}
    status, body = server.ask(Sent("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review))
    assert status == 201 and body["status"]["allowed"] is True


def certificate_request(organizations: int, signer: str, *more: str) -> Sent:
    texts = [f"o{i}" for i in range(organizations)] + list(more)
    names = x509.Name([x509.NameAttribute(x509.NameOID.ORGANIZATION_NAME, text) for text in texts])
    made = x509.CertificateSigningRequestBuilder().subject_name(names).sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
    request = base64.b64encode(made.public_bytes(serialization.Encoding.PEM)).decode()
    spec = {"request": request, "usages": ["client auth"], "signerName": signer}
    return Sent("POST", "/apis/certificates.k8s.io/v1/certificatesigningrequests", {"metadata": {"generateName": "r"}, "spec": spec})


def test_certificate_requests_of_many_names(server: InProcess) -> None:
    usual = handed(server, certificate_request(3000, "example.com/a"), 201)
    assert handed(server, certificate_request(3000, "kubernetes.io/kube-apiserver-client"), 201) == usual + 1
    assert server.ask(certificate_request(3000, "kubernetes.io/kube-apiserver-client", "system:masters"))[0] == 403


ADMISSION = "/apis/admissionregistration.k8s.io/v1"
MATCH = {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]}
LABELLED = "Object{metadata: Object.metadata{labels: {'a': 'b'}}}"
MUTATION = {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": LABELLED}}


@pytest.fixture
def on_loop(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """``on_loop(module, *names)`` returns a list that collects calls of these functions in the loop's thread."""
    loops, found = threading.get_ident(), list[str]()

    def watch(module: Any, *names: str) -> list[str]:
        for name in names:
            real = getattr(module, name)

            def seen(*args: Any, _name: str = name, _real: Any = real, **kwargs: Any) -> Any:
                if threading.get_ident() == loops:
                    found.append(_name)
                return _real(*args, **kwargs)

            monkeypatch.setattr(module, name, seen)
        return found

    return watch


@pytest.mark.parametrize("kind, spec", [
    ("mutating", {"failurePolicy": "Fail", "reinvocationPolicy": "Never", "mutations": [MUTATION]}),
    ("validating", {"validations": [{"expression": "object.metadata.name != 'x'"}]}),
])  # fmt: skip
def test_large_objects_in_policies(server: InProcess, on_loop: Callable[..., list[str]], kind: str, spec: Any) -> None:
    """Also the first such write of a process."""
    policy, binding = f"{ADMISSION}/{kind}admissionpolicies", f"{ADMISSION}/{kind}admissionpolicybindings"
    actions = {"validationActions": ["Deny"]} if kind == "validating" else {}
    assert server.ask(Sent("POST", policy, {"metadata": {"name": "p"}, "spec": {"matchConstraints": MATCH, **spec}}))[0] == 201
    assert server.ask(Sent("POST", binding, {"metadata": {"name": "p"}, "spec": {"policyName": "p", **actions}}))[0] == 201
    seen = on_loop(versioned, "encode_json")
    on_loop(generic, "encode_both", "encode_stored")
    on_loop(write, "restore_after_admission", "dedup_owner_references")
    refs = [{"apiVersion": "v1", "kind": "ConfigMap", "name": "n", "uid": f"u{i}"} for i in range(1500)]
    large = {"metadata": {"name": "large", "ownerReferences": refs}, "data": {f"k{i}": "v" * 10 for i in range(9000)}}
    status, body = server.ask(Sent("POST", f"{SMALL}?dryRun=All", large))
    assert status == 201 and body["metadata"].get("labels") == ({"a": "b"} if kind == "mutating" else None)
    assert seen == []
    assert server.ask(Sent("POST", f"{SMALL}?dryRun=All", {"metadata": {"name": "small", "ownerReferences": refs[:1]}}))[0] == 201
    # What validating policies see is built together with what is stored.
    shown = {"encode_json", "encode_both"} if kind == "mutating" else {"encode_both"}
    assert set(seen) == {*shown, "restore_after_admission", "dedup_owner_references"}
    for path in (binding, policy):
        assert server.ask(Sent("DELETE", f"{path}/p"))[0] == 200


def test_modules_that_load_cryptography_are_loaded_off_the_loop(
    server: InProcess, on_loop: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, create = [True], token.Token.create

    def created(self: token.Token, *args: Any) -> Any:
        if first:  # by this test, if not by the server
            self._issuer = None
            first.clear()
        return create(self, *args)

    monkeypatch.setattr(token.Token, "create", created)
    monkeypatch.setattr(server.server.keys.signer, "_loaded", None)
    assert server.ask(Sent("POST", f"{NS}/serviceaccounts", {"metadata": {"name": "first"}}))[0] in (201, 409)
    seen = on_loop(Signer, "_key")
    asked = Sent("POST", f"{NS}/serviceaccounts/first/token", {"spec": {}})
    assert handed(server, asked, 201) == 1 and seen == ["_key"]  # the signing key is ready
    assert not handed(server, asked, 201)
    request = {"metadata": {"name": "r"}, "spec": {"request": "", "signerName": "a.b/c", "usages": ["client auth"]}}
    assert handed(server, Sent("POST", "/apis/certificates.k8s.io/v1/certificatesigningrequests", request), 422)


def test_tokens_for_many_audiences(server: InProcess, on_loop: Callable[..., list[str]]) -> None:
    assert server.ask(Sent("POST", f"{NS}/serviceaccounts", {"metadata": {"name": "heard"}}))[0] in (201, 409)
    asked = [Sent("POST", f"{NS}/serviceaccounts/heard/token", {"spec": {"audiences": ["a" * 20] * n}}) for n in (3, 4000)]
    assert server.ask(asked[0])[0] == 201  # the key is ready
    seen = on_loop(Signer, "sign")
    on_loop(token, "jti_of")
    on_loop(named, "own")
    assert server.ask(asked[1])[0] == 201 and seen == []
    assert server.ask(asked[0])[0] == 201 and set(seen) == {"sign", "jti_of", "own"}


def test_updates_of_large_objects(server: InProcess, on_loop: Callable[..., list[str]]) -> None:
    """The comparison with the old object, too."""
    seen = on_loop(write, "keep_timestamps")
    for fields in (4000, 3):
        sent = {"metadata": {"name": "a"}, "data": {f"k{i}": "w" * 10 for i in range(fields)}}
        assert server.ask(Sent("PUT", f"{LARGE if fields > 3 else SMALL}/a?dryRun=All", sent))[0] == 200
        assert seen == ([] if fields > 3 else ["keep_timestamps"])


def test_dry_runs_of_deletes_of_large_objects(server: InProcess, on_loop: Callable[..., list[str]]) -> None:
    """The result that would have been stored is encoded and decoded off the loop; also in the update that removes the last finalizer."""
    seen = on_loop(generic.Registry, "not_stored")
    for fields in (4000, 3):
        held = {"metadata": {"name": "held", "finalizers": ["example.com/held"]}, "data": {f"k{i}": "v" * 10 for i in range(fields)}}
        path = LARGE if fields > 3 else SMALL
        assert server.ask(Sent("POST", path, held))[0] == 201
        seen.clear()
        assert server.ask(Sent("DELETE", f"{path}/held?dryRun=All"))[0] == 200
        assert seen == ([] if fields > 3 else ["not_stored"])
        assert server.ask(Sent("DELETE", f"{path}/held"))[0] == 200
        seen.clear()
        del held["metadata"]["finalizers"]
        assert server.ask(Sent("PUT", f"{path}/held", held))[0] == 200
        assert seen == ([] if fields > 3 else ["not_stored"])


@pytest.mark.parametrize("large", [True, False])
def test_the_text_of_a_dry_runs_result(monkeypatch: pytest.MonkeyPatch, large: bool) -> None:
    """60,000 fields of a custom resource held the loop for 26 ms, although the rest of the answer was built off it."""
    made = list[bool]()

    class Shown:
        @property
        def json(self) -> bytes:
            made.append(threading.current_thread() is threading.main_thread())
            return b"{}"

    monkeypatch.setattr(respond, "obj", lambda req, served, shown, status: shown.json)
    done: Any = SimpleNamespace(large=large, warnings=())
    served: Any = SimpleNamespace(native=True, columns=None)
    shown: Any = Shown()
    assert asyncio.run(answer(request(), served, done, shown, 200)) == b"{}"
    assert set(made) == {not large}


def test_json_patches_that_double_the_document(server: InProcess, on_loop: Callable[..., list[str]]) -> None:
    """600 bytes make 150 kB of a small object, and 700 made 2 MB: 113 ms of the loop, and as much again afterwards."""
    seen = on_loop(patching, "decode_patched")
    for copies in (9, 2):
        added = {"op": "add", "path": "/metadata/x", "value": [{}] * 100}
        sent = [added, *[{"op": "copy", "from": "/metadata/x", "path": "/metadata/x/-"}] * copies]
        asked = Sent("PATCH", f"{SMALL}/a?dryRun=All", sent, "application/json-patch+json")
        assert handed(server, asked) == 0 if copies == 2 else handed(server, asked) > 0
        assert seen == (["decode_patched"] if copies == 2 else [])


def test_json_patches_of_a_scale_that_double_the_document(server: InProcess, on_loop: Callable[..., list[str]]) -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    made = {"metadata": {"name": "s"}, "spec": {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": template}}
    path = "/apis/apps/v1/namespaces/default/replicasets"
    assert server.ask(Sent("POST", path, made))[0] == 201
    seen = on_loop(patching, "decode_patched")
    for copies in (9, 2):
        added = {"op": "add", "path": "/metadata/x", "value": [{}] * 100}
        sent = [added, *[{"op": "copy", "from": "/metadata/x", "path": "/metadata/x/-"}] * copies]
        asked = Sent("PATCH", f"{path}/s/scale?dryRun=All", sent, "application/json-patch+json")
        assert handed(server, asked) == 0 if copies == 2 else handed(server, asked) > 0
        assert seen == (["decode_patched"] if copies == 2 else [])


def test_evictions_with_long_options(server: InProcess, on_loop: Callable[..., list[str]]) -> None:
    """Options that repeat the same field a hundred thousand times are read and checked off the loop, too."""
    asked = [
        Sent("POST", f"{NS}/pods/nowhere/eviction", {"metadata": {"name": "nowhere"}, "deleteOptions": {"dryRun": ["All"] * n}})
        for n in (1, 20_000)
    ]
    seen = on_loop(eviction, "_kind", "_options")
    assert server.ask(asked[1])[0] == 404 and seen == []
    assert server.ask(asked[0])[0] == 404 and seen == ["_kind", "_options"]


def test_reviews_of_users_with_many_groups(server: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """The authorizers' attributes are built off the loop before the authorizers are called on it."""
    began = list[bool]()

    class Watched(UserInfo):
        __slots__ = ()

        @property
        def subjects(self) -> dict[str, None]:
            began.append(threading.current_thread() is threading.main_thread())
            return super().subjects

    monkeypatch.setattr(accessreview, "UserInfo", Watched)
    spec = {"user": "u", "groups": [f"g{i}" for i in range(20_000)], "resourceAttributes": {"verb": "get", "resource": "pods"}}
    assert server.ask(Sent("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", {"spec": spec}))[0] == 201
    assert began[0] is False and True in began


def room(server: InProcess, name: str) -> None:
    """A namespace with a service account n."""
    for path in ("/api/v1/namespaces", f"/api/v1/namespaces/{name}/serviceaccounts"):
        obj = {"metadata": {"name": name if path.endswith("namespaces") else "n"}}
        assert server.ask(Sent("POST", path, obj))[0] in (201, 409)


def test_objects_that_a_policy_makes_large(server: InProcess, on_loop: Callable[..., list[str]]) -> None:
    policy, binding = f"{ADMISSION}/mutatingadmissionpolicies", f"{ADMISSION}/mutatingadmissionpolicybindings"
    text = "x" * LARGE_BYTES
    mutation = {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": f"Object{{data: {{'a': '{text}'}}}}"}}
    spec = {"failurePolicy": "Fail", "reinvocationPolicy": "Never", "mutations": [mutation], "matchConstraints": MATCH}
    assert server.ask(Sent("POST", policy, {"metadata": {"name": "grows"}, "spec": spec}))[0] == 201
    assert server.ask(Sent("POST", binding, {"metadata": {"name": "grows"}, "spec": {"policyName": "grows"}}))[0] == 201
    seen = on_loop(pipeline, "build_create")
    status, body = server.ask(Sent("POST", f"{SMALL}?dryRun=All", {"metadata": {"name": "grows"}}))
    assert status == 201 and body["data"] == {"a": text} and seen == []
    for path in (binding, policy):
        assert server.ask(Sent("DELETE", f"{path}/grows"))[0] == 200
    assert server.ask(Sent("POST", f"{SMALL}?dryRun=All", {"metadata": {"name": "grows"}}))[0] == 201 and seen == ["build_create"]


@pytest.mark.parametrize("group, resource, made, spec", [
    ("v1/namespaces/grown", "serviceaccounts", {"imagePullSecrets": [{"name": f"s{i}"} for i in range(1000)]}, {"serviceAccountName": "n"}),
    ("v1/namespaces/grown", "limitranges",
     {"spec": {"limits": [{"type": "Container", "default": {f"example.com/r{i}": "1" for i in range(1000)}}]}}, {}),
    ("apis/node.k8s.io/v1", "runtimeclasses",
     {"handler": "x", "scheduling": {"tolerations": [{"key": f"k{i}", "operator": "Exists"} for i in range(1000)]}},
     {"runtimeClassName": "n"}),
])  # fmt: skip
def test_pods_that_admission_makes_large(
    server: InProcess, on_loop: Callable[..., list[str]], group: str, resource: str, made: dict[str, Any], spec: dict[str, Any]
) -> None:
    """A pod of a few bytes is validated and encoded as the large one that it has become."""
    there = f"/{group if group.startswith('apis') else f'api/{group}'}/{resource}"
    room(server, "grown")
    method, path = ("PUT", f"{there}/n") if resource == "serviceaccounts" else ("POST", there)
    assert server.ask(Sent(method, path, {"metadata": {"name": "n"}, **made}))[0] in (200, 201)
    sent = {"metadata": {"generateName": "p"}, "spec": {"serviceAccountName": "n", "containers": [{"name": "c", "image": "i"}], **spec}}
    seen = on_loop(pipeline, "build_create")
    try:
        assert server.ask(Sent("POST", "/api/v1/namespaces/grown/pods", sent))[0] in (201, 422)
        assert seen == []
    finally:
        assert server.ask(Sent("DELETE", f"{there}/n"))[0] == 200


def test_defaults_larger_than_a_pod_may_be(server: InProcess) -> None:
    """20 containers with 10,000 resources each could not be stored, so the defaults are not applied."""
    room(server, "filled")
    limits = {"limits": [{"type": "Container", "default": {f"example.com/r{i}": "1" for i in range(10_000)}}]}
    assert server.ask(Sent("POST", "/api/v1/namespaces/filled/limitranges", {"metadata": {"name": "l"}, "spec": limits}))[0] == 201
    containers = [{"name": f"c{i}", "image": "i"} for i in range(20)]
    pod = {"metadata": {"name": "p"}, "spec": {"serviceAccountName": "n", "containers": containers}}
    status, body = server.ask(Sent("POST", "/api/v1/namespaces/filled/pods", pod))
    assert (status, body["message"]) == (413, "Request entity too large: limit is 3145728")


def test_quota_usage_of_a_large_pod(server: InProcess, on_loop: Callable[..., list[str]]) -> None:
    room(server, "counted")
    path = "/api/v1/namespaces/counted"
    assert server.ask(Sent("POST", f"{path}/resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "5"}}}))[0] == 201
    status = {"status": {"hard": {"pods": "5"}, "used": {"pods": "0"}}}
    assert server.ask(Sent("PATCH", f"{path}/resourcequotas/q/status", status, "application/merge-patch+json"))[0] == 200
    seen = on_loop(quota_usage.Pods, "usage")
    for amounts, count in ((10_000, 1), (1, 2)):
        limits = {f"example.com/r{i}": "1" for i in range(amounts)}
        pod = {"serviceAccountName": "n", "containers": [{"name": "c", "image": "i", "resources": {"limits": limits, "requests": limits}}]}
        assert server.ask(Sent("POST", f"{path}/pods", {"metadata": {"name": f"p{count}"}, "spec": pod}))[0] == 201
        assert bool(seen) is (amounts == 1)
        assert server.ask(Sent("GET", f"{path}/resourcequotas/q"))[1]["status"]["used"] == {"pods": str(count)}


def test_definitions_whose_versions_share_a_schema(server: InProcess, on_loop: Callable[..., list[str]]) -> None:
    """What versions have in common is stored once, and shown in each: 42 kB became 2.5 MB, for which each GET held the loop for 124 to 169
    ms, a patch for 130 and 100, and each event of a watch for 90."""
    shared, alone = definition(300), definition(30)
    versions = shared["spec"]["versions"]
    versions += [{**versions[0], "name": f"v{i}", "storage": False} for i in range(2, 40)]
    for obj, name in ((shared, "shared"), (alone, "alone")):
        obj["metadata"]["name"], obj["spec"]["names"] = f"{name}.beside.example.com", {"plural": name, "kind": name.capitalize()}
        assert server.ask(Sent("POST", CRDS, obj))[0] == 201
    one, small = f"{CRDS}/shared.beside.example.com", f"{CRDS}/alone.beside.example.com"
    stored = {name: len(server.store.get(f"/registry/{CRDS.split('/')[2]}/customresourcedefinitions/{name}.beside.example.com").json)
              for name in ("shared", "alone")}  # fmt: skip
    assert GROWN < stored["shared"] < LARGE_BYTES / 2 and stored["alone"] < GROWN
    seen, patch = on_loop(conversion, "convert"), "application/merge-patch+json"
    labels, status = ({"metadata": {"labels": {"a": value}}} for value in ("b", "c"))
    for sent in (
        Sent("GET", one), Sent("GET", one, accept=YAML), Sent("GET", f"{CRDS}?fieldSelector=metadata.name%3Dshared.beside.example.com"),
        Sent("PATCH", one, labels, patch), Sent("PATCH", f"{one}/status", status, patch), Sent("PATCH", f"{one}?dryRun=All", labels, patch),
        Sent("GET", f"{CRDS}?watch=1&timeoutSeconds=1&fieldSelector=metadata.name%3Dshared.beside.example.com"), Sent("DELETE", one),
    ):  # fmt: skip
        assert server.ask(sent)[0] == 200
        assert seen == [], sent
    assert server.ask(Sent("GET", small))[0] == 200 and seen == ["convert"]  # small objects are not handed over
    assert server.ask(Sent("DELETE", small))[0] == 200


def test_metrics_of_many_children(server: InProcess, on_loop: Callable[..., list[str]]) -> None:
    seen, messages = on_loop(metrics, "dumped", "exposed"), on_loop(metricmessages, "delimited")
    for accept in ("text/plain", "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"):
        assert server.ask(Sent("GET", "/metrics", accept=accept))[0] == 200 and seen == messages == []


DRA, ADMISSION = "/apis/resource.k8s.io/v1", "/apis/admissionregistration.k8s.io/v1"
SELECTORS = [{"cel": {"expression": "device.driver.matches('[a-z]{1000}')"}}]
DEVICES = {"requests": [{"name": "r", "exactly": {"deviceClassName": "c", "selectors": SELECTORS}}]}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (f"{DRA}/namespaces/default/resourceclaims", {"spec": {"devices": DEVICES}}),
        (f"{DRA}/namespaces/default/resourceclaimtemplates", {"spec": {"spec": {"devices": DEVICES}}}),
        (f"{DRA}/deviceclasses", {"spec": {"selectors": SELECTORS}}),
        (f"{ADMISSION}/validatingwebhookconfigurations", {"webhooks": []}),
        (f"{ADMISSION}/mutatingwebhookconfigurations", {"webhooks": []}),
        (f"{ADMISSION}/validatingadmissionpolicies?dryRun=All", {"spec": {
            "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["pods"]}]},
            "validations": [{"expression": "object.metadata.name.matches('[a-z]{1000}')"}],
        }}),
    ],
)  # fmt: skip
def test_expressions_are_validated_off_the_loop_however_small(server: InProcess, path: str, body: dict[str, Any]) -> None:
    """35 patterns of one claim of 1 kB held the loop for a second."""
    sent = Sent("POST", path, {"metadata": {"name": "expressions"}, **body})
    assert handed(server, sent, 201)
