"""Whatever arrives over HTTP, kas answers: no 500, no hang, no panic, no dead worker.

hypothesis generates bodies, patches, selectors, tokens, protobuf, queries, headers and paths similar to valid ones, because pure noise
never passes the first parser; several are generated together and sent concurrently. Raw bytes on the socket test what HTTP libraries would
not send.
"""

from __future__ import annotations

import base64
import json
import os
import random
import socket
import ssl
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from urllib.parse import quote

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kas.testing.server import KasServer
from kas.types.scheme import BUILTIN, decode, encode_protobuf
from tests.robustness.explained import Tally
from tests.robustness.fuzzwire import Answer, Asked, Wire

# ``make fuzz`` sets it to ten thousand for each test.
EXAMPLES = int(os.environ.get("KAS_FUZZ_EXAMPLES", "64"))
FLAGS = os.environ.get("KAS_FUZZ_FLAGS", "").split()  # further flags of the server
TOGETHER = 8  # requests of one example: a failing batch is shrunk to the failing request and the fewest others
JSON, YAML, PROTOBUF = "application/json", "application/yaml", "application/vnd.kubernetes.protobuf"
PATCHES = [
    "application/json-patch+json", "application/merge-patch+json", "application/strategic-merge-patch+json", "application/apply-patch+yaml",
    "application/apply-patch+cbor",
]  # fmt: skip
COLLECTIONS = [
    "/api/v1/namespaces/default/configmaps", "/api/v1/namespaces/default/pods", "/api/v1/namespaces/default/services",
    "/api/v1/namespaces/default/secrets", "/api/v1/namespaces", "/api/v1/nodes", "/api/v1/namespaces/default/events",
    "/apis/apps/v1/namespaces/default/deployments", "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers",
    "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles", "/apis/batch/v1/namespaces/default/cronjobs",
    "/apis/networking.k8s.io/v1/namespaces/default/ingresses", "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", "/apis/storage.k8s.io/v1/storageclasses",
    "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", "/apis/coordination.k8s.io/v1/namespaces/default/leases",
]  # fmt: skip
POD = {
    "kind": "Pod", "apiVersion": "v1", "metadata": {"name": "f", "labels": {"a": "b"}},
    "spec": {"containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80}], "env": [{"name": "E", "value": "v"}]}]},
}  # fmt: skip

scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=12),
    st.sampled_from(
        ["", "1", "-1", "100m", "1e400", "Infinity", "2020-01-01T00:00:00Z", "a/b", "\0", "\u2028", "9" * 400, "default", "None"]
    ),
)  # fmt: skip
names = st.sampled_from(
    [
        "metadata", "name", "namespace", "labels", "annotations", "spec", "status", "data", "kind", "apiVersion", "containers",
        "image", "ports", "protocol", "rules", "subjects", "template", "selector", "replicas", "finalizers", "ownerReferences",
        "managedFields", "resourceVersion", "uid", "generateName", "creationTimestamp", "deletionTimestamp", "webhooks", "schedule",
        "jobTemplate", "scaleTargetRef", "metrics", "value", "from", "matchLabels", "matchExpressions", "key", "operator", "values",
        "$patch", "$retainKeys", "$setElementOrder/containers", "$deleteFromPrimitiveList/finalizers", "items", "resources", "limits",
        "requests", "cpu", "immutable", "stringData", "type", "clusterIP",
    ]
)
values = st.recursive(
    scalars,
    lambda x: st.one_of(st.lists(x, max_size=4), st.dictionaries(st.one_of(names, st.text(max_size=6)), x, max_size=5)),
    max_leaves=14,
)
objects = st.dictionaries(names, values, max_size=6)
ACCEPTS = [
    JSON, PROTOBUF, YAML, f"{JSON};as=Table;v=v1;g=meta.k8s.io", f"{JSON};as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", "*/*",
]  # fmt: skip


