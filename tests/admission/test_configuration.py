"""The admission configuration file: what is read from it, and which errors it can cause."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kas.admission import order
from kas.admission.configuration import Section, read, unversioned
from kas.admission.order import ORDER
from kas.admission.plugins import image_policy_webhook
from kas.admission.plugins.pod_node_selector import Plugin as PodNodeSelector
from kas.meta.gojson import TYPE_META
from kas.types.configfile import BOOL, INT32, STRING, STRINGS, ConfigurationError, Struct, decode
from tests.admission.admission_fakes import FakeServer

READING = "failed to apply admission: failed to read plugin config: "
HEAD = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\n"


def write(tmp_path: Path, text: str, name: str = "admission.yaml") -> str:
    path = tmp_path / name
    path.write_text(text)
    return str(path)


def wrong(tmp_path: Path, text: str) -> str:
    path = write(tmp_path, text)
    with pytest.raises(ConfigurationError) as e:
        read(path)
    return str(e.value).removeprefix("failed to apply admission: failed to read plugin config: ")


@pytest.mark.parametrize("version", ["apiserver.config.k8s.io/v1", "apiserver.config.k8s.io/v1alpha1", "apiserver.k8s.io/v1alpha1"])
def test_paths_are_relative_to_the_file(tmp_path, version):
    (tmp_path / "more").mkdir()
    write(tmp_path, "a: 1\n", "more/events.yaml")
    text = f"apiVersion: {version}\nkind: AdmissionConfiguration\nplugins:\n- name: EventRateLimit\n  path: more/events.yaml\n"
    config = read(write(tmp_path, text))
    section = config.section("EventRateLimit")
    assert section is not None and section.path == str(tmp_path / "more" / "events.yaml")
    assert section.document().value == {"a": 1}
    assert config.section("PodSecurity") is None


def test_an_embedded_configuration_wins_over_a_path(tmp_path):
    text = HEAD + "plugins:\n- name: PodSecurity\n  path: /nowhere\n  configuration: {kind: x}\n- name: ResourceQuota\n"
    config = read(write(tmp_path, text))
    assert config.sections == {"PodSecurity": Section("PodSecurity", "/nowhere", {"kind": "x"})}
    assert config.sections["PodSecurity"].document().value == {"kind": "x"}


def test_json_is_accepted(tmp_path):
    text = '{"kind": "AdmissionConfiguration", "apiVersion": "apiserver.config.k8s.io/v1", "plugins": null}'
    assert read(write(tmp_path, text)).sections == {}
    assert read("").sections == {}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "Object 'Kind' is missing in ''"),
        ("a: 1", "Object 'Kind' is missing in 'a: 1'"),
        ("kind: AdmissionConfiguration", "Object 'apiVersion' is missing in 'kind: AdmissionConfiguration'"),
        ("kind: [a]\napiVersion: v1", "couldn't get version/kind; json parse error: json: cannot unmarshal array into "
         "Go struct field .kind of type string"),
        ("[1, 2]", f"couldn't get version/kind; json parse error: json: cannot unmarshal array into Go value of type {TYPE_META}"),
        ("kind: Pod\napiVersion: v1", 'no kind "Pod" is registered for version "v1"'),
        (
            "kind: AdmissionConfiguration\napiVersion: apiserver.config.k8s.io/v2",
            'no kind "AdmissionConfiguration" is registered for version "apiserver.config.k8s.io/v2"',
        ),
        (HEAD + "plugin: []", 'strict decoding error: unknown field "plugin"'),
        (
            HEAD + "plugins:\n- {name: PodSecurity, file: x}\n- {names: x}",
            'strict decoding error: unknown field "plugins[0].file", unknown field "plugins[1].names"',
        ),
        (HEAD + "kind: AdmissionConfiguration", 'strict decoding error: yaml: unmarshal errors:\n  line 3: key "kind" already set in map'),
        (HEAD + "plugins: {}", "json: cannot unmarshal object into Go struct field AdmissionConfiguration.plugins of type "
         "[]v1.AdmissionPluginConfiguration"),
        (HEAD + "plugins: [{name: 5}]",
         "json: cannot unmarshal number into Go struct field AdmissionPluginConfiguration.plugins.name of type string"),
        ("a: [", "yaml: line 1: did not find expected node content"),
    ],
)  # fmt: skip
def test_refused(tmp_path, text, says):
    assert wrong(tmp_path, text) == says


def test_types():
    shape = Struct("C", {"n": INT32, "b": BOOL, "s": STRING, "m": STRINGS, "l": [Struct("L", {"n": INT32})]})
    given = {"n": 1, "b": True, "s": "x", "m": {"a": "b", "c": None}, "l": [{"n": 2}, None, {"n": None}]}
    assert decode(given, shape) == {**given, "m": {"a": "b", "c": ""}, "l": [{"n": 2}, {}, {}]}
    assert decode({"n": None, "l": None}, shape) == {}
    for value, says in (
        ({"n": "1"}, "string into Go struct field C.n of type int32"),
        ({"n": True}, "bool into Go struct field C.n of type int32"),
        ({"n": 1.5}, "number 1.5 into Go struct field C.n of type int32"),
        ({"n": 1 << 31}, "number 2147483648 into Go struct field C.n of type int32"),
        ({"b": 1}, "number into Go struct field C.b of type bool"),
        ({"m": {"a": 1}}, "number into Go struct field C.m of type string"),
        ({"m": []}, "array into Go struct field C.m of type map[string]string"),
        ({"l": [1]}, "number into Go struct field C.l of type v1.L"),
        ({"l": [{"n": []}]}, "array into Go struct field L.l.n of type int32"),
        ([], "array into Go value of type v1.C"),
    ):
        with pytest.raises(ConfigurationError) as e:
            decode(value, shape)
        assert str(e.value) == f"json: cannot unmarshal {says}"
    with pytest.raises(ConfigurationError, match='unknown field "N"'):
        decode({"N": 1}, shape)
    assert decode({"N": 1}, shape, same_case=False) == {"n": 1}


def test_a_file_without_a_kind(tmp_path):
    """It serves both plug-ins that have an unversioned configuration."""
    path = write(tmp_path, "imagePolicy: {defaultAllow: true}\nPodNodeSelectorPluginConfig: {}\npodNodeSelectorPluginConfig: {a: b=c}\n")
    sections = read(path).sections
    assert sorted(sections) == ["ImagePolicyWebhook", "PodNodeSelector"]
    shape = Struct("x", {"imagePolicy": Struct("y", {"defaultAllow": BOOL})})
    assert unversioned(sections["ImagePolicyWebhook"], shape)["imagePolicy"] == {"defaultAllow": True}
    with pytest.raises(ConfigurationError, match="Object 'Kind' is missing"):
        read(write(tmp_path, "podNodeSelector: {}"))


# --- configurations of plug-ins


def build(path: str, enable: Sequence[str] = (), disable: Sequence[str] = (), index: int = 0):
    return order.build(FakeServer().initializer, list(enable), list(disable), path, speak=index == 0)


def section_of(tmp_path: Path, name: str, configuration: str) -> str:
    return write(tmp_path, f"{HEAD}plugins:\n- name: {name}\n  configuration: {configuration}\n")


LIMITS = "apiVersion: eventratelimit.admission.k8s.io/v1alpha1, kind: Configuration, limits"
SECURITY = "apiVersion: pod-security.admission.config.k8s.io/v1, kind: PodSecurityConfiguration"
QUOTA = "apiVersion: apiserver.config.k8s.io/v1, kind: ResourceQuotaConfiguration, limitedResources"
TOLERATIONS = "apiVersion: podtolerationrestriction.admission.k8s.io/v1alpha1, kind: Configuration"


@pytest.mark.parametrize(
    ("name", "configuration", "says"),
    [
        ("EventRateLimit", "{a: 1}", "Object 'Kind' is missing in '{\"a\":1}'"),
        ("EventRateLimit", "{kind: Configuration, apiVersion: v1}", 'no kind "Configuration" is registered for version "v1"'),
        ("EventRateLimit", f"{{{LIMITS}: []}}", "limits: Invalid value: []: must not be empty"),
        ("EventRateLimit", f"{{{LIMITS}: [{{kind: User}}]}}", 'strict decoding error: unknown field "limits[0].kind"'),
        ("EventRateLimit", f"{{{LIMITS}: [{{type: X, qps: 0, burst: 1, cacheSize: -1}}]}}",
         '[limits[0].type: Unsupported value: "X": supported values: "Namespace", "Server", "SourceAndObject", "User", '
         "limits[0].qps: Invalid value: 0: must be positive, limits[0].cacheSize: Invalid value: -1: must not be negative]"),
        ("PodSecurity", f"{{{SECURITY}, defaults: {{enforce: strict, warn-version: '1.2'}}}}",
         '[defaults.enforce: Invalid value: "strict": must be one of privileged, baseline, restricted, '
         'defaults.warn-version: Invalid value: "1.2": must be "latest" or "v1.x"]'),
        ("PodSecurity", f"{{{SECURITY}, exemptions: {{usernames: [a, a, '']}}}}",
         '[exemptions.usernames[1]: Duplicate value: "a", exemptions.usernames[2]: Required value]'),
        ("PodSecurity", f"{{{SECURITY}, exemptions: {{users: []}}}}", 'strict decoding error: unknown field "exemptions.users"'),
        ("PodSecurity", "{apiVersion: pod-security.admission.config.k8s.io/v2, kind: PodSecurityConfiguration}",
         'no kind "PodSecurityConfiguration" is registered for version "pod-security.admission.config.k8s.io/v2"'),
        ("ResourceQuota", f"{{{QUOTA}: [{{apiGroup: apps}}]}}", "limitedResources[0].resource: Required value"),
        ("ResourceQuota", f"{{{QUOTA}: [{{resource: pods, matchScopes: [{{scopeName: PriorityClas}}]}}]}}",
         'limitedResources[0].matchScopes[0].scopeName: Unsupported value: "PriorityClas": supported values: "BestEffort", '
         '"CrossNamespacePodAffinity", "NotBestEffort", "NotTerminating", "PriorityClass", "Terminating", "VolumeAttributesClass"'),
        ("ResourceQuota", f"{{{QUOTA}: [{{resource: pods, matchScopes: [{{scopeName: PriorityClass, operator: In}}]}}]}}",
         "limitedResources[0].matchScopes[0].values: Required value: must be at least one value when `operator` is 'In' or 'NotIn' for "
         "scope selector"),
        ("PodTolerationRestriction", f"{{{TOLERATIONS}, default: [{{operator: Equal}}]}}",
         'invalid config: [podtolerationrestriction.default[0].operator: Invalid value: "Equal": operator must be Exists when `key` is '
         'empty, which means "match all values and all keys"]'),
        ("PodNodeSelector", "{podNodeSelectorPluginConfig: {ns: a}}", "podNodeSelectorPluginConfig.ns: invalid selector: [a]"),
        ("ImagePolicyWebhook", "{imagePolicy: {allowTTL: 1801}}", "valid value is between 1s and 30m0s, got 30m1s"),
        ("ImagePolicyWebhook", "{imagePolicy: {retryBackoff: 300001}}", "valid value is between 1ns and 5m0s, got 5m0.001s"),
        ("ImagePolicyWebhook", "{imagePolicy: {}}",
         "invalid configuration: no configuration has been provided, try setting KUBERNETES_MASTER environment variable"),
        ("ImagePolicyWebhook", "{imagePolicy: {kubeConfigFile: /no/such}}", "stat /no/such: no such file or directory"),
        ("ValidatingAdmissionWebhook", "{apiVersion: apiserver.config.k8s.io/v1, kind: WebhookAdmissionConfiguration, kubeConfigFile: x}",
         'kubeConfigFile: Invalid value: "x": must be an absolute file path'),
        ("MutatingAdmissionWebhook",
         "{apiVersion: apiserver.config.k8s.io/v1, kind: WebhookAdmissionConfiguration, kubeConfigFile: /no/such}",
         "stat /no/such: no such file or directory"),
        ("MutatingAdmissionWebhook", "{apiVersion: apiserver.config.k8s.io/v1alpha1, kind: WebhookAdmission}",
         'no kind "WebhookAdmission" is registered for version "apiserver.config.k8s.io/v1alpha1"'),
        ("MutatingAdmissionWebhook", "{apiVersion: apiserver.config.k8s.io/v1, kind: WebhookAdmission}",
         'no kind "WebhookAdmission" is registered for version "apiserver.config.k8s.io/v1"'),
    ],
)  # fmt: skip
def test_a_plugin_reports_errors(tmp_path, name, configuration, says):
    enable = [name] if name in ORDER else []
    with pytest.raises(ConfigurationError) as e:
        build(section_of(tmp_path, name, configuration), enable)
    assert str(e.value) == f'failed to apply admission: couldn\'t init admission plugin "{name}": {says}'


def test_plugins_that_require_a_configuration():
    for name, says in (("EventRateLimit", "limits: Invalid value: null: must not be empty"), ("ImagePolicyWebhook", "no config specified")):
        with pytest.raises(ConfigurationError) as e:
            build("", [name])
        assert str(e.value) == f'failed to apply admission: couldn\'t init admission plugin "{name}": {says}'


def test_an_unreadable_path(tmp_path):
    path = write(tmp_path, f"{HEAD}plugins:\n- {{name: PodSecurity, path: gone.yaml}}\n")
    with pytest.raises(ConfigurationError) as e:
        build(path)
    why = f"open {tmp_path}/gone.yaml: no such file or directory"
    assert str(e.value) == f'failed to apply admission: couldn\'t init admission plugin "PodSecurity": {why}'
    # A disabled plug-in does not read it.
    build(path, disable=["PodSecurity"])


def test_entries_without_effect_are_reported_by_the_first_worker(tmp_path, caplog):
    plugins = "- {name: LimitRanger, configuration: {a: b}}\n- {name: EventRateLimit, path: x}\n"
    path = write(tmp_path, f"{HEAD}plugins:\n{plugins}")
    build(path, index=1)
    assert not caplog.messages
    build(path)
    assert caplog.messages == [
        "--admission-control-config-file: LimitRanger: the configuration has no effect: the plug-in takes none",
        "--admission-control-config-file: EventRateLimit: the configuration has no effect: the plug-in is not on",
    ]


def test_unused_entries_are_no_errors(tmp_path, caplog):
    """Each plug-in takes the first entry of its name, even an empty one."""
    plugins = (
        "- {name: PodSecurty, path: gone}\n- {path: gone}\n- {name: ResourceQuota}\n- {name: ResourceQuota, path: gone}\n"
        "- {name: LimitPodHardAntiAffinityTopology}\n- {name: Nobodys, configuration: {a: 1}}\n"
    )
    path = write(tmp_path, f"{HEAD}plugins:\n{plugins}")
    build(path)
    says = "the configuration has no effect"
    assert caplog.messages == [
        f"--admission-control-config-file: {text}" for text in (
            f"plugins[1] has no name: {says}", f"plugins[3]: ResourceQuota is named before: {says}",
            f"PodSecurty: {says}: there is no such plug-in (did you mean PodSecurity?)", f"Nobodys: {says}: there is no such plug-in",
        )
    ]  # fmt: skip
    assert read(path).section("ResourceQuota") is None


def test_the_old_form_is_not_decoded_strictly(tmp_path):
    """Upstream reads it with encoding/json."""
    path = write(tmp_path, "imagePolicy: {defaultAlow: true, allowttl: 3}\nx: 1\nx: 2\npodNodeSelectorPluginConfig: {a: b=c}\n")
    sections = read(path).sections
    assert PodNodeSelector.configured(sections["PodNodeSelector"]) == {"a": {"b": "c"}}
    assert unversioned(sections["ImagePolicyWebhook"], image_policy_webhook.SHAPE) == {"imagePolicy": {"allowTTL": 3}}


NAMES = (
    "apiVersion", "kind", "limits", "type", "qps", "burst", "cacheSize", "imagePolicy", "kubeConfigFile", "allowTTL", "defaultAllow",
    "podNodeSelectorPluginConfig", "defaults", "enforce", "warn-version", "exemptions", "usernames", "namespaces", "limitedResources",
    "resource", "matchScopes", "scopeName", "operator", "values", "matchContains", "default", "whitelist", "key", "tolerationSeconds",
)  # fmt: skip
WORDS = st.sampled_from(["", "a", "User", "In", "PriorityClass", "a=b", "latest", "v1.9", "baseline", "Exists", "/tmp", "\n"])
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 1 << 64) | st.floats(allow_nan=False, allow_infinity=False) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES) | WORDS, inner, max_size=4),
    max_leaves=12,
)
TAKERS = {
    "EventRateLimit": {"apiVersion": "eventratelimit.admission.k8s.io/v1alpha1", "kind": "Configuration"},
    "ImagePolicyWebhook": {},
    "PodNodeSelector": {},
    "PodSecurity": {"apiVersion": "pod-security.admission.config.k8s.io/v1", "kind": "PodSecurityConfiguration"},
    "PodTolerationRestriction": {"apiVersion": "podtolerationrestriction.admission.k8s.io/v1alpha1", "kind": "Configuration"},
    "ResourceQuota": {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "ResourceQuotaConfiguration"},
    "ValidatingAdmissionWebhook": {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "WebhookAdmissionConfiguration"},
}


@given(st.sampled_from(sorted(TAKERS)), ANYTHING, st.booleans())
def test_any_content_is_accepted_or_refused(tmp_path_factory, name, said, of_kind):
    """With no other error than the one that ends the start in one line."""
    if of_kind and isinstance(said, dict):
        said = {**said, **TAKERS[name]}
    folder = tmp_path_factory.mktemp("any")
    plugins = [{"name": name, "configuration": said}]
    for value in ({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration", "plugins": plugins}, said):
        try:
            build(write(folder, json.dumps(value)), [name] if name in ORDER else [])
        except ConfigurationError as e:
            assert "\n" not in str(e)


# --- as an operator meets it


def serve(*flags: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "kas.cli", "serve", "--secure-port", "auto", "--workers", "2", *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("text", "enable", "says"),
    [
        (None, "", READING + 'unable to read admission control configuration from "FILE" [open FILE: no such file or directory]'),
        (HEAD + "plugins: [{nam: x}]", "", READING + 'strict decoding error: unknown field "plugins[0].nam"'),
        ("kind: X\napiVersion: v1", "", READING + 'no kind "X" is registered for version "v1"'),
        (HEAD + "plugins: [{name: EventRateLimit, path: FILE.gone}]", "EventRateLimit",
         'failed to apply admission: couldn\'t init admission plugin "EventRateLimit": open FILE.gone: no such file or directory'),
        (HEAD, "EventRateLimit",
         'failed to apply admission: couldn\'t init admission plugin "EventRateLimit": limits: Invalid value: null: must not be empty'),
    ],
)  # fmt: skip
def test_an_invalid_file_ends_the_start_with_one_line(tmp_path, text, enable, says):
    path = str(tmp_path / "admission.yaml")
    if text is not None:
        Path(path).write_text(text.replace("FILE", path))
    done = serve("--data-dir", str(tmp_path / "d"), "--admission-control-config-file", path, "--enable-admission-plugins", enable)
    assert done.returncode != 0
    assert done.stderr.strip() == "kas: " + says.replace("FILE", path)
