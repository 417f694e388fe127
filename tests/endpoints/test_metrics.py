"""Every metric family of /metrics and /metrics/slis changes when the event happens that it names."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import mmap
import os
import resource
import socket
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kas import KUBERNETES_VERSION
from kas.apiextensions import celrules
from kas.auth.authn.x509 import Certificates
from kas.auth.tokens import bound_claims, legacy_claims
from kas.client.hooks import HookClients, Shares
from kas.client.kubeconfig import Users
from kas.config import features
from kas.controllers.queue import WorkQueue
from kas.endpoints.custom.converters import converters
from kas.endpoints.metrics import MetricsEndpoint
from kas.meta.errors import ApiError, not_found
from kas.observe.stability import HIDDEN
from kas.request.http import Request, Response
from kas.store import Op, StoreError
from kas.types.scheme import schema_type
from tests import pki
from tests.endpoints import counted_metrics, flow_metrics
from tests.endpoints.customs import DEFINITIONS, definition, version
from tests.endpoints.inprocess import Stream
from tests.kinds.test_certificates import REQUEST
from tests.pki import generate_key
from tests.server.whole import EVERYBODY, World
from tests.tlsstub import Answer, TLSStub

PODS = "/api/v1/namespaces/default/pods"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


class Metered:
    """A whole server with requests to it, and its metrics."""

    def __init__(self, world: World) -> None:
        self.world, self.server = world, world.server

    def begin(self, method: str, path: str, body: Any = None, token: str | None = None) -> Any:
        """Starts a request; returns a Response or an awaitable. Without a ``token`` the administrator asks; "" is anonymous."""
        path, _, query = path.partition("?")
        token = self.world.token if token is None else token
        headers = [(b"authorization", f"Bearer {token}".encode())] if token else []
        headers.append((b"content-type", b"application/json"))
        return self.server.chain(Request(method, path, query, headers, b"" if body is None else json.dumps(body).encode()))

    async def __call__(self, method: str, path: str, body: Any = None, token: str | None = None) -> Response:
        result = self.begin(method, path, body, token)
        return result if isinstance(result, Response) else await result

    def value(self, sample: str, path: str = "/metrics", **labels: str) -> float:
        """Returns the sum of a sample's exposed values with these labels; 0 if there is none."""
        # Only these families are read: reading all takes most of a case's time, and test_counters_never_decrease reads all.
        lines = (line for line in self.world.ask(path)[1].splitlines(keepends=True) if line.startswith(sample))
        # The parser adds the suffix to counters, which not all of upstream's have.
        names = (sample, sample + "_total")
        families = text_string_to_metric_families("".join(lines))
        return sum(s.value for f in families for s in f.samples if s.name in names and labels.items() <= s.labels.items())

    async def create(self, name: str, **more: Any) -> None:
        assert (await self("POST", CONFIG_MAPS, {"metadata": {"name": name}, **more})).status == 201


CASES: dict[str, Callable[[Metered], Awaitable[None]]] = {}
# Families whose case needs a server with flags.
FLAGS: dict[str, dict[str, Any]] = {}


def of(family: str, **flags: Any) -> Callable[[Callable[[Metered], Awaitable[None]]], Callable[[Metered], Awaitable[None]]]:
    def add(case: Callable[[Metered], Awaitable[None]]) -> Callable[[Metered], Awaitable[None]]:
        CASES[family], FLAGS[family] = case, flags
        return case

    return add


flow_metrics.register(of)
counted_metrics.register(of)


@of("apiserver_request_total")
async def requests(m: Metered) -> None:
    labels = {"verb": "GET", "resource": "configmaps", "version": "v1", "scope": "resource"}
    await m.create("a")
    for name, code in (("a", "200"), ("none", "404")):
        await m("GET", f"{CONFIG_MAPS}/{name}")
        assert m.value("apiserver_request_total", code=code, **labels) == 1
    assert m.value("apiserver_request_total", code="201", verb="POST", resource="configmaps") == 1


@of("apiserver_request_duration_seconds")
async def durations(m: Metered) -> None:
    await m("GET", PODS)
    labels = {"verb": "LIST", "resource": "pods"}
    assert m.value("apiserver_request_duration_seconds_count", **labels) == 1
    first = m.value("apiserver_request_duration_seconds_sum", **labels)
    await m("GET", PODS)
    assert m.value("apiserver_request_duration_seconds_count", **labels) == 2
    assert m.value("apiserver_request_duration_seconds_sum", **labels) > first > 0


@of("apiserver_request_sli_duration_seconds", **flow_metrics.FLAGS)
async def own_durations(m: Metered) -> None:
    own, whole = "apiserver_request_sli_duration_seconds", "apiserver_request_duration_seconds"
    async with flow_metrics.crowded(m):
        await asyncio.sleep(0.02)
    labels = {"verb": "LIST", "resource": "pods", "version": "v1", "scope": "namespace", "component": "apiserver"}
    assert m.value(f"{own}_count", **labels) == m.value(f"{whole}_count", **labels) == 2
    # The time in the queue does not count as the server's.
    assert 0 < m.value(f"{own}_sum", **labels) < m.value(f"{whole}_sum", **labels) - 0.02
    await m("POST", f"{CONFIG_MAPS}?dryRun=All", {"metadata": {"name": "dry"}})
    assert m.value(f"{whole}_count", verb="POST", resource="configmaps") == m.value(f"{own}_count", verb="POST", resource="configmaps") + 1


@of("apiserver_requested_deprecated_apis")
async def deprecated(m: Metered) -> None:
    family = "apiserver_requested_deprecated_apis"
    await m("GET", PODS)
    await m("GET", "/api/v1/namespaces/default/endpoints", token="")  # is refused
    assert m.value(family) == 0
    for _ in range(2):
        await m("GET", "/api/v1/namespaces/default/endpoints")
    assert m.value(family, group="", removed_release="", resource="endpoints", subresource="", version="v1") == m.value(family) == 1
    old = version("v1beta1", storage=False, deprecated=True)
    crd = json.loads((await m("POST", DEFINITIONS, definition("deprecated.example.com", version(), old))).body)
    crd["status"] = {"acceptedNames": crd["spec"]["names"], "storedVersions": ["v1"], "conditions": [
        {"type": kind, "status": "True", "reason": "a", "message": ""} for kind in ("NamesAccepted", "Established")
    ]}  # fmt: skip
    assert (await m("PUT", f"{DEFINITIONS}/{crd['metadata']['name']}/status", crd)).status == 200
    m.server.catch_up()
    for of_it in ("v1", "v1beta1"):
        assert (await m("GET", f"/apis/deprecated.example.com/{of_it}/widgets")).status == 200
    assert m.value(family, group="deprecated.example.com") == m.value(family, resource="widgets", version="v1beta1") == 1


@of("kubernetes_feature_enabled")
async def gates(m: Metered) -> None:
    family = "kubernetes_feature_enabled"
    assert m.value(family, name="GracefulNodeShutdown", stage="BETA") == 1
    assert m.value(family, name="APIServerIdentity", stage="BETA") == 1
    off = next(name for name, gate in features.known().items() if gate.stage == "Alpha" and name not in m.server.features)
    assert m.value(family, name=off, stage="ALPHA") == 0 and f'name="{off}"' in m.world.ask("/metrics")[1]
    assert m.value(family, stage="") > 0


@of("kubernetes_build_info")
async def build(m: Metered) -> None:
    info = json.loads(m.world.ask("/version")[1])
    labels = {"git_version": info["gitVersion"], "major": info["major"], "minor": info["minor"], "platform": info["platform"]}
    assert m.value("kubernetes_build_info", **labels) == 1


