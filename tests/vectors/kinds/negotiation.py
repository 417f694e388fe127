"""Content negotiation by the Accept header."""

from kas.meta.errors import ApiError
from kas.request.negotiation import negotiate


def check(vector, group):
    want = vector["out"]
    try:
        got = negotiate(vector["in"]["accept"])
    except ApiError as e:
        assert e.code == 406
        assert e.message == want["error"]
        return
    assert want["error"] is None
    assert got.media_type == want["accepted"]
    assert got.pretty == want["pretty"]
    assert got.stream == want["streamFraming"]
    assert got.use_server_version == want["useServerVersion"]
    convert = f"{got.convert.group}/{got.convert.version}, Kind={got.convert.kind}" if got.convert else None
    assert convert == want.get("convert")
