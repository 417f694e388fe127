"""Measures what the audit log adds to a request. Run with ``pytest bench/test_audit.py --benchmark-enable``."""

from __future__ import annotations

from itertools import count

import pytest

from kas.audit.auditor import Auditor
from kas.audit.backend import Union
from kas.audit.policy import load
from kas.auth.user import UserInfo
from kas.filters.audit import audit
from kas.filters.request_info import request_info
from kas.observe.metrics import Registry
from kas.request.http import Request, Response

JANE = UserInfo("jane", ("dev", "system:authenticated"), "u-1")
HEADERS = [(b"host", b"127.0.0.1:6443"), (b"user-agent", b"bench/1.0"), (b"accept", b"application/json")]
ANSWER = Response(200, [(b"content-type", b"application/json")], b'{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"c"}}')


class Nowhere:
    """A backend that takes everything."""

    name = "nowhere"

    def __init__(self) -> None:
        self.bytes = 0

    async def process(self, entries) -> None:
        self.bytes += sum(len(entry.text) for entry in entries)

    async def close(self) -> None:
        pass


@pytest.mark.parametrize("level", ["off", "None", "Metadata", "Request"])
def test_a_request(benchmark, level, tmp_path):
    """Both entries of a GET, to a file that is written in batches; the filter is the part within the request."""
    import asyncio

    from kas.audit.batch import Batch

    async def run() -> None:
        auditor = None
        if level != "off":
            backends = Union(Registry().counter("apiserver_audit_error_total", "", ("plugin",)))
            backends.backends.append((Batch(Nowhere(), 10_000, 400, 30.0, None, backends.failed), False))
            policy = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": level}], "omitStages": ["RequestReceived"]}
            auditor = Auditor(load(policy), backends, Registry())
        recorder, info, numbers = None if auditor is None else audit(auditor), request_info(), count()

        def one() -> None:
            req = Request("GET", "/api/v1/namespaces/ns/configmaps/c", "", HEADERS, b"")
            info.before(req)
            req.user, req.client, req.audit_id = JANE, "127.0.0.1", f"{next(numbers):036d}"
            if recorder is None:
                return
            if recorder.before is not None:
                recorder.before(req)
            if recorder.after is not None:
                recorder.after(req, ANSWER)

        benchmark(one)

    asyncio.run(run())