@of("version_info")
async def versions(m: Metered) -> None:
    labels = {"binary": KUBERNETES_VERSION, "component": "kube", "emulation": "1.36", "min_compat": "1.35"}
    assert m.value("version_info", **labels) == 1


async def signed(m: Metered, name: str, wanted_s: int | None, valid_s: int, signer: str) -> None:
    """Returns a request for a certificate of this many seconds, and one whose lifetime the signer chooses."""
    at = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
    spec = {"request": REQUEST, "signerName": signer, "usages": ["client auth"]}
    asked = await m("POST", at, {"metadata": {"name": name}, "spec": spec if wanted_s is None else {**spec, "expirationSeconds": wanted_s}})
    assert asked.status == 201, asked.body
    status: dict[str, Any] = {"conditions": [{"type": "Approved", "status": "True", "reason": "a"}]}
    approved = await m("PUT", f"{at}/{name}/approval", {**json.loads(asked.body), "status": status})
    status = json.loads(approved.body)["status"]
    status["certificate"] = base64.b64encode(pki.issue([("CN", "a")], begins_s=-300, ends_s=valid_s - 300).pem).decode()
    obj = {**json.loads(approved.body), "status": status}
    for query in ("?dryRun=All", ""):
        assert (await m("PUT", f"{at}/{name}/status{query}", obj)).status == 200
    obj = json.loads((await m("GET", f"{at}/{name}")).body)
    obj["status"]["conditions"][0]["reason"] = "b"
    assert (await m("PUT", f"{at}/{name}/status", obj)).status == 200  # it was issued before


CLIENT = "kubernetes.io/kube-apiserver-client"


@of("apiserver_certificates_registry_csr_requested_duration_total")
async def certificates_with_a_time(m: Metered) -> None:
    for n, (wanted_s, signer) in enumerate(((None, CLIENT), (600, CLIENT), (600, "example.com/a"), (86400, "example.com/b"))):
        await signed(m, f"c{n}", wanted_s, 86400, signer)
    family = "apiserver_certificates_registry_csr_requested_duration_total"
    assert (m.value(family, signerName=CLIENT), m.value(family, signerName="other"), m.value(family)) == (1, 2, 3)


@of("apiserver_certificates_registry_csr_honored_duration_total")
async def certificates_for_the_time(m: Metered) -> None:
    """A certificate may begin five minutes ago, and its lifetime may differ by a twentieth."""
    cases = ((600, 900), (600, 930), (7200, 7500), (86400, 86400), (172800, 86400), (1800, 600))
    for n, (wanted_s, valid_s) in enumerate(cases):
        await signed(m, f"c{n}", wanted_s, valid_s, CLIENT)
    assert m.value("apiserver_certificates_registry_csr_honored_duration_total", signerName=CLIENT) == 3


@of("disabled_metrics_total", disabled_metrics=["apiserver_request_total", "nobodys"])
async def disabled(m: Metered) -> None:
    await m.create("a")
    text = m.world.ask("/metrics")[1]
    assert m.value("disabled_metrics_total") == 1 and "apiserver_request_total" not in text and "apiserver_request_duration" in text


@of("hidden_metrics_total")
async def hidden(m: Metered) -> None:
    await m.create("a")
    assert m.value("hidden_metrics_total") == len(HIDDEN) and not any(name in m.world.ask("/metrics")[1] for name in HIDDEN)


ALLOWED = {"apiserver_request_total,verb": "LIST", "apiserver_request_duration_seconds,verb": "LIST"}


@of("cardinality_enforcement_unexpected_categorizations_total", allow_metric_labels=ALLOWED)
async def unexpected(m: Metered) -> None:
    """Returns what was counted and observed under a value that is not shown."""
    name = "cardinality_enforcement_unexpected_categorizations_total"
    assert m.value(name) == 0
    await m("GET", PODS)
    assert m.value(name) == 0
    await m.create("a")
    assert m.value(name) == 2 == 2 * m.value("apiserver_request_total", verb="unexpected")


@of("registered_metrics_total")
async def registered(m: Metered) -> None:
    def counted() -> list[float]:
        stable = (m.value("registered_metrics_total", stability_level="STABLE", deprecated_version=since) for since in ("1.34.0", ""))
        return [*stable, *(m.value("registered_metrics_total", stability_level=level) for level in ("BETA", "ALPHA", ""))]

    deprecated, stable, beta, alpha, none = counted()
    assert deprecated == 1 and stable > 5 and beta > 10 and alpha > 50 and not none
    m.server.metrics.counter("apiserver_one_more_total", "")
    m.server.metrics.counter("kas_one_more_total", "")  # upstream gives it no stability
    assert counted() == [deprecated, stable, beta, alpha + 1, 0]


@of("apiserver_storage_events_received_total")
async def received(m: Metered) -> None:
    family, path = "apiserver_storage_events_received_total", "/api/v1/namespaces"
    before = m.value(family, group="", resource="namespaces")
    for method, name in (("POST", ""), ("DELETE", "/a")):
        body = {"metadata": {"name": "a"}} if method == "POST" else None
        assert (await m(method, "/api/v1/namespaces/default/secrets" + name, body)).status < 300
    assert (await m("POST", path, {"metadata": {"name": "another"}})).status == 201
    for _ in range(2):  # however often it is read
        assert m.value(family, group="", resource="secrets") == 2
        assert m.value(family, group="", resource="namespaces") == before + 1


@of("apiserver_response_sizes")
async def sizes(m: Metered) -> None:
    labels = {"verb": "LIST", "resource": "pods"}
    sent = len((await m("GET", PODS)).body)
    assert m.value("apiserver_response_sizes_count", **labels) == 1
    assert m.value("apiserver_response_sizes_sum", **labels) == sent > 0
    for _ in range(2):  # whatever the result: neither status nor dry run is a label
        sent += len((await m("GET", f"{PODS}?limit=a")).body)
    assert (m.value("apiserver_response_sizes_count", **labels), m.value("apiserver_response_sizes_sum", **labels)) == (3, sent)
    await m("GET", f"{PODS}/none/exec?command=a")
    assert m.value("apiserver_response_sizes_count", verb="CONNECT") == 0


@of("apiserver_current_inflight_requests")
async def in_flight(m: Metered) -> None:
    writing = m.begin("POST", CONFIG_MAPS, {"metadata": {"name": "a"}})
    assert m.value("apiserver_current_inflight_requests", request_kind="mutating") == 1
    assert (await asyncio.ensure_future(writing)).status == 201
    assert m.value("apiserver_current_inflight_requests", request_kind="mutating") == 0


ONE_READ = {"enable_priority_and_fairness": False, "max_requests_inflight": 1, **EVERYBODY}


@of("apiserver_request_terminations_total", **ONE_READ)
async def terminated(m: Metered) -> None:
    m.world.shared.memory.enter(False)
    for path in (PODS, PODS + "?dryRun=All", "/nowhere"):
        assert (await m("GET", path, token="")).status == 429
    assert m.value("apiserver_request_terminations_total", code="429", verb="LIST", resource="pods", scope="namespace") == 2
    for _ in range(2):  # however often it is read
        assert m.value("apiserver_request_terminations_total") == 3


@of("apiserver_authorization_decisions_total")
async def decisions(m: Metered) -> None:
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": {"nonResourceAttributes": {}}}
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    # No authorizer is asked about an administrator, and no opinion is no decision.
    await m("GET", PODS)
    assert (await m("GET", PODS, token="")).status == 403
    assert (await m("GET", "/healthz", token="")).status == 200
    assert (await m("POST", path, review)).status == 201
    assert m.value("apiserver_authorization_decisions_total", type="RBAC", name="rbac", decision="allowed") == 1


