"""The fast path of the audit log, which most requests take: a plain answer, and entries for a backend that no request waits for."""

from __future__ import annotations

import asyncio
import sys
from datetime import datetime
from itertools import count

import orjson
import pytest

from kas.audit.auditor import Auditor
from kas.audit.backend import Union
from kas.audit.batch import Batch
from kas.audit.policy import load
from kas.auth.user import UserInfo
from kas.filters.audit import audit
from kas.filters.request_info import request_info
from kas.observe.metrics import Registry
from kas.request.http import Request, Response

JANE = UserInfo("jane", ("dev", "system:authenticated"), "u-1")
POLICY = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "Metadata"}], "omitStages": ["RequestReceived"]}


class Log:
    """An audit log with these backends; ``ask`` sends a request through its filter."""

    def __init__(self, *backends, buffer=100, size=10, strict=False, omitted=("RequestReceived",), rules=POLICY["rules"]):
        self.registry = Registry()
        self.errors = self.registry.counter("apiserver_audit_error_total", "", ("plugin",))
        union = Union(self.errors)
        union.backends += [(Batch(b, buffer, size, 3600.0, None, union.failed), strict) for b in backends]
        policy = load({**POLICY, "omitStages": list(omitted), "rules": rules})
        self.batch, self.auditor = union.backends[0][0], Auditor(policy, union, self.registry)
        self.filter, self._info, self._numbers = audit(self.auditor), request_info(), count()

    def ask(self, status=200, client="127.0.0.1", user=JANE, path="/api/v1/namespaces/ns/configmaps/c", since=0.0):
        headers = [(b"host", b"127.0.0.1:6443"), (b"user-agent", b"test/1.0")]
        req = Request("GET", path, "", headers, b"")
        req.started -= since
        self._info.before(req)
        req.user, req.client, req.audit_id = user, client, f"id-{next(self._numbers)}"
        assert self.filter.before(req) is None
        if req.audit is not None:
            req.audit.authorized("allow", "because", 0.001)
        self.filter.after(req, Response(status, [(b"content-type", b"application/json")], b'{"kind":"ConfigMap"}'))

    @property
    def counted(self):
        return self.registry.metrics["apiserver_audit_event_total"].values[()]

    @property
    def lost(self):
        return sum(self.errors.values.values())


class Kept:
    """A backend that keeps its entries."""

    name = "kept"

    def __init__(self):
        self.batches = []

    def process(self, entries):
        self.batches.append([orjson.loads(e.text)["auditID"] for e in entries])
        self.last = [orjson.loads(e.line) for e in entries]

    async def close(self):
        pass


SEVERAL = [{"level": "None", "users": ["joe"], "namespaces": ["ns"]}, {"level": "None", "nonResourceURLs": ["/healthz*"]}, *POLICY["rules"]]


@pytest.mark.parametrize(("omitted", "rules"), [(("RequestReceived",), POLICY["rules"]), ((), POLICY["rules"]), ((), SEVERAL)])
def test_a_usual_request_calls_no_python_function(omitted, rules):
    """Each call would cost much of the total."""
    stages = ["RequestReceived", "ResponseComplete"][len(omitted) :]

    async def run():
        log, called = Log(Kept(), size=100, omitted=omitted, rules=rules), []
        log.ask()  # from now on a task takes the waiting entries

        def seen(frame, event, arg):
            if event == "call" and ("/kas/audit/" in frame.f_code.co_filename or "/filters/audit" in frame.f_code.co_filename):
                called.append(frame.f_code.co_qualname)

        sys.setprofile(seen)
        try:
            for _ in range(5):
                log.ask()
        finally:
            sys.setprofile(None)
        assert not called
        assert [orjson.loads(e.line)["stage"] for e in log.batch.waiting] == stages * 6
        assert log.counted == len(stages) * 6
        await log.auditor.close(10.0)

    asyncio.run(run())


def test_a_cached_verdict_applies_only_to_equal_attributes():
    """Those that any rule looks at: here the user and the namespace."""

    async def run():
        log = Log(Kept(), rules=SEVERAL)
        for _ in range(3):
            log.ask()
            log.ask(user=UserInfo("joe"))
            log.ask(user=UserInfo("joe"), path="/api/v1/namespaces/other/configmaps/c")
            log.ask(path="/healthz/ping")
            log.ask(path="/version")
        said = [orjson.loads(e.line) for e in log.batch.waiting]
        assert [(e["user"]["username"], e["requestURI"]) for e in said] == [
            ("jane", "/api/v1/namespaces/ns/configmaps/c"), ("joe", "/api/v1/namespaces/other/configmaps/c"), ("jane", "/version"),
        ] * 3  # fmt: skip
        assert log.registry.metrics["apiserver_audit_level_total"].values == {("Metadata",): 9, ("None",): 6}
        await log.auditor.close(10.0)

    asyncio.run(run())


@pytest.mark.parametrize("rules", [POLICY["rules"], SEVERAL])
def test_the_received_time_is_that_of_arrival(rules):
    """And not the end of authentication, which may wait for another service."""

    async def run():
        log = Log(Kept(), omitted=(), rules=rules)
        log.ask(since=100.0)
        log.ask(since=100.0)
        for e in log.batch.waiting:
            said = orjson.loads(e.line)
            began, staged = (datetime.fromisoformat(said[f"{which}Timestamp"]) for which in ("requestReceived", "stage"))
            took = (staged - began).total_seconds()
            assert took == 0 if said["stage"] == "RequestReceived" else took >= 100
        await log.auditor.close(10.0)

    asyncio.run(run())


def test_full_batches_are_sent_in_order():
    async def run():
        kept = Kept()
        log = Log(kept, size=4)
        for _ in range(11):
            log.ask()
        while len(kept.batches) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0)
        log.ask(404)
        await log.auditor.close(10.0)
        assert [name for batch in kept.batches for name in batch] == [f"id-{n}" for n in range(12)]
        assert [len(batch) for batch in kept.batches] == [4, 4, 4] and kept.last[-1]["responseStatus"]["code"] == 404

    asyncio.run(run())


def test_entries_beyond_the_buffer_are_lost_and_counted():
    async def run():
        kept = Kept()
        log = Log(kept, buffer=3, size=10)
        for _ in range(5):
            log.ask()
        assert (len(log.batch.waiting), log.lost, log.counted) == (3, 2, 5)
        await log.auditor.close(10.0)
        assert kept.batches == [["id-0", "id-1", "id-2"]]

    asyncio.run(run())


@pytest.mark.parametrize(("backends", "strict"), [(2, False), (1, True)])
def test_several_backends_and_strict_ones_use_the_union(backends, strict):
    async def run():
        kept = [Kept() for _ in range(backends)]
        log = Log(*kept, size=2, strict=strict)
        for _ in range(4):
            log.ask()
        await log.auditor.close(10.0)
        assert all([n for b in k.batches for n in b] == [f"id-{n}" for n in range(4)] for k in kept)

    asyncio.run(run())


def test_source_addresses_are_normalized():
    async def run():
        kept = Kept()
        log = Log(kept)
        told = ["127.0.0.1", "127.0.0.1", "2001:DB8::1", "unknown", "2001:DB8::1", "127.0.0.1"]
        for client in told:
            log.ask(client=client)
        await log.auditor.close(10.0)
        seen = [e.get("sourceIPs") for e in kept.last]
        assert seen == [["127.0.0.1"], ["127.0.0.1"], ["2001:db8::1"], None, ["2001:db8::1"], ["127.0.0.1"]]

    asyncio.run(run())
