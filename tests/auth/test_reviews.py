"""The review kinds: complete answers as kube-apiserver gives them."""

import pytest

from kas.auth.authn.tokenfile import admin_token
from kas.auth.authn.union import TokenUnion
from kas.auth.authz.modes import AlwaysAllow, build
from kas.auth.authz.rbac import RbacIndex
from kas.kinds.authentication.tokenreview import self_subject_review, token_review
from kas.kinds.authorization import accessreview as reviews
from kas.meta.errors import ApiError
from kas.registry.strategy import Context

JANE = {"username": "jane", "groups": ["dev", "system:authenticated"]}


@pytest.fixture
def authorizer():
    index = RbacIndex()
    rules = [
        {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["configmaps"]},
        {"verbs": ["*"], "apiGroups": ["apps"], "resources": ["deployments/scale"], "resourceNames": ["one"]},
    ]
    index.put("roles", {"metadata": {"name": "r", "namespace": "ns"}, "rules": rules})
    subjects = [{"kind": "User", "name": "jane"}]
    binding = {"metadata": {"name": "rb", "namespace": "ns"}, "roleRef": {"kind": "Role", "name": "r"}, "subjects": subjects}
    index.put("rolebindings", binding)
    return build(["RBAC"], rbac=index)


def ask(authorizer, **spec):
    return reviews.subject_access_review(Context(), {"metadata": {}, "spec": spec}, authorizer)["status"]


def test_subject_access_review(authorizer):
    listing = {"namespace": "ns", "verb": "list", "resource": "configmaps"}
    reason = 'RBAC: allowed by RoleBinding "rb/ns" of Role "r" to User "jane"'
    assert ask(authorizer, user="jane", resourceAttributes=listing) == {"allowed": True, "reason": reason}
    assert ask(authorizer, user="jane", resourceAttributes={**listing, "verb": "create"}) == {"allowed": False}
    scale = {"namespace": "ns", "verb": "update", "group": "apps", "resource": "deployments", "subresource": "scale", "name": "one"}
    assert ask(authorizer, user="jane", resourceAttributes=scale)["allowed"]
    assert ask(authorizer, user="jane", nonResourceAttributes={"path": "/metrics", "verb": "get"}) == {"allowed": False}
    odd = {**listing, "labelSelector": {"requirements": [{"key": "a", "operator": "Near"}]}}
    error = "spec.resourceAttributes.labelSelector ignored due to parse error"
    assert ask(authorizer, user="jane", resourceAttributes=odd) == {"allowed": True, "reason": reason, "evaluationError": error}


def refusal(call, obj, *args, ctx=None):
    with pytest.raises(ApiError) as e:
        call(ctx or Context(), obj, *args)
    return e.value


def test_refusals():
    yes = AlwaysAllow()
    e = refusal(reviews.subject_access_review, {"spec": {}}, yes)
    assert e.message == (
        '.authorization.k8s.io "" is invalid: [spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or '
        'resourceAttributes must be specified, spec.user: Invalid value: "": at least one of user or group must be specified]'
    )
    assert e.details["group"] == "authorization.k8s.io" and "kind" not in e.details
    e = refusal(reviews.subject_access_review, {"spec": {"user": "x", "resourceAttributes": {}, "nonResourceAttributes": {}}}, yes)
    assert 'spec.nonResourceAttributes: Invalid value: {"Path":"","Verb":""}: cannot be specified' in e.message
    local = {"metadata": {}, "spec": {"user": "x", "resourceAttributes": {"namespace": "other"}}}
    e = refusal(reviews.local_subject_access_review, local, yes, ctx=Context(namespace="ns"))
    assert 'spec.resourceAttributes.namespace: Invalid value: "other": must match metadata.namespace' in e.message
    assert refusal(reviews.self_subject_rules_review, {"spec": {}}, yes, ctx=Context(user=JANE)).message == "no namespace on request"


def test_self_reviews(authorizer):
    ctx = Context(user=JANE, now="2024-01-02T03:04:05Z")
    attrs = {"verb": "get", "resource": "configmaps", "namespace": "ns"}
    got = reviews.self_subject_access_review(ctx, {"metadata": {}, "spec": {"resourceAttributes": attrs}}, authorizer)
    assert got["status"]["allowed"] and list(got) == ["metadata", "spec", "status"]
    got = reviews.self_subject_rules_review(ctx, {"spec": {"namespace": "ns"}}, authorizer)
    assert got["spec"] == {} and got["status"]["incomplete"] is False and len(got["status"]["resourceRules"]) == 2
    got = self_subject_review(ctx, {"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1"})
    assert got["metadata"] == {"creationTimestamp": ctx.now} and got["status"] == {"userInfo": JANE}


def test_token_review():
    tokens = TokenUnion([admin_token("t")], ["api"])

    def status(token, **spec):
        return token_review(Context(), {"spec": {"token": token, **spec}}, tokens.review, ["api"])["status"]

    user = {"username": "admin", "groups": ["system:masters", "system:authenticated"]}
    assert status("t") == {"authenticated": True, "user": user, "audiences": ["api"]}
    assert status("u") == {"user": {}, "error": "invalid bearer token"}
    assert status("t", audiences=["else"]) == {"user": {}, "error": "invalid bearer token"}
    assert refusal(token_review, {"spec": {}}, tokens.review, []).message == "token is required for TokenReview in authentication"


def test_a_token_review_keeps_the_posted_status_that_its_answer_does_not_set():
    tokens = TokenUnion([admin_token("t")], ["api"])
    posted = {"authenticated": True, "user": {"username": "x", "uid": "1"}, "audiences": ["mine"], "error": "old"}

    def status(token, audiences):
        return token_review(Context(), {"spec": {"token": token}, "status": posted}, tokens.review, audiences)["status"]

    assert status("u", ["api"]) == {"user": posted["user"], "audiences": ["mine"], "error": "invalid bearer token"}
    user = {"username": "admin", "groups": ["system:masters", "system:authenticated"]}
    assert status("t", ["api"]) == {"authenticated": True, "user": user, "audiences": ["api"], "error": "old"}
    assert posted["authenticated"]
