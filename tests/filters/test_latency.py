"""Counts, durations and sizes of requests, and their labels."""

from __future__ import annotations

import pytest

from kas.filters import latency as latencies
from kas.filters.latency import BUCKETS, latency
from kas.observe.metrics import Registry
from kas.request.http import Response
from kas.request.websocket import Upgrade
from kas.types.scheme import Scheme
from tests.filters.requests import request


class Counted:
    """The filter's metrics for the requests that it saw: rows by metric."""

    def __init__(self) -> None:
        self.registry = Registry()
        self.filter = latency(self.registry, Scheme().resource)

    def __call__(self, req, resp: Response, known: bool = True) -> None:
        req.known = known
        self.filter.after(req, resp)

    def rows(self, name: str) -> dict[tuple[str, ...], float | list[float]]:
        self.registry.expose()
        return self.registry.metrics[name].values


def test_stable_metrics_have_upstreams_help_texts():
    metrics, distribution = Counted().registry.metrics, "for each verb, dry run value, group, version, resource, "
    assert metrics["apiserver_request_total"].help == (
        f"Counter of apiserver requests broken out {distribution}scope, component, and HTTP response code."
    )
    assert metrics["apiserver_request_duration_seconds"].help == (
        f"Response latency distribution in seconds {distribution}subresource, scope and component."
    )


def test_a_request_is_counted_under_its_labels():
    counted = Counted()
    for status in (200, 200, 409):
        counted(request("PUT", "/apis/apps/v1/namespaces/a/deployments/b/status", "dryRun=All"), Response(status, []))
    assert counted.rows("apiserver_request_total") == {
        ("200", "apiserver", "All", "apps", "deployments", "resource", "status", "PUT", "v1"): 2,
        ("409", "apiserver", "All", "apps", "deployments", "resource", "status", "PUT", "v1"): 1,
    }


def test_health_paths_have_rows_of_their_own():
    """Without a component, by path, as upstream's handler counts them; refused requests are not counted, nor does a single check have a
    row."""
    counted = Counted()
    for method, path, status in (("GET", "/readyz", 200), ("HEAD", "/readyz", 200), ("GET", "/livez", 500), ("GET", "/healthz", 401),
                                 ("GET", "/readyz/ping", 200)):  # fmt: skip
        counted(request(method, path), Response(status, []), known=False)
    of = {
        ("200", "", "/readyz"): 2, ("500", "", "/livez"): 1, ("401", "apiserver", ""): 1, ("200", "apiserver", ""): 1,
    }  # fmt: skip
    assert {(k[0], k[1], k[6]): n for k, n in counted.rows("apiserver_request_total").items()} == of
    assert {k[0] for k in counted.rows("apiserver_request_duration_seconds")} == {"", "apiserver"}


def test_a_create_has_the_scope_resource():
    """Whatever the path names, as upstream; lists and deletecollections have that of the path."""
    counted, pods = Counted(), "/api/v1/namespaces/a/pods"
    for asked in (("POST", pods), ("POST", "/api/v1/nodes"), ("DELETE", pods), ("GET", "/api/v1/pods")):
        counted(request(*asked), Response(200, []))
    assert {(k[-2], k[4], k[5]): n for k, n in counted.rows("apiserver_request_total").items()} == {
        ("POST", "pods", "resource"): 1, ("POST", "nodes", "resource"): 1,
        ("DELETECOLLECTION", "pods", "namespace"): 1, ("LIST", "pods", "cluster"): 1,
    }  # fmt: skip


def test_verb_and_dry_run_labels_are_upstreams():
    """APPLY is distinguished from PATCH, CONNECT has its subresource, and an unknown dry run is invalid."""
    counted, pod, method = Counted(), "/api/v1/namespaces/a/pods/b", "PATCH"
    for kind in ("application/apply-patch+yaml", "application/apply-patch+cbor", "application/merge-patch+json"):
        counted(request(method, pod, content_type=kind), Response(200, []))
    for asked in (("GET", f"{pod}/exec"), ("POST", f"{pod}/portforward"), ("GET", f"{pod}/log"), ("DELETE", f"{pod}/proxy"),
                  ("FOO", pod), ("GET", pod, "dryRun=Some"), ("GET", pod, "dryRun="), ("GET", pod, "myDryRun=All")):  # fmt: skip
        counted(request(*asked), Response(200, []))
    assert {(k[-2], k[2], k[-3]): n for k, n in counted.rows("apiserver_request_total").items()} == {
        ("APPLY", "", ""): 2, ("PATCH", "", ""): 1, ("other", "", ""): 1, ("GET", "invalid", ""): 2, ("GET", "", ""): 1,
        **{("CONNECT", "", sub): 1 for sub in ("exec", "portforward", "log", "proxy")},
    }  # fmt: skip


