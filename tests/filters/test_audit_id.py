"""Every answer carries an id."""

from __future__ import annotations

import re

from kas.filters.audit_id import audit_id
from kas.request.http import Response
from tests.filters.requests import header, request


def test_audit_id_is_made_or_taken():
    f = audit_id()
    req, resp = request(), Response(200, [])
    f.before(req)
    f.after(req, resp)
    assert re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", header(resp, b"audit-id")[0].decode())
    for given in ("foo-bar-baz", "mine" * 30, "x" * 2000):
        req, resp = request(audit_id=given), Response(200, [])
        f.before(req)
        f.after(req, resp)
        assert req.audit_id == header(resp, b"audit-id")[0].decode() == given[:1024]
