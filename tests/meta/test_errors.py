"""The length of a refusal is bounded, whatever it reports."""

from __future__ import annotations

from kas.meta import errors, field


def test_a_few_errors_are_reported_completely():
    found = [field.required("spec.a"), field.invalid("spec.b", "x", "is wrong"), field.required("spec.a")]
    status = errors.invalid("apps", "Deployment", "d", found).status()
    assert status["message"] == 'Deployment.apps "d" is invalid: [spec.a: Required value, spec.b: Invalid value: "x": is wrong]'
    assert len(status["details"]["causes"]) == 3


def test_many_errors_end_with_the_number_of_others():
    found = [field.required(f"spec[{i}]") for i in range(5000)]
    e = errors.invalid("", "Pod", "p", found)
    assert len(e.details["causes"]) == errors.MAX_CAUSES
    assert e.message.endswith(f", and {5000 - errors.MAX_CAUSES} more]")


def test_errors_that_each_print_everything_are_not_all_printed():
    everything = ["x" * 1000] * 1000
    e = errors.invalid("", "Pod", "p", [field.invalid(f"spec[{i}]", everything, "is wrong") for i in range(900)])
    assert sum(len(cause["message"]) for cause in e.details["causes"]) < 2 * errors.MAX_PRINTED
    assert "more]" in e.message


def test_a_long_text_is_truncated():
    e = errors.invalid("", "Pod", "p", [field.invalid("a" * 100_000, "x" * 2_900_000, "is wrong")])
    assert len(e.message) < 3 * errors.MAX_TEXT and "characters)" in e.message
    assert len(e.details["causes"][0]["field"]) < 2 * errors.MAX_TEXT


def test_only_the_shown_part_of_a_long_text_is_quoted(monkeypatch):
    """Quoting megabytes is one step of the interpreter: 120 ms for 3.8 MB."""
    quoted, quote, long = [], field.go_quote, '"' * 1_000_000
    monkeypatch.setattr(field, "go_quote", lambda text: quoted.append(len(text)) or quote(text))
    e = errors.invalid("", "Pod", "p", [field.invalid("spec", long, "is wrong"), field.FieldError(field.TOO_LONG, "a", long, "no")])
    assert quoted == [errors.MAX_TEXT]
    assert e.details["causes"][0]["message"].endswith('\\"... (1000000 characters)')
    assert e.details["causes"][1]["message"] == "Too long: no"


def test_the_length_of_a_path_is_bounded():
    path = field.key("spec", "k" * 100_000)
    assert len(path) < 2 * field.MAX_PATH
    below = field.child(field.index(path, 1), "a")
    assert below.startswith(path) and len(below) < 2 * field.MAX_PATH + 100