@of("authentication_attempts", anonymous_auth=False)
async def attempts(m: Metered) -> None:
    for token, status in ((None, 200), ("wrong", 401), ("", 401)):
        assert (await m("GET", PODS, token=token)).status == status
    assert {r: m.value("authentication_attempts", result=r) for r in ("success", "error", "failure")} == {
        "success": 1, "error": 1, "failure": 1,
    }  # fmt: skip


@of("authentication_duration_seconds", anonymous_auth=False)
async def authentication_took(m: Metered) -> None:
    for token in (None, None, "wrong", ""):
        await m("GET", PODS, token=token)
    counts = {r: m.value("authentication_duration_seconds_count", result=r) for r in ("success", "error", "failure")}
    assert counts == {"success": 2, "error": 1, "failure": 1}
    assert m.value("authentication_duration_seconds_sum") > 0


async def authorized(m: Metered) -> None:
    for token, path in ((None, PODS), ("", PODS), ("", "/healthz")):
        await m("GET", path, token=token)


@of("authorization_attempts_total")
async def authorizations(m: Metered) -> None:
    await authorized(m)
    # Health is public.
    assert {r: m.value("authorization_attempts_total", result=r) for r in ("allowed", "no-opinion")} == {"allowed": 2, "no-opinion": 1}


@of("authorization_duration_seconds")
async def authorization_took(m: Metered) -> None:
    await authorized(m)
    assert m.value("authorization_duration_seconds_count", result="allowed") == 2
    assert m.value("authorization_duration_seconds_sum", result="no-opinion") > 0


async def impersonated(m: Metered) -> None:
    """The administrator impersonates jane, and an anonymous user tries to."""
    for token in (None, ""):
        headers = [(b"impersonate-user", b"jane"), *([(b"authorization", f"Bearer {m.world.token}".encode())] if token is None else [])]
        result = m.server.chain(Request("GET", PODS, "", headers, b""))
        if not isinstance(result, Response):
            await result


@of("apiserver_impersonation_attempts_total")
async def impersonations(m: Metered) -> None:
    await impersonated(m)
    assert m.value("apiserver_impersonation_attempts_total", mode="user-info", decision="allowed") == 1
    assert m.value("apiserver_impersonation_attempts_total", mode="", decision="denied") == 1


@of("apiserver_impersonation_attempts_duration_seconds")
async def impersonations_took(m: Metered) -> None:
    await impersonated(m)
    assert m.value("apiserver_impersonation_attempts_duration_seconds_count", decision="allowed") == 1
    assert m.value("apiserver_impersonation_attempts_duration_seconds_sum", decision="denied") > 0


@of("apiserver_impersonation_authorization_attempts_total")
async def impersonators_asked_for(m: Metered) -> None:
    await impersonated(m)
    name = "apiserver_impersonation_authorization_attempts_total"
    assert m.value(name, mode="user-info", decision="allowed") == 2
    assert {mode: m.value(name, mode=mode, decision="denied") for mode in ("user-info", "legacy")} == {"user-info": 1, "legacy": 1}


@of("apiserver_impersonation_authorization_attempts_duration_seconds")
async def asking_for_impersonators_took(m: Metered) -> None:
    await impersonated(m)
    assert m.value("apiserver_impersonation_authorization_attempts_duration_seconds_count", mode="user-info", decision="allowed") == 2
    assert m.value("apiserver_impersonation_authorization_attempts_duration_seconds_sum") > 0


async def remembered(m: Metered) -> None:
    """Uses the administrator's token, which is cached, and an unknown one."""
    for token in (None, None, "wrong", "wrong"):
        await m("GET", PODS, token=token)


@of("authentication_token_cache_request_total")
async def cached_tokens(m: Metered) -> None:
    await remembered(m)
    assert {s: m.value("authentication_token_cache_request_total", status=s) for s in ("hit", "miss")} == {"hit": 1, "miss": 3}


@of("authentication_token_cache_request_duration_seconds")
async def cached_tokens_took(m: Metered) -> None:
    await remembered(m)
    assert m.value("authentication_token_cache_request_duration_seconds_count", status="miss") == 3
    assert m.value("authentication_token_cache_request_duration_seconds_sum", status="hit") > 0


@of("authentication_token_cache_fetch_total")
async def fetched_tokens(m: Metered) -> None:
    await remembered(m)
    assert {s: m.value("authentication_token_cache_fetch_total", status=s) for s in ("ok", "error")} == {"ok": 1, "error": 2}


@of("authentication_token_cache_active_fetch_count")
async def fetches(m: Metered) -> None:
    """Only requests that wait for another service are in flight long enough to be seen."""
    asked: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    bearer, begun = m.server.credentials.bearer, asyncio.Event()

    async def later(token: str) -> None:
        begun.set()
        await asked

    before, bearer._tokens = bearer._tokens, SimpleNamespace(authenticate_token=later)
    try:
        waiting = asyncio.ensure_future(m("GET", PODS, token="other"))
        await begun.wait()
        assert m.value("authentication_token_cache_active_fetch_count", status="in_flight") == 1
        asked.set_result(None)
        assert (await waiting).status == 401
    finally:
        bearer._tokens = before
    assert m.value("authentication_token_cache_active_fetch_count", status="in_flight") == 0


CLIENTS = pki.authority("clients")


@of("apiserver_client_certificate_expiration_seconds", client_ca_file="{directory}/clients.crt")
async def certificates(m: Metered) -> None:
    """Each request is counted, also with an expired certificate."""
    for ends_s, status in ((86_000, 403), (-100, 401), (86_000, 403)):
        shown = Certificates(pki.issue([("CN", "jane")], CLIENTS, ends_s=ends_s).ders)
        req = Request("GET", PODS, "", [])
        req.peer = SimpleNamespace(certificates=shown)
        assert m.server.chain(req).status == status
    buckets = {le: m.value("apiserver_client_certificate_expiration_seconds_bucket", le=le) for le in ("0", "43200", "86400")}
    assert buckets == {"0": 1, "43200": 1, "86400": 3}
    assert 0 < 2 * 86_000 - 100 - m.value("apiserver_client_certificate_expiration_seconds_sum") < 60


@of("authenticated_user_requests")
async def users(m: Metered) -> None:
    for token in (None, None, ""):
        await m("GET", PODS, token=token)
    assert m.value("authenticated_user_requests", username="admin") == 2
    assert m.value("authenticated_user_requests", username="other") == 1  # anonymous


