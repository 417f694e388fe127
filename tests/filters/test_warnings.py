"""Warning headers."""

from __future__ import annotations

from kas.filters.warnings import warnings
from kas.request.http import Response
from tests.filters.requests import header, request


def test_warnings_are_quoted_deduplicated_and_bounded():
    f = warnings()
    req, resp = request(), Response(200, [])
    req.warn('say "hi" \\ there')
    req.warn('say "hi" \\ there')
    f.after(req, resp)
    assert header(resp, b"warning") == [b'299 - "say \\"hi\\" \\\\ there"']
    req, resp = request(), Response(200, [])
    for i in range(100):
        req.warn(f"{i}" + "x" * 500)
    f.after(req, resp)
    # Up to eight are sent completely; from the ninth on all are truncated, up to 4096 characters in total.
    assert header(resp, b"warning") == [b'299 - "%d%s"' % (i, b"x" * (256 - len(str(i)))) for i in range(16)]
    req, resp = request(), Response(200, [])
    for text in ("a\tb", "caf\u00e9", "x" * 5000):
        req.warn(text)
    f.after(req, resp)
    assert header(resp, b"warning") == [b'299 - "caf\xc3\xa9"', b'299 - "%s"' % (b"x" * 256)]
