"""May they: the authorizers' decision on the request; no opinion is a refusal."""

from __future__ import annotations

from kas.auth.attributes import ALLOW, Attributes, forbidden
from kas.auth.user import MASTERS
from kas.edge.http import Request
from kas.filters.chain import Filter
from kas.observe.metrics import Registry

SELECTOR_VERBS = frozenset(("list", "watch", "deletecollection"))


def attributes_of(req: Request) -> Attributes:
    """The question this request is."""
    info = req.info
    if not info.is_resource_request:
        return Attributes(req.user, info.verb, resource_request=False, path=info.path)
    a = Attributes(
        req.user, info.verb, info.namespace, info.api_group, info.api_version, info.resource, info.subresource, info.name, True, info.path
    )
    if info.verb in SELECTOR_VERBS and (info.field_selector or info.label_selector):
        _selectors(a, info)
    return a


def _selectors(a: Attributes, info) -> None:
    """Selectors as authorizers may see them (KEP-4601); one that cannot be parsed only means that none is shown."""
    from kas.api.selectors import SelectorError, parse_field_selector, parse_label_selector

    if info.field_selector:
        try:
            a.field_requirements = list(parse_field_selector(info.field_selector).requirements)
        except SelectorError as e:
            a.field_error = str(e)
    if info.label_selector:
        try:
            a.label_requirements = list(parse_label_selector(info.label_selector).requirements)
        except SelectorError as e:
            a.label_error = str(e)


def authorization(authorizer, registry: Registry) -> Filter:
    decisions = registry.counter(
        "apiserver_authorization_decisions_total", "Total number of terminal decisions made by an authorizer.", ("decision",)
    )

    def before(req: Request) -> None:
        # system:masters may do everything, whatever is configured (kas.auth.authz.modes.Union says the same, with a question).
        if req.read_only_port or MASTERS in req.user.groups:
            decisions.inc(("allowed",))
            return
        a = attributes_of(req)
        decision, reason, _ = authorizer.authorize(a)
        if decision == ALLOW:
            decisions.inc(("allowed",))
            return
        decisions.inc(("denied",))
        raise forbidden(a, reason if reason else "")

    return Filter("authorization", before)
