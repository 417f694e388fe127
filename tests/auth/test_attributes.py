"""The attributes that an authorizer gets, and the text of a refusal."""

from kas.auth.attributes import NO_OPINION, Attributes, asked_by, attributes_of, forbidden
from kas.auth.user import UserInfo
from kas.filters.authorization import authorization
from kas.meta import selectors
from kas.observe.metrics import Registry
from tests.filters.requests import request


def test_a_refusal_is_escaped_for_browsers():
    e = forbidden(Attributes(UserInfo("<b>"), "get", resource_request=False, path="/a&b"), "why")
    assert e.message == 'forbidden: User "&lt;b&gt;" cannot get path "/a&amp;b": why'
    assert e.details == {}


def asked(query: str) -> Attributes:
    return attributes_of(request("GET", "/api/v1/namespaces/d/pods", query))


def test_selectors_are_parsed_only_if_an_authorizer_reads_them(monkeypatch):
    """RBAC does not: 240 kB of them held the loop for 0.6 s before an anonymous request was refused."""
    parsed = []
    for name in ("parse_label_selector", "parse_field_selector"):
        parse = getattr(selectors, name)
        monkeypatch.setattr(selectors, name, lambda text, parse=parse: parsed.append(text) or parse(text))

    class Nobody:
        def authorize(self, a):
            return NO_OPINION, "", ""

    query = "labelSelector=a,b%3Dc&fieldSelector=spec.nodeName%3Dn"
    refused = authorization(Nobody(), Registry()).before(request("GET", "/api/v1/namespaces/d/pods", query))
    assert refused.status == 403 and b'User \\"jane\\" cannot list resource \\"pods\\"' in refused.body
    a = asked(query)
    node = asked_by(a, UserInfo("node"), "impersonate-on:associated-node:list")
    assert parsed == []
    assert (node.user.name, node.verb, node.resource, node.namespace) == ("node", "impersonate-on:associated-node:list", "pods", "d")
    for one in (a, node):
        assert [(r.key, r.op, list(r.values)) for r in one.label_requirements] == [("a", "exists", []), ("b", "=", ["c"])]
        assert [(t.key, t.op, t.value) for t in one.field_requirements] == [("spec.nodeName", "=", "n")]
        assert (one.label_error, one.field_error) == ("", "")
    assert len(parsed) == 4


def test_an_invalid_selector_is_not_shown():
    a = asked("labelSelector=a+in+b")
    assert a.label_requirements is None and "unable to parse requirement" in a.label_error
    assert a.field_requirements is None and a.field_error == ""
    plain = Attributes(UserInfo("u"), "list", label_error="why")
    assert asked_by(plain, UserInfo("v"), "get").label_error == "why"
