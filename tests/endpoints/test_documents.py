"""Probes, documents and ports of a running server."""

from __future__ import annotations

import json
import socket
import ssl
from email.utils import parsedate_to_datetime

import pytest
import requests
import yaml

from kas.types.scheme import BUILTIN, decode_protobuf, open_envelope


def test_health_checks_are_addressable(client):
    assert client("GET", "/readyz") == (200, "ok")
    status, body = client("GET", "/livez?verbose")
    assert status == 200 and body.startswith("[+]ping ok\n") and body.endswith("livez check passed\n")
    assert "[+]etcd excluded: ok" in client("GET", "/livez?verbose&exclude=etcd")[1]
    assert client("GET", "/healthz/poststarthook/rbac/bootstrap-roles") == (200, "ok")
    headers = client.raw("GET", "/livez/ping").headers
    assert headers["content-type"] == "text/plain; charset=utf-8" and "x-content-type-options" not in headers
    assert client("GET", "/readyz/nope") == (404, "404 page not found\n")
    assert 'no matches for "","etcd,log"\n' in client("GET", "/livez?verbose&exclude=etcd,log&exclude=&exclude=ping")[1]  # not a list
    assert 'no matches for "nope"' in client("GET", "/readyz?verbose&exclude=nope")[1]


def test_version_and_index(client):
    assert client("GET", "/version")[1]["gitVersion"].startswith("v1.36.")
    assert {"/api", "/apis/apps/v1", "/openapi/v3", "/metrics"} <= set(client("GET", "/")[1]["paths"])


def test_metrics_are_prometheus_text(client):
    from prometheus_client.parser import text_string_to_metric_families

    client("GET", "/api/v1/namespaces/default")
    answer = client.raw("GET", "/metrics")
    text = answer.text
    families = {f.name: f for f in text_string_to_metric_families(text)}
    found = [s for s in families["apiserver_request"].samples if s.labels.get("resource") == "namespaces" and s.labels.get("verb") == "GET"]
    assert found and found[0].labels["code"] == "200"
    assert "apiserver_request_duration_seconds" in families
    assert "apiserver_current_inflight_requests" in families
    # Of the worker that answers, as promhttp reports it.
    assert int(families["process_start_time_seconds"].samples[0].value) == int(answer.headers["process-start-time-unix"])


def test_unknown_paths_do_not_grow_the_metrics(client):
    for i in range(20):
        client("GET", f"/apis/nope{i}.example.com/v1/things")
        client("GET", f"/api/v1/things{i}")
    assert "nope7" not in client.raw("GET", "/metrics").text and "things7" not in client.raw("GET", "/metrics").text


def test_openapi_has_entity_tags_and_hashed_addresses(client):
    first = client.raw("GET", "/openapi/v2")
    assert client.raw("GET", "/openapi/v2", If_None_Match=first.headers["etag"]).status_code == 304
    tag = first.headers["etag"]
    for known in (f"W/{tag}", f'"other", {tag}', f'W/"other",W/{tag}', "*"):
        assert client.raw("GET", "/openapi/v2", If_None_Match=known).status_code == 304, known
    for other in ('"other"', tag.strip('"'), f"w/{tag}", ""):
        assert client.raw("GET", "/openapi/v2", If_None_Match=other).status_code == 200, other
    index = client("GET", "/openapi/v3")[1]
    address = index["paths"]["apis/apps/v1"]["serverRelativeURL"]
    answer = client.raw("GET", address)
    assert answer.status_code == 200 and "immutable" in answer.headers["cache-control"]
    assert "/apis/apps/v1/namespaces/{namespace}/deployments" in answer.json()["paths"]
    same = client.raw("GET", address, If_None_Match=answer.headers["etag"])
    for each in (answer, same):  # caches use the latter's headers
        assert each.headers["cache-control"] == "public, immutable"
        sent, until = (parsedate_to_datetime(each.headers[name]) for name in ("date", "expires"))
        assert 364 <= (until - sent).days <= 365
    assert same.status_code == 304 and "expires" not in client.raw("GET", "/openapi/v3/apis/apps/v1").headers
    moved = client.session.get(client.server.url + "/openapi/v3/apis/apps/v1?hash=OLD", allow_redirects=False, timeout=60)
    assert moved.status_code == 301 and moved.headers["location"] == address
    # As Go's http.Redirect answers.
    assert moved.headers["content-type"] == "text/html; charset=utf-8" and moved.text == f'<a href="{address}">Moved Permanently</a>.\n\n'


