"""The reviews sent to webhooks, and how their responses are read."""

from __future__ import annotations

import base64

import orjson
import pytest

from kas.admission import Attributes
from kas.admission.matching import Invocation, kind_of
from kas.admission.webhook import review
from kas.admission.webhook.review import MAX_ABOUT, MAX_KEPT, HookError, InvalidResponseError, Reviews
from kas.auth.user import UserInfo

UID = "u-1"


def attributes(operation="CREATE", subresource="", options=None, obj=None, old=None, name="a", resource="pods", namespace="ns1"):
    user = UserInfo("jane", ["g"], "id", {"k": ["v"]})
    return Attributes(
        operation, "", "v1", resource, subresource, "Pod", namespace, name, obj, old, user, options or {}, True, "", print, print
    )


def sent(a, told=None, version="v1"):
    told = told or Invocation("", "v1", a.resource, ("", "v1", "Pod"))
    return orjson.loads(Reviews(version, True).request(a, told, kind_of(a), UID, b'{"a":1}', None))


def test_the_review_of_a_request():
    got = sent(attributes(options={"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"}))
    assert list(got) == ["kind", "apiVersion", "request"] and got["apiVersion"] == "admission.k8s.io/v1"
    kind, resource = {"group": "", "version": "v1", "kind": "Pod"}, {"group": "", "version": "v1", "resource": "pods"}
    assert got["request"] == {
        "uid": UID, "kind": kind, "resource": resource, "requestKind": kind, "requestResource": resource, "name": "a", "namespace": "ns1",
        "operation": "CREATE", "userInfo": {"username": "jane", "uid": "id", "groups": ["g"], "extra": {"k": ["v"]}}, "object": {"a": 1},
        "oldObject": None, "dryRun": True, "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
    }  # fmt: skip
    assert sent(attributes(), version="v1beta1")["apiVersion"] == "admission.k8s.io/v1beta1"


def test_another_version_and_a_subresource():
    obj = {"kind": "Scale", "apiVersion": "autoscaling/v1"}
    told = Invocation("apps", "v1beta1", "deployments", ("autoscaling", "v1", "Scale"))
    got = sent(attributes("UPDATE", "scale", obj=obj), told)["request"]
    assert got["resource"] == {"group": "apps", "version": "v1beta1", "resource": "deployments"}
    assert got["kind"] == got["requestKind"] == {"group": "autoscaling", "version": "v1", "kind": "Scale"}
    assert got["subResource"] == got["requestSubResource"] == "scale" and got["requestResource"]["version"] == "v1"


def test_a_request_shown_in_many_versions():
    reviews, a = Reviews("v1", True), attributes(name='a"b')
    for n in [*range(MAX_ABOUT + 1), 0, MAX_ABOUT]:
        told = Invocation("", f"v{n}", "pods", ("", f"v{n}", "Pod"))
        got = orjson.loads(reviews.request(a, told, kind_of(a), UID, None, b"{}"))["request"]
        assert (got["kind"]["version"], got["resource"]["version"], got["requestKind"]["version"]) == (f"v{n}", f"v{n}", "v1")
        assert (got["name"], got["object"], got["oldObject"]) == ('a"b', None, {})


def test_options_and_names():
    got = sent(attributes("DELETE", name="", options={"propagationPolicy": "Background", "gracePeriodSeconds": 5}))["request"]
    assert "name" not in got
    assert list(got["options"]) == ["kind", "apiVersion", "gracePeriodSeconds", "propagationPolicy"]
    assert sent(attributes("DELETE"))["request"]["options"] == {"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1"}
    assert sent(attributes("CONNECT", options={"a": 1}))["request"]["options"] is None
    # A Namespace is in itself.
    assert sent(attributes(resource="namespaces", namespace="", name="x"))["request"]["namespace"] == "x"


def answer(version="v1", kind="AdmissionReview", **response):
    return orjson.dumps({"apiVersion": f"admission.k8s.io/{version}", "kind": kind, "response": {"uid": UID, "allowed": True, **response}})


PATCH = base64.b64encode(b"[]").decode()


def test_responses():
    got = review.response(answer(patch=PATCH, patchType="JSONPatch", warnings=["w", ""], auditAnnotations={"a": "b"}), "v1", UID, True)
    assert (got.allowed, got.patch, got.patch_type, got.warnings, got.annotations) == (True, b"[]", "JSONPatch", ["w"], {"a": "b"})
    got = review.response(answer(allowed=False, status={"message": "no", "code": 403}), "v1", UID, False)
    assert not got.allowed and (got.status["message"], got.status["code"]) == ("no", 403)
    # v1beta1 has fewer requirements: the uid and the type of the patch are not checked.
    old = review.response(answer("v1beta1", uid="other", patch=PATCH), "v1beta1", UID, True)
    assert (old.patch, old.patch_type) == (b"[]", "JSONPatch")
    assert review.response(answer("v1beta1", patch=PATCH), "v1beta1", UID, False).patch == b""


def about(uid, **more):
    return orjson.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": {"uid": uid, "allowed": True, **more}})


