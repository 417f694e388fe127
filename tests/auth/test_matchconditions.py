"""Match conditions of authorization webhooks: valid expressions, and when they hold."""

from __future__ import annotations

import pytest

from kas.auth.authz.matchconditions import Verdict, compiled

RESOURCE = {"resourceAttributes": {"namespace": "n", "verb": "list", "resource": "pods",
            "fieldSelector": {"requirements": [{"key": "spec.nodeName", "operator": "In", "values": ["n1"]}]}},
            "user": "jane", "groups": ["dev"], "extra": {"k": ["v"]}}  # fmt: skip
LABELS = {"requirements": [{"key": "a", "operator": "Exists"}, {"key": "b", "operator": "In", "values": ["c"]}]}
SELECTED = {"resourceAttributes": {**RESOURCE["resourceAttributes"], "labelSelector": LABELS}}
OF_BOTH = "(request.resourceAttributes.fieldSelector.requirements + request.resourceAttributes.labelSelector.requirements)"
PATH = {"nonResourceAttributes": {"path": "/x", "verb": "get"}, "user": "jane"}


@pytest.mark.parametrize(
    ("texts", "spec", "verdict"),
    [
        (["request.user == 'jane'"], PATH, True),
        (["request.uid == '' && request.groups.size() == 0 && !('k' in request.extra)"], PATH, True),
        (["has(request.resourceAttributes)"], PATH, False),
        (["has(request.nonResourceAttributes) && request.nonResourceAttributes.path.startsWith('/x')"], PATH, True),
        (["request.resourceAttributes.subresource == ''", "request.resourceAttributes.name == ''"], RESOURCE, True),
        (["request.resourceAttributes.fieldSelector.requirements.all(r, r.operator == 'In' && 'n1' in r.values)"], RESOURCE, True),
        (["has(request.resourceAttributes.labelSelector)"], RESOURCE, False),
        (["request.extra['k'][0] == 'v'"], RESOURCE, True),
        # Requirements without values have an empty list, and those of fields and labels have one type.
        ([f"{OF_BOTH}.map(r, r.values.size()) == [1, 0, 1]"], SELECTED, True),
        # A false condition decides, whatever the others return.
        (["request.extra['none'][0] == 'v'", "false"], RESOURCE, False),
    ],
)
def test_verdicts(texts, spec, verdict):
    conditions, found = compiled(texts, "authorizers[0]")
    assert found == [] and conditions.match(spec) == Verdict(verdict)


def test_errors_are_collected():
    conditions, _ = compiled(["request.extra['a'] == []", "true", "request.extra['b'] == []"], "")
    matches, error = conditions.match(PATH)
    assert not matches and error.count("no such key") == 2 and error.startswith("[cel evaluation error")


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        ([" "], "a.matchConditions[0].expression: Required value"),
        (["true", "true"], 'a.matchConditions[1].expression: Duplicate value: "true"'),
        (["request.user"], 'a.matchConditions[0].expression: Invalid value: "request.user": must evaluate to bool but got string'),
        (["request.nobody == ''"], "compilation failed: ERROR: <input>:1:8: undefined field 'nobody'"),
        (["object == 1"], "undeclared reference to 'object'"),
        (["1 +"], "compilation failed: ERROR: <input>:1:4: Syntax error"),
        (["(" * 5000 + "true"], "compilation failed"),
        (["true"] * 65, "a.matchConditions: Too many: 65: must have at most 64 items"),
    ],
)
def test_invalid_conditions(texts, says):
    found = compiled(texts, "a")[1]
    assert len(found) == 1 and says in str(found[0])
