"""Lists: revisions, matches, pages, tokens and formats, by upstream's rules (storage/cacher, etcd3/store.go)."""

from __future__ import annotations

import base64
import gzip
import json
import threading
import time

import pytest

from kas.testing.server import KasServer
from kas.types.scheme import BUILTIN, decode, encode_protobuf
from tests.intervals import shorter_intervals

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
AS_PARTIAL = ";as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
PARTIAL = "application/json" + AS_PARTIAL
PROTOBUF = "application/vnd.kubernetes.protobuf"


@pytest.fixture
def maps(client, namespace):
    """Creates ten config maps beside the one that every namespace gets; returns the path of the collection."""
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    for i in range(10):
        status, body = client("POST", path, {"metadata": {"name": f"c{i}", "labels": {"i": str(i % 2)}}, "data": {"n": str(i)}})
        assert status in (201, 409), body
    deadline = time.monotonic() + 30
    while client("GET", f"{path}/kube-root-ca.crt")[0] != 200:  # the number of config maps must not change meanwhile
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return path


def names(body):
    return [x["metadata"]["name"] for x in body["items"] if x["metadata"]["name"] != "kube-root-ca.crt"]


def follow(client, path, query, **headers):
    """Reads every page of a list; returns (bodies, names)."""
    bodies, found, token = [], [], ""
    while True:
        status, body = client("GET", f"{path}?{query}&continue={token}", **headers)
        assert status == 200, body
        bodies.append(body)
        found += names(body)
        token = body["metadata"].get("continue", "")
        if not token:
            return bodies, found


def test_pages_are_complete_and_of_one_revision_while_others_write(client, maps):
    stop = threading.Event()

    def write():
        i = 0
        while not stop.is_set():
            client("POST", maps, {"metadata": {"name": f"new{i}"}})
            client("DELETE", f"{maps}/new{i}")
            i += 1

    _, before = follow(client, maps, "limit=500")
    writer = threading.Thread(target=write)
    writer.start()
    try:
        bodies, found = follow(client, maps, "limit=2&labelSelector=i")
    finally:
        stop.set()
        writer.join()
    assert found == before == [f"c{i}" for i in range(10)]
    assert len({b["metadata"]["resourceVersion"] for b in bodies}) == 1


def test_remaining_count_only_without_selectors(client, maps):
    _, whole = client("GET", maps)
    total = len(whole["items"])
    _, page = client("GET", f"{maps}?limit=3")
    assert page["metadata"]["remainingItemCount"] == total - 3
    _, second = client("GET", f"{maps}?limit=3&continue={page['metadata']['continue']}")
    assert second["metadata"]["remainingItemCount"] == total - 6
    _, selected = client("GET", f"{maps}?limit=2&labelSelector=i=1")
    assert "continue" in selected["metadata"] and "remainingItemCount" not in selected["metadata"]


def test_a_token_continues_right_after_the_last_object(client, maps):
    """Like upstream's, whatever follows: an object created between two pages is not skipped at any revision."""
    page = client("GET", f"{maps}?limit=2&labelSelector=i=1")[1]
    token = page["metadata"]["continue"]
    said = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    assert said == {"v": "meta.k8s.io/v1", "rv": int(page["metadata"]["resourceVersion"]), "start": "/c3\0"}
    last = client("GET", f"{maps}?limit=3&labelSelector=i=1&continue={token}")[1]
    assert names(last) == ["c5", "c7", "c9"] and last["metadata"].get("continue")  # another one follows, which is not selected
    token = last["metadata"]["continue"]
    end = client("GET", f"{maps}?limit=3&labelSelector=i=1&continue={token}")[1]
    assert names(end) == [] and "continue" not in end["metadata"]


def test_revision_zero_ignores_limits(client, maps):
    _, body = client("GET", f"{maps}?limit=1&resourceVersion=0")
    assert len(names(body)) == 10 and "continue" not in body["metadata"]


def test_revision_zero_ignores_limits_after_a_token(client, maps):
    token = client("GET", f"{maps}?limit=1")[1]["metadata"]["continue"]
    whole = client("GET", maps)[1]["items"]
    assert client("GET", f"{maps}?limit=1&continue={token}&resourceVersion=0")[1]["items"] == whole[1:]