def test_openapi_supports_ranges(client):
    """As Go's http.ServeContent: uncompressed documents by Range, unless If-Range names another one."""
    v3 = client("GET", "/openapi/v3")[1]["paths"]["apis/apps/v1"]["serverRelativeURL"]
    assert client("GET", "/openapi/v2")[1]["info"] == client("GET", v3)[1]["info"] == {"title": "Kubernetes", "version": "1.36"}
    for path in ("/openapi/v2", v3):
        whole = client.raw("GET", path)
        size, tag = len(whole.content), whole.headers["etag"]
        assert whole.headers["accept-ranges"] == "bytes"
        for text, first, last in (
            ("bytes=0-99", 0, 99), ("bytes=300000-300009", 300000, 300009), (f"bytes={size - 5}-", size - 5, size - 1),
            ("bytes=-7", size - 7, size - 1), (f"bytes=10-{10 * size}", 10, size - 1), (f"bytes=-{10 * size}", 0, size - 1),
        ):  # fmt: skip
            if first >= size:
                continue
            part = client.raw("GET", path, Range=text, If_Range=tag)
            assert part.status_code == 206 and part.content == whole.content[first : last + 1], text
            assert part.headers["content-range"] == f"bytes {first}-{last}/{size}" and "content-encoding" not in part.headers
            assert part.headers["content-length"] == str(last - first + 1) and part.headers["etag"] == tag
        head = client.raw("HEAD", path, Range="bytes=0-99")
        assert (head.status_code, head.headers["content-length"], head.content) == (206, "100", b"")
        for more in ({"If_Range": '"other"'}, {"If_Range": f"W/{tag}"}, {"Range": "bytes=0-1,5-6"}, {"Range": "bytes="}):
            answer = client.raw("GET", path, **{"Range": "bytes=0-99", **more})
            assert answer.status_code == 200 and answer.content == whole.content, more
        assert client.raw("GET", path, Range="bytes=0-99", If_None_Match=tag).status_code == 304
        past = client.raw("GET", path, Range=f"bytes={size}-")
        assert (past.status_code, past.text) == (416, "invalid range: failed to overlap\n")
        assert past.headers["content-range"] == f"bytes */{size}" and "immutable" not in past.headers["cache-control"]
        for wrong in ("bytes", "lines=0-1", "bytes=5-1", "bytes=-", "bytes=a-b", "bytes=--5", "bytes=1-2,x"):
            answer = client.raw("GET", path, Range=wrong)
            assert (answer.status_code, answer.text) == (416, "invalid range\n") and "content-range" not in answer.headers, wrong


def test_aggregated_discovery_has_an_entity_tag(client):
    accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    first = client.raw("GET", "/apis", Accept=accept)
    assert first.json()["kind"] == "APIGroupDiscoveryList"
    assert client.raw("GET", "/apis", Accept=accept, If_None_Match=first.headers["etag"]).status_code == 304
    # The form before this one is no longer served.
    beta = accept.replace("v=v2", "v=v2beta1")
    assert client.raw("GET", "/apis", Accept=beta).status_code == 406
    assert client.raw("GET", "/apis", Accept=f"{beta},application/json").json()["kind"] == "APIGroupList"
    # A client's preference is expressed by q, not by the order.
    assert client.raw("GET", "/apis", Accept=f"application/json;q=0.9,{accept}").json()["kind"] == "APIGroupDiscoveryList"
    assert client.raw("GET", "/apis", Accept=f"{accept};q=0.5,application/json").json()["kind"] == "APIGroupList"


@pytest.mark.parametrize("path", ["/api", "/apis"])
def test_aggregated_discovery_in_all_formats(client, path):
    kind = ";g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    first = client.raw("GET", path, Accept=f"application/json{kind}")
    yaml_form = client.raw("GET", path, Accept=f"application/yaml{kind}")
    assert yaml_form.headers["content-type"] == f"application/yaml{kind}" and yaml.safe_load(yaml_form.text) == first.json()
    packed = client.raw("GET", path, Accept=f"application/vnd.kubernetes.protobuf{kind},application/json")
    assert packed.headers["content-type"] == f"application/vnd.kubernetes.protobuf{kind}"
    api_version, named, body, _ = open_envelope(packed.content)
    assert (api_version, named) == ("apidiscovery.k8s.io/v2", "APIGroupDiscoveryList")
    found = decode_protobuf(BUILTIN.known("apidiscovery.k8s.io", "v2", named).type, body)
    assert [g["metadata"].get("name", "") for g in found["items"]] == [g["metadata"].get("name", "") for g in first.json()["items"]]
    assert yaml_form.headers["etag"] == packed.headers["etag"] == first.headers["etag"]
    assert "\n" in client.raw("GET", f"{path}?pretty=true", Accept=f"application/json{kind}").text.strip()


