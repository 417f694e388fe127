"""The LimitRanger plug-in alone."""

from __future__ import annotations

import pytest

from kas.admission.plugins import limit_ranger
from kas.meta.errors import ApiError
from kas.meta.offload import POOL
from tests.admission.admission_fakes import FakeServer, Request, pod, refused


def limits(server: FakeServer, *items: dict, name: str = "l") -> limit_ranger.Plugin:
    server.add("", "limitranges", {"metadata": {"name": name, "namespace": "ns1"}, "spec": {"limits": list(items)}})
    return server.plugin(limit_ranger)


def test_defaults_are_filled_in_and_annotated(server):
    plugin = limits(server, {"type": "Container", "default": {"cpu": "500m"}, "defaultRequest": {"cpu": "200m", "memory": "64Mi"}})
    out = Request(plugin, obj=pod(initContainers=[{"name": "i", "resources": {"requests": {"cpu": "1", "memory": "1"}}}])).run()
    assert out["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "200m", "memory": "64Mi"}, "limits": {"cpu": "500m"}}
    assert out["metadata"]["annotations"] == {
        "kubernetes.io/limit-ranger": "LimitRanger plugin set: cpu, memory request for container c; cpu limit for container c; "
        "cpu limit for init container i"
    }


@pytest.mark.parametrize(
    ("item", "resources", "why"),
    [
        ({"min": {"cpu": "100m"}}, {}, "minimum cpu usage per Container is 100m.  No request is specified"),
        ({"min": {"cpu": "100m"}}, {"requests": {"cpu": "50m"}}, "minimum cpu usage per Container is 100m, but request is 50m"),
        ({"max": {"cpu": "1"}}, {"requests": {"cpu": "1"}}, "maximum cpu usage per Container is 1.  No limit is specified"),
        ({"max": {"cpu": "1"}}, {"limits": {"cpu": "1500m"}}, "maximum cpu usage per Container is 1, but limit is 1500m"),
        ({"maxLimitRequestRatio": {"cpu": "2"}}, {"requests": {"cpu": "1"}, "limits": {"cpu": "3"}},
         "cpu max limit to request ratio per Container is 2, but provided ratio is 3.000000"),
        ({"maxLimitRequestRatio": {"cpu": "2"}}, {"limits": {"cpu": "3"}},
         "cpu max limit to request ratio per Container is 2, but no request is specified or request is 0"),
    ],
)  # fmt: skip
def test_bounds(server, item, resources, why):
    plugin = limits(server, {"type": "Container", **item})
    e = refused(Request(plugin, obj=pod(containers=[{"name": "c", "resources": resources}])))
    assert (e.code, e.message) == (403, f'pods "a" is forbidden: {why}')


def test_all_errors_are_reported_once(server):
    plugin = limits(server, {"type": "Container", "max": {"cpu": "1", "memory": "1Mi"}})
    bad = {"limits": {"cpu": "2", "memory": "2Mi"}}
    e = refused(Request(plugin, obj=pod(containers=[{"name": "c", "resources": bad}, {"name": "d", "resources": bad}])))
    assert e.message.endswith(
        "[maximum cpu usage per Container is 1, but limit is 2, maximum memory usage per Container is 1Mi, but limit is 2Mi]"
    )


@pytest.mark.parametrize(("names", "containers", "told"), [(1, 3000, 1), (40, 40, 40), (1200, 1, 1001), (1200, 1200, 1001)])
def test_errors_of_missing_resources_are_bounded(server, names, containers, told):
    """A ratio of a resource is violated in every container: the number of errors is not a product of both."""
    ratios = {f"example.com/r{i}": "1" for i in range(names)}
    plugin = limits(server, {"type": "Container", "maxLimitRequestRatio": ratios})
    message = refused(Request(plugin, obj=pod(containers=[{"name": f"c{i}"} for i in range(containers)]))).message
    assert message.count("no request is specified") == min(told, 1000)
    assert message.endswith(", and more]") is (told > 1000)


def test_many_limits_are_checked_off_the_loop(server):
    most = {"type": "Container", "default": {"cpu": "1"}, "max": {"cpu": "2"}}
    for i in range(limit_ranger.MANY // 2):
        plugin = limits(server, most, name=f"l{i}")
    before = POOL.done
    assert "limits" in Request(plugin, obj=pod()).run()["spec"]["containers"][0]["resources"]
    assert POOL.done == before  # one container is too few
    two = [{"name": "c"}, {"name": "d"}]
    assert Request(plugin, obj=pod(containers=two)).run()["spec"]["containers"][1]["resources"]["limits"] == {"cpu": "1"}
    assert POOL.done == before + 2
    e = refused(Request(plugin, obj=pod(containers=[*two, {"name": "e", "resources": {"limits": {"cpu": "3"}}}])))
    assert (e.code, e.message) == (403, 'pods "a" is forbidden: maximum cpu usage per Container is 2, but limit is 3')


def test_pod_limits_count_sidecars_and_the_init_peak(server):
    plugin = limits(server, {"type": "Pod", "max": {"cpu": "3"}})

    def need(cpu):
        return {"limits": {"cpu": cpu}}

    sidecar = {"name": "s", "restartPolicy": "Always", "resources": need("1")}
    fits = pod(containers=[{"name": "c", "resources": need("2")}], initContainers=[sidecar, {"name": "i", "resources": need("2")}])
    Request(plugin, obj=fits).run()
    over = pod(containers=[{"name": "c", "resources": need("2")}], initContainers=[sidecar, {"name": "i", "resources": need("2500m")}])
    assert "maximum cpu usage per Pod is 3, but limit is 3500m" in refused(Request(plugin, obj=over)).message


def test_objects_being_deleted_are_not_checked(server):
    plugin = limits(server, {"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}})
    claim = {"metadata": {"name": "c", "namespace": "ns1"}, "spec": {"resources": {"requests": {"storage": "2Gi"}}}}
    e = refused(Request(plugin, resource="persistentvolumeclaims", obj=claim))
    assert "maximum storage usage per PersistentVolumeClaim is 1Gi, but request is 2Gi" in e.message
    old = {**claim, "metadata": {**claim["metadata"], "deletionTimestamp": "x"}}
    Request(plugin, operation="UPDATE", resource="persistentvolumeclaims", obj=claim, old=old).run()


def test_changed_limits_apply(server):
    plugin = limits(server, {"type": "Container", "max": {"cpu": "1"}})
    refused(Request(plugin, obj=pod()))
    server.store.drop("/registry/limitranges/ns1/l")
    Request(plugin, obj=pod()).run()
    limits(server, {"type": "Container", "max": {"cpu": "1"}}, name="m")
    refused(Request(plugin, obj=pod()))


def test_pod_limits_sum_huge_pages(server):
    limits = [{"type": "Pod", "min": {"hugepages-2Mi": "4Mi", "cpu": "1"}}]
    server.add("", "limitranges", {"metadata": {"name": "l", "namespace": "ns1"}, "spec": {"limits": limits}})
    whole = pod(resources={"requests": {"cpu": "2", "hugepages-2Mi": "8Mi"}})
    with pytest.raises(ApiError) as e:
        Request(server.plugin(limit_ranger), obj=whole).run()
    assert e.value.message.endswith("minimum hugepages-2Mi usage per Pod is 4Mi.  No request is specified")


# Type of limit, bound and its value; containers with requests and limits, the same for init containers; whether that fits.
ROWS = [
    ("Container", "min", "50", 1, "100", None, [], True), ("Container", "min", "50", 1, "100", "200", [], True),
    ("Container", "min", "50", 2, "60", "100", [], True), ("Container", "min", "50", 1, "40", None, [], False),
    ("Container", "min", "50", 1, "40", "200", [], False), ("Container", "min", "50", 1, None, None, [], False),
    ("Container", "min", "50", 2, "40", None, [], False), ("Container", "max", "2", 1, "500m", "1", [], True),
    ("Container", "max", "2", 1, None, "1", [], True), ("Container", "max", "2", 1, "500m", "2500m", [], False),
    ("Container", "max", "2", 1, None, "2500m", [], False), ("Container", "max", "2", 1, None, None, [], False),
    ("Container", "max", "600", 2, "250", "500", [], True), ("Container", "max", "1", 2, None, "2", [], False),
    ("Container", "maxLimitRequestRatio", "1.5", 1, "500m", "750m", [], True),
    ("Container", "maxLimitRequestRatio", "1", 1, "1250m", "2500m", [], False),
    ("Pod", "min", "100", 2, "75", None, [], True), ("Pod", "min", "100", 2, "75", "200", [], True),
    ("Pod", "min", "100", 2, "60", None, [("100", None)], True), ("Pod", "min", "100", 2, "60", "100", [("80", "100")], True),
    ("Pod", "min", "100", 1, "75", None, [], False), ("Pod", "min", "100", 1, "75", "200", [], False),
    ("Pod", "max", "2", 2, "500m", "1", [], True), ("Pod", "max", "2", 2, None, "1", [], True),
    ("Pod", "max", "2", 2, "500m", "1", [("1", "2"), ("1", "1")], True),
    ("Pod", "max", "2", 2, None, "1", [(None, "2"), (None, "2")], True),
    ("Pod", "max", "2", 3, "500m", "1", [], False), ("Pod", "max", "2", 3, None, "1", [], False),
    ("Pod", "max", "1", 1, None, "500m", [(None, "1.5")], False),
    ("Pod", "maxLimitRequestRatio", "1.5", 3, "300", "450", [], True), ("Pod", "maxLimitRequestRatio", "1.5", 3, "250", "500", [], False),
]  # fmt: skip


@pytest.mark.parametrize("resource", ["cpu", "memory", "ephemeral-storage"])
@pytest.mark.parametrize(("sort", "bound", "value", "count", "requests", "most", "inits", "fits"), ROWS)
def test_upstreams_table(server, resource, sort, bound, value, count, requests, most, inits, fits):
    """Each of its rows, for some of the resources."""

    def container(name, requests, most):
        given = {"requests": requests, "limits": most}
        return {"name": name, "resources": {field: {resource: amount} for field, amount in given.items() if amount}}

    spec = {"containers": [container(f"c{i}", requests, most) for i in range(count)]}
    spec["initContainers"] = [container(f"i{i}", *init) for i, init in enumerate(inits)]
    request = Request(limits(server, {"type": sort, bound: {resource: value}}), obj=pod(**spec))
    if fits:
        request.run()
    else:
        assert f" per {sort} is " in refused(request).message
