"""The ClusterTrustBundleAttest plug-in alone."""

from __future__ import annotations

import pytest

from kas.admission.plugins import cluster_trust_bundle_attest
from kas.auth.user import UserInfo
from kas.config import features
from tests.admission.admission_fakes import Request, refused

BOB = UserInfo("bob", ("system:authenticated",))
WHERE = {"group": "certificates.k8s.io", "resource": "clustertrustbundles", "user": BOB}
BUNDLE = {"metadata": {"name": "example.com:s:a"}, "spec": {"signerName": "example.com/s", "trustBundle": "x"}}


@pytest.fixture(autouse=True)
def on():
    features.DEFAULT.set({"": ["ClusterTrustBundle=true"]})
    yield
    features.DEFAULT.set({})


@pytest.mark.parametrize("grant", ["example.com/s", "example.com/*"])
def test_writing_a_bundle_needs_attest_on_its_signer(server, grant):
    plugin = server.plugin(cluster_trust_bundle_attest)
    new = BUNDLE | {"spec": {**BUNDLE["spec"], "trustBundle": "y"}}
    for request in (Request(plugin, obj=BUNDLE, **WHERE), Request(plugin, obj=new, old=BUNDLE, operation="UPDATE", **WHERE)):
        e = refused(request)
        assert e.code == 403 and e.message.endswith('user not permitted to attest for signerName "example.com/s"')
    server.grants.add(("bob", "attest", "signers", grant))
    Request(plugin, obj=BUNDLE, **WHERE).run()
    Request(plugin, obj=new, old=BUNDLE, operation="UPDATE", **WHERE).run()


def test_bundles_without_a_signer_and_unchanged_ones_need_no_attest(server):
    plugin = server.plugin(cluster_trust_bundle_attest)
    Request(plugin, obj={"metadata": {"name": "a"}, "spec": {"trustBundle": "x"}}, **WHERE).run()
    collected = BUNDLE | {"metadata": {"name": "example.com:s:a", "finalizers": ["a/b"], "managedFields": []}}
    Request(plugin, obj=collected, old=BUNDLE, operation="UPDATE", **WHERE).run()


def test_without_its_gate_it_does_nothing(server):
    features.DEFAULT.set({})
    Request(server.plugin(cluster_trust_bundle_attest), obj=BUNDLE, **WHERE).run()