class Fuzzed:
    """A server, and the checks of its answers."""

    def __init__(self, server: KasServer) -> None:
        self.server, self.wire = server, Wire(server)
        self.workers = server.worker_pids()
        self.tally = Tally()

    def __call__(self, method: str, path: str, body: bytes = b"", **headers: str) -> Answer:
        return self.all([asked(method, path, body, **headers)])[0]

    def all(self, some: Iterable[Asked]) -> list[Answer]:
        """Returns the answers to requests; none may be an unexplained 5xx."""
        every = list(some)
        answers = self.wire.ask_all(every)
        for one, answer in zip(every, answers, strict=True):
            wrong = self.tally.wrong(self.wire, one, answer)
            assert not wrong, wrong
        return answers

    def raw(self, data: bytes, wait: float = 60.0) -> bytes:
        """Sends raw bytes; returns what arrives until the server closes or is silent."""
        context = ssl.create_default_context(cafile=self.server.ca)
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=wait) as plain, context.wrap_socket(
            plain, server_hostname="localhost"
        ) as s:
            got = b""
            try:
                s.sendall(data)
                while piece := s.recv(65536):
                    got += piece
                    if got.endswith(b"</end>"):
                        break
            except (TimeoutError, ConnectionError, ssl.SSLError):
                return got
            return got

    def unharmed(self) -> None:
        assert self.server.worker_pids() == self.workers, "a worker died"
        assert self("GET", "/readyz").status == 200
        self.server.check()


def asked(method: str, path: str, body: bytes = b"", **headers: str) -> Asked:
    """Returns a request; ``Content_Type`` is a header's name."""
    return Asked(method, path, {k.replace("_", "-"): v for k, v in headers.items()}, body)


Requests = Callable[..., Iterator[Asked]]