@pytest.mark.parametrize("path", ["/api", "/api/v1", "/apis/apps/v1", "/version"])
def test_documents_of_the_router_have_its_types(client, path):
    types = "application/json" if path == "/version" else "application/json, application/yaml, application/vnd.kubernetes.protobuf"
    code, body = client("GET", path, Accept="text/plain")
    assert (code, body["message"]) == (406, f"406: Not Acceptable\n\nAvailable representations: {types}")
    assert client.raw("GET", path, Accept="application/yaml").status_code == (406 if path == "/version" else 200)
    assert client.raw("GET", path, Accept="*/*").status_code == 200


@pytest.mark.parametrize("path", ["/apis", "/apis/apps"])
def test_documents_outside_of_the_router(client, path):
    code, body = client("GET", path, Accept="text/plain")
    assert (code, body["message"].partition(":")[0]) == (406, "only the following media types are accepted")


@pytest.mark.parametrize("path", ["/apis", "/apis/", "/apis/apps", "/api", "/apis/apps/v1"])
def test_documents_outside_of_the_router_answer_any_method(client, path):
    """The aggregator's documents are such; those of a version belong to the router."""
    for method in ("PUT", "POST", "DELETE", "OPTIONS"):
        answer = client.raw(method, path)
        if path in ("/api", "/apis/apps/v1"):
            assert answer.status_code == 405
        else:
            assert answer.status_code == 200 and answer.content == client.raw("GET", path).content


@pytest.mark.parametrize("path", ["/apis", "/apis/apps", "/apis/apps/v1", "/api/v1"])
@pytest.mark.parametrize("kind", ["Table", "PartialObjectMetadata"])
def test_documents_are_not_converted(client, path, kind):
    asked = f"application/json;as={kind};g=meta.k8s.io;v=v1"
    code, body = client("GET", path, Accept=asked)
    assert (code, body["message"].partition(":")[0]) == (406, "only the following media types are accepted")
    assert client("GET", path, Accept=f"{asked},application/json")[0] == 200


def test_a_path_with_a_broken_escape_is_refused(client):
    answer = client.raw("GET", "/api/v1/namespaces/default/pods/%25zz")
    assert answer.status_code == 400 and answer.json()["message"].startswith("Name parameter invalid")
    with socket.create_connection(("127.0.0.1", client.server.port), 60) as plain, ssl._create_unverified_context().wrap_socket(plain) as s:
        s.sendall(b"GET /api/v1/namespaces/default/pods/%zz HTTP/1.1\r\nHost: x\r\n\r\n")
        found = b""
        while piece := s.recv(4096):
            found += piece
    head, _, body = found.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ") and body == b"400 Bad Request"


def test_swagger_ui(client):
    assert "swagger-ui" in client.raw("GET", "/swagger-ui/").text
    assert client.raw("GET", "/swagger-ui/../../cli.py").status_code == 404


def test_large_answers_are_compressed(client, namespace):
    client("POST", f"/api/v1/namespaces/{namespace}/configmaps", {"metadata": {"name": "big"}, "data": {"a": "x" * 200_000}})
    answer = client.raw("GET", f"/api/v1/namespaces/{namespace}/configmaps/big", Accept_Encoding="gzip")
    assert answer.headers["content-encoding"] == "gzip" and len(answer.json()["data"]["a"]) == 200_000
    assert "content-encoding" not in client.raw("GET", "/version", Accept_Encoding="gzip").headers


@pytest.mark.parametrize("path", ["configmaps/big", "configmaps", "/openapi/v3", "/openapi/v2", "/swagger-ui/swagger-ui.css", "/apis"])
def test_gzip_is_not_used_if_refused(client, namespace, path):
    where = f"/api/v1/namespaces/{namespace}"
    for name in ("big", "bigger", "biggest"):
        client("POST", f"{where}/configmaps", {"metadata": {"name": name}, "data": {"a": "x" * 200_000}})
    url, more = (path, {}) if path[0] == "/" else (f"{where}/{path}", {})
    if path == "/apis":
        more = {"Accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"}
    taken = client.raw("GET", url, Accept_Encoding="deflate, gzip", **more)
    assert (taken.headers.get("content-encoding") == "gzip") is (path != "/apis" or len(taken.content) > 128 << 10)
    for refused in ("gzip;q=0", "identity, gzip;q=0", "x-gzip", "identity"):
        answer = client.raw("GET", url, Accept_Encoding=refused, **more)
        assert "content-encoding" not in answer.headers and answer.content == taken.content, refused


