"""Valid and invalid encryption configurations; most cases are in the recorded starts (tests/vectors)."""

from __future__ import annotations

import json
import time

import pytest

from kas.encryption.atrest import EncryptionAtRest
from kas.encryption.configuration import load, validate
from kas.types.configfile import ConfigurationError
from kas.types.scheme import BUILTIN

KEY = {"name": "key1", "secret": "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="}
BOX = {"secretbox": {"keys": [KEY]}}
KMS = {"apiVersion": "v2", "name": "k", "endpoint": "unix:///tmp/none.sock"}


def written(tmp_path, *rules, **more):
    path = tmp_path / "e.yaml"
    listed = [{"resources": names, "providers": providers} for names, providers in rules]
    front = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration"}
    path.write_text(json.dumps({**front, "resources": listed, **more}))
    return str(path)


def refused(tmp_path, *rules, reload=False, **more) -> str:
    path = written(tmp_path, *rules, **more)
    with pytest.raises(ConfigurationError) as e:
        EncryptionAtRest(path, reload, False, BUILTIN.resources).close()
    return str(e.value).replace(path, "PATH")


@pytest.mark.parametrize("provider, text", [
    ({"aescbc": {"keys": [{**KEY, "secret": "AAAA"}]}},
     'aescbc.keys[0].secret: Invalid value: "REDACTED": secret is not of the expected length, got 3, expected one of [16 24 32]'),
    ({"aescbc": {"keys": [{**KEY, "secret": "MDEyMzQ1Njc4OWFiY2RlZg==="}]}},
     'aescbc.keys[0].secret: Invalid value: "REDACTED": secrets must be base64 encoded'),
    ({"secretbox": {"keys": [{**KEY, "secret": "MDEyMzQ1Njc4OWFiY2RlZg=="}]}},
     'secretbox.keys[0].secret: Invalid value: "REDACTED": secret is not of the expected length, got 16, expected one of [32]'),
    ({"aesgcm": {}}, "aesgcm.keys: Required value: at least one keys is required"),
    ({"kms": {**KMS, "endpoint": ""}}, 'kms.endpoint: Invalid value: "": endpoint is a mandatory field for a kms'),
    ({"kms": {**KMS, "endpoint": "", "timeout": None}}, 'kms.endpoint: Invalid value: "": endpoint is a mandatory field for a kms'),
    ({"kms": {**KMS, "endpoint": "https://x/y"}},
     'kms.endpoint: Invalid value: "https://x/y": unsupported scheme "https" for KMS provider, only unix is supported'),
    ({"kms": {**KMS, "endpoint": "%zz"}},
     'kms.endpoint: Invalid value: "%zz": invalid endpoint for kms provider, error: parse "%zz": invalid URL escape "%zz"'),
    ({"kms": {**KMS, "endpoint": "x"}},
     'kms.endpoint: Invalid value: "x": unsupported scheme "" for KMS provider, only unix is supported'),
    ({"kms": {**KMS, "timeout": "0s"}}, 'kms.timeout: Invalid value: "0s": timeout should be a positive value'),
    ({"kms": {**KMS, "apiVersion": "v3"}},
     'kms.apiVersion: Invalid value: "v3": unsupported apiVersion apiVersion for KMS provider, only v1 and v2 are supported'),
    ({"kms": {**KMS, "apiVersion": "v1", "cachesize": 0}},
     "kms.cachesize: Invalid value: 0: cachesize should be a positive value, or negative to disable"),
])  # fmt: skip
def test_providers(tmp_path, provider, text):
    assert refused(tmp_path, (["secrets"], [provider])) == f"error while parsing file: resources[0].providers[0].{text}"


TWICE = "the same resource cannot be specified multiple times"
MASKED = "using overlapping resources such as 'secrets' and '*.' in the same resource list is not allowed as they will be masked"


@pytest.mark.parametrize("names, found", [
    (["secrets", "secrets"], [TWICE]),
    (["*.apps", "*.apps"], [TWICE, MASKED]),
    (["*.*", "*.*"], [TWICE, MASKED]),
    (["*.", "configmaps"], [MASKED]),
    (["*.*", "*.apps"], [MASKED]),
    (["*.apps", "deployments.batch"], []),
    (["secrets.*", "configmaps"], []),
])  # fmt: skip
def test_overlapping_resources_of_one_list(tmp_path, names, found):
    said = str(validate([{"resources": names, "providers": [{"identity": {}}]}], False)[: len(found) + 1])
    assert [why in said for why in (TWICE, MASKED)] == [why in found for why in (TWICE, MASKED)]


def test_two_providers_in_one_element_are_refused_without_showing_a_secret(tmp_path):
    said = refused(tmp_path, (["secrets"], [{**BOX, "identity": {}}]))
    assert "more than one provider specified in a single element, should split into different list elements" in said
    assert KEY["secret"] not in said


