"""The plug-ins, which are enabled by default, and the arguments of their constructors."""

from __future__ import annotations

import logging
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest

import kas.admission.plugins
from kas.admission import configuration, order
from kas.admission.initializer import Initializer
from kas.config.options import Options
from kas.meta.inject import make, wants
from tests.admission.admission_fakes import FakeServer


def test_every_plugin_in_the_order_has_a_module():
    assert [import_module(order.module(name)).Plugin.name for name in order.ORDER] == list(order.ORDER)
    modules = {p.stem for p in Path(kas.admission.plugins.__file__).parent.glob("[a-z]*.py")}
    assert modules == {order.module(name).rpartition(".")[2] for name in order.ORDER}
    assert not order.NO_EFFECT.keys() & set(order.ORDER)


def test_plugins_enabled_by_default_and_by_flags():
    assert set(order.enabled([], [])) == order.DEFAULT_ON | order.ALWAYS
    assert "RBACEscalation" in order.enabled([], list(order.DEFAULT_ON))
    assert order.enabled(["AlwaysDeny", "PodPreset"], ["ResourceQuota"])[-1] == "AlwaysDeny"
    with pytest.raises(ValueError, match="unknown"):
        order.enabled(["Nonsense"], [])
    with pytest.raises(ValueError, match="overlapped"):
        order.enabled(["PodPreset"], ["PodPreset"])


def test_all_errors_in_names_are_reported():
    assert order.wrong_names(["A", "PodPreset"], ["PodPreset", "RBACEscalation"]) == [
        'enable-admission-plugins plugin "A" is unknown', 'disable-admission-plugins plugin "RBACEscalation" is unknown',
        "[PodPreset] in enable-admission-plugins and disable-admission-plugins overlapped",
    ]  # fmt: skip


def test_a_suggestion_for_a_misspelt_plugin():
    assert order.wrong_names(["PodSecurty"], []) == [
        'enable-admission-plugins plugin "PodSecurty" is unknown (did you mean PodSecurity?)',
    ]  # fmt: skip


def test_a_flag_may_name_all_enabled_plugins():
    named = Options({"admission-control": ["ResourceQuota", "NamespaceLifecycle", "AlwaysAdmit"]})
    always = ["RBACEscalation", "DRAAdminAccess", "DRAClaimStatus", "PodCertificateSigning", "PolicyParamsAuthorization"]
    assert order.enabled(*order.wanted(named)) == ["NamespaceLifecycle", *always, "ResourceQuota"]
    assert order.problems(named) == []
    both = Options({"admission-control": ["A"], "enable-admission-plugins": ["AlwaysDeny"]})
    assert order.problems(both) == [
        "admission-control and enable-admission-plugins/disable-admission-plugins flags are mutually exclusive",
        'admission-control plugin "A" is unknown',
    ]  # fmt: skip
    assert order.wanted(Options({"enable-admission-plugins": ["AlwaysDeny"]})) == (["AlwaysDeny"], [])


def test_constructors_take_only_arguments_that_exist():
    known = {*Initializer._fields, "section", "clock"}
    assert {name: extra for name in order.ORDER if (extra := set(wants(import_module(order.module(name)).Plugin)) - known)} == {}


def test_plugins_with_a_section_get_their_part_of_the_file():
    assert {n for n in order.ORDER if "section" in wants(import_module(order.module(n)).Plugin)} == configuration.TAKERS
    # And report errors in it before there is a server.
    assert {n for n in order.ORDER if hasattr(import_module(order.module(n)).Plugin, "configured")} == configuration.TAKERS


def test_a_missing_module_is_an_error(monkeypatch):
    monkeypatch.setitem(order.MODULES, "Priority", "nowhere")
    with pytest.raises(ImportError):
        order.build(FakeServer().initializer, [], [])


@pytest.mark.parametrize("name", sorted(order.NO_EFFECT))
def test_plugins_without_effect_are_reported_once(caplog, name):
    server = FakeServer()
    with caplog.at_level(logging.WARNING, "kas"):
        assert name not in [p.name for p in order.build(server.initializer, [name], [])]
        order.build(server.initializer, [name], [], speak=False)
        order.build(server.initializer, [], [name])
    assert [r.getMessage() for r in caplog.records] == [f"--enable-admission-plugins: {name} has no effect: {order.NO_EFFECT[name]}"]


def test_plugins_without_effect_are_in_the_readme():
    text = (Path(__file__).parents[2] / "README.md").read_text()
    assert [name for name in order.NO_EFFECT if name not in text] == []


def test_a_constructor_gets_the_arguments_it_names():
    class Wants:
        def __init__(self, b: int, c: int = 3) -> None:
            self.got = b, c

    assert make(Wants, {"a": 1, "b": 2}).got == (2, 3)
    assert make(SimpleNamespace, {"a": 1}).__dict__ == {}
    with pytest.raises(TypeError):
        make(Wants, {"a": 1})
