"""Server-side printing through its public functions."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kas.apiextensions import jsonpath
from kas.apiextensions.columns import Printer
from kas.meta.age import human_duration, parse_time, since
from kas.meta.errors import ApiError
from kas.registry import printing as printers
from kas.registry.printing.cells import selector, selector_text
from kas.registry.printing.rows import ROWS

NOW = parse_time("2026-01-01T00:00:00Z")
POD = ("", "v1", "Pod")


def pod(**status):
    return {
        "metadata": {"name": "p", "namespace": "n", "resourceVersion": "7", "creationTimestamp": "2025-12-31T23:00:00Z"},
        "spec": {
            "initContainers": [{"name": "init"}, {"name": "side", "restartPolicy": "Always"}],
            "containers": [{"name": "a"}, {"name": "b"}],
        },
        "status": status,
    }


def row_of(group, kind, obj):
    return printers.table((group, "", kind), [obj], now=NOW)["rows"][0]["cells"]


def cells(obj):
    return printers.table(POD, [obj], now=NOW)["rows"][0]["cells"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "<invalid>"), (-1.5, "0s"), (-0.5, "0s"), (0, "0s"), (119.9, "119s"), (120, "2m"), (121, "2m1s"), (599, "9m59s"), (600, "10m"),
        (10799, "179m"), (10800, "3h"), (10860, "3h1m"), (28800, "8h"), (172799, "47h"), (172800, "2d"), (176400, "2d1h"),
        (691200, "8d"), (63072000, "2y"), (63158400, "2y1d"), (252288000, "8y"), (1e12, "292y"),
    ],
)  # fmt: skip
def test_durations_are_rounded_for_reading(seconds, text):
    assert human_duration(seconds) == text


def test_an_init_container_without_a_name_has_an_empty_name():
    status = {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "started": True, "ready": True}
    one = pod(phase="Pending", initContainerStatuses=[status])
    one["spec"]["initContainers"] = [{"restartPolicy": "Always"}]
    assert cells(one)[1:3] == ["1/3", "Pending"]


def test_an_unset_or_zero_time_has_no_age():
    assert since(None, NOW) == since("", NOW) == since("0001-01-01T00:00:00Z", NOW) == "<unknown>"


def test_microseconds_and_offsets_are_parsed():
    assert parse_time("2026-01-01T01:00:00.500000+01:00") == NOW + 0.5


def test_years_beyond_pythons_are_parsed():
    assert since("0000-01-01T00:00:00Z", NOW) == "292y"


def test_a_controller_without_kind_is_shown_by_its_name():
    owner = {"apiVersion": "v1", "kind": "", "name": "q", "uid": "1", "controller": True}
    row = row_of("apps", "ControllerRevision", {"metadata": {"name": "c", "ownerReferences": [owner]}})
    assert row[1] == "q"
    owner["apiVersion"] = "apps/v1"
    row = row_of("apps", "ControllerRevision", {"metadata": {"name": "c", "ownerReferences": [owner]}})
    assert row[1] == ".apps/q"
    # An empty group adds no dot.
    owner.update(apiVersion="/v1", kind="K")
    row = row_of("apps", "ControllerRevision", {"metadata": {"name": "c", "ownerReferences": [owner]}})
    assert row[1] == "k/q"


def test_every_printed_kind_has_a_row_for_each_column():
    for group, kind in ROWS:
        columns = printers.registered_columns(group, kind)
        assert columns, f"{group}/{kind} has no columns"
        row = row_of(group, kind, {"metadata": {"name": "x"}})
        extra = 1 if kind == "IPAddress" else 0
        assert len(row) == len(columns) + extra, f"{group}/{kind}"


def test_a_sidecar_counts_as_container_and_a_failing_init_container_hides_the_rest():
    running = {"state": {"running": {}}, "ready": True}
    statuses = {
        "phase": "Running",
        "initContainerStatuses": [{"name": "init", "state": {"terminated": {}}}, {"name": "side", "started": True} | running],
        "containerStatuses": [{"name": "a"} | running, {"name": "b"} | running],
    }
    assert cells(pod(**statuses))[1:4] == ["3/3", "Running", "0"]
    statuses["initContainerStatuses"][0] = {"name": "init", "restartCount": 4, "state": {"terminated": {"exitCode": 3}}}
    assert cells(pod(**statuses))[1:4] == ["0/3", "Init:ExitCode:3", "4"]


def test_of_equally_named_init_containers_the_last_decides():
    obj = pod(phase="Running", initContainerStatuses=[{"name": "", "started": True, "ready": True, "state": {"running": {}}}])
    obj["spec"]["initContainers"] = [{"name": "", "restartPolicy": "Always"}, {"name": ""}]
    assert cells(obj)[1:3] == ["0/3", "Init:0/2"]


def test_restarts_show_when_the_last_one_was():
    ended = {"terminated": {"finishedAt": "2025-12-31T23:58:00Z"}}
    status = {"phase": "Running", "containerStatuses": [{"name": "a", "restartCount": 2, "lastState": ended}]}
    assert cells(pod(**status))[3] == "2 (2m ago)"


def test_a_finished_pod_carries_a_row_condition():
    rows = printers.table(POD, [pod(phase="Succeeded"), pod(phase="Running")], now=NOW)["rows"]
    assert [r.get("conditions", [{}])[0].get("reason") for r in rows] == ["Succeeded", None]


def test_any_of_equal_conditions_makes_a_pod_gated_or_ready():
    gated = [{"type": "PodScheduled", "status": "True"}, {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]
    assert cells(pod(phase="Pending", conditions=gated))[2] == "SchedulingGated"
    ended = {"name": "a", "state": {"terminated": {"reason": "Completed"}}}
    going = {"name": "b", "ready": True, "state": {"running": {}}}
    ready = [{"type": "Initialized", "status": "True"}, {"type": "Ready", "status": "False"}, {"type": "Ready", "status": "True"}]
    assert cells(pod(phase="Running", conditions=ready, containerStatuses=[ended, going]))[2] == "Running"
    assert cells(pod(phase="Running", conditions=ready[:2], containerStatuses=[ended, going]))[2] == "NotReady"


def test_the_row_object_follows_include_object():
    obj = pod(phase="Running")
    made = {how: printers.table(POD, [obj], now=NOW, include_object=how)["rows"][0]["object"] for how in ("", "Metadata", "None", "Object")}
    assert made[""] == made["Metadata"] == {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}
    assert made["None"] is None
    assert made["Object"] == {"kind": "Pod", "apiVersion": "v1"} | obj
    with pytest.raises(ApiError, match="must be 'Metadata', 'Object', 'None', or empty") as bad:
        printers.table(POD, [obj], now=NOW, include_object="All")
    assert bad.value.code == 400


def test_metadata_comes_from_the_list_or_the_only_object():
    assert printers.table(POD, [pod()], now=NOW)["metadata"] == {"resourceVersion": "7"}
    listed = {"resourceVersion": "9", "continue": "c", "remainingItemCount": 2}
    assert printers.table(POD, [pod()], now=NOW, list_metadata=listed)["metadata"] == listed


def test_flow_schemas_are_sorted_by_precedence():
    listed = [{"metadata": {"name": n}, "spec": {"matchingPrecedence": p}} for n, p in (("a", 900), ("c", 1), ("b", 1))]
    made = printers.table(("flowcontrol.apiserver.k8s.io", "v1", "FlowSchema"), listed, now=NOW, list_metadata={})
    assert [r["cells"][0] for r in made["rows"]] == ["b", "c", "a"]
    assert [r["object"]["metadata"]["name"] for r in made["rows"]] == ["b", "c", "a"]


def test_kinds_without_printer_show_name_and_creation_time():
    role = {"metadata": {"name": "r", "creationTimestamp": "2025-12-31T23:00:00Z"}}
    made = printers.table(("rbac.authorization.k8s.io", "v1", "Role"), [role], now=NOW, version="v1beta1")
    assert [c["name"] for c in made["columnDefinitions"]] == ["Name", "Created At"]
    assert made["rows"][0]["cells"] == ["r", "2025-12-31T23:00:00Z"]
    assert made["apiVersion"] == made["rows"][0]["object"]["apiVersion"] == "meta.k8s.io/v1beta1"
    assert printers.table(("rbac.authorization.k8s.io", "v1", "Role"), [], now=NOW, list_metadata={})["rows"] is None
    assert printers.table(POD, [], now=NOW, list_metadata={})["rows"] == []


def test_capacities_have_the_default_table():
    made = printers.table(("storage.k8s.io", "v1", "CSIStorageCapacity"), [{"metadata": {"name": "c"}}], now=NOW)
    assert made["rows"][0]["cells"] == ["c", "0001-01-01T00:00:00Z"]


@pytest.mark.parametrize(
    ("group", "kind", "fields", "column", "cell"),
    [
        ("discovery.k8s.io", "EndpointSlice", {"ports": [{"name": "", "port": 1}], "endpoints": [{"addresses": [""]}]}, 3, ""),
        ("discovery.k8s.io", "EndpointSlice", {"ports": [], "endpoints": []}, 3, "<unset>"),
        ("", "Service", {"spec": {"type": "ClusterIP", "externalIPs": [""]}}, 3, ""),
        ("", "Service", {"spec": {"type": "LoadBalancer", "externalIPs": [""]}}, 3, ""),
        ("", "Service", {"spec": {"type": "LoadBalancer"}}, 3, "<pending>"),
        ("flowcontrol.apiserver.k8s.io", "FlowSchema", {"spec": {"distinguisherMethod": {}, "priorityLevelConfiguration": {}}}, 3, ""),
        ("flowcontrol.apiserver.k8s.io", "FlowSchema", {"spec": {"priorityLevelConfiguration": {"name": "p"}}}, 3, "<none>"),
    ],
)  # fmt: skip
def test_an_empty_value_is_printed_as_it_is(group, kind, fields, column, cell):
    row = printers.table((group, "v1", kind), [{"metadata": {"name": "a"}, **fields}], now=NOW)["rows"][0]
    assert row["cells"][column] == cell


def test_headers_can_be_omitted():
    assert printers.table(POD, [pod()], now=NOW, headers=False)["columnDefinitions"] is None


def test_printing_does_not_change_the_object():
    obj = pod(phase="Failed")
    before = copy.deepcopy(obj)
    printers.table(POD, [obj], now=NOW, include_object="Object")
    assert obj == before


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "<none>"),
        ({}, "<none>"),
        ({"matchLabels": {"b": "2", "a": "1"}}, "a=1,b=2"),
        ({"matchExpressions": [{"key": "k", "operator": "In", "values": ["y", "x"]}]}, "k in (x,y)"),
        ({"matchExpressions": [{"key": "k", "operator": "NotIn", "values": ["x"]}, {"key": "j", "operator": "Exists"}]}, "j,k notin (x)"),
        ({"matchExpressions": [{"key": "k", "operator": "DoesNotExist"}]}, "!k"),
        ({"matchExpressions": [{"key": "k", "operator": "In"}]}, "<error>"),
        ({"matchExpressions": [{"key": "k", "operator": "Near"}]}, "<error>"),
    ],
)
def test_selectors_as_text(value, text):
    assert selector(value) == text
    assert selector_text(value) == {"<none>": "", "<error>": "<invalid>"}.get(text, text)


def test_ipv6_endpoints_are_bracketed_and_at_most_three_shown():
    subsets = [{"addresses": [{"ip": "::1"}, {"ip": "10.0.0.1"}], "ports": [{"port": 80}, {"port": 81}]}]
    row = row_of("", "Endpoints", {"metadata": {"name": "e"}, "subsets": subsets})
    assert row[1] == "[::1]:80,10.0.0.1:80,[::1]:81 + 1 more..."


DATES = ["2025-12-31", "", "null", "0001-01-01T00:00:00Z", "2026-01-01T01:00:00+02:00"]
WIDGET = {
    "metadata": {"name": "w", "creationTimestamp": "2025-12-31T23:00:00Z", "annotations": {"a.io/b": "c"}},
    "spec": {
        "size": 3, "ratio": 0.5, "on": True, "tags": ["x", "<y>"], "nothing": None, "big": 1e30, "million": 1234567.5,
        "odd": {"b": 1e-7, "a": 1.0},
        "dates": DATES,
    },
    "status": {"conditions": [{"type": "Ready", "status": "True", "n": 1}, {"type": "Other", "status": "False", "n": 2}]},
}


def printed(obj: dict, *columns: dict) -> dict:
    """Returns the Table of a custom resource."""
    return printers.table(("example.com", "v1", "Widget"), [obj], now=NOW, custom_columns=Printer(columns))



@pytest.mark.parametrize(
    ("kind", "path", "cell"),
    [
        ("integer", ".spec.size", 3),
        ("integer", ".spec.ratio", 0),
        ("integer", ".spec.big", -(1 << 63)),
        ("number", ".spec.size", 3),
        ("boolean", ".spec.on", True),
        ("integer", ".spec.on", None),
        ("string", ".spec.on", "true"),
        ("string", ".spec.size", "3"),
        ("string", ".spec.ratio", "0.5"),
        ("string", ".spec.big", "1e+30"),
        ("string", ".spec.million", "1.2345675e+06"),
        ("number", ".spec.million", 1234567.5),
        ("string", ".spec.tags", '["x","\\u003cy\\u003e"]'),
        ("string", ".spec.tags[0]", "x"),
        ("string", ".spec.tags[-1]", "<y>"),
        ("string", ".spec.tags[7]", None),
        ("string", ".spec.tags[0:1]", "x"),
        ("string", ".spec.tags[*]", "x"),
        ("string", ".spec.tags[0:3]", None),
        ("string", ".spec.tags[1:1]", None),
        ("string", ".spec.tags[-1:]", "<y>"),
        ("string", ".spec.tags[0:2:-1]", None),
        ("string", ".spec.odd", '{"a":1,"b":1e-7}'),
        ("string", ".spec.nothing", "<no value>"),
        ("string", ".spec.missing.deeper", None),
        ("string", ".spec['size']", "3"),
        ("string", ".metadata.annotations.a\\.io/b", "c"),
        ("string", ".metadata.annotations['a\\.io/b']", "c"),
        ("string", ".metadata.annotations['a.io/b']", None),
        ("string", ".spec['missing','size']", "3"),
        ("string", ".['spec.size']", None),
        ("string", "['spec.size']", "3"),
        ("string", '.status.conditions[?(@.type=="Ready")].status', "True"),
        ("string", ".status.conditions[?(@.n>1)].type", "Other"),
        ("string", ".status.conditions[?(@.absent)].type", None),
        ("string", ".status.conditions[?(@.type==1)].type", None),
        ("string", "..status", '{"conditions":[{"n":1,"status":"True","type":"Ready"},{"n":2,"status":"False","type":"Other"}]}'),
        ("string", ".spec.tags[]", "x"),
        ("string", ".spec[*]", None),
        ("string", ".spec.*", "3"),
        ("string", ".", None),
        ("string", ".spec.", None),
        ("string", ".spec.tags.[0]", None),
        ("string", "$.spec.size", "3"),
        ("string", " @.spec .size", "3"),
        ("string", ".spec.a|b", None),
        ("string", ".spec[?(@.a|@.b)]", None),
        ("string", ".spec size", None),
        ("string", ".status.conditions[?(@.type==null)].type", None),
        ("date", ".metadata.creationTimestamp", "60m"),
        ("date", ".metadata.name", "<invalid>"),
        ("date", ".spec.size", None),
        ("date", ".spec.missing", None),
        ("date", ".spec.dates[0]", "<invalid>"),
        ("date", ".spec.dates[1]", "<unknown>"),
        ("date", ".spec.dates[2]", "<unknown>"),
        ("date", ".spec.dates[3]", "<unknown>"),
        ("date", ".spec.dates[4]", "60m"),
    ],
)
def test_cells_of_custom_columns(kind, path, cell):
    made = printed(WIDGET, {"name": "C", "type": kind, "jsonPath": path})
    assert made["rows"][0]["cells"] == ["w", cell]
    text = f"Custom resource definition column (in JSONPath format): {path}"
    assert made["columnDefinitions"][1] == {"name": "C", "type": kind, "format": "", "description": text, "priority": 0}


@pytest.mark.parametrize(
    "path", [".spec.[", ".status.conditions[?(@.type=", '.spec["size"]', "..*", "....a", ".spec[a]", ".spec{", "="]
)
def test_an_invalid_path_ends_the_columns(path):
    """Results of client-go's jsonpath; upstream's table converter stops at the first error."""
    columns = [{"name": n, "type": "string", "jsonPath": p} for n, p in (("A", ".spec.size"), ("B", path), ("C", ".spec.size"))]
    made = printed(WIDGET, *columns)
    assert made["rows"][0]["cells"] == ["w", "3"]
    assert [c["name"] for c in made["columnDefinitions"]] == ["Name", "A"]


@pytest.mark.parametrize(
    ("listed", "path", "cell"),
    [
        ([None, {"b": ["x"]}], ".a[*].b[0]", "x"),
        ([{"b": None}, {"b": ["x"]}], ".a[*].b[0]", "x"),
        ([{"b": []}, {"b": ["x"]}], ".a[*].b[*]", None),  # no elements come last
        ([{"b": ["x"]}, {"b": []}], ".a[*].b[*]", "x"),
        ([{"b": {}}, {"b": ["x"]}], ".a[*].b[*]", None),
        ([{"b": []}, {"b": ["x"]}], ".a[*].b[0]", None),
    ],
)
def test_empty_results_among_others(listed, path, cell):
    """Results of client-go's jsonpath."""
    assert custom_cells({"a": listed}, path) == [cell]