def test_credentials(client):
    url, ca = client.server.url, client.server.ca
    anonymous = requests.Session()
    anonymous.trust_env = False
    assert anonymous.get(url + "/api/v1/pods", verify=ca, timeout=60).status_code == 403
    assert anonymous.get(url + "/healthz", verify=ca, timeout=60).status_code == 200
    wrong = anonymous.get(url + "/api", headers={"Authorization": "Bearer nope"}, verify=ca, timeout=60)
    assert wrong.status_code == 401 and wrong.json()["reason"] == "Unauthorized"


def test_static_tokens_and_rbac(kas_server, connect, tmp_path):
    tokens = tmp_path / "tokens.csv"
    tokens.write_text('jane-token,jane,u1,"devs,testers"\nroot-token,root,u2,system:masters\n')
    server = kas_server("--token-auth-file", str(tokens))
    admin, jane = connect(server), connect(server)
    jane.session.headers["Authorization"] = "Bearer jane-token"
    assert jane("GET", "/api/v1/namespaces/default/configmaps")[0] == 403
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]
    rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
    assert admin("POST", rbac + "/roles", {"metadata": {"name": "r"}, "rules": rules})[0] == 201
    binding = {"metadata": {"name": "b"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
               "subjects": [{"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "devs"}]}  # fmt: skip
    assert admin("POST", rbac + "/rolebindings", binding)[0] == 201
    assert jane("GET", "/api/v1/namespaces/default/configmaps")[0] == 200
    who = jane("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", {})[1]["status"]["userInfo"]
    assert (who["username"], who["groups"]) == ("jane", ["devs", "testers", "system:authenticated"])
    assert admin("DELETE", rbac + "/rolebindings/b")[0] == 200
    assert jane("GET", "/api/v1/namespaces/default/configmaps")[0] == 403


def test_bad_token_file_is_refused(tmp_path):
    from tests.server.test_lifecycle import serve

    tokens = tmp_path / "tokens.csv"
    tokens.write_text("only-one-column\n")
    done = serve("--data-dir", str(tmp_path / "d"), "--secure-port", "auto", "--token-auth-file", str(tokens))
    assert done.returncode == 1 and "tokens.csv' must have at least 3 columns" in done.stderr and "Traceback" not in done.stderr


def test_plain_ports(kas_server):
    import re

    server = kas_server("--insecure-port", "auto", "--read-only-port", "auto", "--api-burst", "5", "--api-rate", "0.001")
    insecure, read_only = re.findall(r"http://127\.0\.0\.1:\d+", server.output)
    s = requests.Session()
    s.trust_env = False
    made = s.post(insecure + "/api/v1/namespaces/default/configmaps", json={"metadata": {"name": "a"}}, timeout=60)
    assert made.status_code == 201
    assert s.get(read_only + "/api/v1/namespaces/default/configmaps/a", timeout=60).status_code == 200
    assert s.delete(read_only + "/api/v1/namespaces/default/configmaps/a", timeout=60).status_code == 405
    assert s.get(read_only + "/api/v1/secrets", timeout=60).status_code in (403, 429)
    statuses = [s.get(read_only + "/api/v1/namespaces", timeout=60).status_code for _ in range(6)]
    assert 429 in statuses


def test_profiling_and_logs_are_off_by_default(kas_server, connect, client, tmp_path):
    assert client("GET", "/debug/pprof/")[0] == 404 and client("GET", "/logs/")[0] == 404
    (tmp_path / "a.log").write_text("line\n")
    (tmp_path.parent / "secret").write_text("no")
    server = kas_server("--profiling", "--enable-logs-handler", "--log-dir", str(tmp_path))
    api = connect(server)
    assert "a.log" in api("GET", "/logs/")[1] and api("GET", "/logs/a.log") == (200, "line\n")
    assert api.raw("GET", "/logs/%2e%2e/secret").status_code in (403, 404)
    assert "store" in api("GET", "/debug/pprof/heap")[1]
    assert "thread" in api("GET", "/debug/pprof/threads")[1]
    assert api("GET", "/debug/flags/") == (200, "v\n") and api("GET", "/debug/flags/v") == (406, "unsupported http method\n")
    assert api("PUT", "/debug/flags/v", "3", "text/plain") == (200, "successfully set klog.logging.verbosity to 3\n")
    assert api("PUT", "/debug/flags/v", "4", "text/plain", Impersonate_User="jane")[0] == 403
    assert client("PUT", "/debug/flags/v", "4", "text/plain")[0] == 404
    assert client.raw("GET", "/flagz").text.startswith("\nkube-apiserver flags")


@pytest.mark.parametrize("path,kind", [("/statusz", "Statusz"), ("/flagz", "Flagz")])
def test_debugging_pages_are_text_or_objects(client, path, kind):
    def get(accept):
        answer = client.raw("GET", path, Accept=accept)
        return answer.status_code, answer.headers["content-type"], answer.text

    form = "application/json;v={};g=config.k8s.io;as={}".format
    for accept in (None, "*/*", "text/plain", "text/*", form("v9", kind) + ",*/*"):
        status, media, text = get(accept)
        assert (status, media) == (200, "text/plain; charset=utf-8") and text.startswith("\nkube-apiserver ")
    for version in ("v1alpha1", "v1beta1"):
        status, media, text = get(form(version, kind))
        value = json.loads(text)
        assert (status, media) == (200, form(version, kind).replace("v=", "g=config.k8s.io;v=").replace(";g=config.k8s.io;as", ";as"))
        assert text.endswith("}\n")
        told = client.raw("GET", path, Accept=form(version, kind)).headers.get("warning")
        deprecated = f'299 - "This version of the {path[1:]} endpoint is deprecated. Please use a newer version."'
        assert told == (deprecated if version == "v1alpha1" else None)
        assert {k: value[k] for k in ("kind", "apiVersion", "metadata")} == {
            "kind": kind, "apiVersion": f"config.k8s.io/{version}", "metadata": {"name": "kube-apiserver"},
        }  # fmt: skip
    if kind == "Flagz":
        assert value["flags"]["secure-port"]
    else:
        assert list(value)[3:] == ["startTime", "uptimeSeconds", "goVersion", "binaryVersion", "emulationVersion", "paths"]
        assert value["binaryVersion"].startswith(value["emulationVersion"] + ".") and "/statusz" in value["paths"]
    status, media, text = get(f"application/yaml;v=v1beta1;g=config.k8s.io;as={kind}")
    assert (status, media) == (200, f"application/yaml;g=config.k8s.io;v=v1beta1;as={kind}") and f"kind: {kind}\n" in text
    assert client.raw("POST", path).text == client.raw("GET", path).text
    page = f";v=v1beta1;g=config.k8s.io;as={kind}"
    refused = (
        "application/json", "application/xml", form("v1", kind), form("v1beta1", "Other"), "application/json;v=v1beta1;g=config.k8s.io",
        "application/vnd.kubernetes.protobuf" + page, "text/plain" + page,
    )  # fmt: skip
    assert {get(accept)[0] for accept in refused} == {406}
    assert json.loads(get("application/json")[2])["message"].endswith("are accepted: application/json, application/yaml, text/plain")


@pytest.mark.parametrize(("expects", "status"), [("100-continue", 201), ("x, 100-Continue", 201), ("", 201), ("other", 417)])
def test_expect_headers(client, namespace, expects, status):
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    answer = client.raw("POST", path, {"metadata": {"name": "a"}}, Expect=expects)
    assert answer.status_code == status
    if status == 417:
        assert (answer.headers["connection"], answer.text) == ("close", "")
        assert client("GET", f"{path}/a")[0] == 404


@pytest.mark.parametrize("path", ["/api/v1/namespaces/a%2Fb", "/api/v1/namespaces/..%2f..%2fetc", "/api/v1/namespaces/%25"])
def test_no_name_escapes_its_prefix(client, path):
    assert client.raw("GET", path).status_code in (400, 404)


def test_runtime_config(kas_server, connect):
    server = kas_server("--runtime-config", "api/beta=true,autoscaling/v1=false")
    api = connect(server)
    assert api("GET", "/apis/networking.k8s.io/v1beta1")[0] == 200
    assert api("GET", "/apis/autoscaling/v1")[0] == 404
    assert [v["version"] for v in api("GET", "/apis/autoscaling")[1]["versions"]] == ["v2"]
