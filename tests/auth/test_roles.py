"""Matching of a role's rules with a request."""

import pytest

from kas.auth.authz.roles import Role, beginnings


def named(*names, **more):
    return {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": list(names), **more}


RULES = [
    named("a", "b"), named("c"), named("d", verbs=["put"]), named(verbs=["list"]), named(resources=["*/log"], verbs=["*"]),
    named("x", resources=["pods/exec"]), named("y", resources=["*"], apiGroups=["apps"]),
    {"verbs": ["get"], "nonResourceURLs": ["/version", "/logs/*"]}, {"verbs": ["*"], "nonResourceURLs": ["/metrics*"]},
]  # fmt: skip


@pytest.mark.parametrize(("asked", "names"), [
    (("get", "", "pods", ""), {"a", "b", "c"}), (("put", "", "pods", ""), {"d"}), (("list", "", "pods", ""), None),
    (("watch", "", "pods", ""), set()), (("get", "", "services", "log"), None), (("get", "", "pods", "exec"), {"x"}),
    (("get", "", "services", "exec"), set()), (("get", "apps", "deployments", "scale"), {"y"}), (("get", "batch", "pods", ""), set()),
])  # fmt: skip
def test_names(asked, names):
    assert Role(lambda: RULES).names(*asked) == names


@pytest.mark.parametrize(("verb", "path", "allowed"), [
    ("get", "/version", True), ("put", "/version", False), ("get", "/version/x", False), ("get", "/logs/x", True), ("get", "/logs", False),
    ("put", "/metrics/slis", True), ("put", "/metrics", True), ("get", "/", False),
])  # fmt: skip
def test_paths(verb, path, allowed):
    assert Role(lambda: RULES).allows_path(verb, path) is allowed
    assert Role(lambda: [*RULES, {"verbs": ["*"], "nonResourceURLs": ["*"]}]).allows_path(verb, path)


def test_prefixes_are_found_with_both_methods():
    few, many = {"/a": 1, "": 1, "/b": 1}, {f"/{i}": 1 for i in range(100)}
    assert sorted(beginnings(few, "/a/b")) == ["", "/a"]
    assert beginnings(many, "/77x") == ["/7", "/77"]
