"""The ImagePolicyWebhook plug-in alone."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Any

import pytest

from kas.admission.configuration import Section
from kas.admission.plugins import image_policy_webhook
from kas.types.configfile import ConfigurationError
from tests.admission.admission_fakes import Request, pod, refused
from tests.admission.policy_backend import PolicyBackend, certificate, kubeconfig, reviewed


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def backend():
    with PolicyBackend() as running:
        yield running


def plugin(tmp_path, url: str, clock: Any = None, cluster=None, user=None, **config: Any) -> image_policy_webhook.Plugin:
    told = {"imagePolicy": {"kubeConfigFile": kubeconfig(tmp_path / "kubeconfig", url, cluster, user), "retryBackoff": 1, **config}}
    return image_policy_webhook.Plugin(Section("x", embedded=told), clock or Clock())


def test_the_review_request(tmp_path, backend):
    policy = plugin(tmp_path, backend.url + "/policy/")
    obj = pod(initContainers=[{"name": "i", "image": "first:1"}])
    obj["metadata"]["annotations"] = {"mycluster.image-policy.k8s.io/ticket-1234": "break-glass", "other": "x"}
    Request(policy, obj=obj).run()
    (asked,) = backend.seen
    assert asked["path"] == "/policy?timeout=30s"
    assert asked["body"] == {
        "kind": "ImageReview", "apiVersion": "imagepolicy.k8s.io/v1alpha1", "metadata": {}, "status": {"allowed": False},
        "spec": {
            "containers": [{"image": "i"}, {"image": "first:1"}], "namespace": "ns1",
            "annotations": {"mycluster.image-policy.k8s.io/ticket-1234": "break-glass"},
        },
    }  # fmt: skip
    ephemeral = pod(ephemeralContainers=[{"name": "e", "image": "debug"}])
    Request(policy, operation="UPDATE", subresource="ephemeralcontainers", obj=ephemeral, old=pod()).run()
    assert backend.seen[1]["body"]["spec"] == {"containers": [{"image": "debug"}], "namespace": "ns1"}
    Request(policy, operation="UPDATE", subresource="status", obj=pod(), old=pod()).run()
    Request(policy, resource="services", obj={"metadata": {"name": "s"}}).run()
    assert len(backend.seen) == 2


AUDIT = "imagepolicywebhook.image-policy.k8s.io/"


def test_a_denial(tmp_path, backend):
    policy = plugin(tmp_path, backend.url, denyTTL=-1)
    backend.answers = lambda _: reviewed(False, reason="not scanned", auditAnnotations={"ticket": "1", "b@d": "x"})
    request = Request(policy, obj=pod())
    e = refused(request)
    assert (e.code, e.message) == (
        403, 'pods "a" is forbidden: image policy webhook backend denied one or more images: not scanned'
    )  # fmt: skip
    assert request.annotations == {AUDIT + "ticket": "1"}
    backend.answers = lambda _: reviewed(False)
    assert refused(Request(policy, obj=pod())).message == 'pods "a" is forbidden: one or more images rejected by webhook backend'


def test_answers_are_cached_for_a_while(tmp_path, backend):
    clock = Clock()
    policy = plugin(tmp_path, backend.url, clock, allowTTL=60, denyTTL=30)
    backend.answers = lambda asked: reviewed(asked["body"]["spec"]["containers"][0]["image"] == "i", auditAnnotations={"a": "b"})
    for _ in range(3):
        request = Request(policy, obj=pod())
        request.run()
        assert request.annotations == {AUDIT + "a": "b"}
        refused(Request(policy, obj=pod(containers=[{"name": "c", "image": "bad"}])))
    assert len(backend.seen) == 2
    Request(policy, obj=pod("b"), namespace="other").run()
    assert len(backend.seen) == 3
    clock.now = 30
    Request(policy, obj=pod()).run()
    assert len(backend.seen) == 3
    refused(Request(policy, obj=pod(containers=[{"name": "c", "image": "bad"}])))
    assert len(backend.seen) == 4
    clock.now = 60
    Request(policy, obj=pod()).run()
    assert len(backend.seen) == 5


def test_minus_one_disables_the_cache(tmp_path, backend):
    policy = plugin(tmp_path, backend.url, allowTTL=-1)
    for _ in range(2):
        Request(policy, obj=pod()).run()
    assert len(backend.seen) == 2


@pytest.mark.parametrize("ttl_s, fine", [(-2, False), (1, True), (1800, True), (1801, False)])
def test_the_cache_time_is_between_a_second_and_half_an_hour(tmp_path, backend, ttl_s, fine):
    for name, told in (("allowTTL", True), ("denyTTL", False)):
        if fine:
            assert plugin(tmp_path, backend.url, **{name: ttl_s})._ttl_s[told] == ttl_s
        else:
            with pytest.raises(ConfigurationError, match="valid value is between 1s and 30m0s"):
                plugin(tmp_path, backend.url, **{name: ttl_s})


def test_the_cache_is_bounded_in_bytes(tmp_path, backend):
    policy = plugin(tmp_path, backend.url)
    for i in range(500):
        policy._remember(str(i).encode(), {"allowed": True, "reason": "x" * (image_policy_webhook.LONGEST_ANSWER - 100)})
        assert policy._answers.size <= image_policy_webhook.CACHE_BYTES
    assert policy._answers.entries
    policy._remember(b"long", {"allowed": True, "reason": "x" * image_policy_webhook.LONGEST_ANSWER})
    assert b"long" not in policy._answers.entries


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ((500, {}, b"no\nspace"), 'an error on the server ("no\\nspace") has prevented the request from succeeding'),
        ((404, {}, b""), "the server could not find the requested resource"),
        ((403, {}, b"go away"), "go away"),
        ((302, {"Location": "http://127.0.0.1:1/"}, b""),
         "the server responded with the status code 302 but did not return more information"),
        ((400, {}, json.dumps({"kind": "Status", "status": "Failure", "message": "bad review"}).encode()), "bad review"),
        ((200, {}, b"{"), "couldn't get version/kind; json parse error: unexpected end of data: line 1 column 2 (char 1)"),
        ((200, {}, b"[]"), "couldn't get version/kind; json parse error: the answer is not an object"),
        ((200, {}, b'{"kind":"Pod","apiVersion":"v1"}'), 'no kind "Pod" is registered for version "v1"'),
        ((200, {}, b'{"status":{"allowed":"yes"}}'), "the status of the ImageReview that the webhook answered is malformed"),
        ((200, {}, b'{"status":{"allowed":true,"auditAnnotations":{"a":1}}}'),
         "the status of the ImageReview that the webhook answered is malformed"),
    ],
)  # fmt: skip
def test_an_invalid_answer(tmp_path, backend, answer, says):
    backend.answers = lambda _: answer
    e = refused(Request(plugin(tmp_path, backend.url), obj=pod()))
    assert (e.code, e.message) == (403, f'pods "a" is forbidden: {says}')
    request = Request(plugin(tmp_path, backend.url, defaultAllow=True), obj=pod())
    request.run()
    assert request.annotations == {AUDIT + "failed-open": "true"}
    assert "annotations" not in request.attributes.obj["metadata"]


def test_an_unreachable_backend(tmp_path):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        where = f"127.0.0.1:{s.getsockname()[1]}"
        e = refused(Request(plugin(tmp_path, f"http://{where}/p"), obj=pod()))
    says = f'Post "http://{where}/p?timeout=30s": dial tcp {where}: connect: connection refused'
    assert e.message == f'pods "a" is forbidden: {says}'


def test_an_answer_without_type_fields_is_accepted(tmp_path, backend):
    backend.answers = lambda _: (201, {}, b'{"status":{"allowed":true}}')
    Request(plugin(tmp_path, backend.url), obj=pod()).run()


def test_concurrent_requests(tmp_path, backend):
    policy = plugin(tmp_path, backend.url)

    async def run() -> None:
        await asyncio.gather(*(Request(policy, obj=pod(), namespace=f"n{i}").steps() for i in range(20)))

    asyncio.run(run())
    assert len(backend.seen) == 20


def test_both_sides_are_authenticated(tmp_path):
    server, client = certificate(tmp_path, "server", "images.example.com"), certificate(tmp_path, "client")
    with PolicyBackend(server, client[0]) as backend:
        trust = {"certificate-authority": "server.crt", "tls-server-name": "images.example.com"}
        show = {"client-certificate": client[0], "client-key": "client.key", "token": "secret"}
        Request(plugin(tmp_path, backend.url, cluster=trust, user=show), obj=pod()).run()
        (asked,) = backend.seen
        assert asked["headers"]["authorization"] == "Bearer secret"
        assert asked["peer"]["subject"] == ((("commonName", "client"),),)
        # Without a certificate, or with a wrong name of the backend, no request is sent.
        refused(Request(plugin(tmp_path, backend.url, cluster=trust), obj=pod()))
        wrong = {"certificate-authority": "server.crt"}
        e = refused(Request(plugin(tmp_path, backend.url, cluster=wrong, user=show), obj=pod()))
        assert "x509: cannot validate certificate for 127.0.0.1 because it doesn't contain any IP SANs" in e.message
        e = refused(Request(plugin(tmp_path, backend.url, user=show), obj=pod()))
        assert "tls: failed to verify certificate: x509: " in e.message
        assert len(backend.seen) == 1
        skip = {"insecure-skip-tls-verify": True}
        Request(plugin(tmp_path, backend.url, cluster=skip, user=show), obj=pod()).run()