def test_a_custom_resource_without_columns_shows_its_age():
    made = printed(WIDGET)
    assert [(c["name"], c["type"]) for c in made["columnDefinitions"]] == [("Name", "string"), ("Age", "date")]
    assert made["columnDefinitions"][1]["description"].startswith("CreationTimestamp is")
    assert made["rows"][0]["cells"] == ["w", "60m"]
    none = printers.table(("example.com", "v1", "Widget"), [], now=NOW, custom_columns=Printer([]), list_metadata={})
    assert none["rows"] == []


def nested(depth: int) -> dict:
    return {"a": nested(depth - 1)} if depth else {}


def test_numbers_of_custom_columns_are_floats():
    printer = Printer([{"name": "N", "type": "number", "jsonPath": ".n"}])
    assert printer.cells({"n": -(1 << 53) - 1}, NOW)[1] == -(1 << 53)
    assert printer.cells({"n": (1 << 53) - 1}, NOW)[1] == (1 << 53) - 1


def custom_cells(obj: dict, *paths: str) -> list:
    return printed(obj, *({"name": "C", "type": "string", "jsonPath": path} for path in paths))["rows"][0]["cells"][1:]


def test_multiplying_paths_are_bounded():
    """Ten in a row have 10^12 results in 80 levels."""
    assert custom_cells(nested(80), "..a" * 10, ".a" * 79) == [None, None], "what the row may cost is gone"
    assert custom_cells(nested(80), ".a" * 80, "..a..a", "..a" * 10)[0] == "{}"
    assert custom_cells({"a": [1]}, ".a" + "[0,0]" * 40, ".a[*,*]") == [None, "1"]
    wide = {"l": [{"a": str(i)} for i in range(20_000)]}
    assert custom_cells(wide, *[".l[*].a"] * 5, '.l[?(@.a=="19999")].a') == ["0"] * 5 + ["19999"]
    assert custom_cells(wide, *[".l[*].a"] * 50)[-1] is None


