"""The status of ValidatingAdmissionPolicies: type errors with built-in kinds and custom resources."""

from __future__ import annotations

import asyncio
import threading

from kas.controllers import policystatus
from kas.controllers.policystatus import GROUP, PolicyStatus
from kas.meta.stored import object_of
from tests.controllers.stored import stored
from tests.controllers.waiting import until

POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def policy(name: str, group: str, resource: str, expression: str) -> dict:
    rule = {"apiGroups": [group], "apiVersions": ["v1"], "resources": [resource], "operations": ["CREATE"]}
    spec = {"matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": expression}]}
    return {"metadata": {"name": name}, "spec": spec}


def checked(call, name: str, generation: int) -> dict:
    def status():
        found = call("GET", f"{POLICIES}/{name}")[1]
        return found if (found.get("status") or {}).get("observedGeneration") == generation else None

    return until(status)


def test_built_in_kinds(kas, connect):
    call = connect(kas)
    assert call("POST", POLICIES, policy("typed", "apps", "deployments", "object.replicas > 1"))[0] == 201
    found = checked(call, "typed", 1)
    (warning,) = found["status"]["typeChecking"]["expressionWarnings"]
    assert warning["fieldRef"] == "spec.validations[0].expression"
    assert warning["warning"].startswith("apps/v1, Kind=Deployment: ERROR: <input>:1:7: undefined field 'replicas'")
    managers = [(f["manager"], f["operation"], f.get("subresource")) for f in found["metadata"]["managedFields"]]
    assert ("validatingadmissionpolicy-status", "Apply", "status") in managers
    mended = [{"op": "replace", "path": "/spec/validations/0/expression", "value": "object.spec.replicas > 1"}]
    assert call("PATCH", f"{POLICIES}/typed", mended, "application/json-patch+json")[0] == 200
    assert checked(call, "typed", 2)["status"] == {"observedGeneration": 2, "typeChecking": {}}
    assert call("DELETE", f"{POLICIES}/typed")[0] == 200


def test_fields_without_a_type_are_unknown(kas, connect):
    """Quantities have no type in OpenAPI, so their maps have no fields; upstream warns of them, too."""
    call = connect(kas)
    expression = "object.spec.containers.all(c, c.ports.all(p, p.containerPort > 0) && 'cpu' in c.resources.limits)"
    assert call("POST", POLICIES, policy("typeless", "", "pods", expression))[0] == 201
    (warning,) = checked(call, "typeless", 1)["status"]["typeChecking"]["expressionWarnings"]
    caret = expression.index(".limits")
    assert warning["warning"] == (
        f"/v1, Kind=Pod: ERROR: <input>:1:{caret + 1}: undefined field 'limits'\n | {expression}\n | {'.' * caret}^\n"
    )
    fine = "object.spec.containers.all(c, c.livenessProbe.httpGet.port == 80 || c.livenessProbe.httpGet.port == 'http')"
    mended = [{"op": "replace", "path": "/spec/validations/0/expression", "value": fine}]
    assert call("PATCH", f"{POLICIES}/typeless", mended, "application/json-patch+json")[0] == 200
    assert checked(call, "typeless", 2)["status"] == {"observedGeneration": 2, "typeChecking": {}}
    assert call("DELETE", f"{POLICIES}/typeless")[0] == 200


def test_custom_resources(kas, connect):
    call = connect(kas)
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer"}}}}}
    names = {"plural": "sizeds", "kind": "Sized"}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    spec = {"group": "policystatus.example.com", "scope": "Namespaced", "names": names, "versions": [version]}
    assert call("POST", CRDS, {"metadata": {"name": "sizeds.policystatus.example.com"}, "spec": spec})[0] == 201
    until(lambda: call("GET", "/apis/policystatus.example.com/v1/sizeds")[0] == 200)
    assert call("POST", POLICIES, policy("sized", "policystatus.example.com", "sizeds", "object.spec.weight > 1"))[0] == 201
    (warning,) = checked(call, "sized", 1)["status"]["typeChecking"]["expressionWarnings"]
    assert "policystatus.example.com/v1, Kind=Sized: ERROR: <input>:1:12: undefined field 'weight'" in warning["warning"]
    assert call("DELETE", f"{POLICIES}/sized")[0] == 200
    assert call("DELETE", f"{CRDS}/sizeds.policystatus.example.com")[0] == 200


def test_a_large_policy_is_read_off_the_loop(tmp_path, monkeypatch):
    """It was read on the loop twice, once when it was created: 56 ms."""
    threads = []

    def read(record):
        threads.append(threading.current_thread())
        return object_of(record)

    async def story():
        async with stored(tmp_path) as registries, asyncio.timeout(60):
            control = PolicyStatus(registries)
            for name, more in (("small", 1), ("large", policystatus.LARGE)):
                made = policy(name, "", "pods", "true")
                made["metadata"]["annotations"] = {"a": "x" * more}
                made |= {"apiVersion": f"{GROUP}/v1", "kind": "ValidatingAdmissionPolicy"}
                assert await control.client.create(GROUP, "validatingadmissionpolicies", made)
            monkeypatch.setattr(policystatus, "object_of", read)
            for name in ("small", "large"):
                control._look(control.registry.find("", name))
                await control._sync(name)
                assert control.client.get(GROUP, "validatingadmissionpolicies", "", name)["status"]["observedGeneration"] == 1
            loop = threading.current_thread()
            assert [thread is loop for thread in threads] == [True, True, False]

    asyncio.run(story())
