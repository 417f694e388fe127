"""Regular expressions that are compiled at their first use."""

import importlib
import re
import sys

import pytest

from kas.meta.patterns import compiled_later, later


def test_a_lazy_pattern_equals_a_compiled_one():
    for made in (re.compile(r"(?P<n>a+)(b)?"), later(r"(?P<n>a+)(b)?")):
        assert made.fullmatch("aab")["n"] == "aa" and made.fullmatch("c") is None
        assert (made.sub("-", "xaaby"), made.findall("ab a")) == ("x-y", [("a", "b"), ("a", "")])
        assert (made.groups, made.pattern) == (2, r"(?P<n>a+)(b)?")
    assert later("A", re.IGNORECASE).match("a") and later(rb"\d").search(b"x1")


def test_it_is_compiled_at_the_first_use_and_once(monkeypatch):
    compiled = []
    monkeypatch.setattr(re, "compile", lambda *a, compile=re.compile: compiled.append(a) or compile(*a))
    made = later("a", re.ASCII)
    assert compiled == []
    assert [bool(made.match(text)) for text in "aba"] == [True, False, True]
    assert compiled == [("a", re.ASCII)]
    wrong = later("(")
    with pytest.raises(re.error):
        wrong.match("a")


def test_patterns_of_kas_are_lazy_and_others_are_not(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    package = tmp_path / "latepatterns"
    package.mkdir()
    (package / "__init__.py").write_text("import re, besides\nclass Names:\n    FOUND = re.compile('(')\nONE = re.compile('a')\n")
    (tmp_path / "besides.py").write_text("import re\nONE = re.compile('a')\n")
    before = re.compile
    with compiled_later("latepatterns"):
        late = importlib.import_module("latepatterns")
    assert re.compile is before
    assert (type(sys.modules["besides"].ONE), type(late.ONE) is re.Pattern, bool(late.ONE.match("a"))) == (re.Pattern, False, True)
    with pytest.raises(re.error):
        late.Names.FOUND.match("")
    with pytest.raises(ZeroDivisionError), compiled_later("latepatterns"):
        _ = 1 / 0
    assert re.compile is before