def test_refusals_in_self_defence_count_as_terminations():
    """Except the 429 of a disruption budget."""
    counted = Counted()
    evict, path = request("POST", "/api/v1/namespaces/a/pods/b/eviction"), "/api/v1/namespaces/a/pods"
    for req, status in ((evict, 429), (evict, 504), (request(path=path), 429), (request(path=path), 500), (request(path=path), 504)):
        counted(req, Response(status, []))
    assert counted.rows("apiserver_request_terminations_total") == {
        ("504", "apiserver", "", "pods", "resource", "eviction", "POST", "v1"): 1,
        ("429", "apiserver", "", "pods", "namespace", "", "LIST", "v1"): 1,
        ("504", "apiserver", "", "pods", "namespace", "", "LIST", "v1"): 1,
    }


def test_durations_have_no_status_label_and_add_up():
    counted = Counted()
    for status in (200, 500):
        counted(request(path="/api/v1/namespaces/a/pods"), Response(status, []))
    (labels, row), = counted.rows("apiserver_request_duration_seconds").items()
    assert labels == ("apiserver", "", "", "pods", "namespace", "", "LIST", "v1")
    assert sum(row[:-1]) == 2 and row[-1] > 0
    counted(request(path="/api/v1/namespaces/a/pods"), Response(200, []))
    assert sum(counted.rows("apiserver_request_duration_seconds")[labels][:-1]) == 3


def test_waiting_time_is_excluded():
    counted = Counted()
    for query, waited_s in (("", 0.0), ("", 15.0), ("dryRun=All", 0.0)):  # far below the bounds of buckets
        req = request("POST", "/api/v1/namespaces/a/pods", query)
        req.started -= 31
        req.waited_s = waited_s
        counted(req, Response(201, []))
    bounds = BUCKETS[2:]
    (labels, row), = counted.rows("apiserver_request_sli_duration_seconds").items()
    assert labels == ("apiserver", "", "pods", "resource", "", "POST", "v1")
    assert [bounds[i] for i, n in enumerate(row[:-1]) for _ in range(int(n))] == [20, 45] and 47 <= row[-1] < 65
    quick = request(path="/api/v1/namespaces/a/pods")
    counted(quick, Response(200, []))
    row = counted.rows("apiserver_request_sli_duration_seconds")["apiserver", "", "pods", "namespace", "", "LIST", "v1"]
    assert row[0] == 1 and len(row) == len(bounds) + 2


def test_only_gets_have_sizes():
    counted = Counted()
    counted(request(path="/api/v1/namespaces/a/pods/b"), Response(200, [], b"x" * 1500))
    counted(request("DELETE", "/api/v1/namespaces/a/pods/b"), Response(200, [], b"x" * 1500))
    ((labels, row),) = counted.rows("apiserver_response_sizes").items()
    assert labels == ("apiserver", "", "pods", "resource", "", "GET", "v1")
    assert row.tolist() == [0, 1, 0, 0, 0, 0, 0, 0, 1500]


@pytest.mark.parametrize("verb", ["WATCH", "CONNECT"])
def test_long_running_requests_count_when_they_have_ended(verb):
    """Until then only ``apiserver_longrunning_requests`` counts them; then they have a duration, but no size."""
    if verb == "WATCH":
        req, resp, of = request(query="watch=true"), Response(200, [], stream=stream), ("cluster", "", "WATCH", "v1")
    else:
        req, resp, of = request(path="/api/v1/namespaces/a/pods/b/exec"), Upgrade("", talk, none), ("resource", "exec", "CONNECT", "v1")
    assert req.long_running
    counted = Counted()
    req.started -= 2.5
    counted(req, resp)
    counted.filter.release(req)  # as soon as it is detached
    assert counted.rows("apiserver_request_total") == {} == counted.rows("apiserver_request_duration_seconds")
    for _ in range(2):  # however often that is reported
        resp.finish()
    assert counted.rows("apiserver_request_total") == {(str(resp.status), "apiserver", "", "", "pods", *of): 1}
    row = counted.rows("apiserver_request_duration_seconds")["apiserver", "", "", "pods", *of]
    assert [BUCKETS[i] for i, n in enumerate(row[:-1]) if n] == [3] and 2.5 <= row[-1] < 3
    own = counted.rows("apiserver_request_sli_duration_seconds")["apiserver", "", "pods", *of]
    assert sum(own[:-1]) == 1 and own[-1] == row[-1]
    assert counted.rows("apiserver_response_sizes") == {}


