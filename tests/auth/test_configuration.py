"""AuthorizationConfiguration: valid and invalid files (the recorded starts have errors, too), and the configuration made from flags."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kas.auth.authz.configuration import SECOND, AuthorizerSettings, WebhookSettings, from_flags, load, load_file
from kas.config.options import read
from kas.types.configfile import ConfigurationError


def webhook(file: Path, **more) -> dict:
    hook = {
        "timeout": "3s", "subjectAccessReviewVersion": "v1", "failurePolicy": "Deny",
        "connectionInfo": {"type": "KubeConfigFile", "kubeConfigFile": str(file)}, **more,
    }  # fmt: skip
    return {"type": "Webhook", "name": "hook", "webhook": {k: v for k, v in hook.items() if v is not None}}


def text(*authorizers: dict, version: str = "v1") -> bytes:
    document = {"apiVersion": f"apiserver.config.k8s.io/{version}", "kind": "AuthorizationConfiguration", "authorizers": authorizers}
    return json.dumps(document).encode()


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "kubeconfig"
    path.write_text("{}")
    return path


@pytest.mark.parametrize("version", ["v1", "v1beta1", "v1alpha1"])
def test_a_file(file, version):
    conditions = {"matchConditions": [{"expression": "true"}], "matchConditionSubjectAccessReviewVersion": "v1"}
    loaded = load(text(webhook(file, **conditions), {"type": "RBAC", "name": "rbac"}, version=version))
    assert loaded == (
        AuthorizerSettings("Webhook", "hook", WebhookSettings(str(file), 3 * SECOND, 300 * SECOND, 30 * SECOND, "v1", True, ("true",))),
        AuthorizerSettings("RBAC", "rbac"),
    )  # fmt: skip


def test_cache_settings(file):
    def ttls(**more) -> tuple[int, int]:
        (found,) = load(text(webhook(file, **more)))
        return found.webhook.authorized_ttl // SECOND, found.webhook.unauthorized_ttl // SECOND

    assert ttls(authorizedTTL="1m", unauthorizedTTL="2s") == (60, 2)
    assert ttls(authorizedTTL="1m", cacheAuthorizedRequests=False) == (0, 30)
    assert ttls(unauthorizedTTL="1m", cacheUnauthorizedRequests=False, cacheAuthorizedRequests=True) == (300, 0)


def test_yaml(tmp_path):
    path = tmp_path / "z.yaml"
    path.write_text("apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n- {type: Node, name: node}\n")
    assert load_file(str(path)) == (AuthorizerSettings("Node", "node"),)


LOADING = "failed to load AuthorizationConfiguration from file: "


@pytest.mark.parametrize(
    ("authorizers", "says"),
    [
        ([{"type": "Fire", "name": "x"}], 'authorizers[0].type: Unsupported value: "Fire": supported values: "ABAC", "AlwaysAllow"'),
        ([{"type": "RBAC", "name": "rbac"}] * 2, 'authorizers[1].type: Duplicate value: "RBAC"'),
        ([{"type": "RBAC", "name": "rbac", "webhook": {}}], 'authorizers[0].webhook: Invalid value: "non-null": may only be'),
        ([{"type": "RBAC", "name": "r"}, {"type": "Node", "name": "n"}],
         "[expected name rbac for authorizer RBAC instead of r, expected name node for authorizer Node instead of n]"),
        ([{"type": 1}],
         LOADING + "json: cannot unmarshal number into Go struct field AuthorizerConfiguration.authorizers.type of type string"),
    ],
)  # fmt: skip
def test_authorizers_that_are_refused(authorizers, says):
    with pytest.raises(ConfigurationError) as e:
        load(text(*authorizers))
    assert says in str(e.value)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"timeout": "31s"}, 'timeout: Invalid value: "31s": must be > 0s and <= 30s'),
        ({"timeout": 3}, LOADING + "json: cannot unmarshal number into Go struct field "
         "WebhookConfiguration.authorizers.webhook.timeout of type string"),
        ({"timeout": "3"}, LOADING + 'time: missing unit in duration "3"'),
        ({"subjectAccessReviewVersion": "v2"}, 'subjectAccessReviewVersion: Unsupported value: "v2": supported values: "v1", "v1beta1"'),
        ({"matchConditions": [{"expression": "true"}]},
         "matchConditionSubjectAccessReviewVersion: Required value: required if match conditions are specified"),
        ({"matchConditionSubjectAccessReviewVersion": "v1beta1"},
         'matchConditionSubjectAccessReviewVersion: Unsupported value: "v1beta1": supported values: "v1"'),
        ({"failurePolicy": None}, "failurePolicy: Required value"),
        ({"connectionInfo": None}, "connectionInfo.type: Required value"),
        ({"connectionInfo": {"type": "KubeConfigFile"}}, "connectionInfo.kubeConfigFile: Required value"),
        ({"connectionInfo": {"type": "KubeConfigFile", "kubeConfigFile": "/none"}},
         'connectionInfo.kubeConfigFile: Invalid value: "/none": error loading file: stat /none: no such file or directory'),
        ({"connectionInfo": {"type": "InClusterConfig"}}, "not supported for kube-apiserver"),
        ({"cacheAuthorizedRequest": True}, LOADING + 'strict decoding error: unknown field "authorizers[0].webhook.cacheAuthorizedRe'),
    ],
)  # fmt: skip
def test_webhooks_that_are_refused(file, more, says):
    with pytest.raises(ConfigurationError) as e:
        load(text(webhook(file, **more)))
    assert says in str(e.value)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "authorizers: Required value: at least one authorization mode must be defined"),
        (b"{}", LOADING + "Object 'Kind' is missing in '{}'"),
        (b"<html>", LOADING + "couldn't get version/kind; json parse error: json: cannot unmarshal string into Go value of type struct"),
        (b"a: [", LOADING + "yaml: "),
        (b"kind: AuthorizationConfiguration\nkind: X\napiVersion: apiserver.config.k8s.io/v1\n", LOADING + "no kind"),
        (b"{apiVersion: v1}", LOADING + "couldn't get version/kind; json parse error: invalid character 'a' looking for"),
        (b"apiVersion: v1\nkind: Pod", LOADING + 'no kind "Pod" is registered for version "v1" in scheme'),
    ],
)
def test_invalid_files(data, says):
    with pytest.raises(ConfigurationError) as e:
        load(data)
    assert str(e.value).startswith(says)


@pytest.mark.parametrize(("said", "says"), [
    ('"timeout": null', 'time: invalid duration ""'),
    ('"timeout": 3, "failurePolicy": 2', "json: cannot unmarshal number into Go struct field "
     "WebhookConfiguration.authorizers.webhook.timeout of type string"),
    ('"failurePolicy": 2, "none": 3, "cacheAuthorizedRequests": 1', "json: cannot unmarshal number into Go struct field "
     "WebhookConfiguration.authorizers.webhook.failurePolicy of type string"),
    ('"failurePolicy": 2, "timeout": "3"', 'time: missing unit in duration "3"'),
    ('"failurePolicy": 2, "unauthorizedTTL": null, "timeout": "3"', 'time: invalid duration ""'),
])  # fmt: skip
def test_the_order_of_errors(said, says):
    """A type error is reported after everything was read; a duration parses its own JSON, also null, and ends the reading."""
    front = '{"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthorizationConfiguration"'
    with pytest.raises(ConfigurationError) as e:
        load(f'{front}, "authorizers": [{{"webhook": {{{said}}}}}]}}'.encode())
    assert str(e.value) == LOADING + says


def test_modes_that_a_reloaded_file_must_have():
    with pytest.raises(ConfigurationError, match="missing required authorizer types: Node, RBAC"):
        load(text({"type": "AlwaysAllow", "name": "alwaysallow"}), {"RBAC", "Node"})


def test_flags(file):
    options, errors = read([
        "--authorization-mode=Node,Webhook,RBAC", f"--authorization-webhook-config-file={file}", "--authorization-webhook-version=v1",
        "--authorization-webhook-cache-authorized-ttl=1m", "--authorization-webhook-cache-unauthorized-ttl=0s",
    ])  # fmt: skip
    assert errors == []
    assert from_flags(options) == (
        AuthorizerSettings("Node", "node"),
        AuthorizerSettings("Webhook", "default", WebhookSettings(str(file), 30 * SECOND, 60 * SECOND, 0, "v1", False)),
        AuthorizerSettings("RBAC", "rbac"),
    )  # fmt: skip


def test_other_kinds_of_configuration_are_reported_by_their_kind():
    with pytest.raises(ConfigurationError, match=r"^.*: expected AuthorizationConfiguration, got \*apiserver.EncryptionConfiguration$"):
        load(b"apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\n")


def test_a_text_without_a_kind_and_strict_decoding_errors_are_shown():
    with pytest.raises(ConfigurationError, match=r"Object 'Kind' is missing in 'authorizers: \[\]\n'$"):
        load(b"authorizers: []\n")
    with pytest.raises(ConfigurationError) as e:
        load(b"apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nfoo: 1\nfoo: 2\n")
    assert str(e.value).endswith(': yaml: unmarshal errors:\n  line 4: key "foo" already set in map, unknown field "foo"')
