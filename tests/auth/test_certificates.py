"""Who may approve, sign and attest for a signer."""

from kas.auth.authz.rbac import RbacIndex
from kas.auth.certificates import authorized_for_signer
from kas.auth.user import UserInfo


def test_signers():
    index = RbacIndex()
    rule = {"verbs": ["approve"], "apiGroups": ["certificates.k8s.io"], "resources": ["signers"], "resourceNames": ["example.com/*"]}
    index.put("clusterroles", {"metadata": {"name": "r"}, "rules": [rule]})
    subjects = [{"kind": "User", "name": "bob"}]
    index.put("clusterrolebindings", {"metadata": {"name": "b"}, "roleRef": {"kind": "ClusterRole", "name": "r"}, "subjects": subjects})
    bob = UserInfo("bob")
    assert authorized_for_signer(index, bob, "approve", "example.com/a")
    assert not authorized_for_signer(index, bob, "sign", "example.com/a")
    assert not authorized_for_signer(index, bob, "approve", "other.com/a")
