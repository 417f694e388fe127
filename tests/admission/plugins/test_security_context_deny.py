"""The SecurityContextDeny plug-in alone."""

from __future__ import annotations

from kas.admission.plugins import security_context_deny
from tests.admission.admission_fakes import Request, pod, refused


def test_pods_cannot_choose_their_users(server):
    e = refused(Request(server.plugin(security_context_deny), obj=pod(securityContext={"runAsUser": 1})))
    assert e.message.endswith("pod.Spec.SecurityContext.RunAsUser is forbidden")
