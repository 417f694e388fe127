"""The objects that each check accepts, those it leaves to the rules, and the state that a walk keeps."""

from __future__ import annotations

import itertools
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from kas import checks
from kas.checks import Check, Scope, _engine

KEY = Scope("key")


@pytest.mark.parametrize(
    ("check", "passing", "failing"),
    [
        (checks.anything(), [None, 1, "", [], {}], []),
        (checks.unknown(), [], [None, 1, "", [], {}]),
        (checks.boolean(), [True, False], [0, 1, None, "true"]),
        (checks.same(False), [False], [True, 0, None]),
        (checks.text(1, 3), ["a", "äöü"], ["", "abcd", 1, None, b"a"]),
        (checks.text(but=("x", "é")), ["", "y"], ["x", "é"]),
        (checks.ascii(1, 3), ["a", "abc"], ["", "abcd", "é", None]),
        (checks.printable(1, 3, refused="="), ["a", "a b"], ["", "a=b", "a\n", "\x7f", "é", "abcd"]),
        (checks.option("a", "b"), ["a", "b"], ["", "c", "ab", None, 1]),
        (checks.option(*map(str, range(20)), "é"), ["0", "19", "é"], ["20", ""]),
        (checks.integer(0, 5), [0, 5], [-1, 6, 1 << 70, 1.0, True, "1", None]),
        (checks.floating(0.5, 1.5), [0.5, 1.5], [0.4, 1.6, 1, float("nan"), "1"]),
        (checks.multiple(3), [0, 3, -6], [1, 3.0, "3", None]),
        (checks.matching(str.isupper), ["A"], ["a", "", 1, None]),
        (checks.dns_label(), ["a", "a-1", "a" * 63], ["", "a.b", "-a", "a-", "A", "a" * 64, "é"]),
        (checks.dns_subdomain(), ["a", "a.b-c", "a" * 253], ["", ".a", "a.", "a..b", "a.-b", "a" * 254]),
        (checks.dns1035_label(), ["a", "a-1"], ["1a", "a.b", "a" * 64]),
        (checks.generated(dots=True), ["a", "a-", "a.b-"], ["", "-", "a--", "a.-", "a" * 253]),
        (checks.path_segment(), ["a", "A:b c", "a.b"], ["", ".", "..", "a/b", "a%b"]),
        (checks.qualified_name(), ["a", "A_b.c", "a.b/C"], ["", "/a", "a/", "A/b", "a/b/c", "a" * 64, "a" * 254 + "/b"]),
        (checks.qualified_name(capitals=True), ["A.b/C"], ["a/b/c"]),
        (checks.qualified_name(prefixed=True), ["a.b/C"], ["a"]),
        (checks.label_value(), ["", "a", "A_b.c"], ["-a", "a-", "a/b", "a" * 64]),
        (checks.data_key(), ["a", "A_b.c-"], ["", ".a", "a/b", "a" * 254]),
        (checks.port_name(), ["a", "a-1", "1a"], ["", "1", "a--b", "-a", "a-", "a" * 16, "A"]),
        (checks.unpadded(), ["a", "a b"], ["", " a", "a ", "é"]),
        (checks.path(), ["a", "a/b", "a.b"], ["", "/a", "..", "a/../b", "a..b"]),
        (checks.path(relative=False), ["/a", "a"], ["/a/.."]),
        (checks.path(folders=False), ["a"], ["a/b", "/a"]),
        (checks.group_version(), ["v1", "a/v1"], ["", "a/", "a/b/c"]),
        (checks.ipv4(), ["10.0.0.1", "1.2.3.4", "223.255.255.255"],
         ["", "10.0.0", "10.0.0.1.", "10.0.0.01", "256.0.0.1", "127.0.0.1", "169.254.0.1", "224.0.0.1", "0.0.0.0", "::1", "1.2.3.4444"]),
        (checks.amount(), ["0", "1", "100m", "1Ki", "5G", "1Ti"], ["", "-1", "1e3", "1u", "1Ei", "1.5", 1, "9999999999999"]),
        (checks.amount(whole=True), ["1", "1000m", "1Ki"], ["1500m"]),
        (checks.listing(checks.integer(), low=1, high=2), [[1], [1, 2]], [[], [1, 2, 3], ["a"], {}, (1,), None]),
        (checks.mapping(checks.integer(), checks.data_key(), high=2), [{}, {"a": 1}], [{"a": "b"}, {"/": 1}, dict.fromkeys("abc", 1), []]),
        (checks.mapping(checks.text(), total=6), [{"ab": "cdef"}, {"a": "é"}], [{"ab": "cdefg"}, {"ab": "éé"}]),
        (checks.by_kind(text=checks.text(1), integer=checks.integer(0)), ["a", 0], ["", -1, 1.5, True, [], {}, None]),
        (checks.by_kind(array=checks.anything(), object=checks.anything()).or_null(), [[], {}, None], ["a"]),
        (checks.all_of(checks.text(1), checks.text(0, 2)), ["a"], ["", "abc"]),
        (checks.any_of(checks.text(1, 1), checks.integer()), ["a", 1], ["ab", None]),
        (checks.one_of(checks.text(1).exact(), checks.text(0, 2).exact()), ["", "abc"], ["a"]),
        (checks.none_of(checks.text().exact()), [1, []], ["a"]),
        (checks.none_of(checks.text()), [], [1, "a"]),  # a refusal that is not exact is none
        (checks.text().or_null(), ["", None], [1]),
        (checks.text().where(str.islower), ["a"], ["A"]),
    ],
)  # fmt: skip
def test_valid_values_pass(check: Check, passing: list[Any], failing: list[Any]) -> None:
    assert [value for value in passing if not check.passes(value)] == []
    assert [value for value in failing if check.passes(value)] == []


