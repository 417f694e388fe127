"""What is found in the files that flags name."""

from __future__ import annotations

from kas.config.options import Options
from kas.preflight import preflight, unusable

POLICY = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n"


def test_where_audit_events_go(tmp_path):
    policy, missing = tmp_path / "policy.yaml", tmp_path / "none"
    policy.write_text(POLICY)
    webhook = {"audit-webhook-config-file": str(missing), "audit-policy-file": str(policy)}
    assert unusable(Options(webhook)) == [f"initializing audit webhook: stat {missing}: no such file or directory"]
    assert preflight(Options(webhook)) == unusable(Options(webhook))
    log = {"audit-log-path": str(tmp_path), "audit-policy-file": str(policy)}
    assert unusable(Options(log)) == [f"ensureLogFile: open {tmp_path}: is a directory"]
    log["audit-log-path"] = str(policy / "a.log")
    assert unusable(Options(log)) == [f"ensureLogFile: mkdir {policy}: not a directory"]
    log["audit-log-path"] = str(tmp_path / "new" / "a.log")
    assert unusable(Options(log)) == [] and (tmp_path / "new" / "a.log").exists()


def test_without_a_policy_there_are_no_events(tmp_path):
    assert unusable(Options({"audit-webhook-config-file": str(tmp_path / "none")})) == []
    assert unusable(Options({"audit-log-path": str(tmp_path)})) == [f"ensureLogFile: open {tmp_path}: is a directory"]
