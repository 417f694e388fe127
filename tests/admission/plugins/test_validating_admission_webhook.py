"""Webhooks that allow or deny: which are called, concurrently, and the answer to a denial."""

from __future__ import annotations

import asyncio
import base64
import itertools
import threading
from types import SimpleNamespace

import pytest

from kas.admission import versioned
from kas.admission.plugins import validating_admission_webhook as module
from kas.admission.webhook import calling, hooks
from kas.admission.webhook.review import Response
from kas.admission.webhook.validating import FEW
from kas.meta import waiting
from kas.meta.errors import ApiError
from kas.observe import logs
from tests import pki
from tests.admission.admission_fakes import refused
from tests.admission.webhook.hook_server import HookServer, reviewed, rule, webhook
from tests.admission.webhook.running import Hooked
from tests.linecount import executed_lines
from tests.tlsstub import TLSStub

RESOURCE = "validatingwebhookconfigurations"


@pytest.fixture
def hooked(server):
    made = Hooked(server, module, RESOURCE)
    yield made
    made.close()


def test_no_webhook_is_called_for_unmatched_requests(hooked, hook):
    request = hooked.request()

    def steps():
        return tuple([step[0] for step in plan[0]] for plan in request.chain._plan(request.attributes))

    assert steps() == ([], [])
    hooked.add(webhook(hook.client(), rules=[rule("pods")]))
    assert steps() == ([], [])
    name = hooked.add(webhook(hook.client()))
    assert steps() == ([], ["ValidatingAdmissionWebhook"])
    hooked.remove(name)
    assert steps() == ([], [])


def test_a_request_that_no_webhook_matches_does_not_wait(hooked, hook):
    for i in range(2 * FEW):
        hooked.add(webhook(hook.client(), objectSelector={"matchLabels": {"reviewed": "yes"}}))
        request = hooked.request()
        if i < FEW:
            assert hooked.plugin.validate(request.attributes) is None
        assert request.run() and not hook.seen


def test_unreachable_webhooks_do_not_fill_the_log(hooked, monkeypatch, caplog):
    """Each request used to write a line for each of them: as many as clients sent."""
    now = [calling.monotonic()]
    monkeypatch.setattr(calling, "monotonic", lambda: now[0])
    monkeypatch.setattr(logs, "MOST", 3)
    away = {"url": "https://127.0.0.1:1/x"}
    open_, closed = webhook(away, name="o.example.com", failurePolicy="Ignore"), webhook(away, name="c.example.com")
    first = hooked.add(open_)
    hooked.request().run()
    hooked.remove(first)
    hooked.add(closed)
    for _ in range(5):
        assert refused(hooked.request()).code == 500
    texts = [f"Failed calling webhook, failing {how}" for how in ("open o.example.com", "closed c.example.com")]
    assert [line.partition(":")[0] for line in caplog.messages] == [texts[0], texts[1], texts[1]]
    now[0] += 1
    refused(hooked.request())
    assert [line.partition(":")[0] for line in caplog.messages[3:]] == ["3 more webhooks could not be called", texts[1]]


def test_thousands_of_annotations_yield_the_loop_and_log_one_line(monkeypatch, caplog):
    """20,000 invalid ones, in three answers at once, held the loop for 450 ms, and wrote as many lines."""
    clock = itertools.count()
    monkeypatch.setattr(waiting, "perf_counter", lambda: next(clock) / 1000)
    annotated, turns = dict[str, str](), 0

    class About:
        def annotate(self, key: str, value: str) -> bool:
            return annotated.setdefault(key, value) == value

    async def tell() -> None:
        nonlocal turns
        found = Response(True, {}, annotations={f"k{i}" if i % 2 else f"k{i}/a/b": "v" for i in range(1000)})
        telling = asyncio.ensure_future(calling.Webhooks._tell(SimpleNamespace(name="h.example.com"), About(), found))
        while not telling.done():
            await asyncio.sleep(0)
            turns += 1
        await telling

    asyncio.run(tell())
    assert len(annotated) == 500 and turns >= 100
    message = "Failed to set admission audit annotation h.example.com/k0/a/b: it is no qualified name, and 499 more like it"
    assert caplog.messages == [message]


