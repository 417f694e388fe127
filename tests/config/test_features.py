"""Feature gates: names, locks, classes, components."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from kas.config import features
from kas.config.features import enabled, problems


def test_defaults_are_upstreams():
    on = enabled({})
    assert "APIServerIdentity" in on and "APIServingWithRoutine" not in on


def test_gates_of_libraries_are_known_too():
    """The gates of component-base and client-go are upstream's, too; nothing here reads them."""
    on = enabled({"": ["ContextualLogging=false", "ClientsPreferCBOR=true", "InOrderInformers=true"]})
    assert "ContextualLogging" not in on and "WatchListClient" in on and "LoggingBetaOptions" in on
    assert features.without_effect({"": ["ContextualLogging=false", "LoggingAlphaOptions=true"]}) == ["ContextualLogging"]


def test_single_gates_and_classes_can_be_switched():
    assert "GenericWorkload" in enabled({"": ["GenericWorkload=true"]})
    assert "GenericWorkload" in enabled({"kube": ["AllAlpha=true"]})
    assert "HPAScaleToZero" not in enabled({"": ["HPAScaleToZero=false", "AllAlpha=true"]})
    beta = enabled({"": ["AllBeta=false"]})
    assert "APIServerIdentity" not in beta and "APIServerTracing" in beta
    assert "APIServerTracing" in enabled({"": ["APIServerTracing=true"]})  # locked to the requested value


def test_all_gates_that_need_another_are_reported():
    assert problems({"": ["AtomicFIFO=false"]}) == [
        f"StaleControllerConsistency{kind} is enabled, but depends on features that are disabled: [AtomicFIFO]"
        for kind in ("DaemonSet", "Job", "ReplicaSet", "StatefulSet")
    ]


def test_gates_to_be_removed_are_reported():
    assert features.leaving({"": ["DRAPrioritizedList=true", "WatchList=true"]}) == [
        "setting GA feature gate. It will be removed in a future release: DRAPrioritizedList=true",
    ]
    assert features.leaving({"": ["KMSv1=false", "AllAlpha=false"]}) == [
        "setting deprecated feature gate. It will be removed in a future release: KMSv1=false"
    ]


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ("Nope=true", "unrecognized feature gate: Nope"),
        ("WatchLst=true", "unrecognized feature gate: WatchLst (did you mean WatchList?)"),
        ("APIServerTracing=false", "cannot set feature gate APIServerTracing to false, feature is locked to true"),
        ("InOrderInformers=false", "cannot set feature gate InOrderInformers to false, feature is locked to true"),
        ("APIServerTracing", "missing bool value for APIServerTracing"),
        ("APIServerTracing=yes", 'invalid value of APIServerTracing=yes, err: strconv.ParseBool: parsing "yes": invalid syntax'),
        ("APIServerIdentity=false",
         "UnknownVersionInteroperabilityProxy is enabled, but depends on features that are disabled: [APIServerIdentity]"),
        ("GangScheduling=true", "GangScheduling is enabled, but depends on features that are disabled: [GenericWorkload]"),
    ],
)  # fmt: skip
def test_invalid_settings_are_refused(entry, says):
    assert problems({"": [entry]}) == [says]
    with pytest.raises(ValueError, match=re.escape(says)):
        enabled({"": [entry]})


def test_gates_can_be_enabled_with_those_they_need():
    for name, needs in features.NEEDS.items():
        others = {*needs, *(deeper for need in needs for deeper in features.NEEDS.get(need, ()))}
        assert name in enabled({"": [f"{gate}=true" for gate in (name, *others)]})
        assert all(gate in features.known() and not features.known()[gate].locked for gate in (name, *needs))
    assert "GangScheduling" in enabled({"": ["AllAlpha=true"]}) and "APIServerIdentity" not in enabled({"": ["AllBeta=false"]})


def test_all_problems_are_reported():
    assert len(problems({"": ["A=true", "B"], "etcd": ["C=true"]})) == 3


def test_only_changed_gates_are_reported_as_without_effect():
    given = {"": ["WatchList=true", "APIServingWithRoutine=true", "AllBeta=true", "GenericWorkload=true", "SchedulerAsyncPreemption=true"]}
    assert features.without_effect(given) == ["APIServingWithRoutine"]


def test_documented_gates_are_read_somewhere():
    root = Path(__file__).parents[2]
    resources = json.loads((root / "kas/types/tables/resources.json").read_text())["resources"]
    bootstrap = json.loads((root / "kas/auth/tables/bootstrap.json").read_text())
    by_table = {r.get("featureGate") for r in resources} | {row["gate"] for key in ("gated", "gatedByDefault") for row in bootstrap[key]}
    source = "".join(p.read_text() for p in (root / "kas").rglob("*.py") if p.name != "features.py")
    for name in features.GOVERNED:
        assert name in features.known() and not features.known()[name].locked
        asked_for = (
            f'enabled("{name}")', f'"{name}" in self.features', f'("{name}", "/', f'-controller": "{name}"', f'"{name}" in features.',
            f'"{name}" in gates', f'"{name}" not in gates',
        )  # fmt: skip
        assert name in by_table or any(text in source for text in asked_for), name
    asked = set(re.findall(r'features\.DEFAULT\.enabled\("(\w+)"\)|"(\w+)" (?:not )?in (?:self\.)?features\b', source))
    settable = {name for name, gate in features.known().items() if not gate.locked}
    assert ({name for pair in asked for name in pair} | by_table) & settable <= features.effective()


def test_gates_can_be_overridden_for_a_while():
    gate = features.FeatureGate()
    assert gate.enabled("APIServerIdentity")
    with gate.overridden(APIServerIdentity=False, GenericWorkload=True):
        assert not gate.enabled("APIServerIdentity") and gate.enabled("GenericWorkload")
    assert gate.enabled("APIServerIdentity") and not gate.enabled("GenericWorkload")
    with pytest.raises(KeyError):
        gate.enabled("Nope")


def test_the_effect_of_a_gate_is_documented_once():
    assert not features.GOVERNED.keys() & features.NOT_GOVERNED.keys()
