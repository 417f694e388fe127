"""``--aggregator-reject-forwarding-redirect=false``: a backend's redirect is passed on to the client. Otherwise: ``test_proxy.py``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kas.testing.server import KasServer
from tests.aggregator.backend import Reply


@pytest.fixture(scope="module")
def server(tmp_path_factory, front) -> Iterator[KasServer]:
    certificate, key = front.issue("aggregator")
    flags = (f"--proxy-client-cert-file={certificate}", f"--proxy-client-key-file={key}", "--aggregator-reject-forwarding-redirect=false")
    with KasServer(tmp_path_factory.mktemp("kas"), "--unsafe-no-fsync", "--controllers=none", *flags) as running:
        yield running


def test_a_redirect_is_passed_on(register):
    found = register("redirect")
    other = f"https://127.0.0.1:{found.backend.port}/other"
    found.backend.replies[f"{found.backend.base}/things/r"] = Reply(302, b"", [("Location", other)])
    answer = found.call.session.get(found.call.server.url + f"{found.backend.base}/things/r", allow_redirects=False, timeout=60)
    assert (answer.status_code, answer.headers["Location"]) == (302, other) and not found.backend.seen("/other")