async def service_account_token(m: Metered, **times: int) -> str:
    """Returns a token of the service account "bot", created here with given times in the private claims."""
    key = m.server.options.data_dir / "pki" / "sa.key"
    key.parent.mkdir(exist_ok=True)
    key.write_bytes(generate_key())
    assert (await m("POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "bot"}})).status == 201
    account = m.server.registries.get("", "serviceaccounts", "default", "bot")
    claims = bound_claims(m.server.audiences[0], account, m.server.audiences, int(time.time()), 3600)
    claims["kubernetes.io"] |= times
    return m.server.keys.signer.sign(claims)


@of("serviceaccount_stale_tokens_total")
async def stale_tokens(m: Metered) -> None:
    token = await service_account_token(m, warnafter=int(time.time()) - 10)
    for _ in range(2):
        assert (await m("GET", PODS, token=token)).status == 403
    assert m.value("serviceaccount_stale_tokens_total") == 1 and m.value("serviceaccount_valid_tokens_total") == 0


@of("serviceaccount_valid_tokens_total")
async def valid_tokens(m: Metered) -> None:
    assert (await m("GET", PODS, token=await service_account_token(m, warnafter=int(time.time()) + 1000))).status == 403
    assert m.value("serviceaccount_valid_tokens_total") == 1 and m.value("serviceaccount_stale_tokens_total") == 0


async def use_of_a_legacy_token(m: Metered, status: int, labels: dict[str, str] | None = None, **account: Any) -> None:
    await service_account_token(m)
    found = m.server.registries.get("", "serviceaccounts", "default", "bot")
    if account:
        assert (await m("PUT", "/api/v1/namespaces/default/serviceaccounts/bot", {**found, **account})).status == 200
    secret = {"metadata": {"name": "s", "annotations": {"kubernetes.io/service-account.name": "bot"}, "labels": labels or {}}}
    token = m.server.keys.signer.sign(legacy_claims(found, secret))
    data = {"token": base64.b64encode(token.encode()).decode()}
    assert (await m("POST", "/api/v1/namespaces/default/secrets", {**secret, "data": data})).status == 201
    assert (await m("GET", PODS, token=token)).status == status


@of("serviceaccount_legacy_tokens_total")
@of("serviceaccount_legacy_manual_token_uses_total")
async def legacy_tokens(m: Metered) -> None:
    await use_of_a_legacy_token(m, 403)
    assert m.value("serviceaccount_legacy_tokens_total") == m.value("serviceaccount_legacy_manual_token_uses_total") == 1
    assert m.value("serviceaccount_legacy_auto_token_uses_total") == 0


@of("serviceaccount_legacy_auto_token_uses_total")
async def generated_tokens(m: Metered) -> None:
    await use_of_a_legacy_token(m, 403, secrets=[{"name": "s"}])
    assert m.value("serviceaccount_legacy_auto_token_uses_total") == 1


@of("serviceaccount_invalid_legacy_auto_token_uses_total")
async def tokens_out_of_use(m: Metered) -> None:
    await use_of_a_legacy_token(m, 401, {"kubernetes.io/legacy-token-invalid-since": "2026-01-01"})
    assert m.value("serviceaccount_invalid_legacy_auto_token_uses_total") == 1


@of("apiserver_request_panics_total")
async def panics(m: Metered) -> None:
    m.server.director.exact("/bug", lambda req: 1 // 0)
    assert (await m("GET", "/bug")).status == 500
    assert m.value("apiserver_request_panics_total") == 1


@of("apiserver_admission_controller_admission_duration_seconds")
async def admission(m: Metered) -> None:
    await m.create("a")
    assert (await m("POST", "/api/v1/namespaces/none/configmaps", {"metadata": {"name": "a"}})).status == 404
    count = "apiserver_admission_controller_admission_duration_seconds_count"
    for rejected in ("false", "true"):
        assert m.value(count, name="NamespaceLifecycle", operation="CREATE", type="admit", rejected=rejected) == 1
    assert m.value(count.replace("_count", "_sum"), name="NamespaceLifecycle") > 0


@of("apiserver_admission_step_admission_duration_seconds")
async def admission_steps(m: Metered) -> None:
    await m.create("a")
    assert (await m("POST", "/api/v1/namespaces/none/configmaps", {"metadata": {"name": "a"}})).status == 404
    count = "apiserver_admission_step_admission_duration_seconds_count"
    for rejected in ("false", "true"):
        assert m.value(count, operation="CREATE", type="admit", rejected=rejected) == 1
    whole = m.value(count.replace("_count", "_sum"), operation="CREATE", type="admit")
    assert whole >= m.value("apiserver_admission_controller_admission_duration_seconds_sum", operation="CREATE", type="admit") > 0


async def stored(m: Metered, sample: str) -> None:
    """Runs each operation once; one has a conflict, which is an answer and no error."""
    of_maps = {"group": "", "resource": "configmaps"}

    def counts() -> list[float]:
        return [m.value(sample, operation=o, **of_maps) for o in ("create", "get", "list", "update", "delete")]

    before = counts()
    await m.create("a")
    await m("GET", f"{CONFIG_MAPS}/a")
    await m("GET", CONFIG_MAPS)
    assert (await m("PUT", f"{CONFIG_MAPS}/a", {"metadata": {"name": "a"}, "data": {"a": "b"}})).status == 200
    await m("DELETE", f"{CONFIG_MAPS}/a")
    assert [now - was for now, was in zip(counts(), before, strict=True)] == [1, 1, 1, 1, 1]


@of("etcd_request_duration_seconds")
async def storage_seconds(m: Metered) -> None:
    await stored(m, "etcd_request_duration_seconds_count")
    assert m.value("etcd_request_duration_seconds_sum", operation="create", resource="configmaps") > 0


@of("etcd_requests_total")
async def storage_requests(m: Metered) -> None:
    await stored(m, "etcd_requests_total")


@of("etcd_request_errors_total")
async def storage_errors(m: Metered) -> None:
    labels = {"operation": "create", "group": "", "resource": "configmaps"}
    await m.create("a")
    assert (await m("POST", CONFIG_MAPS, {"metadata": {"name": "a"}})).status == 409
    assert m.value("etcd_request_errors_total", **labels) == 0
    m.world.store.commit = lambda op: asyncio.get_running_loop().create_task(_full())
    assert (await m("POST", CONFIG_MAPS, {"metadata": {"name": "b"}})).status == 500
    assert m.value("etcd_request_errors_total", **labels) == 1


async def _full() -> None:
    raise StoreError("no room")


@of("apiserver_storage_objects")
async def objects_by_old_name(m: Metered) -> None:
    before = m.value("apiserver_storage_objects", resource="configmaps")
    await m.create("a")
    assert m.value("apiserver_storage_objects", resource="configmaps") == before + 1
    assert m.value("apiserver_storage_objects", resource="clusterroles.rbac.authorization.k8s.io") > 1


@of("apiserver_watch_events_total")
async def watch_events(m: Metered) -> None:
    watch = Stream(await m("GET", f"{CONFIG_MAPS}?watch=true&resourceVersion={m.world.store.revision}"))
    for name in ("a", "b"):
        await m.create(name)
        assert (await watch.next())["object"]["metadata"]["name"] == name
    assert m.value("apiserver_watch_events_total", resource="configmaps", version="v1") == 2
    watch.ended.cancel()
    # Initial objects of a watch count, too, and so do the bookmark at their end and other bookmarks.
    query = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    listing = Stream(await m("GET", f"{CONFIG_MAPS}?{query}"))
    assert [(await listing.next())["type"] for _ in range(3)] == ["ADDED", "ADDED", "BOOKMARK"]
    assert m.value("apiserver_watch_events_total", resource="configmaps", version="v1") == 5
    listing.ended.cancel()


@of("apiserver_watch_list_duration_seconds")
async def watch_lists(m: Metered) -> None:
    name = "apiserver_watch_list_duration_seconds_count"
    query = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    plain = Stream(await m("GET", f"{CONFIG_MAPS}?watch=true&allowWatchBookmarks=true&resourceVersion={m.world.store.revision}"))
    watch = Stream(await m("GET", f"{CONFIG_MAPS}?{query}"))
    while (await watch.next())["type"] != "BOOKMARK":
        pass
    await m.create("a")
    await plain.next()
    assert m.value(name) == m.value(name, group="", version="v1", resource="configmaps", scope="namespace") == 1
    plain.ended.cancel()
    watch.ended.cancel()


@of("apiserver_cel_compilation_duration_seconds")
async def cel_compiled(m: Metered) -> None:
    name = "apiserver_cel_compilation_duration_seconds_count"
    before = m.value(name)
    await m("POST", DEFINITIONS, definition("celcompiled.example.com", ruled()))
    assert m.value(name) > before


@of("apiserver_cel_evaluation_duration_seconds")
async def cel_evaluated(m: Metered) -> None:
    made = schema_type("Widget", ruled()["schema"]["openAPIV3Schema"])
    name = "apiserver_cel_evaluation_duration_seconds_count"
    before = m.value(name)
    celrules.errors(made, {"apiVersion": "v1", "kind": "Widget", "metadata": {}, "spec": {"a": 1}}, None)
    assert m.value(name) == before + 1


def ruled() -> dict[str, Any]:
    """Returns a version with one rule."""
    v = version(spec={"a": {"type": "integer"}})
    v["schema"]["openAPIV3Schema"]["properties"]["spec"]["x-kubernetes-validations"] = [{"rule": "self.a > 0"}]
    return v


@of("apiserver_longrunning_requests")
async def long_running(m: Metered) -> None:
    watch = Stream(await m("GET", f"{CONFIG_MAPS}?watch=true&resourceVersion={m.world.store.revision}"))
    await m.create("a")
    await watch.next()
    labels = {"component": "apiserver", "group": "", "resource": "configmaps", "scope": "namespace", "subresource": "", "version": "v1"}
    assert m.value("apiserver_longrunning_requests", verb="WATCH", **labels) == 1
    m.server.watches.end_all()
    await watch.ended
    assert m.value("apiserver_longrunning_requests", verb="WATCH") == 0


@of("kas_cache_bytes")
async def cache_bytes(m: Metered) -> None:
    await m("POST", f"{CONFIG_MAPS}?fieldManager=made-up", {"metadata": {"name": "a"}})
    assert 0 < m.value("kas_cache_bytes", name="write_options") <= m.value("kas_cache_budget_bytes", name="write_options")


@of("kas_cache_budget_bytes")
async def cache_budgets(m: Metered) -> None:
    assert m.value("kas_cache_budget_bytes", name="media_types") == 1 << 20


@of("apiserver_storage_size_bytes")
async def storage_size(m: Metered) -> None:
    before = m.value("apiserver_storage_size_bytes")
    await m.create("a", data={"a": "x" * 900_000})
    assert m.value("apiserver_storage_size_bytes") >= before + 900_000 > 900_000


@of("apiserver_resource_objects")
async def objects(m: Metered) -> None:
    before = m.value("apiserver_resource_objects", group="", resource="configmaps")
    await m.create("a")
    assert m.value("apiserver_resource_objects", group="", resource="configmaps") == before + 1
    await m("DELETE", f"{CONFIG_MAPS}/a")
    assert m.value("apiserver_resource_objects", group="", resource="configmaps") == before


@of("apiserver_resource_size_estimate_bytes")
async def estimated_sizes(m: Metered) -> None:
    def size() -> float:
        return m.value("apiserver_resource_size_estimate_bytes", group="", resource="configmaps")

    for name in [rec.key for rec in m.server.store.range("/registry/configmaps/").records]:
        await m.server.store.commit(Op(name, None))
    assert size() == 0
    for name in ("a", "b"):
        await m.create(name, data={"a": "x" * 100_000})
    assert 200_000 < size() < 203_000
    await m("DELETE", f"{CONFIG_MAPS}/a")
    assert 100_000 < size() < 101_500


# Everything is recorded, or would be if the file were not a directory.
AUDIT = {"audit_policy_file": "{directory}/policy.yaml", "audit_log_path": "{directory}/audit.log"}
NOWHERE = {**AUDIT, "audit_log_path": "{directory}", "audit_log_mode": "blocking-strict"}


HOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"


async def refused_by(m: Metered, ca: pki.Issued, shown: tuple[str, str], family: str) -> None:
    """A write for which a webhook with the certificate in these files is called."""
    with TLSStub(Path(shown[0]), Path(shown[1]), lambda asked: Answer(), weak=True) as stub:
        port = stub.url.rpartition(":")[2]
        client = {"url": f"https://localhost:{port}/x", "caBundle": base64.b64encode(ca.pem).decode()}
        rules = [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["*"], "resources": ["configmaps"]}]
        hook = {
            "name": "h.example.com", "clientConfig": client, "rules": rules, "sideEffects": "None", "admissionReviewVersions": ["v1"],
        }  # fmt: skip
        assert (await m("POST", HOOKS, {"metadata": {"name": "h"}, "webhooks": [hook]})).status == 201
        assert m.value(family) == 0
        assert b"failed calling webhook" in (await m("POST", CONFIG_MAPS, {"metadata": {"name": "a"}})).body
        assert m.value(family) == 1


@of("apiserver_webhooks_x509_missing_san_total")
async def without_names(m: Metered) -> None:
    ca = pki.authority("ca")
    old = pki.issue([("CN", "localhost")], ca, usages=("server",))
    with tempfile.TemporaryDirectory() as directory:
        await refused_by(m, ca, old.write(Path(directory), "old"), "apiserver_webhooks_x509_missing_san_total")


@of("apiserver_webhooks_x509_insecure_sha1_total")
async def signed_weakly(m: Metered) -> None:
    ca = pki.authority("ca", key=pki.rsa_key(65537))
    with tempfile.TemporaryDirectory() as directory:
        shown = pki.weakly_signed(ca, "localhost").write(Path(directory), "old")
        await refused_by(m, ca, shown, "apiserver_webhooks_x509_insecure_sha1_total")


@of("apiserver_audit_level_total", **AUDIT)
async def audit_levels(m: Metered) -> None:
    await m("GET", PODS)
    assert m.value("apiserver_audit_level_total", level="Metadata") == 1


@of("apiserver_audit_event_total", **AUDIT)
async def audit_events(m: Metered) -> None:
    await m("GET", PODS)
    assert m.value("apiserver_audit_event_total") == 2  # received, and complete


@of("apiserver_audit_error_total", **NOWHERE)
async def audit_errors(m: Metered) -> None:
    await m("GET", PODS)
    assert m.value("apiserver_audit_error_total", plugin="log") >= 1


@of("apiserver_audit_requests_rejected_total", **NOWHERE)
async def audit_rejections(m: Metered) -> None:
    assert (await m("GET", PODS)).status == 500
    assert m.value("apiserver_audit_requests_rejected_total") == 1


async def unavailable(m: Metered, sample: str, was_available: bool, **labels: str) -> None:
    """An APIService of a missing Service, and the loop that checks it."""
    spec = {
        "group": "gone.example.com", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 10, "insecureSkipTLSVerify": True,
        "service": {"namespace": "default", "name": "none"},
    }  # fmt: skip
    path, name = "/apis/apiregistration.k8s.io/v1/apiservices", "v1.gone.example.com"
    made = await m("POST", path, {"metadata": {"name": name}, "spec": spec})
    assert made.status == 201
    was = {"type": "Available", "status": "True", "reason": "Passed", "message": "", "lastTransitionTime": "2026-01-02T03:04:05Z"}
    if was_available:
        assert (await m("PUT", f"{path}/{name}/status", {**json.loads(made.body), "status": {"conditions": [was]}})).status == 200
    loop = next(c for c in m.server.controllers() if c.name == "apiservice-status-remote-available-controller")
    task = asyncio.create_task(loop.run())
    try:
        for _ in range(3000):
            if m.value(sample, name=name, **labels) == 1:
                return
            await asyncio.sleep(0.02)
        raise AssertionError(f"{sample} did not move")
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@of("aggregator_unavailable_apiservice")
async def unavailable_backends(m: Metered) -> None:
    await unavailable(m, "aggregator_unavailable_apiservice", False)


@of("aggregator_unavailable_apiservice_total")
async def backends_that_became_unavailable(m: Metered) -> None:
    await unavailable(m, "aggregator_unavailable_apiservice_total", True, reason="ServiceNotFound")


async def queued(m: Metered, sample: str, expected: float) -> str:
    """Returns the name of a queue of three items, one of which fails and is retried."""
    failed: list[str] = []

    async def work(item: str) -> None:
        if item == "bad" and not failed:
            failed.append(item)
            raise not_found("", "things", item)

    name = f"test-{uuid.uuid4()}"  # the counters of queues belong to the process
    assert m.value(sample, name=name) == 0
    queue = WorkQueue(work, name)
    for item in ("a", "bad", "a", "c"):
        queue.add(item)
    if sample == "workqueue_depth":
        assert m.value(sample, name=name) == expected
    task = asyncio.ensure_future(queue.run())
    for _ in range(3000):
        if failed and not len(queue) and not queue._timers:
            break
        await asyncio.sleep(0.02)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert m.value(sample, name=name) == (0 if sample == "workqueue_depth" else expected)
    return name


@of("workqueue_depth")
async def depth(m: Metered) -> None:
    await queued(m, "workqueue_depth", 3)


@of("workqueue_adds_total")
async def adds(m: Metered) -> None:
    await queued(m, "workqueue_adds_total", 4)  # one of them again


@of("workqueue_retries_total")
async def retries(m: Metered) -> None:
    await queued(m, "workqueue_retries_total", 1)


@of("workqueue_queue_duration_seconds")
async def waited(m: Metered) -> None:
    name = await queued(m, "workqueue_queue_duration_seconds_count", 4)
    assert m.value("workqueue_queue_duration_seconds_sum", name=name) > 0


@of("workqueue_work_duration_seconds")
async def worked(m: Metered) -> None:
    name = await queued(m, "workqueue_work_duration_seconds_count", 4)
    assert m.value("workqueue_work_duration_seconds_sum", name=name) > 0


async def at_work(m: Metered, sample: str) -> None:
    """Two items are in progress until they may end."""
    end, both, none = asyncio.Event(), asyncio.Barrier(3), asyncio.Event()

    async def work(item: str) -> None:
        if item == "last":
            none.set()
            return
        await both.wait()
        await end.wait()

    queue = WorkQueue(work, f"test-{sample}")
    for item in ("a", "b"):
        queue.add(item)
    task = asyncio.ensure_future(queue.run(2))
    await both.wait()
    assert m.value(sample, name=f"test-{sample}") > 0
    end.set()
    queue.add("last")
    await none.wait()
    await asyncio.sleep(0)
    assert m.value(sample, name=f"test-{sample}") == 0
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@of("workqueue_unfinished_work_seconds")
async def unfinished(m: Metered) -> None:
    await at_work(m, "workqueue_unfinished_work_seconds")


@of("workqueue_longest_running_processor_seconds")
async def longest_running(m: Metered) -> None:
    await at_work(m, "workqueue_longest_running_processor_seconds")


@of("process_cpu_seconds_total")
async def cpu(m: Metered) -> None:
    before = m.value("process_cpu_seconds_total")
    while sum(range(100_000)) and m.value("process_cpu_seconds_total") <= before:
        pass
    assert before > 0


@of("process_resident_memory_bytes")
async def resident(m: Metered) -> None:
    before = m.value("process_resident_memory_bytes")
    with mmap.mmap(-1, 64 << 20) as held:  # memory of its own: the heap may have free space
        for at in range(0, len(held), 4096):
            held[at] = 1
        assert m.value("process_resident_memory_bytes") > before + (32 << 20)


@of("process_virtual_memory_bytes")
async def virtual(m: Metered) -> None:
    assert m.value("process_virtual_memory_bytes") >= m.value("process_resident_memory_bytes") > 0


@of("process_open_fds")
async def descriptors(m: Metered) -> None:
    before, opened = m.value("process_open_fds"), [os.dup(1) for _ in range(100)]
    try:
        assert m.value("process_open_fds") > before + 50  # what earlier tests left may be closed meanwhile
    finally:
        for fd in opened:
            os.close(fd)


@of("process_max_fds")
async def most_descriptors(m: Metered) -> None:
    assert m.value("process_max_fds") == resource.getrlimit(resource.RLIMIT_NOFILE)[0]


@of("process_virtual_memory_max_bytes")
async def most_virtual(m: Metered) -> None:
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    assert m.value("process_virtual_memory_max_bytes") == (1 << 64 if limit == resource.RLIM_INFINITY else limit)


async def over_the_network(m: Metered, family: str) -> None:
    """One socket of this process sends bytes to another."""
    before = m.value(family)
    assert before is not None
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as one,
        server.accept()[0] as other,
    ):
        one.sendall(bytes(32 << 10))
        assert other.recv(32 << 10, socket.MSG_WAITALL) == bytes(32 << 10)
    assert m.value(family) >= before + (32 << 10)


@of("process_network_receive_bytes_total")
async def received_bytes(m: Metered) -> None:
    await over_the_network(m, "process_network_receive_bytes_total")


@of("process_network_transmit_bytes_total")
async def transmitted_bytes(m: Metered) -> None:
    await over_the_network(m, "process_network_transmit_bytes_total")


@of("process_start_time_seconds")
async def start(m: Metered) -> None:
    assert 0 < m.value("process_start_time_seconds") < time.time()


ADMISSION = "/apis/admissionregistration.k8s.io/v1"
ABOUT_CONFIG_MAPS = {
    "resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}]
}


RUNS = {"spec": {"hostNetwork": True, "containers": [{"name": "c", "image": "i"}]}}
NO_ACCOUNTS = ["ServiceAccount"]


@of("pod_security_evaluations_total", disable_admission_plugins=NO_ACCOUNTS)
async def judged_pods(m: Metered) -> None:
    kind = "pod-security.kubernetes.io/"
    levels = {kind + "enforce": "baseline", kind + "enforce-version": "v1.30", kind + "warn": "restricted"}
    assert (await m("POST", "/api/v1/namespaces", {"metadata": {"name": "strict", "labels": levels}})).status == 201
    for namespace, status in (("default", 201), ("strict", 403)):
        pod = {"metadata": {"name": "a"}, **RUNS}
        assert (await m("POST", f"/api/v1/namespaces/{namespace}/pods", pod)).status == status
    warned = {"metadata": {"name": "b"}, "spec": {"containers": RUNS["spec"]["containers"]}}
    assert (await m("POST", "/api/v1/namespaces/strict/pods", warned)).status == 201
    counted = partial(m.value, "pod_security_evaluations_total", request_operation="create", resource="pod")
    assert counted(decision="allow", policy_level="privileged", policy_version="latest", mode="enforce") == 1
    assert counted(decision="deny", policy_level="baseline", policy_version="v1.30", mode="enforce") == 1
    assert counted(decision="allow", policy_level="baseline", policy_version="v1.30", mode="enforce") == 1
    assert counted(decision="deny", policy_level="restricted", policy_version="latest", mode="warn") == 1


@of("pod_security_exemptions_total", disable_admission_plugins=NO_ACCOUNTS, admission_control_config_file="{directory}/admission.yaml")
async def exempt_pods(m: Metered) -> None:
    for n in (1, 2):
        assert (await m("POST", "/api/v1/namespaces/kube-public/pods", {"metadata": {"name": f"p{n}"}, **RUNS})).status == 201
        assert m.value("pod_security_exemptions_total", request_operation="create", resource="pod") == n


@of("pod_security_errors_total", disable_admission_plugins=[*NO_ACCOUNTS, "NamespaceLifecycle"])
async def pods_nobody_can_judge(m: Metered) -> None:
    assert (await m("POST", "/api/v1/namespaces/none/pods", {"metadata": {"name": "a"}, **RUNS})).status == 500
    assert m.value("pod_security_errors_total", fatal="true", request_operation="create", resource="pod") == 1


@of("node_authorizer_graph_actions_duration_seconds", disable_admission_plugins=NO_ACCOUNTS, authorization_mode=["Node", "RBAC"])
async def changes_of_the_node_graph(m: Metered) -> None:
    spec = {**RUNS["spec"], "nodeName": "n"}
    assert (await m("POST", PODS, {"metadata": {"name": "a"}, "spec": spec})).status == 201
    what = {"verb": "get", "resource": "secrets", "namespace": "default", "name": "s"}
    asked = {"user": "system:node:n", "groups": ["system:nodes"], "resourceAttributes": what}
    assert (await m("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", {"spec": asked})).status == 201
    assert m.value("node_authorizer_graph_actions_duration_seconds_count", operation="AddPod") == 1
    assert m.value("node_authorizer_graph_actions_duration_seconds_sum", operation="AddPod") > 0


async def governed(m: Metered, kind: str, binding: dict[str, Any], **spec: Any) -> None:
    """A bound policy about new config maps."""
    policy = {"metadata": {"name": "p"}, "spec": {"failurePolicy": "Fail", "matchConstraints": ABOUT_CONFIG_MAPS, **spec}}
    assert (await m("POST", f"{ADMISSION}/{kind}admissionpolicies", policy)).status == 201
    bound = {"metadata": {"name": "b"}, "spec": {"policyName": "p", **binding}}
    assert (await m("POST", f"{ADMISSION}/{kind}admissionpolicybindings", bound)).status == 201


async def validated(m: Metered, sample: str) -> None:
    validations = [{"expression": "object.metadata.name != 'bad'"}, {"expression": "object.data.x == 'y' || true"}]
    await governed(m, "validating", {"validationActions": ["Deny", "Audit"]}, validations=validations)
    await m.create("good")
    assert m.value(sample) == 0  # a policy that is met is not counted, as upstream
    assert (await m("POST", CONFIG_MAPS, {"metadata": {"name": "bad"}})).status == 422
    for action in ("deny", "audit"):
        labels = {"policy": "p", "policy_binding": "b", "error_type": "invalid_error", "enforcement_action": action}
        assert m.value(sample, **labels) == 1
    assert m.value(sample) == 2


@of("apiserver_validating_admission_policy_check_total")
async def validations(m: Metered) -> None:
    await validated(m, "apiserver_validating_admission_policy_check_total")


@of("apiserver_validating_admission_policy_check_duration_seconds")
async def validation_durations(m: Metered) -> None:
    await validated(m, "apiserver_validating_admission_policy_check_duration_seconds_count")
    assert m.value("apiserver_validating_admission_policy_check_duration_seconds_sum") > 0


async def mutated(m: Metered, sample: str) -> None:
    expression = "Object{data: {'a': has(object.data) ? object.data.missing : 'b'}}"
    mutations = [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}]
    await governed(m, "mutating", {}, mutations=mutations, reinvocationPolicy="Never")
    await m.create("good")
    assert (await m("POST", CONFIG_MAPS, {"metadata": {"name": "bad"}, "data": {"x": "y"}})).status == 403
    for error in ("no_error", "invalid_error"):
        assert m.value(sample, policy="p", policy_binding="b", error_type=error) == 1


