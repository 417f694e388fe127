"""Workloads of apps/v1 through the write pipeline."""

from __future__ import annotations

import pytest

from kas.registry.strategy import Context, strategy_of
from kas.types.scheme import DecodeError
from tests.kinds.helpers import NOW, create, refused, resource, update, workload

ALL = ("apps/v1/deployments", "apps/v1/replicasets", "apps/v1/statefulsets", "apps/v1/daemonsets")


def fields(found):
    return [where for where, _ in found]


@pytest.mark.parametrize("path", ALL)
def test_generation_counts_spec_changes_but_not_status_changes(path):
    body = workload()
    body["status"] = {"replicas": 5}
    stored, _ = create(path, body)
    assert stored["metadata"]["generation"] == 1
    assert "replicas" not in (stored.get("status") or {})
    got, _ = update(path, stored, lambda o: o["spec"].update(minReadySeconds=3))
    assert got["metadata"]["generation"] == 2
    got, _ = update(path, stored, lambda o: o["metadata"].update(labels={"x": "y"}))
    assert got["metadata"]["generation"] == 1


@pytest.mark.parametrize("path", ALL)
def test_selector_matches_the_template(path):
    body = workload(selector={"matchLabels": {"app": "other"}})
    assert ("spec.template.metadata.labels", 'Invalid value: {"app":"a"}: `selector` does not match template `labels`') in refused(
        create, path, body
    )


@pytest.mark.parametrize("path", ALL)
def test_only_templates_that_always_restart(path):
    body = workload()
    body["spec"]["template"]["spec"]["restartPolicy"] = "Never"
    assert fields(refused(create, path, body)) == ["spec.template.spec.restartPolicy"]


@pytest.mark.parametrize("path", ALL)
def test_selector_is_immutable(path):
    stored, _ = create(path, workload())

    def change(obj):
        obj["spec"]["selector"]["matchLabels"] = {"b": "c"}
        obj["spec"]["template"]["metadata"]["labels"] = {"b": "c"}

    where = "spec" if path.endswith("statefulsets") else "spec.selector"
    assert fields(refused(update, path, stored, change)) == [where]


