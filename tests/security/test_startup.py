"""Recorded refusals to start, of the flags about who asks and how TLS is spoken: the text that is printed, or that there is none.

Only what flags and the files they name say by themselves.
"""

from __future__ import annotations

import re

import pytest

from kas.config.options import read
from tests import need
from tests.security.files import Files
from tests.security.test_replay import SETUPS
from tests.vectors import files

ABOUT = re.compile(r"startup/flags/(client-ca|requestheader|tls|tokens-(missing|empty)|mode|hsts)")
CASES = [case for case in files.lines("security/startup") if ABOUT.match(case["id"])]
PARAMS = [pytest.param(c, id=c["id"][14:]) for c in CASES] or [pytest.param(None, id="none", marks=need.missing("no recorded refusals"))]


@pytest.mark.parametrize("case", PARAMS)
def test_refusal(case, tmp_path):
    base = Files(tmp_path)
    for name, what in {**SETUPS["base"]["files"], **(case["in"].get("files") or {})}.items():
        base.put(name, what, lambda text: text.replace("${dir}", str(tmp_path)))
    _, errors = read([flag.replace("${dir}", str(tmp_path)) for flag in case["in"]["flags"]])
    said = errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]" if errors else ""
    # The recorded texts have "<ns>" for "none", the name of a namespace that a case has not.
    assert said.replace(str(tmp_path), "<dir>").replace("none", "<ns>") == case["out"].get("error", "").replace("none", "<ns>")
