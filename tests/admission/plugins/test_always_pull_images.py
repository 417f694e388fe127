"""The AlwaysPullImages plug-in alone."""

from __future__ import annotations

from kas.admission.plugins import always_pull_images
from tests.admission.admission_fakes import Request, pod


def test_always_pull_images(server):
    plugin = server.plugin(always_pull_images)
    assert Request(plugin, obj=pod()).run()["spec"]["containers"][0]["imagePullPolicy"] == "Always"
    same = Request(plugin, operation="UPDATE", obj=pod(), old=pod()).run()
    assert "imagePullPolicy" not in same["spec"]["containers"][0]