@pytest.mark.parametrize("rules, text", [
    ([(["*.apps"], [BOX]), (["deployments.apps"], [BOX])], 'resource "deployments.apps" is masked by earlier rule "*.apps"'),
    ([(["*."], [BOX]), (["secrets"], [BOX])], 'resource "secrets" is masked by earlier rule "*."'),
    ([(["*.*"], [BOX]), (["secrets"], [BOX])], 'resource "secrets" is masked by earlier rule "*.*"'),
    ([(["*.*"], [BOX]), (["*.apps"], [BOX])], 'resource "*.apps" is masked by earlier rule "*.*"'),
])  # fmt: skip
def test_an_ineffective_rule_is_refused(tmp_path, rules, text):
    assert refused(tmp_path, *rules) == f"error while building transformers: {text}"


def test_unknown_and_repeated_fields_are_refused(tmp_path):
    front = 'error while parsing file: error decoding encryption provider configuration file "PATH": strict decoding error: '
    assert refused(tmp_path, (["secrets"], [{**BOX, "x": 1}]), y=2) == front + (
        'unknown field "resources[0].providers[0].x", unknown field "y"'
    )
    path = tmp_path / "e.yaml"
    path.write_text("apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources: []\nresources: []\n")
    with pytest.raises(ConfigurationError, match=r'key "resources" already set in map'):
        load(str(path), False)


def test_a_document_without_a_kind_is_refused_without_showing_it(tmp_path):
    path = tmp_path / "e.yaml"
    path.write_text(json.dumps({"resources": [{"resources": ["secrets"], "providers": [BOX]}]}))
    with pytest.raises(ConfigurationError) as e:
        load(str(path), False)
    assert str(e.value).endswith("e.yaml\": Object 'Kind' is missing")


def test_another_kind_of_configuration_is_named(tmp_path):
    (tmp_path / "c").write_text("apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\n")
    with pytest.raises(ConfigurationError) as e:
        load(str(tmp_path / "c"), False)
    said = "error while parsing file: got unexpected config type: apiserver.config.k8s.io/v1, Kind=AuthorizationConfiguration"
    assert str(e.value) == said


def test_the_same_resource_twice(tmp_path):
    assert "the same resource cannot be specified multiple times" in refused(tmp_path, (["secrets", "secrets"], [BOX]))


def test_equal_names_of_kms_providers_are_refused_if_the_file_is_reloaded(tmp_path):
    v1 = {"kms": {**KMS, "apiVersion": "v1"}}
    assert "KMSv1 is deprecated" in refused(tmp_path, (["secrets"], [v1]), (["configmaps"], [v1]))
    assert "duplicate KMS provider name k, names must be unique" in refused(
        tmp_path, (["secrets"], [v1]), (["configmaps"], [v1]), reload=True
    )


def test_kms_without_grpc_is_reported_in_one_line(tmp_path, monkeypatch):
    from kas.encryption.kms import plugins

    monkeypatch.setattr(plugins.importlib.util, "find_spec", lambda name: None)
    said = refused(tmp_path, (["secrets"], [{"kms": KMS}]))
    assert said == 'error while building transformers: the KMS provider "k" needs gRPC: install kas[kms]'


def key_of(encryption: EncryptionAtRest, key: str) -> str | None:
    transformer = encryption.transformer(key)
    return None if transformer is None else transformer.seal(b"x", key.encode()).split(b":")[4].decode()


def test_which_rule_applies_to_a_key(tmp_path):
    def keyed(name: str, kind: str = "aesgcm"):
        return [{kind: {"keys": [{**KEY, "name": name}]}}]

    encryption = EncryptionAtRest(
        written(tmp_path, (["secrets", "services"], keyed("own")), (["*.apps"], keyed("app")), (["things.example.com"], keyed("cus")),
                (["*."], keyed("cor"))), False, False, BUILTIN.resources,
    )  # fmt: skip
    wanted = {
        "/registry/secrets/ns/a": "own", "/registry/secrets/": "own", "/registry/services/specs/ns/a": "own",
        "/registry/services/endpoints/ns/a": "cor", "/registry/events/ns/a": "cor", "/registry/minions/n": "cor",
        "/registry/deployments/ns/a": "app", "/registry/example.com/things/ns/a": "cus", "/registry/example.com/others/ns/a": None,
        "/registry/roles/ns/a": None, "/registry/apiregistration.k8s.io/apiservices/v1.": None, "/registry/": None, "compact_rev_key": None,
    }  # fmt: skip
    for key, name in wanted.items():
        assert key_of(encryption, key) == name, key
    assert "/registry/secrets/" in encryption.prefixes() and "/registry/example.com/things/" in encryption.prefixes()
    assert "/registry/roles/" not in encryption.prefixes()


