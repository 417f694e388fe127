"""Webhooks and policies from files in a directory: what is read, what is refused, what they govern, and how they change."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import threading

import pytest

from kas.admission import order
from kas.admission.configuration import Section
from kas.admission.manifests import Manifests, load, strategies_of
from kas.admission.plugins import (
    mutating_admission_policy,
    mutating_admission_webhook,
    validating_admission_policy,
    validating_admission_webhook,
)
from kas.config import features
from kas.observe.metrics import Registry
from kas.types.configfile import ConfigurationError
from tests.admission.admission_fakes import FakeServer, Request, refused
from tests.admission.webhook.hook_server import rule, webhook
from tests.admission.webhook.running import Hooked

VERSION = "admissionregistration.k8s.io/v1"
GROUP = "admissionregistration.k8s.io"
REGISTRIES = FakeServer().registries
HOOKS = strategies_of(REGISTRIES, ["validatingwebhookconfigurations"])
POLICIES = strategies_of(REGISTRIES, ["validatingadmissionpolicies", "validatingadmissionpolicybindings"])
URL = {"url": "https://example.com/hook"}
CONFIG_MAPS = {"resourceRules": [rule("configmaps")]}


@pytest.fixture(autouse=True)
def gate():
    with features.DEFAULT.overridden(ManifestBasedAdmissionControlConfig=True):
        yield


def hooks(name="a.static.k8s.io", kind="ValidatingWebhookConfiguration", client=URL, **more):
    return {"apiVersion": VERSION, "kind": kind, "metadata": {"name": name}, "webhooks": [webhook(client, **more)]}


def policy(name="p.static.k8s.io", kind="Validating", **more):
    said = {"validations": [{"expression": "false"}]} if kind == "Validating" else {"reinvocationPolicy": "Never"}
    spec = {"matchConstraints": CONFIG_MAPS, **said, **more}
    return {"apiVersion": VERSION, "kind": f"{kind}AdmissionPolicy", "metadata": {"name": name}, "spec": spec}


def binding(name="b.static.k8s.io", to="p.static.k8s.io", kind="Validating", **more):
    spec = {"policyName": to, **({"validationActions": ["Deny"]} if kind == "Validating" else {}), **more}
    return {"apiVersion": VERSION, "kind": f"{kind}AdmissionPolicyBinding", "metadata": {"name": name}, "spec": spec}


def listed(*items, kind="List", api_version="v1"):
    return {"apiVersion": api_version, "kind": kind, "items": list(items)}


def write(folder, *objects, name="a.yaml"):
    (folder / name).write_text("\n---\n".join(json.dumps(obj) for obj in objects))


def names(loaded):
    return [obj["metadata"]["name"] for of in loaded.objects.values() for obj in of]


def section(folder, kind="WebhookAdmission"):
    embedded = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": f"{kind}Configuration", "staticManifestsDir": str(folder)}
    return Section(kind, embedded=embedded)


def test_files_are_read_in_order_and_their_objects_by_name(tmp_path):
    write(tmp_path, hooks("c.static.k8s.io"), hooks("a.static.k8s.io"), name="1.yml")
    write(tmp_path, hooks("b.static.k8s.io"), name="0.JSON")
    write(tmp_path, listed(hooks("e.static.k8s.io"), hooks("d.static.k8s.io")), name="2.yaml")
    items = [{k: v for k, v in hooks("f.static.k8s.io").items() if k in ("metadata", "webhooks")}]
    write(tmp_path, listed(*items, kind="ValidatingWebhookConfigurationList", api_version=VERSION), name="3.yaml")
    (tmp_path / "4.yaml").write_text("")
    (tmp_path / "note.txt").write_text("nothing of ours")
    (tmp_path / "folder.yaml").mkdir()
    loaded = load(str(tmp_path), HOOKS)
    assert names(loaded) == [f"{x}.static.k8s.io" for x in "abcdef"]
    assert loaded.data == b"".join((tmp_path / x).read_bytes() + b"\0" for x in ("0.JSON", "1.yml", "2.yaml", "3.yaml"))


def test_objects_are_complete(tmp_path):
    left_out = ("failurePolicy", "matchPolicy", "timeoutSeconds")
    obj = hooks()
    obj["webhooks"][0] = {k: v for k, v in obj["webhooks"][0].items() if k not in left_out}
    write(tmp_path, obj)
    [made] = load(str(tmp_path), HOOKS).objects["ValidatingWebhookConfiguration"]
    assert [made["webhooks"][0][k] for k in left_out] == ["Fail", "Equivalent", 10]


def test_a_line_of_hyphens_separates_documents(tmp_path):
    first, second = json.dumps(hooks("a.static.k8s.io")), json.dumps(hooks("b.static.k8s.io"))
    (tmp_path / "a.yaml").write_text(f"---\n# the first\n{first}\n--- # and another\n{second}\n---\n")
    assert len(names(load(str(tmp_path), HOOKS))) == 2


@pytest.mark.parametrize(("objects", "kinds", "says"), [
    ([hooks("a")], HOOKS, '"a" in file "PATH" must have a name ending with ".static.k8s.io"'),
    ([hooks(), hooks()], HOOKS, 'duplicate name "a.static.k8s.io" found in file "PATH" (previously seen in "PATH")'),
    ([hooks(kind="MutatingWebhookConfiguration")], HOOKS, f"unsupported resource type {VERSION}, Kind=MutatingWebhookConfiguration"),
    ([listed(policy(kind="Mutating"))], POLICIES, f"unsupported resource type {VERSION}, Kind=MutatingAdmissionPolicy in List"),
    ([{"apiVersion": "v1", "kind": "List", "items": 5}], HOOKS,
     "json: cannot unmarshal number into Go struct field List.items of type []runtime.RawExtension"),
    ([listed(None)], HOOKS, "Object 'Kind' is missing in ''"),
    ([{"apiVersion": "v1", "kind": "Pod"}], HOOKS, 'no kind "Pod" is registered for version "v1"'),
    ([{"kind": "Pod"}], HOOKS, "Object 'apiVersion' is missing in '{\"kind\": \"Pod\"}'"),
    ([hooks(client={"service": {"name": "s", "namespace": "n"}})], HOOKS,
     'webhook "h.example.com" in "a.static.k8s.io" (file "PATH"): clientConfig.service is not supported for static manifests; '
     "use clientConfig.url instead"),
    ([hooks() | {"webhook": []}], HOOKS, 'strict decoding error: unknown field "webhook"'),
    ([hooks(sideEffects="Some")], HOOKS,
     'ValidatingWebhookConfiguration "a.static.k8s.io": webhooks[0].sideEffects: Unsupported value: "Some": supported values: '
     '"None", "NoneOnDryRun"'),
    ([policy(paramKind={"apiVersion": "v1", "kind": "ConfigMap"})], POLICIES,
     'ValidatingAdmissionPolicy "p.static.k8s.io": spec.paramKind is not supported for static manifests'),
    ([policy(), binding(to="p")], POLICIES, 'binding "b.static.k8s.io": spec.policyName "p" must end with ".static.k8s.io"'),
    ([policy(), binding(paramRef={"name": "x", "parameterNotFoundAction": "Deny"})], POLICIES,
     'binding "b.static.k8s.io": spec.paramRef is not supported for static manifests'),
])  # fmt: skip
def test_refused(tmp_path, objects, kinds, says):
    write(tmp_path, *objects)
    with pytest.raises(ConfigurationError) as e:
        load(str(tmp_path), kinds)
    path = str(tmp_path / "a.yaml")
    assert str(e.value) == f"error loading {path}: {says.replace('PATH', path)}"


def test_a_binding_needs_its_policy(tmp_path):
    write(tmp_path, binding())
    with pytest.raises(ConfigurationError) as e:
        load(str(tmp_path), POLICIES)
    assert str(e.value) == 'binding "b.static.k8s.io" references policy "p.static.k8s.io" which does not exist in the manifest directory'


@pytest.mark.parametrize(("where", "on", "says"), [
    ("PATH", False, "Forbidden: staticManifestsDir requires the ManifestBasedAdmissionControlConfig feature gate to be enabled"),
    ("manifests", True, 'Invalid value: "manifests": must be an absolute file path'),
    ("PATH/none", True, 'Invalid value: "PATH/none": unable to read: stat PATH/none: no such file or directory'),
    ("PATH/file", True, 'Invalid value: "PATH/file": must be a directory'),
])  # fmt: skip
@pytest.mark.parametrize(("module", "kind"), [
    (validating_admission_webhook, "WebhookAdmission"), (mutating_admission_policy, "MutatingAdmissionPolicy"),
])  # fmt: skip
def test_an_impossible_directory(tmp_path, server, module, kind, where, on, says):
    (tmp_path / "file").write_text("")
    with features.DEFAULT.overridden(ManifestBasedAdmissionControlConfig=on), pytest.raises(ConfigurationError) as e:
        server.plugin(module, section(where.replace("PATH", str(tmp_path)), kind))
    assert str(e.value) == "staticManifestsDir: " + says.replace("PATH", str(tmp_path))


def test_a_start_with_unusable_files_fails(tmp_path, server):
    write(tmp_path, hooks("a"))
    config = {"plugins": [{"name": "ValidatingAdmissionWebhook", "configuration": section(tmp_path).embedded}]}
    path = tmp_path / "config.conf"
    path.write_text(json.dumps({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration"} | config))
    with pytest.raises(ConfigurationError) as e:
        order.build(server.initializer, [], [], str(path), speak=False)
    head = 'failed to apply admission: failed to initialize admission plugin "ValidatingAdmissionWebhook": '
    assert str(e.value).startswith(f'{head}failed to load static webhook manifests from "{tmp_path}": error loading {tmp_path}/a.yaml: "a"')


@pytest.fixture
def hooked(tmp_path, server):
    """Creates a webhook plug-in with this directory."""
    made = []

    def make(module, **more):
        made.append(Hooked(server, module, module.Plugin.resource, section=section(tmp_path), **more))
        return made[-1]

    yield make
    for one in made:
        one.close()


def governed(server, module, folder, kind):
    server.add("", "namespaces", {"metadata": {"name": "ns1"}, "status": {"phase": "Active"}})
    return server.plugin(module, section(folder, kind))


def config_map(*plugins):
    obj = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a", "namespace": "ns1"}}
    return Request(*plugins, resource="configmaps", kind="ConfigMap", obj=obj)


def about(resource, kind, group=GROUP):
    """Returns a request about an admission configuration, or a review."""
    obj = {"kind": kind, "apiVersion": f"{group}/v1", "metadata": {"name": "a"}}
    return {"group": group, "resource": resource, "kind": kind, "namespace": "", "obj": obj}


def paths(hook):
    return [s["path"].partition("?")[0] for s in hook.seen]


def test_webhooks_from_files_come_first_and_see_configurations(tmp_path, hooked, hook):
    everything = rule("*/*", groups=("*",), versions=("*",))
    write(tmp_path, hooks("z.static.k8s.io", "MutatingWebhookConfiguration", hook.client("/file"), rules=[everything]))
    here = hooked(mutating_admission_webhook)
    here.add(webhook(hook.client("/api"), rules=[everything]), name="a")
    here.request().run()
    assert paths(hook) == ["/file", "/api"]
    hook.seen.clear()
    here.request(**about("mutatingwebhookconfigurations", "MutatingWebhookConfiguration")).run()
    assert paths(hook) == ["/file"]


def test_policies_from_files_see_policies_but_no_reviews(tmp_path, server):
    everything = {"resourceRules": [rule("*", groups=("*",), versions=("*",))]}
    write(tmp_path, policy(matchConstraints=everything), binding())
    plugin = governed(server, validating_admission_policy, tmp_path, "ValidatingAdmissionPolicy")
    text = "ValidatingAdmissionPolicy 'p.static.k8s.io' with binding 'b.static.k8s.io' denied request: failed expression: false"
    assert text in refused(config_map(plugin)).message
    assert text in refused(Request(plugin, **about("validatingadmissionpolicies", "ValidatingAdmissionPolicy"))).message
    Request(plugin, **about("tokenreviews", "TokenReview", "authentication.k8s.io")).run()


def test_a_policy_from_a_file_mutates(tmp_path, server):
    config = {"expression": 'Object{metadata: Object.metadata{labels: {"a": "b"}}}'}
    mutations = [{"patchType": "ApplyConfiguration", "applyConfiguration": config}]
    write(tmp_path, policy(kind="Mutating", mutations=mutations), binding(kind="Mutating"))
    made = config_map(governed(server, mutating_admission_policy, tmp_path, "MutatingAdmissionPolicy")).run()
    assert made["metadata"]["labels"] == {"a": "b"}


def test_a_binding_from_the_api_does_not_apply_to_a_policy_from_a_file(tmp_path, server):
    write(tmp_path, policy())
    plugin = governed(server, validating_admission_policy, tmp_path, "ValidatingAdmissionPolicy")
    server.add(GROUP, "validatingadmissionpolicybindings", binding(to="p.static.k8s.io", name="b"))
    config_map(plugin).run()


def test_changed_files_apply_and_unusable_ones_change_nothing(tmp_path, server, hooked, hook, caplog):
    here = hooked(validating_admission_webhook, identity="me")
    [(what, _, look)] = order.periodic([here.plugin, object()])
    assert what == "manifests of ValidatingAdmissionWebhook"
    request = here.request()  # always the same one, so that its chain has to be updated

    def reviews():
        """Returns how many reviews there were after a check of the files."""
        waiting = look()
        if waiting is not None:
            here.loop.run_until_complete(waiting)
        request.run()
        return len(hook.seen)

    assert reviews() == 0
    write(tmp_path, hooks(client=hook.client()))
    assert reviews() == 1
    write(tmp_path, hooks("b", client=hook.client()), name="b.yaml")
    assert [reviews(), reviews()] == [2, 3]
    assert len([r for r in caplog.records if "must have a name ending with" in r.message]) == 1
    os.remove(tmp_path / "a.yaml")
    os.remove(tmp_path / "b.yaml")
    assert reviews() == 3
    me, name = f"sha256:{hashlib.sha256(b'me').hexdigest()}", "ValidatingAdmissionWebhook"
    metrics = server.initializer.metrics.metrics
    prefix = "apiserver_manifest_admission_config_controller_"
    assert metrics[f"{prefix}automatic_reloads_total"].values == {(me, name, "success"): 3, (me, name, "failure"): 1}
    assert metrics[f"{prefix}last_config_info"].values == {(me, "", name): 1}


def test_each_plugin_reports_its_own_files(tmp_path):
    metrics = Registry()
    for plugin in ("A", "B"):
        (tmp_path / plugin).mkdir()
        write(tmp_path / plugin, hooks(f"{plugin.lower()}.static.k8s.io"))
        Manifests(plugin, str(tmp_path / plugin), HOOKS, lambda objects: lambda: None, metrics, "me")
    info = metrics.metrics["apiserver_manifest_admission_config_controller_last_config_info"].values
    digests = [hashlib.sha256((tmp_path / x / "a.yaml").read_bytes() + b"\0").hexdigest() for x in ("A", "B")]
    assert [labels[1:] for labels in info] == [(f"sha256:{digests[0]}", "A"), (f"sha256:{digests[1]}", "B")]


def test_changed_files_are_read_off_the_loop_and_applied_on_it(tmp_path):
    """300 policies of 64 validations each held it for 12 ms of a quiet machine."""
    where = []

    def here(what: str) -> None:
        where.append((what, threading.current_thread() is threading.main_thread()))

    def use(objects):
        here("read")
        return lambda: here("put")

    write(tmp_path, hooks())
    manifests = Manifests("x", str(tmp_path), HOOKS, use, Registry(), "me")
    write(tmp_path, hooks("other.static.k8s.io"))

    async def look():
        await manifests.look()

    asyncio.run(look())
    assert where == [("read", True), ("put", True), ("read", False), ("put", True)]