def fuzz(**drawn: st.SearchStrategy[Any]) -> Callable[[Requests], Callable[..., None]]:
    """Makes a test of a function that returns the requests of each example."""
    chosen = settings(
        max_examples=-(-EXAMPLES // TOGETHER), deadline=None, derandomize=EXAMPLES <= 64, suppress_health_check=list(HealthCheck),
        database=None, print_blob=False,
    )  # fmt: skip

    def made(requests: Requests) -> Callable[..., None]:
        @chosen
        @given(some=st.lists(st.fixed_dictionaries(drawn), min_size=TOGETHER, max_size=TOGETHER))
        def test(wire: Fuzzed, some: list[dict[str, Any]]) -> None:
            wire.all(one for example in some for one in requests(**example))

        test.__doc__ = requests.__doc__
        return test

    return made


@pytest.fixture(scope="module")
def wire(tmp_path_factory):
    with KasServer(tmp_path_factory.mktemp("fuzz"), "--unsafe-no-fsync", "--controllers", "none", *FLAGS) as server:
        w = Fuzzed(server)
        w("POST", "/api/v1/namespaces/default/serviceaccounts", b'{"metadata":{"name":"default"}}', Content_Type=JSON)
        w("POST", COLLECTIONS[1], orjson.dumps(POD), Content_Type=JSON)
        w("POST", COLLECTIONS[0], b'{"metadata":{"name":"f"},"data":{"a":"b"}}', Content_Type=JSON)
        yield w
        w.unharmed()


@pytest.fixture(autouse=True)
def counted(wire: Fuzzed, request: pytest.FixtureRequest) -> Iterator[None]:
    """Passes a test's counts to the summary."""
    yield
    request.node.user_properties += wire.tally.properties()


def encoded(value) -> bytes:
    return json.dumps(value).encode("utf-8", "surrogatepass")


@fuzz(path=st.sampled_from(COLLECTIONS), body=objects, named=st.booleans(), ctype=st.sampled_from([JSON, YAML]), strict=st.booleans())
def test_objects(path, body, named, ctype, strict):
    if named:
        body = {"metadata": {"name": "f"}, **body}
    yield asked("POST", f"{path}?dryRun=All{'&fieldValidation=Strict' if strict else ''}", encoded(body), Content_Type=ctype)
    yield asked("PUT", f"{path}/f", encoded(body), Content_Type=ctype)


@st.composite
def damaged_pods(draw):
    pod = orjson.loads(orjson.dumps(POD))
    at, parent = pod, None
    for _ in range(draw(st.integers(1, 6))):
        if not isinstance(at, (dict, list)) or not at:
            break
        key = draw(st.sampled_from(sorted(at))) if isinstance(at, dict) else draw(st.integers(0, len(at) - 1))
        parent, at = (at, key), at[key]
    parent[0][parent[1]] = draw(values)
    return pod


@fuzz(pod=damaged_pods())
def test_damaged_pods(pod):
    """A valid pod with another value in one place."""
    yield asked("POST", f"{COLLECTIONS[1]}?dryRun=All", encoded(pod), Content_Type=JSON)


@fuzz(path=st.sampled_from(COLLECTIONS[:2]), kind=st.sampled_from(PATCHES[:4]), body=st.one_of(objects, values))
def test_patches(path, kind, body):
    yield asked("PATCH", f"{path}/f?fieldManager=m&force=1", encoded(body), Content_Type=kind)


pointers = st.one_of(
    st.sampled_from(
        ["", "/", "/metadata/labels/a", "/data/-", "/spec/containers/0", "/spec/containers/99999999999999999999", "/~2", "/a~1b"]
    ),
    st.text(max_size=9),
)
operations = st.fixed_dictionaries(
    {"op": st.sampled_from(["add", "remove", "replace", "move", "copy", "test", "x"])},
    optional={"path": pointers, "from": pointers, "value": values},
)


@fuzz(ops=st.lists(st.one_of(operations, values), max_size=5))
def test_json_patches(ops):
    yield asked("PATCH", f"{COLLECTIONS[1]}/f", encoded(ops), Content_Type=PATCHES[0])


@fuzz(
    noise=st.binary(max_size=80), kind=st.sampled_from([JSON, YAML, PROTOBUF, "application/cbor", "text/plain", "", *PATCHES]),
    method=st.sampled_from(["POST", "PUT", "PATCH", "DELETE"]), begun=st.sampled_from([b"", b"", b"{", b"k8s\0", b"\xd9\xd9\xf7"]),
)  # fmt: skip
def test_noise(noise, kind, method, begun):
    path = COLLECTIONS[0] + ("" if method == "POST" else "/f" if method != "DELETE" else "/nobody")
    yield asked(method, path, begun + noise, **({"Content_Type": kind} if kind else {}))


POD_TYPE = BUILTIN.known("", "v1", "Pod").type
PROTOBUF_POD = encode_protobuf(POD_TYPE, decode(POD_TYPE, POD)[0], api_version="v1", kind="Pod")


@fuzz(seed=st.integers(0, 2**32), flips=st.integers(1, 12))
def test_damaged_protobuf(seed, flips):
    rnd = random.Random(seed)
    whole = bytearray(PROTOBUF_POD)
    for _ in range(flips):
        at = rnd.randrange(4, len(whole))
        match rnd.randrange(3):
            case 0:
                whole[at] = rnd.randrange(256)
            case 1:
                del whole[at : at + rnd.randrange(1, 9)]
            case _:
                whole[at:at] = rnd.randbytes(rnd.randrange(1, 9))
        if len(whole) < 8:
            break
    yield asked("POST", f"{COLLECTIONS[1]}?dryRun=All", bytes(whole), Content_Type=PROTOBUF, Accept=PROTOBUF)
    yield asked("DELETE", f"{COLLECTIONS[1]}/nobody", bytes(whole), Content_Type=PROTOBUF)


parameters = st.sampled_from(
    [
        "labelSelector", "fieldSelector", "limit", "continue", "resourceVersion", "resourceVersionMatch", "timeoutSeconds",
        "allowWatchBookmarks", "sendInitialEvents", "pretty", "includeObject", "dryRun", "fieldManager", "fieldValidation", "force",
        "gracePeriodSeconds", "propagationPolicy", "orphanDependents", "shardSelector", "timeout",
        "ignoreStoreReadErrorWithClusterBreakingPotential",
    ]
)
arguments = st.one_of(
    st.text(max_size=20),
    st.sampled_from([
        "a=b", "a in (b", "a,,b", "!a", "a!=b,c", "metadata.name=f", "metadata.name=%00", "a>9999999999999999999999", "Exact",
        "NotOlderThan", "0", "-1", "9" * 5000, "+1", "1_0", "\u0661", "1e3", " 1", "All", "true",
    ]),
)  # fmt: skip


@fuzz(
    path=st.sampled_from(COLLECTIONS), query=st.dictionaries(parameters, arguments, max_size=4),
    method=st.sampled_from(["GET", "GET", "POST", "DELETE"]), accept=st.sampled_from(ACCEPTS),
)  # fmt: skip
def test_queries(path, query, method, accept):
    if len(query.get("resourceVersion", "")) < 30 and query.get("resourceVersion", "").lstrip("+").isdigit():
        query = {**query, "resourceVersion": "0"}  # a future revision is waited for
    said = "&".join(f"{k}={quote(v)}" for k, v in query.items())
    yield asked(method, f"{path}{'/nobody' if method == 'DELETE' else ''}?{said}", Accept=accept, Content_Type=JSON)


# Old revisions, and invalid ones: a future one is waited for (``test_tokens_of_the_future``).
tokens = st.fixed_dictionaries(
    {
        "v": st.sampled_from(["meta.k8s.io/v1", "x"]),
        "rv": st.one_of(st.integers(-(2**70), 50), st.integers(2**63, 2**70), st.integers(-2, 50)),
        "start": st.one_of(st.text(max_size=20), st.sampled_from(["../x", "a\0", "a" * 9000])),
    }
)


def token(value: Any) -> str:
    """Returns a continue token with this content."""
    return base64.urlsafe_b64encode(encoded(value)).decode().rstrip("=")


@fuzz(said=st.one_of(st.text(max_size=30), st.one_of(values, tokens).map(token)))
def test_tokens(said):
    yield asked("GET", f"{COLLECTIONS[0]}?limit=1&continue={quote(said, errors='surrogatepass')}")


def test_tokens_of_the_future(wire):
    said = [token({"v": "meta.k8s.io/v1", "rv": rv, "start": start}) for rv in (10**6, 2**40, 2**63 - 1) for start in ("a", "a\0")]
    answers = wire.all(asked("GET", f"{COLLECTIONS[0]}?limit={limit}&continue={t}") for t in said for limit in (1, "x"))
    assert {a.status for a in answers} == {400, 504}


@fuzz(
    path=st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="?# "), max_size=40),
    prefix=st.sampled_from(
        ["/", "/api/", "/api/v1/", "/apis/apps/v1/", "/api/v1/namespaces/default/pods/", "/api/v1/watch/", "/api/v1/proxy/", "/openapi/",
         "/healthz/", "/logs/", "/api/v1/namespaces/default/pods/f/", "/api/v1/nodes/f/proxy/", "/openapi/v3/", "/debug/", "/apis/",
         "/livez/", "/metrics/"],
    ),
    method=st.sampled_from(["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD", "TRACE", "X"]),
)  # fmt: skip
def test_paths(path, prefix, method):
    yield asked(method, prefix + path)


