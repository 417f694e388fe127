"""The AlwaysDeny plug-in alone."""

from __future__ import annotations

import pytest

from kas.admission.plugins import always_deny
from tests.admission.admission_fakes import Request, pod, refused


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE", "DELETE", "CONNECT"])
def test_everything_is_refused(server, operation):
    e = refused(Request(server.plugin(always_deny), operation=operation, obj=pod(), old=pod()))
    assert (e.code, e.message) == (403, 'pods "a" is forbidden: admission control is denying all modifications')