def test_a_row_is_not_much_longer_than_its_object():
    shown = custom_cells({"spec": "x" * 20_000}, *[".spec"] * 100)
    assert 4 <= sum(cell is not None for cell in shown) <= 6 and shown[0] == "x" * 20_000
    assert None not in custom_cells({"spec": "x" * 100}, *[".spec"] * 100)


def test_the_cache_of_parsed_paths_is_bounded():
    assert custom_cells({"a": "1"}, ".a", ".a" * 100_000, ".a") == ["1", None, None]
    assert custom_cells({"a": ["1"]}, ".a[0]", ".a" + "[?(@" * 60 + ")]" * 60)[0] == "1"


@pytest.mark.parametrize(
    ("paths", "costly"),
    [((".a.b[0]",) * 20, False), (('.c[?(@.t=="x")].s',) * 8, False), ((".c[*].s",) * 9, True), (("..a",), True), ((".a['b','c']",), True),
     ((".a",) * 70, True), ((".[",), False)],
)  # fmt: skip
def test_which_columns_count_as_long_work(paths, costly):
    assert Printer([{"name": "C", "type": "string", "jsonPath": path} for path in paths]).costly is costly


JSON = st.recursive(st.none() | st.text("ab"), lambda x: st.lists(x) | st.dictionaries(st.text("ab"), x))


@given(st.text(alphabet=".[]'\"?(@)=<>*:,ab01-\\\\ ", max_size=20), JSON)
def test_paths_raise_only_their_own_error(path, value):
    try:
        jsonpath.Path(path)(value)
    except jsonpath.PathError:
        return
