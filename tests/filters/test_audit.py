"""The audit filter: a request begins without annotations, before anything that makes some."""

from __future__ import annotations

from kas.filters.audit import audit
from tests.filters.requests import request
from tests.filters.serving import Harness


def test_a_request_begins_without_annotations():
    req = request()
    req.annotate("left", "over")
    audit().before(req)
    assert req.annotations is None
    req.annotate("a", "b")
    assert req.annotations == {"a": "b"}


def test_it_stands_behind_who_asks_and_before_whom_they_become():
    """What impersonation notes is kept, and what came before is not."""
    names = Harness().chain.names
    assert names.index("authentication") < names.index("audit") < names.index("impersonation")
    req = request(impersonate_user="bob")
    req.annotate("left", "over")
    assert Harness().chain(req).status == 200
    assert req.annotations == {"authentication.kubernetes.io/impersonation-constraint": "impersonate:user-info"}
