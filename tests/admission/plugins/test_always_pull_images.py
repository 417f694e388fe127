"""The AlwaysPullImages plug-in alone."""

from __future__ import annotations

import pytest

from kas.admission.plugins import always_pull_images
from kas.meta.errors import ApiError
from tests.admission.admission_fakes import Request, pod


def test_always_pull_images(server):
    plugin = server.plugin(always_pull_images)
    assert Request(plugin, obj=pod()).run()["spec"]["containers"][0]["imagePullPolicy"] == "Always"
    same = Request(plugin, operation="UPDATE", obj=pod(), old=pod()).run()
    assert "imagePullPolicy" not in same["spec"]["containers"][0]


def test_a_policy_changed_after_mutation_is_refused(server):
    """For example by a webhook: mutating admission does not run again."""
    plugin = server.plugin(always_pull_images)
    seen = Request(plugin, obj=pod("p")).attributes
    seen.obj["spec"]["containers"] = [{"name": name, "image": name, "imagePullPolicy": "Never"} for name in ("a", "b")]
    with pytest.raises(ApiError) as refused:
        plugin.validate(seen)
    one = 'pods "p" is forbidden: spec.containers[{}].imagePullPolicy: Unsupported value: "Never": supported values: "Always"'
    assert (refused.value.code, refused.value.message) == (500, f"[{one.format(0)}, {one.format(1)}]")