@pytest.mark.parametrize("label, refused_by", [("a", 1), ("b", 0)])
def test_a_long_selector_is_compiled_off_the_loop_by_the_first_request(hooked, hook, monkeypatch, label, refused_by):
    """40,000 terms held it for 200 to 260 ms when they were written, and for 10 at the first object."""
    threads: list[bool] = []

    class Noted(hooks.Hook):
        def __init__(self, *given):
            threads.append(threading.current_thread() is threading.main_thread())
            super().__init__(*given)

    monkeypatch.setattr(hooks, "Hook", Noted)
    hook.answers = lambda review: reviewed(review, False, {"message": "no"})
    long = [{"key": f"k{i}.example.com", "operator": "DoesNotExist"} for i in range(2000)]
    selector = {"matchExpressions": [*long, {"key": "kind", "operator": "In", "values": ["a"]}]}
    name = hooked.add(webhook(hook.client(), objectSelector=selector))
    for _ in range(2):
        obj = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "x", "namespace": "ns1", "labels": {"kind": label}}}
        request = hooked.request(obj=obj)
        if refused_by:
            refused(request)
        else:
            request.run()
    assert threads == [False] and len(hook.seen) == 2 * refused_by
    hooked.add(webhook(hook.client(), rules=[rule("pods")]), name=name)
    assert threads == [False, True] and hooked.request().run()
    hooked.add(webhook(hook.client(), objectSelector=selector), name=name)
    hooked.remove(name)
    assert hooked.request().run() and len(threads) == 2, "what is gone is not read"

def test_few_and_many_webhooks_are_matched_alike(hooked, hook):
    def labelled(label):
        return webhook(hook.client(), objectSelector={"matchLabels": {"reviewed": label}})

    obj = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a", "namespace": "ns1", "labels": {"reviewed": "yes"}}}
    hooked.add(labelled("no"), labelled("yes"))
    hooked.request(obj=obj).run()
    hooked.add(labelled("yes"))
    hooked.request(obj=obj).run()
    hooked.add(*[{**labelled("no"), "name": f"h{i}.example.com"} for i in range(FEW)])
    hooked.request(obj=obj).run()
    one, *others = [{k: v for k, v in s["request"].items() if k != "uid"} for s in hook.seen]
    assert one["object"] == obj and others == [one] * 4


def test_a_denial(hooked, hook):
    hooked.add(webhook(hook.client()))
    for status, code, reason, text in (
        ({}, 400, "", "without explanation"), ({"message": "m", "reason": "Forbidden"}, 400, "Forbidden", ": m"),
        ({"reason": "R"}, 400, "R", ": R"), ({"code": 302}, 400, "", "without explanation"),
        ({"code": 403, "message": "m"}, 403, "", ": m"), ({"code": 600}, 600, "", "without explanation"),
        ({"code": 1000}, 400, "", "without explanation"),
    ):  # fmt: skip
        hook.answers = lambda review, status=status: reviewed(review, False, status=status)
        e = refused(hooked.request())
        joint = "" if text.startswith(":") else " "
        assert (e.code, e.reason, e.message) == (code, reason, f'admission webhook "h.example.com" denied the request{joint}{text}')
    hook.answers = lambda review: reviewed(review, False, status={"code": 429, "details": {"retryAfterSeconds": 7, "name": "x"}})
    e = refused(hooked.request())
    assert e.headers == {"retry-after": "7"} and e.details == {"name": "x", "retryAfterSeconds": 7}


def test_audit_annotations_of_webhooks_cannot_replace_the_servers(hooked, hook, caplog):
    """The name of a webhook is chosen by whoever configures it."""
    hooked.add(webhook(hook.client()) | {"name": "authorization.k8s.io"})
    notes = {"decision": "forbid", "ticket": "1"}
    hook.answers = lambda review: reviewed(review, True, auditAnnotations=notes)
    request = hooked.request()
    request.annotations["authorization.k8s.io/decision"] = "allow"
    request.run()
    assert request.annotations == {"authorization.k8s.io/decision": "allow", "authorization.k8s.io/ticket": "1"}
    assert "Failed to set admission audit annotation authorization.k8s.io/decision: it has already been set" in caplog.text