def test_a_check_that_is_certain_agrees_with_the_rules():
    exact = checks.record({"a": checks.text().exact()}, required=("a",), rest=checks.anything()).exact()
    assert [exact.answer(v) for v in ({"a": ""}, {"a": 1}, {}, [], None)] == [1, -1, -1, -1, -1]
    assert checks.record({}).answer({"a": 1}) == 0 and checks.text().answer(1) == 0
    either = checks.one_of(exact, checks.unknown())
    assert either.answer({"a": ""}) == 0


def test_fields():
    check = checks.record(
        {"a": checks.integer(), "b": checks.anything(), "c": checks.anything(), "d": checks.anything()},
        required=("a",), groups=[(("b", "c"), 0, 1), (("b",), 1, 1, ("d",))], rules=[(("a", "b"), lambda d: d["a"] < 5)],
    )  # fmt: skip
    assert all(map(check.passes, [{"a": 1}, {"a": 9}, {"b": None, "a": 1}, {"a": 1, "c": 2}, {"d": 1, "b": 1, "a": 1}]))
    assert not any(map(check.passes, [{}, {"b": 1}, {"a": "x"}, {"a": 1, "b": 1, "c": 1}, {"a": 1, "d": 1}, {"a": 9, "b": 1}, {"a": 1,
    "e": 1}]))
    with pytest.raises(ValueError, match="not there"):
        checks.record({}, required=("a",))


def test_fields_that_are_not_named():
    named = checks.record({"a": checks.integer()}, rest=checks.text(), rest_key=checks.dns_label())
    assert named.passes({"a": 1, "b": "x"}) and not named.passes({"b": 1}) and not named.passes({"B": "x"})
    many = checks.record({f"f{i}": checks.integer(i, i) for i in range(100)})
    assert many.passes({f"f{i}": i for i in reversed(range(100))}) and not many.passes({"f7": 8})
    assert many.passes({"".join(["f", "9"]): 9}), "names are compared by their text"


def test_amounts_of_one_map_are_not_above_those_of_another():
    amounts = checks.mapping(checks.amount())
    check = checks.record({"low": amounts, "high": amounts}, not_above=[("low", "high")])
    assert check.passes({"low": {"cpu": "1", "x": "9"}, "high": {"cpu": "1000m"}}) and check.passes({"low": {"cpu": "1"}})
    assert not check.passes({"low": {"cpu": "1001m"}, "high": {"cpu": "1"}})