@fuzz(
    name=st.sampled_from(
        [
            "Accept", "Content-Type", "Content-Encoding", "Accept-Encoding", "If-Match", "User-Agent", "Impersonate-User",
            "Impersonate-Group", "Impersonate-Uid", "Impersonate-Extra-A", "Audit-ID", "Range", "Origin", "X-Forwarded-For", "Forwarded",
            "Traceparent", "Tracestate", "Baggage", "Authorization", "Cookie", "If-None-Match", "Expect", "Upgrade", "X-Remote-User", "TE",
            "Access-Control-Request-Method", "Sec-WebSocket-Protocol", "X-Stream-Protocol-Version",
        ]
    ),
    value=st.text(st.characters(min_codepoint=32, max_codepoint=255), max_size=60), method=st.sampled_from(["GET", "GET", "DELETE"]),
)  # fmt: skip
def test_headers(name, value, method):
    sent = "x" + value.strip() if name == "Expect" else value.strip()
    yield asked(method, COLLECTIONS[0] + ("" if method == "GET" else "/nobody"), **{name: sent})


@pytest.mark.parametrize("value", ["9" * 60_000, "-" + "9" * 60_000, "+" + "0" * 60_000, "0x" + "f" * 60_000, "1e" + "9" * 60_000])
def test_numbers_of_sixty_kilobytes(wire, value):
    """Python's own parser of integers fails after 4,300 digits."""
    given = ("limit", "continue", "timeoutSeconds", "timeout", "sendInitialEvents", "tailLines", "sinceSeconds", "limitBytes",
             "shardSelector", "gracePeriodSeconds", "labelSelector", "fieldSelector")  # fmt: skip
    for name in given:
        wire("GET", f"{COLLECTIONS[0]}?{name}={value}")
        wire("DELETE", f"{COLLECTIONS[0]}/nobody?{name}={value}")
        wire("GET", f"{COLLECTIONS[1]}/f/log?{name}={value}")
    wire("GET", f"{COLLECTIONS[0]}?resourceVersion={value}")


BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(f"{chr(98 + i)}: &{chr(98 + i)} [{','.join(['*' + chr(97 + i)] * 9)}]\n" for i in range(12))


@pytest.mark.parametrize(
    ("body", "ctype"),
    [
        (BOMB.encode(), YAML),
        (b"a: &a\n  b: *a\n", YAML),
        (b"? [a, b]\n: 1\n", YAML),
        (b"- " * 20_000, YAML),
        (b"{" * 100_000, YAML),
        (b"!!python/object/apply:os.system [x]", YAML),
        (b"[" * 1_000_000, JSON),
        (b'{"a":' * 300_000 + b"1" + b"}" * 300_000, JSON),
        (b'{"metadata":{"name":"x","generation":' + b"9" * 100_000 + b"}}", JSON),
        (b'{"metadata":{"name":"x","generation":1e999999999}}', JSON),
        (b'{"metadata":{"name":"\xff\xfe"}}', JSON),
        (b'{"metadata":{"name":"\\ud800"}}', JSON),
        (b'\xef\xbb\xbf{"metadata":{"name":"x"}}', JSON),
        (b'{"metadata":{"name":"x","name":"y"}}', JSON),
        (b"{" + b",".join(b'"k%d":1' % i for i in range(100_000)) + b"}", JSON),
        (b"k8s\0" + b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f", PROTOBUF),
        (b"k8s\0" + b"\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12" + b"\xff\xff\xff\xff\x07" + b"\x0a" * 100, PROTOBUF),
        (b"k8s\0" + b"\x12\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80", PROTOBUF),
        (b"", JSON), (b"null", JSON), (b"[]", JSON), (b'"x"', JSON), (b"0", JSON), (b"k8s\0", PROTOBUF),
    ],
    ids=lambda v: v[:12].hex() if isinstance(v, bytes) else None,
)  # fmt: skip
def test_hostile_bodies(wire, body, ctype):
    assert wire("POST", f"{COLLECTIONS[0]}?dryRun=All", body, Content_Type=ctype).status >= 200
    for kind in PATCHES:
        wire("PATCH", f"{COLLECTIONS[0]}/f?fieldManager=m", body, Content_Type=kind)
    wire("DELETE", f"{COLLECTIONS[0]}/nobody", body, Content_Type=ctype)


def test_deep_patches(wire):
    deep = b'{"metadata":{"annotations":' * 1 + b'{"a":' * 20_000 + b"1" + b"}" * 20_000 + b"}}"
    for kind in PATCHES[1:]:
        assert wire("PATCH", f"{COLLECTIONS[1]}/f?fieldManager=m", deep, Content_Type=kind).status >= 400
    doubling = [{"op": "copy", "from": "/data", "path": f"/data/x{i}"} for i in range(60)]
    assert wire("PATCH", f"{COLLECTIONS[0]}/f", encoded(doubling), Content_Type=PATCHES[0]).status >= 400


@pytest.mark.parametrize("depth", [300, 900, 950, 980, 1000, 1023, 1100])
def test_deep_and_faulty_documents(wire, depth):
    """They parse, and are too deep for a second pass: unknown and repeated fields, escaped keys, raw values."""
    nested = b'{"a":' * depth + b"1" + b"}" * depth
    listed = b"[" * depth + b"]" * depth
    revisions = "/apis/apps/v1/namespaces/default/controllerrevisions"
    for i, value in enumerate((nested, listed)):
        name = b"deep-%d-%d" % (depth, i)
        for validation in ("", "?fieldValidation=Strict"):
            wire("POST", COLLECTIONS[0] + validation, b'{"metadata":{"name":"%s"},"nope":%s}' % (name, value), Content_Type=JSON)
            wire("POST", COLLECTIONS[0] + validation, b'{"met\\u0061data":{"name":"e%s"},"nope":%s}' % (name, value), Content_Type=JSON)
            revision = b'{"metadata":{"name":"%s"},"revision":1,"x":1,"data":%s}' % (name, value)
            wire("POST", revisions + validation, revision, Content_Type=JSON)
            for kind in PATCHES[1:3]:
                for body in (b'{"zz":%s,"zz":1}', b'{"zz":%s,"yy":1}', b'{"data":%s,"yy":1}', b'{"d\\u0061ta":{"x":"y"},"zz":%s}'):
                    wire("PATCH", f"{COLLECTIONS[0]}/f{validation}", body % value, Content_Type=kind)
            for body in (b'[{"op":"add","path":"/zz","value":%s,"foo":1}]', b'[{"\\u006fp":"add","path":"/z","value":%s}]'):
                wire("PATCH", f"{COLLECTIONS[0]}/f{validation}", body % value, Content_Type=PATCHES[0])


def test_yaml_that_begins_like_json(wire):
    """A flow mapping is not JSON: looking for its unknown fields as if it were caused a panic."""
    for body in (b"{metadata: {name: flow}, nope: 1}", b"{metadata: {name: flow}, data: {a: b, a: c}}", b"{'metadata': {}, ? nope : 1}"):
        for validation in ("", "&fieldValidation=Strict"):
            assert wire("POST", f"{COLLECTIONS[0]}?dryRun=All{validation}", body, Content_Type=YAML).status in (201, 400, 422)


def test_a_connect_is_answered(wire):
    """A successful CONNECT has no body in HTTP, so that paths that accept every method used to give no answer at all."""
    for path in ("/readyz", "/openapi/v3", "/metrics", "/api/v1/namespaces", "/nope"):
        assert wire("CONNECT", path).status == (404 if path == "/nope" else 405), path


def test_bodies_beyond_the_limit(wire):
    big = b'{"metadata":{"name":"x"},"data":{"x":"' + b"y" * (3 << 20) + b'"}}'
    assert wire("POST", COLLECTIONS[0], big, Content_Type=JSON).status == 413

    pieces = b"".join(b"%x\r\n%b\r\n" % (len(p), p) for at in range(0, len(big), 65536) if (p := big[at : at + 65536]))
    head = f"POST {COLLECTIONS[0]} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {wire.server.token}\r\nContent-Type: {JSON}\r\n"
    got = wire.raw(head.encode() + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n" + pieces + b"0\r\n\r\n")
    assert got.startswith(b"HTTP/1.1 413") or not got  # answered and closed while the client was still sending


def test_bytes_on_the_socket(wire):
    auth = f"Authorization: Bearer {wire.server.token}\r\n".encode()
    get = b"GET /readyz HTTP/1.1\r\nHost: x\r\n" + auth + b"\r\n"
    last = b"GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + auth + b"\r\n"
    assert wire.raw(get * 49 + last).count(b"HTTP/1.1 200") == 50  # pipelined
    post = b"POST " + COLLECTIONS[0].encode() + b"?dryRun=All HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n" + auth
    chunks = b'1e\r\n{"metadata":{"name":"chunked"}\r\n1\r\n}\r\n0\r\n\r\n'
    assert wire.raw(post + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks).startswith(b"HTTP/1.1 201")
    for hostile in (
        post + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        post + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n" + last,
        post + b"Content-Length: 4\r\nContent-Length: 5\r\n\r\n{}  " + last,
        post + b"Content-Length: -1\r\n\r\n",
        post + b"Content-Length: 99999999999999999999\r\n\r\n",
        b"GET /%zz%00%ff/..%2f..%2fetc HTTP/1.1\r\nHost: x\r\n" + auth + b"Connection: close\r\n\r\n",
        b"GET /api/v1/namespaces/%2e%2e/pods HTTP/1.1\r\nHost: x\r\n" + auth + b"Connection: close\r\n\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\nHost: x\r\n" + auth + b"Connection: close\r\n\r\n",
        b"GET http://elsewhere/api HTTP/1.1\r\nHost: x\r\n" + auth + b"Connection: close\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\nHost: x\r\n" + auth + b"Connection: close\r\n\r\n",
        b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n" + auth + b"Connection: close\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 500 + b"\r\n",
        b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(200),
        b"\0" * 1000,
    ):  # fmt: skip
        assert not wire.raw(hostile, 2.0).startswith(b"HTTP/1.1 500"), hostile[:200]
    wire.unharmed()
