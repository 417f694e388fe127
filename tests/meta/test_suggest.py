"""Suggestions for misspelt words."""

from __future__ import annotations

from kas.meta.suggest import did_you_mean


def test_the_nearest_word_is_offered_as_it_is_written():
    assert did_you_mean("podsecurty", ["PodSecurity", "PodNodeSelector"]) == " (did you mean PodSecurity?)"
    assert did_you_mean("secure-prt", ["secure-port", "bind-address"], "--") == " (did you mean --secure-port?)"


def test_dissimilar_words_get_no_suggestion():
    assert did_you_mean("dance", ["node", "secure-port"]) == ""
    assert did_you_mean("", ["a"]) == ""
    assert did_you_mean("a" * 101, ["a" * 100]) == ""  # comparing takes quadratic time