def test_webhooks_are_called_concurrently(hooked, hook):
    """Each answers only when all have been called."""
    meet = threading.Barrier(4, timeout=60)

    def answer(review):
        meet.wait()
        return reviewed(review, not review["path"].startswith("/no"), status={"message": review["path"][:3]})

    hook.answers = answer
    hooked.add(webhook(hook.client("/a")), webhook(hook.client("/no2"), "n2.example.com"), name="b")
    hooked.add(webhook(hook.client("/no1"), "n1.example.com"), webhook(hook.client("/b"), "b.example.com"), name="a")
    # Of several denials, that of the first in the order of configurations counts.
    assert refused(hooked.request()).message == 'admission webhook "n1.example.com" denied the request: /no'


def test_deprecated_certificates_are_counted(hooked, tmp_path):
    ca = pki.authority("ca")
    client = {"caBundle": base64.b64encode(ca.pem).decode()}
    counts = hooked.plugin.webhooks.metrics.outdated._counts
    with TLSStub(*pki.issue([("CN", "127.0.0.1")], ca, usages=("server",)).write(tmp_path, "old"), None) as stub:
        hooked.add(webhook({**client, "url": stub.url}, failurePolicy="Ignore"))
        request = hooked.request()
        request.run()
    what = "relies on a legacy Common Name field instead of the SAN extension for subject validation"
    assert request.annotations.pop("missing-san.invalid-cert.kubernetes.io/127.0.0.1") == what
    assert list(request.annotations.values()) == ["h.example.com"]  # it failed open
    assert {what.id: sum(counter.values.values()) for what, counter in counts.items()} == {"missing-san": 1, "insecure-sha1": 0}


def test_warnings_and_annotations(hooked, hook):
    hook.answers = lambda review: reviewed(review, warnings=["w"], auditAnnotations={"k": "v", "a/b": "no key"})
    hooked.add(webhook(hook.client()))
    request = hooked.request()
    request.run()
    assert (request.warnings, request.annotations) == (["w"], {"h.example.com/k": "v"})


def test_failing_open_is_audited(hooked):
    """With the indexes of called webhooks: one that is not called has none."""
    down, other = {"url": "https://127.0.0.1:1/"}, webhook({"url": "https://127.0.0.1:1/"}, "o.example.com", rules=[rule("pods")])
    hooked.add(other, webhook(down, failurePolicy="Ignore"), name="a")
    prefix = "failed-open.validating.webhook.admission.k8s.io/round_0_index_"
    request = hooked.request()
    request.run()
    assert request.annotations == {f"{prefix}0": "h.example.com"}
    hooked.add(other, webhook(down, "i.example.com", failurePolicy="Ignore"), name="b")
    request = hooked.request()
    request.run()
    assert request.annotations == {f"{prefix}0": "h.example.com", f"{prefix}1": "i.example.com"}


def test_dry_run(hooked, hook):
    hooked.add(webhook(hook.client("/none")), name="a")
    hooked.request(dry_run=True).run()
    assert hook.requests()[0]["dryRun"] is True
    hooked.add(webhook(hook.client("/some"), "some.example.com", sideEffects="Some", failurePolicy="Ignore"), name="b")
    e = refused(hooked.request(dry_run=True))
    assert (e.code, e.message) == (400, 'admission webhook "some.example.com" does not support dry run')
    hooked.request().run()
    assert [s["path"] for s in hook.seen if s["path"].startswith("/some")] == ["/some?timeout=10s"]