def test_invalid_revisions(client, maps):
    """Only lists check the number before the storage sees it; elsewhere the storage error is no API error."""
    why = 'resourceVersion: Invalid value: "x": strconv.ParseUint: parsing "x": invalid syntax'
    name = client("GET", maps)[1]["items"][0]["metadata"]["name"]
    code, body = client("GET", f"{maps}?resourceVersion=x")
    assert (code, body["reason"], body["message"]) == (400, "BadRequest", f"invalid resource version: {why}")
    for path in (f"{maps}/{name}?resourceVersion=x", f"{maps}?watch=1&resourceVersion=x"):
        code, body = client("GET", path)
        assert (code, body["message"], "reason" in body) == (500, why, False)


def test_an_exact_revision_shows_the_old_state(client, maps):
    _, before = client("GET", maps)
    rv = before["metadata"]["resourceVersion"]
    client("DELETE", f"{maps}/c3")
    _, now = client("GET", maps)
    assert "c3" not in names(now)
    for query in (f"resourceVersion={rv}&resourceVersionMatch=Exact", f"resourceVersion={rv}&limit=500"):
        _, past = client("GET", f"{maps}?{query}")
        assert "c3" in names(past) and past["metadata"]["resourceVersion"] == rv
    _, newer = client("GET", f"{maps}?resourceVersion={rv}&resourceVersionMatch=NotOlderThan&limit=500")
    assert "c3" not in names(newer)
    _, single = client("GET", f"{maps}?resourceVersion={rv}&resourceVersionMatch=Exact&fieldSelector=metadata.name=c3")
    assert names(single) == ["c3"] and single["metadata"]["resourceVersion"] == rv