@of("apiserver_mutating_admission_policy_check_total")
async def mutations(m: Metered) -> None:
    await mutated(m, "apiserver_mutating_admission_policy_check_total")


@of("apiserver_mutating_admission_policy_check_duration_seconds")
async def mutation_durations(m: Metered) -> None:
    await mutated(m, "apiserver_mutating_admission_policy_check_duration_seconds_count")
    assert m.value("apiserver_mutating_admission_policy_check_duration_seconds_sum") > 0


@of("apiserver_admission_match_condition_evaluation_errors_total")
async def condition_errors(m: Metered) -> None:
    conditions = [{"name": "c", "expression": "object.data.missing == 'x'"}]
    await governed(m, "validating", {"validationActions": ["Deny"]}, validations=[{"expression": "true"}], matchConditions=conditions)
    assert (await m("POST", CONFIG_MAPS, {"metadata": {"name": "a"}})).status == 422
    labels = {"name": "p", "kind": "policy", "type": "validate", "operation": "CREATE"}
    assert m.value("apiserver_admission_match_condition_evaluation_errors_total", **labels) == 1


@of("apiserver_admission_match_condition_evaluation_seconds")
async def condition_durations(m: Metered) -> None:
    conditions = [{"name": "c", "expression": "object.metadata.name != 'b'"}]
    await governed(m, "validating", {"validationActions": ["Deny"]}, validations=[{"expression": "true"}], matchConditions=conditions)
    sample = "apiserver_admission_match_condition_evaluation_seconds_count"
    labels = {"name": "p", "kind": "policy", "type": "validate", "operation": "CREATE"}
    await m.create("b")
    await m.create("a")  # a policy that is met is not measured
    assert m.value(sample, **labels) == 1