def test_match_conditions(hooked, hook):
    def conditions(*texts):
        return [{"name": f"c{i}", "expression": text} for i, text in enumerate(texts)]

    yes, no, bad = "request.operation == 'CREATE' && object.data.k == 'v'", "request.userInfo.username == 'jane'", "object.nope == 1"
    for policy, texts, called in (
        ("Fail", (yes,), True), ("Fail", (yes, no), False), ("Fail", (bad, no), False), ("Ignore", (yes, bad), False),
        ("Fail", ("authorizer.group('').resource('pods').check('list').allowed()",), True), ("Fail", ("namespaceObject == null",), True),
        ("Fail", ("authorizer.requestResource.check('create').reason() == ''",), True),
    ):  # fmt: skip
        name = hooked.add(webhook(hook.client(), matchConditions=conditions(*texts), failurePolicy=policy))
        hook.seen.clear()
        hooked.request().run()
        assert bool(hook.seen) is called, texts
        hooked.remove(name)
    hooked.add(webhook(hook.client(), matchConditions=conditions(yes, bad)))
    hook.seen.clear()
    e = refused(hooked.request())
    text = f"configmaps \"a\" is forbidden: expression '{bad}' resulted in error: no such key: nope"
    assert (e.code, e.message, hook.seen) == (403, text, [])


def test_a_delete_and_a_review_of_the_first_version(hooked, hook):
    hooked.add(webhook(hook.client(), admissionReviewVersions=["v9", "v1beta1", "v1"]))
    old = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a", "namespace": "ns1"}}
    hooked.request(operation="DELETE", obj=None, old=old).run()
    assert hook.seen[0]["body"]["apiVersion"] == "admission.k8s.io/v1beta1"
    (request,) = hook.requests()
    assert request["object"] is None and request["oldObject"]["metadata"]["name"] == "a"
    assert request["options"] == {"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1"}


def test_credentials(server, tmp_path):
    from kas.admission.configuration import Section
    from kas.types.configfile import ConfigurationError
    from tests.admission.policy_backend import certificate

    cert, key = certificate(tmp_path, "client")
    with HookServer(tmp_path, client_ca=cert) as hook:
        (tmp_path / "users").write_text(
            f"{{users: [{{name: '127.0.0.1:{hook.port}', user: {{client-certificate: {cert}, client-key: {key}, token: t}}}}]}}"
        )
        config = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "WebhookAdmissionConfiguration"}
        config["kubeConfigFile"] = str(tmp_path / "users")
        hooked = Hooked(server, module, RESOURCE, section=Section("ValidatingAdmissionWebhook", "", config))
        hooked.add(webhook(hook.client()))
        hooked.request().run()
        (seen,) = hook.seen
        assert seen["headers"]["authorization"] == "Bearer t" and seen["headers"]["user-agent"] == "kube-apiserver-admission"
        assert seen["peer"]["subject"][0][0][1] == "client"
        hooked.close()
    with pytest.raises(ConfigurationError, match="must be an absolute file path"):
        server.plugin(module, Section("x", "", {**config, "kubeConfigFile": "users"}))
    with pytest.raises(ConfigurationError, match="stat /no/such: no such file or directory"):
        server.plugin(module, Section("x", "", {**config, "kubeConfigFile": "/no/such"}))


def test_an_untrusted_certificate(hooked, hook):
    hooked.add(webhook({"url": hook.url + "/x"}))
    assert refused(hooked.request()).message.endswith("tls: failed to verify certificate: x509: certificate signed by unknown authority")
    assert isinstance(refused(hooked.request()), ApiError)


def test_conditions_of_many_webhooks_share_one_copy(hooked, hook, monkeypatch):
    made = []
    encoded = versioned.encode_json
    monkeypatch.setattr(versioned, "encode_json", lambda *args: made.append(1) or encoded(*args))
    never = [{"name": "n", "expression": "object.metadata.name == 'other'"}]
    for i in range(5):
        hooked.add(webhook(hook.client(), f"h{i}.example.com", matchConditions=never), name=f"c{i}")
    hooked.request().run()
    assert hook.seen == [] and len(made) == 1


def test_webhooks_for_other_resources_cost_nothing(hooked, hook):
    def costs():
        change = executed_lines(lambda: hooked.add(webhook(hook.client(), rules=[rule("secrets")]), name="c3"), "/kas/admission/")
        return change, executed_lines(hooked.request().run, "/kas/admission/")

    def many(count):
        for i in range(count):
            hooked.add(webhook(hook.client(), rules=[rule("secrets")]), name=f"c{i}")

    assert hooked.request().run()
    many(10)
    few = costs()
    many(100)
    assert costs() == few and not hook.seen
