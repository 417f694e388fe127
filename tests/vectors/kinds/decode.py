"""decode: bodies of built-in kinds as a create decodes them: the object as JSON, the warnings, or the text of the 400.

Recorded without defaults, and without the scheme's own texts: the real decoder used client-go's scheme.
"""

from __future__ import annotations

import pytest

from kas.endpoints import codec
from kas.endpoints.bodyerrors import BodyError
from kas.request.http import Request
from kas.types.scheme import BUILTIN, encode_json


def check(vector: dict, group: list[dict]) -> None:
    given, want = vector["in"], vector["out"]
    kind = BUILTIN.kind(given["group"], given["version"], given["kind"])
    request = Request("POST", "/", "", [(b"content-type", given["type"].encode())], given["body"].encode())
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(codec, "apply_defaults", lambda kind, obj, filled=False: None)
        patched.setattr(kind, "plan", (lambda obj: None, kind.type, None, None))
        try:
            obj = codec.decode_body(request, kind, field_validation=given["fieldValidation"])
        except BodyError as e:
            assert e.message == want["error"]
            return
    assert want["error"] is None
    assert encode_json(kind.type, obj).decode() == want["json"]
    assert list(request.warnings or ()) == want["warnings"]