@of("apiserver_admission_match_condition_exclusions_total")
async def condition_exclusions(m: Metered) -> None:
    hook = {
        "name": "h.example.com", "clientConfig": {"url": "https://127.0.0.1:1/x"}, "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "rules": ABOUT_CONFIG_MAPS["resourceRules"], "matchConditions": [{"name": "c", "expression": "false"}],
    }  # fmt: skip
    made = await m("POST", f"{ADMISSION}/validatingwebhookconfigurations", {"metadata": {"name": "c"}, "webhooks": [hook]})
    assert made.status == 201
    await m.create("a")
    labels = {"name": "h.example.com", "kind": "webhook", "operation": "CREATE"}
    assert m.value("apiserver_admission_match_condition_exclusions_total", type="validate", **labels) == 1  # for errors it is "validating"
    assert m.value("apiserver_admission_match_condition_evaluation_seconds_count", type="validating", **labels) == 1


async def converted(m: Metered, sample: str, **labels: str) -> None:
    """An object that a webhook fails to convert, because it does not answer."""
    client = {"url": "https://127.0.0.1:1/x"}
    d: Any = SimpleNamespace(
        name="widgets.example.com", group="example.com", versions=(SimpleNamespace(name="v1"), SimpleNamespace(name="v2")),
        conversion={"strategy": "Webhook", "webhookClientConfig": client, "conversionReviewVersions": ["v1"]},
    )  # fmt: skip
    converter = converters(lambda: HookClients(Users({}), None, Shares(1)), m.server.metrics)(d)  # type: ignore[arg-type]
    widget = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"}}
    with pytest.raises(ApiError):
        await converter.convert([widget], ("example.com", "v2", "Widget"))  # type: ignore[misc]
    assert m.value(sample, **labels) == 1


