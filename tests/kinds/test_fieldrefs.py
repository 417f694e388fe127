"""Field paths of the downward API."""

from __future__ import annotations

import pytest

from kas.kinds.core.pod.fieldrefs import object_field

ALLOWED = ("metadata.name", "metadata.labels")


@pytest.mark.parametrize(
    ("label", "why"),
    [
        ("metadata.name", ""), ("metadata.labels", ""), ("metadata.labels['a']", ""), ("metadata.annotations['A/b']", ""),
        ("metadata.annotations['a']['b']", "name part must consist of"), ("metadata.labels['']", "name part must be non-empty"),
        ("metadata.name['a']", "field label does not support subscript: metadata.name['a']"),
        ("['a']", "field label not supported: ['a']"), ("metadata.labels['a'", "field label not supported: metadata.labels['a'"),
        ("metadata.labels']", "field label not supported: metadata.labels']"), ("spec.nodeName", "supported values"),
        ("['" * 500_000, "field label not supported: ['['"), ("a['" * 300_000 + "']", "field label does not support subscript: a['a['"),
    ],
    ids=lambda text: text[:40],
)  # fmt: skip
def test_paths(label, why):
    """For the last two, a backtracking pattern took quadratic time."""
    errors = object_field({"apiVersion": "v1", "fieldPath": label}, ALLOWED, "x")
    assert bool(errors) == bool(why)
    assert why in "".join(map(str, errors))
