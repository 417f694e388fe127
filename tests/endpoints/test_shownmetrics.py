"""Which metrics are shown, by flags."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from kas.endpoints.shownmetrics import shown
from kas.observe.metrics import Registry, Shown


def settings(**flags):
    texts = dict.fromkeys(("allow_metric_labels_manifest", "show_hidden_metrics_for_version"), "")
    return SimpleNamespace(**{"allow_metric_labels": {}, "disabled_metrics": []} | texts | flags)


def lines(registry: Registry) -> list[str]:
    return [line for line in registry.expose().decode().splitlines() if not line.startswith("#")]


def test_disabled_metrics_are_not_shown():
    registry = Registry(shown(settings(disabled_metrics=["a_total"]), False))
    for name in ("a_total", "b_total"):
        registry.counter(name, "x").inc()
    assert lines(registry) == ["b_total 1"]


def test_other_label_values_are_counted_together():
    registry = Registry(shown(settings(allow_metric_labels={"a_total,verb": "GET,LIST", "b,x": "1"}), False))
    for verb in ("GET", "LIST", "PUT", "POST"):
        registry.counter("a_total", "x", ("code", "verb")).inc(("200", verb))
        registry.histogram("b", "x", ("x",), (1,)).observe((verb,), 0.5)
    assert lines(registry) == [
        'a_total{code="200",verb="GET"} 1', 'a_total{code="200",verb="LIST"} 1', 'a_total{code="200",verb="unexpected"} 2',
        'b_bucket{x="unexpected",le="1"} 4', 'b_bucket{x="unexpected",le="+Inf"} 4', 'b_sum{x="unexpected"} 2', 'b_count{x="unexpected"} 4',
    ]  # fmt: skip


def test_the_manifest_applies_if_the_flag_is_unset(tmp_path):
    manifest = tmp_path / "m.yaml"
    manifest.write_text("a_total,verb: GET,LIST\n")
    expected = Shown(frozenset(), {"a_total": {"verb": frozenset({"GET", "LIST"})}})
    assert shown(settings(allow_metric_labels_manifest=str(manifest)), True) == expected
    given = settings(allow_metric_labels_manifest=str(manifest), allow_metric_labels={"b,x": "1"})
    assert shown(given, True).allowed.keys() == {"b"}


@pytest.mark.parametrize("text", [None, "[", json.dumps({"a,b": 1}), "[]"])
def test_an_unreadable_manifest_is_reported_and_counts_as_empty(tmp_path, caplog, text):
    manifest = tmp_path / "m.yaml"
    if text is not None:
        manifest.write_text(text)
    assert shown(settings(allow_metric_labels_manifest=str(manifest)), True) == Shown()
    assert [str(manifest) in r.getMessage() for r in caplog.records] == [True]
    assert shown(settings(allow_metric_labels_manifest=str(manifest)), False) == Shown() and len(caplog.records) == 1


@pytest.mark.parametrize("version", ["", "1.35"])
def test_hidden_metrics_have_the_value_of_their_successors(version):
    disabled = ["apiserver_request_slo_duration_seconds"]
    registry = Registry(shown(settings(show_hidden_metrics_for_version=version, disabled_metrics=disabled), False))
    registry.gauge("apiserver_flowcontrol_nominal_limit_seats", "x", ("priority_level",)).set(("a",), 7)
    registry.histogram("apiserver_request_sli_duration_seconds", "x", (), (1,))
    hidden = 'apiserver_flowcontrol_request_concurrency_limit{priority_level="a"} 7'
    told = registry.expose().decode()
    assert (hidden in told) is bool(version) and "slo" not in told
    assert ("[ALPHA] (Deprecated since 1.30.0) Nominal number" in told) is bool(version)
