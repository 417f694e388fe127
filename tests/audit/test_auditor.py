"""The audit log made from the ``--audit-*`` flags: each value reaches the right component."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import pytest

from kas.audit import auditor
from kas.audit.logfile import json_line, legacy_line
from kas.config.options import Options
from kas.observe.metrics import Registry

KUBECONFIG = {
    "apiVersion": "v1", "kind": "Config", "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "w", "user": "u"}}],
    "clusters": [{"name": "w", "cluster": {"server": "https://127.0.0.1:1/"}}], "users": [{"name": "u", "user": {}}],
}  # fmt: skip


@pytest.fixture
def built(tmp_path, monkeypatch):
    """``built(**flags)`` returns the arguments with which each component of the audit log was made, by name."""
    made: dict[str, dict[str, Any]] = {}

    def watched(name: str) -> None:
        cls = getattr(auditor, name)
        names = list(inspect.signature(cls).parameters)

        def make(*args: Any, **more: Any) -> Any:
            made[name] = dict(zip(names, args, strict=False))
            return cls(*args, **more)

        monkeypatch.setattr(auditor, name, make)

    for name in ("LogFile", "Batch", "Buckets", "Truncate", "Webhook"):
        watched(name)
    (tmp_path / "policy").write_text(json.dumps({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "Metadata"}]}))
    (tmp_path / "kc").write_text(json.dumps(KUBECONFIG))

    def build(alone: bool = False, **flags: Any) -> dict[str, dict[str, Any]]:
        made.clear()
        options = Options(audit_policy_file=str(tmp_path / "policy"), **flags)
        assert auditor.build(options, Path(tmp_path), Registry(), alone=alone) is not None
        return made

    return build


def test_the_file(built, tmp_path):
    log = str(tmp_path / "a.log")
    made = built(audit_log_path=log, audit_log_maxsize=3, audit_log_maxage=2, audit_log_maxbackup=5, audit_log_compress=True)["LogFile"]
    assert (made["path"], made["max_size"], made["max_age_s"], made["max_backups"], made["compress"]) == (log, 3 << 20, 172800, 5, True)
    assert built(audit_log_path=log, audit_log_maxsize=0)["LogFile"]["max_size"] == 100 << 20
    assert made["line"] is json_line and built(audit_log_path=log, audit_log_format="legacy")["LogFile"]["line"] is legacy_line


def test_only_several_workers_lock_the_file(built, tmp_path):
    log = str(tmp_path / "audit.log")
    assert built(audit_log_path=log)["LogFile"]["lock"] == tmp_path / "audit.lock"
    assert built(audit_log_path=log, alone=True)["LogFile"]["lock"] is None


def test_the_initial_backoff_of_a_webhook(built, tmp_path):
    made = built(audit_webhook_config_file=str(tmp_path / "kc"), audit_webhook_initial_backoff=3.5)
    assert 3.5 in made["Webhook"].values()


@pytest.mark.parametrize("kind", ["log", "webhook"])
def test_batching_and_truncation_of_both_backends(kind, built, tmp_path):
    where = {"audit_log_path": str(tmp_path / "a.log")} if kind == "log" else {"audit_webhook_config_file": str(tmp_path / "kc")}

    def flags(**more: Any) -> dict[str, Any]:
        return where | {f"audit_{kind}_{name}": value for name, value in more.items()}

    batch = {"batch_buffer_size": 11, "batch_max_size": 7, "batch_max_wait": 1.5, "batch_throttle_qps": 2.5, "batch_throttle_burst": 4}
    made = built(**flags(mode="batch", batch_throttle_enable=True, **batch))
    assert [made["Batch"][name] for name in ("buffer", "size", "wait_s")] == [11, 7, 1.5]
    assert [made["Buckets"][name] for name in ("path", "size", "rate", "burst")] == [tmp_path / f"audit-{kind}-throttle", 1, 2.5, 4]
    made = built(**flags(mode="batch", batch_throttle_enable=False, **batch))
    assert made["Batch"]["throttle"] is None and "Buckets" not in made
    assert "Batch" not in built(**flags(mode="blocking"))
    sizes = {"truncate_max_event_size": 1000, "truncate_max_batch_size": 5000}
    made = built(**flags(truncate_enabled=True, **sizes))["Truncate"]
    assert (made["max_event"], made["max_batch"]) == (1000, 5000) and "Truncate" not in built(**flags(truncate_enabled=False, **sizes))


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ({"version": "audit.k8s.io/v2"}, "invalid group version, allowed versions are"),
        ({"mode": "odd"}, "mode odd, allowed modes are"),
        ({"mode": "batch", "batch_buffer_size": 0}, "buffer size 0, must be a positive number"),
        ({"mode": "batch", "batch_max_size": 0}, "max batch size 0, must be a positive number"),
        ({"mode": "batch", "batch_throttle_enable": True, "batch_throttle_qps": 0.0}, "throttle QPS 0, must be a positive number"),
        (
            {"mode": "batch", "batch_throttle_enable": True, "batch_throttle_qps": 1.0, "batch_throttle_burst": 0},
            "throttle burst 0, must be a positive number",
        ),
        ({"truncate_max_event_size": 0}, "max event size 0, must be a positive number"),
        ({"truncate_max_event_size": 2, "truncate_max_batch_size": 1}, "must be greater than max event size (2)"),
    ],
)  # fmt: skip
def test_invalid_values_of_both_backends(flags, says):
    from kas.config.auditing import problems

    for kind, where in (("log", {"audit_log_path": "x"}), ("webhook", {"audit_webhook_config_file": "x"})):
        found = list(problems(Options(**where, **{f"audit_{kind}_{name}": value for name, value in flags.items()})))
        assert len(found) == 1 and says in found[0]
        assert list(problems(Options(**{f"audit_{kind}_{name}": value for name, value in flags.items()}))) == []
