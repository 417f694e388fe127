"""The DenyServiceExternalIPs plug-in alone."""

from __future__ import annotations

from kas.admission.plugins import deny_service_external_ips
from tests.admission.admission_fakes import Request, refused


def test_external_ips_may_only_be_removed(server):
    plugin = server.plugin(deny_service_external_ips)
    one = {"metadata": {"name": "s"}, "spec": {"externalIPs": ["1.2.3.4"]}}
    none = {"metadata": {"name": "s"}, "spec": {}}
    assert "Use of external IPs is denied by admission control." in refused(Request(plugin, resource="services", obj=one)).message
    Request(plugin, operation="UPDATE", resource="services", obj=one, old=one).run()
    Request(plugin, operation="UPDATE", resource="services", obj=none, old=one).run()