def test_events_of_both_groups_are_one_resource(tmp_path):
    encryption = EncryptionAtRest(written(tmp_path, (["events"], [BOX])), False, False, BUILTIN.resources)
    assert encryption.transformer("/registry/events/ns/a") is not None


def test_identity_first_means_plain_text_and_without_it_plain_text_is_refused(tmp_path):
    encryption = EncryptionAtRest(
        written(tmp_path, (["secrets"], [{"identity": {}}, BOX]), (["configmaps"], [BOX]), (["pods"], [BOX, {"identity": {}}])),
        False, False, BUILTIN.resources,
    )  # fmt: skip
    secrets, maps, pods = (encryption.transformer(f"/registry/{r}/ns/a") for r in ("secrets", "configmaps", "pods"))
    assert (secrets.plain, maps.plain, pods.plain) == (True, False, False)
    assert (secrets.refuses_plain, maps.refuses_plain, pods.refuses_plain) == ("", "no matching prefix found", "")


def test_a_changed_file_is_read_by_all_workers_before_any_writes_with_it(tmp_path, monkeypatch):
    place = b"/registry/secrets/ns/a"
    old, new = {"secretbox": {"keys": [{**KEY, "name": "old"}]}}, {"aesgcm": {"keys": [{**KEY, "name": "new"}]}}
    path = written(tmp_path, (["secrets"], [old]))
    told = tmp_path / "told"
    workers = [EncryptionAtRest(path, True, False, BUILTIN.resources, told, str(i)) for i in range(2)]

    def seal(worker: EncryptionAtRest) -> bytes:
        return worker.transformer(place.decode()).seal(b"plain", place)

    def opened(worker: EncryptionAtRest, value: bytes) -> bytes:
        return worker.transformer(place.decode()).open(value, place)[0]

    before = seal(workers[0])
    written(tmp_path, (["secrets"], [new, old]))
    first, second = workers
    assert first.changed()
    first.reread()
    assert seal(first).startswith(b"k8s:enc:secretbox:") and not first.changed()  # the other one has not checked yet
    assert second.changed()
    second.reread()
    later = time.monotonic() + 100
    monkeypatch.setattr("time.monotonic", lambda: later)
    assert first.changed()
    first.reread()
    after = seal(first)
    assert after.startswith(b"k8s:enc:aesgcm:v1:new:")
    assert opened(second, after) == b"plain" and seal(second).startswith(b"k8s:enc:secretbox:")
    assert opened(first, before) == b"plain"
    second.reread()
    assert seal(second).startswith(b"k8s:enc:aesgcm:v1:new:") and not second.unreadable
    for worker in workers:
        worker.close()


EVENTS = "'*.events.k8s.io' objects are stored using the 'events' API group in etcd. Use 'events' instead in the config file"
GONE = "'extensions' group has been removed and cannot be used for encryption"
UNSERVED = "resources which do not have REST API/s cannot be encrypted"
TWICE = "the same resource cannot be specified multiple times"


@pytest.mark.parametrize(
    ("names", "at", "why"),
    [
        (["events.events.k8s.io"], "[0]", EVENTS), (["secret", "events.events.k8s.io"], "[1]", EVENTS),
        (["*.events.k8s.io"], "[0]", EVENTS),
        (["*.extensions"], "[0]", GONE), (["foo.extensions"], "[0]", GONE),
        (["*"], "[0]", "use '*.' to encrypt all the resources from core API group or *.* to encrypt all resources"),
        (["apiServerIPInfo"], "[0]", "resource name should not contain capital letters"),
        (["apiserveripinfo"], "[0]", UNSERVED), (["serviceipallocations"], "[0]", UNSERVED),
        (["servicenodeportallocations"], "[0]", UNSERVED),
        (["*.", "foos.*"], "[1]", "encrypting the same resource across groups is not supported"),
        (["secrets", "secrets"], "", TWICE), (["secrets"] * 4, "", TWICE), (["secrets", "secrets."], "", TWICE),
        (["*.apps", "*.", "*.*"], "", MASKED), (["deployments.apps", "*.apps"], "", MASKED), (["secrets", "*."], "", MASKED),
        (["pods", "*."], "", MASKED), (["secrets", "*.*"], "", MASKED), (["*.", "*.*"], "", MASKED),
        (["*.apps", "*."], None, ""), (["deployments.apps", "*."], None, ""),
    ],
)  # fmt: skip
def test_which_resources_may_be_in_one_list(names, at, why):
    """The rows of ``TestStructure``: one error each, at the name or at the list that is wrong."""
    found = [str(e) for e in validate([{"resources": names, "providers": [BOX]}], False)]
    if at is None:
        assert found == []
        return
    value = json.dumps(names[int(at[1])] if at else names, separators=(",", ":"))
    assert found == [f"resources[0].resources{at}: Invalid value: {value}: {why}"]