def test_a_future_revision_is_waited_for_then_refused(client, maps):
    _, body = client("GET", maps)
    future = int(body["metadata"]["resourceVersion"]) + 1_000_000
    r = client.raw("GET", f"{maps}?resourceVersion={future}")
    assert r.status_code == 504 and r.headers["Retry-After"] == "1"
    assert r.json()["details"]["causes"] == [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    near = int(client("GET", maps)[1]["metadata"]["resourceVersion"]) + 1
    threading.Timer(0.5, client, ("POST", maps, {"metadata": {"name": "late"}})).start()
    status, body = client("GET", f"{maps}?resourceVersion={near}")
    assert status == 200 and int(body["metadata"]["resourceVersion"]) >= near


@pytest.mark.parametrize(
    ("query", "status", "text"),
    [
        ("continue=x", 400, "invalid continue token"),
        ("continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MCwic3RhcnQiOiJhIn0", 400, "incorrect encoded start resourceVersion"),
        ("resourceVersion=-1", 400, "invalid syntax"),
        ("resourceVersion=" + "9" * 5000, 400, "value out of range"),
        ("limit=" + "9" * 5000, 400, "value out of range"),
        ("limit=", 400, 'parsing ""'),
        ("limit=%D9%A1", 400, "invalid syntax"),
        ("resourceVersionMatch=Exact", 422, "forbidden unless resourceVersion is provided"),
        ("resourceVersion=0&resourceVersionMatch=Exact", 422, 'forbidden for resourceVersion "0"'),
        ("sendInitialEvents=true", 422, "sendInitialEvents is forbidden for list"),
    ],
)
def test_refusals(client, maps, query, status, text):
    code, body = client("GET", f"{maps}?{query}")
    assert code == status and text in body["message"], body


def test_a_token_excludes_a_revision_and_a_match(client, maps):
    _, page = client("GET", f"{maps}?limit=1")
    token = page["metadata"]["continue"]
    code, body = client("GET", f"{maps}?continue={token}&resourceVersion=5")
    assert (code, body["message"]) == (400, "specifying resource version is not allowed when using continue")
    code, body = client("GET", f"{maps}?continue={token}&resourceVersion=5&resourceVersionMatch=Exact")
    assert code == 422 and "forbidden when continue is provided" in body["message"]


def test_by_name_in_all_namespaces(client, maps, namespace):
    status, body = client("GET", "/api/v1/configmaps?fieldSelector=metadata.name=c7")
    assert status == 200
    assert [x["metadata"]["name"] for x in body["items"] if x["metadata"]["namespace"] == namespace] == ["c7"]


def test_all_formats_have_the_same_objects(client, maps):
    _, whole = client("GET", maps)
    _, table = client("GET", maps, Accept=TABLE)
    assert [r["object"]["metadata"]["name"] for r in table["rows"]] == [x["metadata"]["name"] for x in whole["items"]]
    _, partial = client("GET", maps, Accept=PARTIAL)
    assert [x["metadata"] for x in partial["items"]] == [x["metadata"] for x in whole["items"]]
    assert {x["kind"] for x in partial["items"]} == {"PartialObjectMetadata"}
    for query in ("", "?limit=4", "?limit=4&labelSelector=i%3D1", "?resourceVersion=0&limit=4", "?fieldSelector=metadata.name%3Dc7"):
        alike(client, maps + query)
        alike(client, maps + query, AS_PARTIAL)
    import yaml

    got = yaml.safe_load(client.raw("GET", maps, Accept="application/yaml").content)
    assert names(got) == names(whole)


def test_long_lists_are_complete_in_every_format(client, namespace):
    """Some MiB: streamed in pages, in chunks, compressed, and with explicit limits longer than a page."""
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    for i in range(200):
        status, body = client("POST", path, {"metadata": {"name": f"big{i:03}"}, "data": {"x": "y" * 20_000}})
        assert status in (201, 409), body
    r = client.raw("GET", path, Accept_Encoding="identity", User_Agent="test")
    assert "Content-Length" not in r.headers and len(r.content) > 3_600_000
    whole = unrevised(json.loads(r.content))
    assert names(whole) == [f"big{i:03}" for i in range(200)]
    packed = client.raw("GET", path, Accept_Encoding="gzip", User_Agent="test")
    assert packed.headers["Content-Encoding"] == "gzip" and unrevised(packed.json()) == whole
    status, limited = client("GET", f"{path}?limit=150")
    assert len(limited["items"]) == 150 and limited["metadata"]["remainingItemCount"] == len(whole["items"]) - 150
    status, rest = client("GET", f"{path}?limit=150&continue={limited['metadata']['continue']}")
    assert limited["items"] + rest["items"] == whole["items"]
    assert rest["metadata"] == {"resourceVersion": limited["metadata"]["resourceVersion"]}
    _, table = client("GET", path, Accept=TABLE)
    assert [r["object"]["metadata"]["name"] for r in table["rows"]] == [x["metadata"]["name"] for x in whole["items"]]
    assert len(table["columnDefinitions"]) == 3 and unrevised(table)["metadata"] == whole["metadata"]
    _, short = client("GET", f"{path}?limit=155", Accept=TABLE)
    assert len(short["rows"]) == 155 and short["metadata"]["remainingItemCount"] == len(whole["items"]) - 155
    alike(client, path)
    alike(client, path + "?limit=150")
    alike(client, path, AS_PARTIAL)
    _, partial = client("GET", path, Accept=PARTIAL)
    assert [x["metadata"] for x in partial["items"]] == [x["metadata"] for x in whole["items"]]
    indented = client.raw("GET", f"{path}?pretty=1", Accept_Encoding="identity").content
    assert unrevised(json.loads(indented)) == whole and b'\n  "items": [' in indented


def test_protobuf_at_old_revisions(client, maps):
    """Single objects and lists at an old revision, some overwritten or deleted since; answers to writes."""
    _, before = client("GET", maps)
    body = json.dumps({"metadata": {"name": "c3"}, "data": {"n": "new"}}).encode()
    answers = [client.raw("PUT", f"{maps}/c3", body, Accept=PROTOBUF).content, client.raw("GET", f"{maps}/c3", Accept=PROTOBUF).content]
    assert answers[0] == answers[1] == protobuf_of(client("GET", f"{maps}/c3")[1])
    dry = client("PUT", f"{maps}/c3?dryRun=All", {"metadata": {"name": "c3"}, "data": {"n": "dry"}})[1]
    again = json.dumps({"metadata": {"name": "c3"}, "data": {"n": "dry"}}).encode()
    assert client.raw("PUT", f"{maps}/c3?dryRun=All", again, Accept=PROTOBUF).content == protobuf_of(dry)
    client("DELETE", f"{maps}/c5")
    exact = f"resourceVersion={before['metadata']['resourceVersion']}&resourceVersionMatch=Exact"
    assert client.raw("GET", f"{maps}?{exact}", Accept=PROTOBUF).content == protobuf_of(before)
    page = client("GET", f"{maps}?{exact}&limit=6")[1]
    assert client.raw("GET", f"{maps}?{exact}&limit=6", Accept=PROTOBUF).content == protobuf_of(page)


def unrevised(answer):
    """Returns a list without its revision: the server's own loops write between requests."""
    return {**answer, "metadata": {k: v for k, v in answer["metadata"].items() if k != "resourceVersion"}}


def alike(client, path, form=""):
    """Compares JSON and protobuf, including the list's revision and token."""
    for _ in range(50):
        before = client("GET", path, Accept="application/json" + form)[1]
        proto = client.raw("GET", path, Accept=PROTOBUF + form).content
        after = client("GET", path, Accept="application/json" + form)[1]
        if before == after:  # nothing was written in between
            assert proto == protobuf_of(before)
            return
    raise AssertionError(f"{path} does not come to rest")


def protobuf_of(answer):
    """Returns the protobuf answer that corresponds to a JSON answer."""
    group, _, version = answer["apiVersion"].rpartition("/")
    kind = BUILTIN.known(group, version, answer["kind"])
    return encode_protobuf(kind.type, decode(kind.type, answer)[0], api_version=answer["apiVersion"], kind=answer["kind"])


def test_versions_that_are_not_stored(client, namespace):
    path = f"/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers"
    metric = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}}}
    spec = {"scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"}, "maxReplicas": 3, "metrics": [metric]}
    for i in range(3):
        client("POST", path, {"metadata": {"name": f"h{i}"}, "spec": spec})
    _, v1 = client("GET", path.replace("/v2/", "/v1/"))
    assert v1["apiVersion"] == "autoscaling/v1" and [x["spec"]["targetCPUUtilizationPercentage"] for x in v1["items"]] == [70] * 3
    _, page = client("GET", path.replace("/v2/", "/v1/") + "?limit=2")
    assert len(page["items"]) == 2 and page["metadata"]["remainingItemCount"] == 1
    for version in ("v1", "v2"):
        where = path.replace("/v2/", f"/{version}/")
        alike(client, where)
        alike(client, where, AS_PARTIAL)
        alike(client, f"{where}/h1")


