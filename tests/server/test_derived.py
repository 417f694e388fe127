"""State that a worker derives from stored objects is ready before it serves, so no request waits for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kas.admission.policy import compiled
from kas.admission.webhook import hooks
from kas.flowcontrol import classification, controller
from tests.growth.serving import InProcess, Sent

REGISTRATION, FLOWS = "admissionregistration.k8s.io/v1", "flowcontrol.apiserver.k8s.io/v1"
RULES = [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}]
CONDITIONS = [{"name": "c", "expression": "object.metadata.name == 'nobody'"}]
ANY = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": True}
MAPS = "/api/v1/namespaces/default/configmaps"


def objects(name: str) -> list[tuple[str, dict[str, Any]]]:
    """Returns one object of each kind that is compiled, by its path."""
    hook = {
        "name": f"{name}.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"], "rules": RULES,
        "matchConditions": CONDITIONS, "clientConfig": {"url": "https://127.0.0.1:9/"},
    }  # fmt: skip
    policy = {"matchConstraints": {"resourceRules": RULES}}
    changes = {**policy, "reinvocationPolicy": "Never", "mutations": [
        {"patchType": "JSONPatch", "jsonPatch": {"expression": "[JSONPatch{op: 'add', path: '/data/a', value: 'b'}]"}}]}  # fmt: skip
    flow = {"priorityLevelConfiguration": {"name": "exempt"}, "matchingPrecedence": 10, "rules": [
        {"subjects": [{"kind": "User", "user": {"name": name}}], "resourceRules": [ANY]}]}  # fmt: skip
    made = {
        f"{REGISTRATION}/validatingwebhookconfigurations": {"webhooks": [hook]},
        f"{REGISTRATION}/mutatingwebhookconfigurations": {"webhooks": [hook]},
        f"{REGISTRATION}/validatingadmissionpolicies": {"spec": {**policy, "validations": [{"expression": "true"}]}},
        f"{REGISTRATION}/validatingadmissionpolicybindings": {"spec": {"policyName": name, "validationActions": ["Deny"]}},
        f"{REGISTRATION}/mutatingadmissionpolicies": {"spec": changes},
        f"{REGISTRATION}/mutatingadmissionpolicybindings": {"spec": {"policyName": name}},
        f"{FLOWS}/flowschemas": {"spec": flow},
    }
    return [(f"/apis/{path}", {"metadata": {"name": name}, **obj}) for path, obj in made.items()]


def test_after_a_start_the_first_write_compiles_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first write used to read 300 webhooks with 64 conditions each, and the first request 300 FlowSchemas of 110 kB, in one step of
    the loop. One more object is compiled when it is created."""
    first = InProcess(tmp_path)
    try:
        for i in range(5):
            for path, obj in objects(f"x{i}"):
                status, answer = first.ask(Sent("POST", path, obj))
                assert status == 201, answer
    finally:
        first.close()
    first.server.options.run_dir.rename(tmp_path / "before")

    made, listed = list[str](), list[str]()
    for module, name in ((hooks, "Hook"), (compiled, "Policy"), (compiled, "Binding"), (controller, "Schema")):

        class Counted(getattr(module, name)):  # type: ignore[misc]
            _named = name

            def __init__(self, *args: Any) -> None:
                made.append(self._named)
                super().__init__(*args)

        monkeypatch.setattr(module, name, Counted)
    real = classification.Schemas.__init__

    def schemas(self: classification.Schemas, *args: Any) -> None:
        made.append("Schemas")
        real(self, *args)

    monkeypatch.setattr(classification.Schemas, "__init__", schemas)
    world = InProcess(tmp_path)
    try:
        ask, store = world.ask, world.store
        assert made.count("Hook") == 10 and made.count("Policy") == made.count("Binding") == 10 and made.count("Schema") >= 5
        del made[:]
        reads = store.range
        monkeypatch.setattr(store, "range", lambda prefix, *args, **more: listed.append(prefix) or reads(prefix, *args, **more))
        status, answer = ask(Sent("POST", MAPS, {"metadata": {"name": "a"}, "data": {"k": "v"}}))
        assert status == 201 and answer["data"] == {"k": "v", "a": "b"}
        assert made == [] and listed == []
        for path, obj in objects("more"):
            assert ask(Sent("POST", path, obj))[0] == 201
        assert ask(Sent("POST", MAPS, {"metadata": {"name": "b"}, "data": {"k": "v"}}))[0] == 201
        assert sorted(made) == ["Binding", "Binding", "Hook", "Hook", "Policy", "Policy", "Schema"] and listed == []
    finally:
        world.close()