CALL_FAILED = {"result": "failure", "failure_type": "conversion_webhook_call_failure"}


@of("apiserver_conversion_webhook_request_total")
async def conversion_requests(m: Metered) -> None:
    await converted(m, "apiserver_conversion_webhook_request_total", **CALL_FAILED)


@of("apiserver_conversion_webhook_duration_seconds")
async def conversion_request_durations(m: Metered) -> None:
    await converted(m, "apiserver_conversion_webhook_duration_seconds_count", **CALL_FAILED)


@of("apiserver_crd_conversion_webhook_duration_seconds")
async def conversion_durations(m: Metered) -> None:
    labels = {"crd_name": "widgets.example.com", "from_version": "v1", "to_version": "v2", "succeeded": "false"}
    await converted(m, "apiserver_crd_conversion_webhook_duration_seconds_count", **labels)


@of("kubernetes_healthcheck")
async def health(m: Metered) -> None:
    assert m.value("kubernetes_healthcheck", "/metrics/slis", type="readyz", name="shutdown") == 1
    m.server.shutting_down = True
    assert m.value("kubernetes_healthcheck", "/metrics/slis", type="readyz", name="shutdown") == 0


@of("kubernetes_healthchecks_total")
async def health_results(m: Metered) -> None:
    await m("GET", "/readyz/shutdown")
    m.server.shutting_down = True
    await m("GET", "/readyz/shutdown")
    for status in ("success", "error"):
        assert m.value("kubernetes_healthchecks_total", "/metrics/slis", type="readyz", name="shutdown", status=status) == 1