async def stream(write) -> None:
    raise AssertionError


async def talk(socket) -> None:
    raise AssertionError


def none() -> None:
    raise AssertionError


def test_clients_cannot_create_labels():
    """Unknown groups and resources, invented methods, non-resource paths."""
    counted = Counted()
    for i in range(20):
        counted(request(path=f"/apis/g{i}/v1/r{i}"), Response(404, []), known=False)
        counted(request("FOO", f"/p{i}"), Response(405, []), known=False)
    rows = counted.rows("apiserver_request_total")
    assert {(k[0], k[-2]): v for k, v in rows.items()} == {("404", "GET"): 20, ("405", "other"): 20}
    assert all(k[3:7] == ("", "", "", "") for k in rows)


def test_equal_values_of_workers_are_not_added_up():
    one, other = Counted(), Counted()
    for counted in (one, other):
        counted(request(path="/apis/storage.k8s.io/v1beta1/volumeattributesclasses/a"), Response(200, []))
        counted(request(path="/api/v1/componentstatuses"), Response(403, []))
    text = one.registry.expose([other.registry.dump()]).decode()
    assert [line for line in text.splitlines() if line.startswith("apiserver_requested_deprecated_apis")] == [
        'apiserver_requested_deprecated_apis{group="storage.k8s.io",removed_release="1.37",resource="volumeattributesclasses",'
        'subresource="",version="v1beta1"} 1'
    ]


def test_a_deprecated_version_is_labelled_as_such():
    registry = Registry()
    filter = latency(registry, Scheme().resource, lambda *of: of == ("ex.io", "v1beta1", "widgets"))
    for path in ("/apis/ex.io/v1beta1/widgets", "/apis/ex.io/v1/widgets"):
        req = request(path=path)
        req.known = True
        filter.after(req, Response(200, []))
    registry.expose()
    assert registry.metrics["apiserver_requested_deprecated_apis"].values == {("ex.io", "", "widgets", "", "v1beta1"): 1}


def test_unchanged_rows_are_not_added_up_again(monkeypatch):
    """All rows of 1,000 definitions with five verbs each were added up each second, on the loop: 32 ms for a thousand rows."""
    counted = Counted()

    def ask(i: int, query: str = "", status: int = 200) -> None:
        counted(request(path=f"/apis/g/v1/r{i}", query=query), Response(status, [], b"{}"))

    for i in range(50):
        ask(i)
        ask(i, "dryRun=All", 504)
    before = {name: dict(counted.rows(name)) for name in ("apiserver_request_total", "apiserver_response_sizes")}
    told, real = list[tuple[str, ...]](), latencies._Series._tell
    monkeypatch.setattr(latencies._Series, "_tell", lambda self, of, rows: told.append(of) or real(self, of, rows))
    assert counted.rows("apiserver_request_total") == before["apiserver_request_total"] and told == []
    ask(7, status=500)
    ask(7)
    ask(9)
    total = counted.rows("apiserver_request_total")
    assert {of[3] for of in told} == {"r7", "r9"}
    changed = {key: n for key, n in total.items() if n != before["apiserver_request_total"].get(key)}
    assert {(key[0], key[4]): n for key, n in changed.items()} == {("500", "r7"): 1, ("200", "r7"): 2, ("200", "r9"): 2}
    sizes = counted.rows("apiserver_response_sizes")
    assert {key[2]: (sum(row[:-1]), row[-1]) for key, row in sizes.items() if key[2] in ("r7", "r8")} == {"r7": (4, 8), "r8": (2, 4)}


def test_a_resource_that_is_removed_and_returns_starts_at_zero():
    counted = Counted()
    for _ in range(2):
        counted(request(path="/apis/g/v1/r"), Response(200, []))
        counted(request(path="/api/v1/pods"), Response(200, []))
        totals = {key[4]: n for key, n in counted.rows("apiserver_request_total").items()}
        counted.registry.forget("g", "r")
        durations = {key[3]: sum(row[:-1]) for key, row in counted.rows("apiserver_request_duration_seconds").items()}
        assert totals["r"] == 1 and durations == {"pods": totals["pods"]}