# -- scopes


def test_items_of_a_list_must_differ():
    check = checks.listing(checks.text().claim(KEY)).opening(KEY)
    assert check.passes(["a", "b"]) and check.passes([]) and check.passes(["a"]) and not check.passes(["a", "b", "a"])
    assert not checks.text().claim(KEY).passes("a"), "nothing is claimed where no scope is open"
    mixed = checks.listing(checks.by_kind(text=checks.text(), integer=checks.integer(), boolean=checks.boolean()).claim(KEY)).opening(KEY)
    assert mixed.passes(["1", 1]) and not mixed.passes([1, True]), "what Python takes for equal is for the rules"


def test_a_single_item_claims_nothing_but_items_below_it_do():
    below = checks.listing(checks.text().claim(KEY))
    assert not checks.listing(below).opening(KEY).passes([["a", "a"]]) and checks.listing(below).opening(KEY).passes([["a"], ["b"]])
    assert checks.listing(checks.text().claim(KEY)).distinct(KEY).passes(["a"])
    assert not checks.listing(checks.text().claim(KEY)).distinct(KEY).passes(["a", "a"])
    for wrong in (lambda: checks.text().distinct(KEY), lambda: below.distinct(KEY).distinct(KEY), lambda: checks.text().opening(KEY)):
        with pytest.raises(ValueError, match="only"):
            wrong()


def test_items_differ_by_several_fields():
    item = checks.record({"a": checks.text(), "b": checks.anything()}, keys=[(KEY, ("a", "b"))])
    check = checks.listing(item).opening(KEY)
    assert check.passes([{"a": "x", "b": 1}, {"a": "x", "b": 2}, {"a": "x"}])
    assert not check.passes([{"a": "x"}, {"a": "x"}]) and not check.passes([{"b": []}, {"b": 1}])


def test_inner_lists_have_scopes_of_their_own():
    inner = checks.listing(checks.text().claim(KEY)).opening(KEY)
    assert checks.listing(inner).passes([["a", "b"], ["a", "b"]]) and not checks.listing(inner).passes([["a"], ["b", "b"]])


def test_a_value_must_be_in_an_earlier_list():
    volumes = Scope("volumes")
    check = checks.record(
        {"use": checks.listing(checks.member(volumes)), "have": checks.listing(checks.text().claim(volumes))}, first=("have",)
    ).opening(volumes)  # fmt: skip
    assert check.passes({"use": ["a", "a"], "have": ["a", "b"]}) and check.passes({"have": ["a"], "use": []})
    assert not check.passes({"use": ["c"], "have": ["a"]}) and not check.passes({"use": ["a"]})
    assert check.passes({"use": ["a"], "have": ["a"]}), "a walk leaves nothing behind"


def test_several_values_may_share_one_claim():
    check = checks.listing(checks.any_of(checks.option("a", "b").claim(KEY, "one"), checks.option("c"))).opening(KEY)
    assert check.passes(["a", "c", "c"]) and not check.passes(["a", "b"])


def test_nothing_is_certain_when_too_many_scopes_are_open():
    check = checks.listing(checks.text())
    value: Any = ["a", "b"]
    for _ in range(30):
        check, value = checks.listing(check).opening(Scope("s")), [value, []][:1]
    assert not check.passes(value)


def test_rules_may_walk_and_raise():
    inner = checks.listing(checks.text().claim(KEY)).opening(KEY)
    check = checks.listing(checks.text().claim(KEY).where(lambda text: inner.passes([text, "x"]))).opening(KEY)
    assert check.passes(["a", "b"]) and not check.passes(["a", "x"])
    wrong = checks.listing(checks.text().claim(KEY).where(int)).opening(KEY)
    with pytest.raises(ValueError, match="invalid literal"):
        wrong.passes(["1", "2", "a"])
    assert wrong.passes(["1", "2"])