EXEMPT = {
    "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration",
    "plugins": [{"name": "PodSecurity", "configuration": {
        "apiVersion": "pod-security.admission.config.k8s.io/v1", "kind": "PodSecurityConfiguration",
        "defaults": {"enforce": "restricted"}, "exemptions": {"namespaces": ["kube-public"]},
    }}],
}  # fmt: skip


def run(tmp_path: Any, case: Callable[[Metered], Awaitable[None]], flags: dict[str, Any]) -> None:
    async def go() -> None:
        rules = [{"level": "Metadata"}]
        (tmp_path / "policy.yaml").write_text(json.dumps({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": rules}))
        (tmp_path / "clients.crt").write_bytes(CLIENTS.pem)
        (tmp_path / "admission.yaml").write_text(json.dumps(EXEMPT))
        given = {name: value.format(directory=tmp_path) if isinstance(value, str) else value for name, value in flags.items()}
        world = World(tmp_path, loop=asyncio.get_running_loop(), **given)
        try:
            await case(Metered(world))
        finally:
            world.close()

    asyncio.run(go())


@pytest.mark.parametrize("family", CASES)
def test_a_family_changes_with_its_event(family, tmp_path):
    run(tmp_path, CASES[family], FLAGS[family])


def test_help_has_the_stability_of_a_family(tmp_path):
    async def said(m: Metered) -> None:
        await m("GET", PODS)
        text = m.world.ask("/metrics")[1]
        for family, begin in (
            ("apiserver_request_total", "[STABLE] Counter of"),
            ("apiserver_storage_objects", "[STABLE] (Deprecated since 1.34.0) [DEPRECATED, "),
            ("apiserver_flowcontrol_nominal_limit_seats", "[BETA] "),
            ("hidden_metrics_total", "[BETA] "),
            ("apiserver_storage_events_received_total", "[BETA] "),
            ("apiserver_request_panics_total", "Number of"),
            ("apiserver_request_sli_duration_seconds", "[ALPHA] "),
            ("process_start_time_seconds", "[ALPHA] "),
            ("process_open_fds", "Number of"),
            ("kas_cache_bytes", "Bytes that"),
        ):
            assert f"# HELP {family} {begin}" in text, family

    run(tmp_path, said, {})


def test_a_streamed_answer_counts_once_it_has_been_sent(tmp_path):
    async def in_pieces(m: Metered) -> None:
        for n in range(3):
            await m.create(f"large-{n}", data={"a": "x" * 900_000})
        answer = await m("GET", CONFIG_MAPS)
        labels = {"verb": "LIST", "resource": "configmaps"}
        families = ("apiserver_response_sizes", "apiserver_request_duration_seconds", "apiserver_request_sli_duration_seconds")
        assert [m.value(f"{family}_count", **labels) for family in families] == [0, 0, 0]
        pieces: list[bytes] = []

        async def write(piece: bytes) -> None:
            pieces.append(piece)
            answer.sent += len(piece)  # as a writer does

        assert answer.stream is not None and answer.finish is not None
        await answer.stream(write)
        answer.finish()
        assert [m.value(f"{family}_count", **labels) for family in families] == [1, 1, 1]
        assert m.value("apiserver_response_sizes_sum", **labels) == len(b"".join(pieces)) > 2_700_000

    run(tmp_path, in_pieces, {})

def test_a_streamed_answer_counts_its_bytes(client, namespace):
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    for n in range(3):
        assert client("POST", path, {"metadata": {"name": f"large-{n}"}, "data": {"a": "x" * 900_000}})[0] == 201

    def told(what: str) -> float:
        lines = client.raw("GET", "/metrics").text.splitlines()
        wanted = (f"apiserver_response_sizes_{what}{{", 'resource="configmaps"', 'scope="namespace"', 'verb="LIST"')
        return sum(float(line.rpartition(" ")[2]) for line in lines if all(part in line for part in wanted))

    before = told("count"), told("sum")
    answers = [client.raw("GET", path, Accept_Encoding="identity") for _ in range(2)]
    assert [("content-length" in r.headers, r.status_code) for r in answers] == [(False, 200)] * 2
    assert (told("count") - before[0], told("sum") - before[1]) == (2, sum(len(r.content) for r in answers))


def test_counters_never_decrease(tmp_path):
    """Whatever was requested and answered: children that differ only internally are merged when exposed."""
    one = {"metadata": {"name": "a"}}
    asks: list[tuple[Any, ...]] = [
        ("GET", PODS), ("GET", f"{PODS}?limit=a"), ("GET", PODS, None, "no token"), ("GET", PODS, None, ""), ("GET", "/nothing"),
        ("POST", CONFIG_MAPS, one), ("POST", CONFIG_MAPS, one), ("POST", f"{CONFIG_MAPS}?dryRun=All", {"metadata": {"name": "b"}}),
        ("POST", f"{CONFIG_MAPS}?dryRun=some", one), ("PUT", f"{CONFIG_MAPS}/b", one), ("GET", f"{CONFIG_MAPS}/a"),
        ("DELETE", f"{CONFIG_MAPS}/a?dryRun=All"), ("DELETE", f"{CONFIG_MAPS}/a"), ("DELETE", f"{CONFIG_MAPS}/a"), ("GET", "/readyz"),
    ]  # fmt: skip

    async def none_falls(m: Metered) -> None:
        before: dict[Any, float] = {}
        for ask in asks:
            with contextlib.suppress(ApiError):
                await m(*ask)
            families = text_string_to_metric_families(m.world.ask("/metrics")[1])
            now = {(s.name, *sorted(s.labels.items())): s.value for f in families if f.type in ("counter", "histogram") for s in f.samples}
            assert [key for key, value in before.items() if now.get(key, 0) < value] == [], ask
            before = now

    run(tmp_path, none_falls, {})


def test_bounds_are_written_as_by_go(tmp_path):
    async def bounds(m: Metered) -> None:
        await m("GET", PODS)
        await queued(m, "workqueue_queue_duration_seconds_count", 4)
        text = m.world.ask("/metrics")[1]

        def shown(family: str) -> list[str]:
            lines = [line.partition('le="') for line in text.splitlines() if line.startswith(f"{family}_bucket")]
            return [bound.partition('"')[0] for of, _, bound in lines if of == lines[0][0]]

        assert shown("apiserver_response_sizes") == ["1000", "10000", "100000", "1e+06", "1e+07", "1e+08", "1e+09", "+Inf"]
        assert shown("workqueue_queue_duration_seconds") == [
            "1e-08", "1e-07", "1e-06", "9.999999999999999e-06", "9.999999999999999e-05", "0.001", "0.01", "0.1", "1", "10", "+Inf",
        ]  # fmt: skip
        assert shown("apiserver_flowcontrol_work_estimated_seats") == ["1", "2", "4", "8", "16", "32", "64", "100", "+Inf"]

    run(tmp_path, bounds, {})


def test_every_family_has_a_case(tmp_path):
    async def families(m: Metered) -> None:
        endpoint: MetricsEndpoint = m.server.metrics_endpoint
        assert {*endpoint.registry.metrics, *endpoint.slis.metrics} == set(CASES)

    run(tmp_path, families, AUDIT)