@pytest.mark.parametrize(("more", "kept"), [
    ({}, True), ({"status": {"metadata": {}, "code": 200}}, True), ({"patch": PATCH, "patchType": "JSONPatch"}, True),
    ({"allowed": False, "status": {"message": "no"}}, True), ({"allowed": False, "status": {"message": "u-7 is no"}}, False),
    ({"warnings": ["about u-7"]}, False), ({"auditAnnotations": {"k": "u-7"}}, False), ({"warnings": ["x" * MAX_KEPT]}, False),
])  # fmt: skip
def test_an_equal_response_to_another_request_is_parsed_once(more, kept):
    def said(uid):
        return orjson.dumps(more).replace(b"u-7", uid.encode())

    reviews = Reviews("v1", True)
    first = reviews.response(about("u-7", **orjson.loads(said("u-7"))), "u-7")
    second = reviews.response(about("u-8", **orjson.loads(said("u-8"))), "u-8")
    assert (second is first) is kept
    assert second == review.response(about("u-8", **orjson.loads(said("u-8"))), "v1", "u-8", True)
    other = reviews.response(about("u-9", allowed=False), "u-9")
    assert not other.allowed


def test_the_response_to_another_request_is_refused():
    reviews = Reviews("v1", False)
    assert reviews.response(about("u-7"), "u-7").allowed
    with pytest.raises(InvalidResponseError, match=r'expected response\.uid="u-8", got "u-7"'):
        reviews.response(about("u-7"), "u-8")
    # A uid that is escaped differently is equal, but the text beside it differs.
    escaped = about("u-7", allowed=False, status={"details": {"uid": "u-7"}}).replace(b'"u-7"', rb'"\u0075-7"', 1)
    assert reviews.response(escaped, "u-7").status["details"]["uid"] == "u-7"
    again = escaped.replace(b"u-7", b"u-8").replace(rb"\u0075-7", rb"\u0075-8")
    assert reviews.response(again, "u-8").status["details"]["uid"] == "u-8"


@pytest.mark.parametrize(("body", "mutating", "says"), [
    (b"{}", True, "webhook response was absent"),
    (answer(uid="x"), True, 'expected response.uid="u-1", got "x"'),
    (orjson.dumps({"response": {"uid": UID}}), True,
     "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got /, Kind="),
    (answer(patch=PATCH), True, "webhook returned response.patch but not response.patchType"),
    (answer(patchType="JSONPatch"), True, "webhook returned response.patchType but not response.patch"),
    (answer(patch=PATCH, patchType=""), True, 'webhook returned invalid response.patchType of ""'),
    (answer(""), True,
     "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got admission.k8s.io/, Kind=AdmissionReview"),
    (answer(patch=PATCH, patchType="JSONPatch"), False, "validating webhook may not return response.patch"),
    (answer(patchType="JSONPatch"), False, "validating webhook may not return response.patchType"),
])  # fmt: skip
def test_responses_with_another_uid_or_kind_are_refused(body, mutating, says):
    with pytest.raises(InvalidResponseError) as e:
        review.response(body, "v1", UID, mutating)
    assert str(e.value) == says


@pytest.mark.parametrize(("body", "says"), [
    (answer("v2"), 'no kind "AdmissionReview" is registered for version "admission.k8s.io/v2"'),
    (answer("v1/b"), "unexpected GroupVersion string: admission.k8s.io/v1/b"),
    (b'{"apiVersion":"/v1","kind":"AdmissionReview"}', 'no kind "AdmissionReview" is registered for version "v1" in scheme'),
    (b'{"apiVersion":"example.com/","kind":"AdmissionReview"}', "Object 'apiVersion' is missing in '{"),
    (answer(kind="Status"), "converting (v1.Status) to (v1.AdmissionReview): unknown conversion"),
    (b'{"apiVersion":"v1","kind":"Status","status":"Failure"}', "converting (v1.Status) to (v1.AdmissionReview): unknown conversion"),
    (answer("v1beta1"), "converting (v1beta1.AdmissionReview) to (v1.AdmissionReview): unknown conversion"),
    (answer(kind="Other"), 'no kind "Other" is registered for version "admission.k8s.io/v1"'),
    (answer(allowed="yes"), "json: cannot unmarshal string into Go struct field AdmissionResponse.response.allowed of type bool"),
    (answer(patch="%"), "illegal base64 data at input byte 0"),
    (b'{"kind": 1}', "json: cannot unmarshal number into Go struct field .kind of type string"),
    (b"hello", "json: cannot unmarshal string into Go value of type struct"),
    (b"[1]", "json: cannot unmarshal array into Go value of type struct"),
    (b"{", "couldn't get version/kind; json parse error: unexpected end of JSON input"),
    (b"a: b: c", "yaml: "),
])  # fmt: skip
def test_responses_that_are_no_reviews_are_refused(body, says):
    with pytest.raises(HookError) as e:
        review.response(body, "v1", UID, True)
    assert says in str(e.value)


def test_size_limits():
    got = review.response(answer(warnings=["x" * 10_000] * 1_000), "v1", UID, True)
    assert len(got.warnings) == review.MAX_WARNINGS and {len(w) for w in got.warnings} == {review.MAX_WARNING}
    assert review.annotation_key("h.example.com", "a") == "h.example.com/a"
    assert review.annotation_key("h.example.com", "a/b") is None