def test_deployment_rollout_rules():
    stored, _ = create(ALL[0], workload())
    assert stored["spec"]["strategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}}
    recreate = workload(strategy={"type": "Recreate", "rollingUpdate": {}})
    assert fields(refused(create, ALL[0], recreate)) == ["spec.strategy.rollingUpdate"]
    stuck = workload(strategy={"rollingUpdate": {"maxUnavailable": 0, "maxSurge": "0%"}})
    assert fields(refused(create, ALL[0], stuck)) == ["spec.strategy.rollingUpdate.maxUnavailable"]
    for name in ("maxUnavailable", "maxSurge"):
        # an empty text is not zero
        assert fields(refused(create, ALL[0], workload(strategy={"rollingUpdate": {name: ""}}))) == [f"spec.strategy.rollingUpdate.{name}"]
    late = workload(progressDeadlineSeconds=5, minReadySeconds=5)
    assert fields(refused(create, ALL[0], late)) == ["spec.progressDeadlineSeconds"]


def test_deployment_annotations_bump_the_generation_and_labels_stay_on_status_writes():
    stored, _ = create(ALL[0], workload())
    got, _ = update(ALL[0], stored, lambda o: o["metadata"].update(annotations={"a": "b"}))
    assert got["metadata"]["generation"] == 2

    def change(obj):
        obj["metadata"]["labels"] = {"new": "label"}
        obj["status"] = {"replicas": 1}

    got, _ = update(ALL[0], stored, change, "status")
    assert got["status"]["replicas"] == 1 and not got["metadata"].get("labels")
    bad = refused(update, ALL[0], stored, lambda o: o.update(status={"readyReplicas": 2}), "status")
    assert fields(bad) == ["status.readyReplicas"]


def test_stateful_set_strategy_defaults_only_without_type():
    stored, _ = create(ALL[2], workload())
    assert stored["spec"]["updateStrategy"] == {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}
    stored, _ = create(ALL[2], workload(updateStrategy={"type": "RollingUpdate"}))
    assert stored["spec"]["updateStrategy"] == {"type": "RollingUpdate"}


def test_stateful_set_mounts_its_claims():
    claim = {"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}
    body = workload(volumeClaimTemplates=[claim])
    body["spec"]["template"]["spec"]["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/d"}]
    stored, _ = create(ALL[2], body)
    assert stored["spec"]["volumeClaimTemplates"][0]["status"]["phase"] == "Pending"
    assert "volumes" not in stored["spec"]["template"]["spec"]


def test_claims_replace_volumes_of_their_name_and_are_validated_on_create():
    claim = {"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}
    body = workload(volumeClaimTemplates=[claim])
    body["spec"]["template"]["spec"]["volumes"] = [{"name": "data", "secret": {}}, {"name": "b", "secret": {}}]
    # the claim is the first volume, so the second is b; the secret that would replace data is not validated
    assert fields(refused(create, ALL[2], body)) == ["spec.template.spec.volumes[1].secret.secretName"]
    claim["spec"] = {"accessModes": ["ReadWriteOnce"]}
    body = workload(volumeClaimTemplates=[claim])
    assert fields(refused(create, ALL[2], body)) == ["spec.volumeClaimTemplates[0].spec.resources[storage]"]


def test_every_write_warns_of_claims():
    resources = {"requests": {"storage": "1500m"}}
    claim = {"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": resources}}
    stored, warnings = create(ALL[2], workload(volumeClaimTemplates=[claim]))
    assert [w.partition(":")[0] for w in warnings] == ["spec.volumeClaimTemplates[0].resources.requests[storage]"]
    _, warnings = update(ALL[2], stored, lambda o: o["metadata"].update(labels={"a": "b"}))
    assert [w.partition(":")[0] for w in warnings] == ["spec.volumeClaimTemplates[0].Spec.resources.requests[storage]"]


def test_templates_that_were_never_valid_are_not_validated_again():
    stored, _ = create(ALL[2], workload())
    stored["spec"]["template"]["spec"]["containers"][0]["name"] = "Not A Name"
    got, _ = update(ALL[2], stored, lambda o: o["spec"].update(replicas=3))
    assert got["spec"]["replicas"] == 3
    stored["spec"]["template"]["spec"]["restartPolicy"] = "Never"
    assert fields(refused(update, ALL[2], stored, lambda o: o["spec"].update(replicas=3))) == ["spec.template.spec.restartPolicy"]


@pytest.mark.parametrize(
    ("path", "key", "message"),
    [
        (ALL[0], "deprecated.deployment.rollback.revisionRollbackTo", "failed to parse annotation[{key}]=x as int64: {parse}"),
        (ALL[3], "deprecated.daemonset.template.generation", "{parse}"),
    ],
)
def test_annotations_of_former_fields_are_numbers(path, key, message):
    body = workload()
    body["metadata"]["annotations"] = {key: "x"}
    with pytest.raises(DecodeError) as caught:
        create(path, body)
    assert message.format(key=key, parse='strconv.ParseInt: parsing "x": invalid syntax') in str(caught.value)
    body["metadata"]["annotations"] = {key: "+07"}
    stored, _ = create(path, body)
    assert stored["metadata"]["annotations"][key] == "7"


def test_a_rollback_is_not_to_a_negative_revision():
    body = workload()
    body["metadata"]["annotations"] = {"deprecated.deployment.rollback.revisionRollbackTo": "-1"}
    assert fields(refused(create, ALL[0], body)) == ["spec.rollback.version"]


def test_daemon_set_counts_template_generations():
    stored, _ = create(ALL[3], workload())
    key = "deprecated.daemonset.template.generation"
    assert stored["metadata"]["annotations"] == {key: "1"}

    def change(obj):
        obj["metadata"]["annotations"] = {key: "0"}
        obj["spec"]["template"]["spec"]["containers"][0]["image"] = "nginx:2"

    got, _ = update(ALL[3], stored, change)
    assert got["metadata"]["annotations"][key] == "2" and got["metadata"]["generation"] == 2
    both = workload(updateStrategy={"rollingUpdate": {"maxUnavailable": 1, "maxSurge": 1}})
    assert fields(refused(create, ALL[3], both)) == ["spec.updateStrategy.rollingUpdate.maxSurge"]
    empty = workload(updateStrategy={"rollingUpdate": {"maxUnavailable": 1, "maxSurge": ""}})
    assert refused(create, ALL[3], empty)[0][1].startswith('Invalid value: "": a valid percent string must be')


@pytest.mark.parametrize(("text", "is_number"), [("1", True), ("-1", True), ("+2", True), ("0", False), ("1x", False), ("", False)])
def test_a_text_of_a_number_is_no_percentage_but_counts_as_the_number(text, is_number):
    bounds = {"maxUnavailable": text, "maxSurge": 0}
    for path, name in ((ALL[3], "updateStrategy"), (ALL[0], "strategy")):
        found = fields(refused(create, path, workload(**{name: {"rollingUpdate": bounds}})))
        assert found == [f"spec.{name}.rollingUpdate.maxUnavailable"] * (1 if is_number else 2)


def test_controller_revision_data_is_required_and_immutable():
    path = "apps/v1/controllerrevisions"
    assert fields(refused(create, path, {"metadata": {"name": "r"}, "revision": -1})) == ["revision", "data"]
    text = "Required value: data must be a valid JSON object"
    assert refused(create, path, {"metadata": {"name": "r"}, "data": [1]}) == [("data", text)]
    stored, _ = create(path, {"metadata": {"name": "r"}, "data": {"a": 1}, "revision": 1})
    assert fields(refused(update, path, stored, lambda o: o.update(data={"a": 2}))) == ["data"]


def test_deeply_nested_data_of_a_controller_revision_is_immutable():
    path, new, old = "apps/v1/controllerrevisions", 2.0, 1.0
    for _ in range(900):
        new, old = {"b": 0, "a": new}, {"b": 0, "a": old}
    objects = [{"metadata": {"name": "r", "namespace": "n", "resourceVersion": "1"}, "data": data} for data in (new, old)]
    (found,) = strategy_of(resource(path)).validate_update(Context(now=NOW, namespace="n"), *objects)
    assert found.field == "data" and str(found).endswith('{"a":2,"b":0}' + ',"b":0}' * 899 + ": field is immutable")
