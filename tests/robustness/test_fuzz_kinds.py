"""Changed objects of every built-in kind, in every format and verb of HTTP: no 5xx that upstream does not give, no panic.

Each request is made from a number, ``made(seed, …)``, which a failure shows. ``KAS_FUZZ_REQUESTS`` sets their number, ``KAS_FUZZ_FROM``
the first seed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kas.testing.server import KasServer
from tests.robustness.explained import EXPLAINED, Tally, explanation, told
from tests.robustness.fuzzing import (
    APPLY,
    CUSTOM,
    DEFINITION,
    JSON,
    JSON_PATCH,
    MERGE,
    NAMESPACE,
    STRATEGIC,
    Sample,
    samples,
    text,
)  # fmt: skip
from tests.robustness.fuzzrequests import made
from tests.robustness.fuzzstreams import Streams
from tests.robustness.fuzzwire import CONNECTIONS, Answer, Asked, Wire

REQUESTS = int(os.environ.get("KAS_FUZZ_REQUESTS", "3000"))
FROM = int(os.environ.get("KAS_FUZZ_FROM", "0"))
FLAGS = os.environ.get("KAS_FUZZ_FLAGS", "").split()  # further flags of the server
RANGES, RANGE = "/apis/networking.k8s.io/v1/servicecidrs", "10.0.0.0/16"
PART = 10_000  # requests of one test, so that processes may share them
REFILL = 500  # requests after which deleted or damaged objects are created again


@pytest.fixture(scope="module")
def known() -> list[Sample]:
    return samples()


def served(directory: Path) -> KasServer:
    """A server with every group, version and feature."""
    gates = "--feature-gates=AllAlpha=true,AllBeta=true"
    flags = ("--unsafe-no-fsync", "--controllers=none", "--runtime-config=api/all=true", gates, f"--service-cluster-ip-range={RANGE}")
    off = "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition,Priority,PodSecurity"
    return KasServer(directory, *flags, off, *FLAGS)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KasServer]:
    with served(tmp_path_factory.mktemp("fuzz")) as server:
        yield server


def fill(wire: Wire, known: list[Sample]) -> None:
    """Creates the objects that do not exist."""
    given = {"Content-Type": JSON}

    def make(some: list[Sample]) -> None:
        for sample, answer in zip(some, wire.ask_all([Asked("POST", s.path, given, text(s.obj)) for s in some]), strict=True):
            assert answer.status in (200, 201, 403, 404, 409), (sample.path, answer.status, answer.text[:500])

    until_served(wire, ["/readyz"])  # writes wait for the reported storage versions
    wire.ask(Asked("POST", "/api/v1/namespaces", given, text({"metadata": {"name": NAMESPACE}})))
    # No controller creates it again, and without it no Service has an address.
    wire.ask(Asked("POST", RANGES, given, text({"metadata": {"name": "kubernetes"}, "spec": {"cidrs": [RANGE]}})))
    make([DEFINITION])
    until_served(wire, [s.path for s in CUSTOM])
    make([s for s in known if not s.only_posted and s is not DEFINITION])


def until_served(wire: Wire, paths: list[str]) -> None:
    """Waits until each worker serves the paths."""
    for _ in range(600):
        if all(answer.status == 200 for answer in wire.ask_all([Asked("GET", path) for path in paths for _ in range(CONNECTIONS)])):
            return
        time.sleep(0.1)
    raise AssertionError("what a definition says is not served")


def fuzzed(server: KasServer, wire: Wire | Streams, known: list[Sample], first: int, end: int) -> Tally:
    """Returns the answers to the requests of these seeds. Raises AssertionError for an unexplained answer, and for a worker that died."""
    workers, tally, filler = server.worker_pids(), Tally(), Wire(server)
    wrong: list[str] = []
    for start in range(first, end, REFILL):
        fill(filler, known)
        requests = [(seed, made(seed, known)) for seed in range(start, min(start + REFILL, end))]
        if isinstance(wire, Streams):
            requests = [(seed, one) for seed, one in requests if one.verb != "CONNECT"]
        for (seed, one), answer in zip(requests, wire.ask_all([one for _, one in requests]), strict=True):
            if why := tally.wrong(wire, one, answer):
                wrong.append(f"{seed}: {why}")
    wire.close()
    filler.close()
    assert not wrong, "\n".join([f"{len(wrong)} answers:", *wrong[:30]])
    assert server.worker_pids() == workers, "a worker died"
    assert sum(n for code, n in tally.answered.items() if code.startswith("2")) > (end - first) // 10
    server.check()
    return tally


@pytest.mark.parametrize("first", range(FROM, FROM + REQUESTS, PART))
def test_random_requests_for_every_kind(server: KasServer, known: list[Sample], first: int, request: pytest.FixtureRequest) -> None:
    tally = fuzzed(server, Wire(server), known, first, min(first + PART, FROM + REQUESTS))
    request.node.user_properties += tally.properties()


def test_random_requests_for_every_kind_over_http2(server: KasServer, known: list[Sample], request: pytest.FixtureRequest) -> None:
    first = FROM + REQUESTS
    tally = fuzzed(server, Streams(server), known, first, first + REQUESTS // 10)
    request.node.user_properties += tally.properties()


def test_every_explanation_has_a_request_that_causes_it() -> None:
    assert all(500 <= e.code < 600 and e.why for e in EXPLAINED)
    assert len({e.why for e in EXPLAINED}) == len(EXPLAINED)


IN_NAMESPACE = f"/api/v1/namespaces/{NAMESPACE}"
THING = f"/apis/fuzz.example.com/v1/namespaces/{NAMESPACE}/things/thing-v1"
SCALE = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "thing-v1"}, "spec": {"replicas": 2}}
BACK = {"externalTrafficPolicy": "Local", "type": "LoadBalancer", "ports": [{"port": 80}], "healthCheckNodePort": 1}
SERVICE = {"metadata": {"generateName": "s-"}, "spec": {"ports": [{"port": 80}]}}
UNNAMED = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "unnamed"}, "secrets": [{"namespace": "a"}]}
SPDY = {"Connection": "Upgrade", "Upgrade": "SPDY/3.1"}


def said(verb: str, path: str, value: object = None, ctype: str = JSON, **headers: str) -> Asked:
    return Asked(verb, path, headers if value is None else {**headers, "Content-Type": ctype}, b"" if value is None else text(value))


# Makes the server give each explained answer; the last of a few requests does.
PROVOKED = (
    (said("GET", "/api/v1/watch"),),
    (said("POST", f"{IN_NAMESPACE}/configmaps", {"metadata": {"name": "x", "resourceVersion": "1"}}),),
    (said("GET", f"{IN_NAMESPACE}/configmaps/cm1?resourceVersion=x"),),
    (said("PATCH", f"{IN_NAMESPACE}/configmaps/cm1?fieldManager=m", {"apiVersion": "v1", "kind": "ConfigMap", "x": 1}, APPLY),),
    (said("PATCH", f"{IN_NAMESPACE}/secrets/x?fieldManager=m", {"apiVersion": "v1", "kind": "Secret", "data": {"a": "!"}}, APPLY),),
    (
        said("POST", f"{IN_NAMESPACE}/serviceaccounts", UNNAMED),
        said("PATCH", f"{IN_NAMESPACE}/serviceaccounts/unnamed", {"metadata": {"managedFields": [{}]}}, MERGE),
        said("PATCH", f"{IN_NAMESPACE}/serviceaccounts/unnamed?fieldManager=m", {**UNNAMED, "secrets": None}, APPLY),
    ),
    (
        said("PATCH", THING, {"metadata": {"managedFields": [{}]}}, MERGE),
        said("PATCH", f"{THING}/scale?fieldManager=m", SCALE, APPLY),
    ),
    (said("PATCH", THING, [{"op": "remove", "path": "/apiVersion"}], JSON_PATCH),),
    (said("POST", f"{IN_NAMESPACE}/services", {"metadata": {"name": "back"}, "spec": BACK}),),
    (said("PATCH", f"/apis/apps/v1/namespaces/{NAMESPACE}/controllerrevisions/crs3", {"data": {"Spec": {"a": 1}}}, STRATEGIC),),
    (said("PATCH", f"{IN_NAMESPACE}/pods/pod1", {"spec": {"$patch": "x"}}, STRATEGIC),),
    (said("PATCH", f"{IN_NAMESPACE}/pods/pod1", {"$setElementOrder/containers": None}, STRATEGIC),),
    (said("GET", THING, Accept=f"{JSON};as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"),),
    (said("POST", f"{IN_NAMESPACE}/pods/pod1/binding", {"metadata": {"name": "pod1"}, "target": {"kind": "Node"}}),),
    (said("GET", "/api/v1/nodes/node1/proxy/"),),
    (said("GET", "/api/v1/componentstatuses/x"),),
    (said("GET", f"{IN_NAMESPACE}/configmaps/cm1?resourceVersion=99999999"),),
    (said("GET", f"{IN_NAMESPACE}/pods/fuzz-pod/log?container=a"),),
    (said("POST", f"{IN_NAMESPACE}/pods/fuzz-pod/exec?container=a&command=x&stdout=1", **SPDY),),
    (
        said("POST", f"{IN_NAMESPACE}/endpoints", {"metadata": {"name": "service1"}}),
        said("GET", f"{IN_NAMESPACE}/services/service1/proxy/"),
    ),
)  # fmt: skip


def test_explained_messages_match_their_explanations(tmp_path_factory: pytest.TempPathFactory, known: list[Sample]) -> None:
    with served(tmp_path_factory.mktemp("provoked")) as server:
        wire = Wire(server)
        fill(wire, known)
        for explained, requests in zip(EXPLAINED, PROVOKED, strict=True):
            *before, last = [wire.ask(one) for one in requests]
            assert all(answer.status in (200, 201) for answer in before), [answer.text for answer in before]
            assert explanation(last) is explained, (explained.why, last.status, told(last))


PANIC = "This request caused apiserver to panic. Look in the logs for details."


@pytest.mark.parametrize(
    ("code", "ctype", "body"),
    [
        (500, "application/json", {"kind": "Status", "message": PANIC, "reason": "InternalError"}),
        (500, "application/json", {"kind": "Status", "message": "failed to create typed patch object", "reason": ""}),
        (500, "application/json", {"kind": "Status", "message": "x: content is not a list"}),
        (500, "application/json", {"kind": "Status", "message": "content is not a list", "reason": "InternalError"}),
        (500, "text/plain", "content is not a list"),
        (503, "application/json", {"kind": "Status", "message": "the server is currently unable to handle the request"}),
        (501, "text/plain", ""), (502, "text/plain", "Bad Gateway"), (504, "text/plain", ""),
    ],
)  # fmt: skip
def test_other_messages_are_not_explained(code: int, ctype: str, body: object) -> None:
    assert explanation(Answer(code, ctype, body.encode() if isinstance(body, str) else text(body))) is None


@pytest.mark.parametrize("form", ["application/json", "application/yaml", "application/cbor", "application/vnd.kubernetes.protobuf"])
def test_a_status_is_parsed_in_every_format(server: KasServer, form: str) -> None:
    got = Wire(server).ask(Asked("GET", "/api/v1/namespaces/nobody", {"Accept": form}))
    assert (got.status, got.ctype, told(got)) == (404, form, ("NotFound", 'namespaces "nobody" not found'))


def test_deleted_samples_are_created_again(server: KasServer, known: list[Sample]) -> None:
    """Also the range of Services' addresses, without which the objects could not be created."""
    wire = Wire(server)
    fill(wire, known)
    assert wire.ask(Asked("DELETE", RANGES)).status == 200
    assert wire.ask(said("POST", f"{IN_NAMESPACE}/services?dryRun=All", SERVICE)).status == 500
    fill(wire, known)
    assert wire.ask(said("POST", f"{IN_NAMESPACE}/services?dryRun=All", SERVICE)).status == 201