def test_an_expired_token_gives_one_that_continues(tmp_path, connect):
    """After compaction a page is answered with 410; its Status contains a token that continues at the current revision."""
    flags = "--history-window=1s", "--etcd-compaction-interval=1s", "--unsafe-no-fsync"
    with KasServer(tmp_path, *flags, prefix=shorter_intervals("kas.controllers.runner.COMPACT_EVERY_S=0.2")) as server:
        _expired_tokens_give_a_token(connect(server))


def _expired_tokens_give_a_token(client):
    path = "/api/v1/namespaces/default/configmaps"
    for i in range(6):
        client("POST", path, {"metadata": {"name": f"a{i}"}})
    _, page = client("GET", f"{path}?limit=2")
    token, rv = page["metadata"]["continue"], page["metadata"]["resourceVersion"]
    until = time.monotonic() + 60
    while time.monotonic() < until:
        client("POST", path, {"metadata": {"generateName": "z"}})
        status, body = client("GET", f"{path}?limit=2&continue={token}")
        if status == 410:
            break
        time.sleep(0.5)
    assert status == 410 and body["reason"] == "Expired" and "inconsistent list" in body["message"]
    new = body["metadata"]["continue"]
    padded = new + "=" * (-len(new) % 4)
    assert json.loads(base64.urlsafe_b64decode(padded))["rv"] == -1
    status, rest = client("GET", f"{path}?limit=500&continue={new}")
    assert status == 200 and [n for n in names(rest) if n.startswith("a")] == ["a2", "a3", "a4", "a5"]
    status, body = client("GET", f"{path}?resourceVersion={rv}&resourceVersionMatch=Exact")
    assert (status, body["message"]) == (410, "The resourceVersion for the provided list is too old.")
    status, body = client("GET", f"{path}?resourceVersion={rv}&resourceVersionMatch=Exact&fieldSelector=metadata.name=a1")
    assert (status, body["message"]) == (410, "The resourceVersion for the provided list is too old.")
    status, body = client("DELETE", f"{path}?resourceVersion={rv}&dryRun=All")  # the objects at that time
    assert (status, body["message"]) == (410, "The resourceVersion for the provided list is too old.")


def test_a_gzip_answer_is_a_complete_member(client, namespace):
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    for i in range(20):
        client("POST", path, {"metadata": {"name": f"g{i}"}, "data": {"x": "z" * 200_000}})
    with client.session.get(client.server.url + path, headers={"Accept-Encoding": "gzip"}, stream=True, timeout=60) as r:
        assert len(json.loads(gzip.decompress(r.raw.read(decode_content=False)))["items"]) >= 20


def test_an_unsupported_format_is_reported_before_a_missing_object(client, namespace):
    path = f"/api/v1/namespaces/{namespace}/configmaps/absent"
    assert client("GET", path, Accept="application/json;as=Bogus;g=meta.k8s.io;v=v1")[0] == 406
    assert client("GET", path, Accept=TABLE)[0] == 404
