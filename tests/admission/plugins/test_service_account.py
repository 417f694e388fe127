"""The ServiceAccount plug-in alone."""

from __future__ import annotations

import asyncio

import pytest

from kas.admission.plugins import service_account
from tests.admission.admission_fakes import FakeServer, Request, pod, refused


def test_service_account_must_exist(server):
    e = refused(Request(server.plugin(service_account), obj=pod()))
    assert e.message == 'pods "a" is forbidden: error looking up service account ns1/default: serviceaccount "default" not found'


def test_the_first_pod_waits_for_the_default_account(server):
    request = Request(server.plugin(service_account), obj=pod())

    async def create() -> None:
        creating = asyncio.ensure_future(request.steps())
        await asyncio.sleep(0)
        server.add("", "serviceaccounts", {"metadata": {"name": "default", "namespace": "ns1"}})
        await creating

    asyncio.run(create())
    assert request.attributes.obj["spec"]["serviceAccountName"] == "default"


def account(server: FakeServer, **fields) -> service_account.Plugin:
    meta = {"name": "default", "namespace": "ns1", **fields.pop("metadata", {})}
    server.add("", "serviceaccounts", {"metadata": meta, **fields})
    return server.plugin(service_account)


def test_service_account_token_volume_and_pull_secrets(server):
    mounted = {"name": "d", "volumeMounts": [{"name": "x", "mountPath": service_account.MOUNT_PATH}]}
    plugin = account(server, imagePullSecrets=[{"name": "p"}])
    spec = Request(plugin, obj=pod(containers=[{"name": "c"}, mounted])).run()["spec"]
    (volume,) = spec["volumes"]
    assert volume["name"].startswith("kube-api-access-") and len(volume["name"]) == len("kube-api-access-") + 5
    assert volume["projected"]["sources"][0] == {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}}
    assert spec["containers"][0]["volumeMounts"] == [{"name": volume["name"], "readOnly": True, "mountPath": service_account.MOUNT_PATH}]
    assert spec["containers"][1] == mounted
    assert spec["imagePullSecrets"] == [{"name": "p"}]
    assert spec["serviceAccountName"] == spec["serviceAccount"] == "default"


@pytest.mark.parametrize(
    ("own", "of_account", "mounted"), [(None, None, True), (None, False, False), (True, False, True), (False, True, False)]
)
def test_service_account_automount(server, own, of_account, mounted):
    plugin = account(server, automountServiceAccountToken=of_account)
    spec = Request(plugin, obj=pod(automountServiceAccountToken=own)).run()["spec"]
    assert ("volumes" in spec) == mounted


def test_service_account_mountable_secrets(server):
    plugin = account(server, metadata={"annotations": {"kubernetes.io/enforce-mountable-secrets": "true"}}, secrets=[{"name": "mine"}])
    ref = {"name": "E", "valueFrom": {"secretKeyRef": {"name": "other", "key": "k"}}}
    Request(plugin, obj=pod(volumes=[{"name": "v", "secret": {"secretName": "mine"}}])).run()
    assert refused(Request(plugin, obj=pod(containers=[{"name": "c", "env": [ref]}]))).message.endswith(
        'container c with envVar E referencing secret.secretName="other" is not allowed because service account default does not reference '
        "that secret"
    )


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"serviceAccountName": "x"}, "a mirror pod may not reference service accounts"),
        ({"volumes": [{"name": "v", "secret": {"secretName": "s"}}]}, "a mirror pod may not reference secrets"),
        ({"volumes": [{"name": "v", "configMap": {"name": "s"}}]}, "a mirror pod may not reference configmaps"),
        ({"volumes": [{"name": "v", "projected": {"sources": [{"serviceAccountToken": {}}]}}]},
         "a mirror pod may not use ServiceAccountToken volume projections"),
    ],
)  # fmt: skip
def test_service_account_mirror_pods(server, spec, why):
    obj = pod(**spec)
    obj["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
    assert refused(Request(server.plugin(service_account), obj=obj)).message.endswith(why)


def test_a_mirror_pod_may_have_references_without_a_name(server):
    """They refer to nothing; a pull secret is the one that validation lets pass."""
    obj = pod(imagePullSecrets=[{"name": ""}, {}], volumes=[{"name": "v", "projected": {"sources": [{"configMap": {}}]}}])
    obj["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
    Request(server.plugin(service_account), obj=obj).run()
