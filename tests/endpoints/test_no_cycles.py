"""A refused request leaves no reference cycles: its head has up to 256 KiB and its body 3 MiB, and cycles are collected once in 50,000
objects."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from kas.endpoints.watch import WatchStream
from kas.request.http import Request, Response
from tests.growth.serving import MERGE_PATCH, InProcess, Sent

NS = "/api/v1/namespaces/default"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
BIG = "x" * 5000


def _rule(resource: str) -> dict[str, Any]:
    return {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": [resource]}


def _webhook(resource: str) -> dict[str, Any]:
    return {"name": "h.example.com", "clientConfig": {"url": "https://127.0.0.1:1/"}, "sideEffects": "None", "timeoutSeconds": 1,
            "admissionReviewVersions": ["v1"], "rules": [_rule(resource)], "failurePolicy": "Fail"}  # fmt: skip


POLICY = {
    "matchConstraints": {"resourceRules": [_rule("services")]},
    "variables": [{"name": "ok", "expression": "object.metadata.name == 'ok'"}], "validations": [{"expression": "variables.ok"}],
}  # fmt: skip
BINDING = {"policyName": "p", "validationActions": ["Deny"]}
MADE = [
    (f"{ADMISSION}/validatingadmissionpolicies", {"metadata": {"name": "p"}, "spec": POLICY}),
    (f"{ADMISSION}/validatingadmissionpolicybindings", {"metadata": {"name": "p"}, "spec": BINDING}),
    (f"{ADMISSION}/validatingwebhookconfigurations", {"metadata": {"name": "v"}, "webhooks": [_webhook("secrets")]}),
    (f"{ADMISSION}/mutatingwebhookconfigurations", {"metadata": {"name": "m"}, "webhooks": [_webhook("podtemplates")]}),
    (f"{NS}/resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": {"count/endpoints": "0"}}}),
    (f"{NS}/limitranges", {"metadata": {"name": "l"}, "spec": {"limits": [{"type": "PersistentVolumeClaim", "max": {"storage": "1"}}]}}),
]
CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
SPEC = {"containers": [{"name": "c", "image": "i"}], "nodeName": "Not A Name"}

COPIES = [
    {"op": "add", "path": "/metadata/x", "value": [{}] * 100}, *[{"op": "copy", "from": "/metadata/x", "path": "/metadata/x/-"}] * 11,
    {"op": "replace", "path": "/spec/limits", "value": [{"type": BIG}]},
]  # fmt: skip


def _post(resource: str, **fields: Any) -> Sent:
    return Sent("POST", f"{NS}/{resource}", {"metadata": {"name": "a", "annotations": {"big": BIG}}, **fields})


REFUSED = {
    "impersonation": (403, Sent("GET", f"{NS}/pods", headers=(("Impersonate-User", BIG), ("Impersonate-Group", "g")))),
    "who may not": (403, Sent("GET", f"{NS}/pods?x={BIG}")),
    "policy": (422, _post("services", spec={"ports": [{"port": 80}]})),
    "not refused": (201, Sent("POST", f"{NS}/services?dryRun=All", {"metadata": {"name": "ok"}, "spec": {"ports": [{"port": 80}]}})),
    "validating webhook": (500, _post("secrets")),
    "mutating webhook": (500, _post("podtemplates", template={"spec": {"containers": [{"name": "c", "image": "i"}]}})),
    "quota": (403, _post("endpoints")),
    "limit range": (403, _post("persistentvolumeclaims", spec=CLAIM)),
    "no account": (403, _post("pods", spec=SPEC)),
    "validation": (422, _post("replicationcontrollers", spec={"replicas": -1})),
    "there is one": (409, Sent("POST", "/api/v1/namespaces", {"metadata": {"name": "default", "annotations": {"big": BIG}}})),
    "no object": (400, Sent("POST", f"{NS}/configmaps", BIG)),
    "none such": (404, Sent("PATCH", f"{NS}/configmaps/none", {"data": {"a": BIG}}, MERGE_PATCH)),
    "no configuration": (400, Sent("PATCH", f"{NS}/configmaps/none?fieldManager=m", [BIG], "application/apply-patch+yaml")),
    "copies that double": (422, Sent("PATCH", f"{NS}/limitranges/l", COPIES, "application/json-patch+json")),
    "no continue token": (400, Sent("GET", f"{NS}/configmaps?limit=1&continue={BIG}")),
    "no selector": (400, Sent("GET", f"{NS}/configmaps?labelSelector=a=b={BIG}")),
}
STRANGERS = ("impersonation", "who may not")


async def _turns() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


@pytest.fixture(scope="module")
def served(tmp_path_factory: Any) -> Iterator[InProcess]:
    server = InProcess(tmp_path_factory.mktemp("kas"))
    asyncio.set_event_loop(server.loop)
    server.server.credentials.load()
    try:
        for path, obj in MADE:
            status, answer = server.ask(Sent("POST", path, obj))
            assert status == 201, answer
        none = {"count/endpoints": "0"}  # no controller counts here
        status, _ = server.ask(Sent("PATCH", f"{NS}/resourcequotas/q/status", {"status": {"hard": none, "used": none}}, MERGE_PATCH))
        assert status == 200
        yield server
    finally:
        asyncio.set_event_loop(None)
        server.close()


@pytest.mark.parametrize("what", REFUSED)
def test_no_cycle_is_left(served: InProcess, what: str) -> None:
    code, sent = REFUSED[what]
    trusted, strangers = served.chain, served.server.chain_of("secure")

    def ask() -> None:
        served.chain = strangers if what in STRANGERS else trusted
        try:
            status, answer = served.ask(sent)
        finally:
            served.chain = trusted
        assert status == code, answer

    def requests() -> int:
        return sum(isinstance(o, Request) for o in gc.get_objects())

    logging.disable()  # pytest keeps log records, with their errors
    try:
        ask()  # what the first request creates may stay
        gc.collect()
        before = requests()
        gc.disable()
        ask()
        served.loop.run_until_complete(_turns())
        assert requests() == before
    finally:
        gc.enable()
        logging.disable(logging.NOTSET)


class _Taken:
    """A client that accepts everything."""

    async def __call__(self, piece: bytes) -> None:
        pass

    def begin(self, piece: bytes) -> None:
        pass


@pytest.mark.parametrize("query", ["", "&resourceVersion=1", "&labelSelector=a%3Db", "&timeoutSeconds=-1"])
def test_a_watch_leaves_no_cycle(served: InProcess, query: str) -> None:
    """When thousands end at once, cycles would make the next ones allocate new memory."""

    def watches() -> int:
        return sum(isinstance(o, WatchStream) for o in gc.get_objects())

    async def watched() -> None:
        resp = served.chain(served.request(Sent("GET", f"{NS}/configmaps?watch=true{query}")))
        assert isinstance(resp, Response) and resp.stream is not None and watches() == before + 1
        task = asyncio.ensure_future(resp.stream(_Taken()))
        await _turns()
        assert (query == "&timeoutSeconds=-1") == task.done()
        task.cancel()
        await asyncio.wait([task])
        if resp.finish is not None:
            resp.finish()

    gc.collect()
    before = watches()
    gc.disable()
    try:
        served.loop.run_until_complete(watched())
        served.loop.run_until_complete(_turns())
        assert watches() == before
    finally:
        gc.enable()