def test_threads_can_share_checks():
    check = checks.listing(checks.text().claim(KEY).where(lambda text: len("x" * 50) == 50)).opening(KEY)
    value, answers = [str(i) for i in range(2000)], []
    threads = [threading.Thread(target=lambda: answers.append(all(check.passes(value) for _ in range(20)))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [True] * 4


# -- lazy checks, and the depth of a walk


def test_a_lazy_check_is_built_once():
    made = []

    def make() -> Check:
        made.append(1)
        return checks.integer(0)

    check = checks.record({"a": checks.lazily(make), "b": checks.anything()})
    assert check.passes({"b": 1}) and not made
    assert check.passes({"a": 1}) and not check.passes({"a": -1}) and len(made) == 1
    for change in (lambda c: c.claim(KEY), lambda c: c.or_null(), lambda c: c.exact()):
        with pytest.raises(ValueError, match="not made yet"):
            change(checks.lazily(make))
    with pytest.raises(ValueError, match="any kind"):
        checks.anything().claim(KEY)


def test_the_depth_of_a_walk_is_limited():
    tree = checks.record({"below": checks.lazily(lambda: tree)})
    value: Any = {}
    for _ in range(400):
        value = {"below": value}
    assert tree.passes(value)
    for _ in range(100_000):
        value = {"below": value}
    assert not tree.passes(value)
    while value:  # taken apart here, as freeing it would recurse as deep
        value = value["below"]


def test_each_value_is_read_once():
    seen: list[Any] = []
    check = checks.listing(checks.record({"a": checks.text().where(lambda text: seen.append(text) is None)}))
    assert check.passes([{"a": str(i)} for i in range(1000)]) and len(seen) == 1000


def test_alternatives_yield_to_other_tasks_and_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a task that runs in between can see either from outside."""
    each = checks.any_of(*[checks.integer(n, n) for n in range(1000)])
    several = checks.listing(each)
    turns: list[int] = []
    monkeypatch.setattr(_engine, "LOOP_BUDGET", SimpleNamespace(spend=turns.append))
    assert several.passes([999] * 100) and len(turns) == 10
    assert several.soon_passes([999] * 9) and not several.soon_passes([999] * 100) and len(turns) == 10
    monkeypatch.setattr(_engine, "abandoned", lambda: True)
    assert not several.passes([999] * 100) and len(turns) == 11
    assert several.passes([999] * 9)


def test_searches_for_alternatives_of_patterns_are_limited():
    """Each takes as long as many comparisons of numbers: 100,000 texts under 300 of them took a thread 20 seconds."""
    searched = itertools.count()
    pattern = checks.matching(lambda text: not next(searched) + 1)
    check = checks.listing(checks.any_of(*(pattern for _ in range(300)), checks.matching(lambda text: True)))
    assert check.passes(["x"] * 1000)
    assert not check.passes(["x"] * 100_000)
    assert next(searched) < 3_000_000


@pytest.mark.parametrize(
    ("node", "there"),
    [
        ({}, False), ({"a": None, "b": {}, "c": [], "d": {}}, False), ({"a": 0}, True), ({"b": {"x": None}}, False),
        ({"b": {"x": False}}, True), ({"c": [None, {}, {"x": 1}]}, True), ({"c": [None, {"y": 1}]}, False),
        ({"d": {"k": {"x": None}}}, False), ({"d": {"j": None, "k": {"x": ""}}}, True),
    ],
)  # fmt: skip
def test_a_field_of_a_tree_exists(node: dict[str, Any], there: bool):
    below = (("x", "", ()),)
    assert checks.any_there(node, (("a", "", ()), ("b", ".", below), ("c", "[]", below), ("d", "{}", below))) is there


def test_objects_are_compared_by_named_fields():
    one = {"a": 1, "b": [1, {"x": "y"}], "c": None, "z": 1}
    assert checks.alike(one, {"a": 1.0, "b": [1, {"x": "y"}], "c": None, "z": 2}, ("a", "b", "c", "d"))
    assert not checks.alike(one, {"a": 1, "b": [1, {"x": "z"}], "c": None}, ("a", "b"))
    assert not checks.alike(one, {"a": 1, "b": one["b"]}, ("a", "b", "c"))  # null is a value
