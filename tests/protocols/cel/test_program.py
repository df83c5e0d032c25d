"""Expressions compiled and run, in the words that users of Kubernetes know."""

import subprocess
import sys
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.objects.quantity import Quantity
from podwire.protocols.cel import CelError, CompileError, Unavailable, Values, compile_expression, environment
from podwire.protocols.cel.functions import Function
from podwire.protocols.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    QUANTITY,
    STRING,
    TIMESTAMP,
    list_of,
    map_of,
    optional,
    struct,
)

POINT = struct([("x", INT), ("y", INT)])
SELF = struct(
    [
        ("a_b", list_of(list_of(INT))),
        ("aB", map_of(STRING, INT)),
        ("ab", STRING),
        ("a_B", map_of(STRING, STRING)),
        ("any", DYN),
        ("count", INT),
        ("names", list_of(STRING)),
        ("point", POINT),
        ("points", map_of(STRING, POINT)),
        ("ratio", DOUBLE),
        ("since", TIMESTAMP),
        ("took", DURATION),
        ("raw", BYTES),
        ("x__dash__y", BOOL),
    ]
)


def run(expression, **values):
    return compile_expression(expression, {"self": SELF}).run({"self": values})


@pytest.mark.parametrize(
    ("expression", "values", "outcome"),
    [
        pytest.param("self.count <= 3", {"count": 3}, True, id="a number"),
        pytest.param("self.count > 1.5", {"count": 2}, True, id="an integer beside a double"),
        pytest.param("self.ratio > self.count", {"count": 2, "ratio": 2.5}, True, id="a double beside an integer"),
        pytest.param("self.names.all(n, n.startsWith('a'))", {"names": ["ab", "b"]}, False, id="a list"),
        pytest.param("self.points.all(k, self.points[k].x < 3)", {"points": {"p": {"x": 1}}}, True, id="a map"),
        pytest.param("self.points.all(k, p, p.x < 3)", {"points": {"p": {"x": 4}}}, False, id="a map with its values"),
        pytest.param("self.a_b[0][1] + self.aB.k", {"a_b": [[1, 2]], "aB": {"k": 3}}, 5, id="mixed-up fields"),
        pytest.param("has(self.point)", {}, False, id="an absent field"),
        pytest.param("has(self.count)", {"count": 0}, True, id="a zero is there"),
        pytest.param("self.?point.?x.orValue(7)", {"point": {}}, 7, id="an optional field"),
        pytest.param("self.any.b.c == 'd'", {"any": {"b": {"c": "d"}}}, True, id="anything"),
        pytest.param("self.x__dash__y", {"x__dash__y": True}, True, id="an escaped name"),
        pytest.param("self.point == self.points.p", {"point": {"x": 1}, "points": {"p": {"x": 1}}}, True, id="equal"),
        pytest.param("self.names.map(n, n + '!')", {"names": ["a"]}, ["a!"], id="a list as the outcome"),
        pytest.param("'%d of %s'.format([self.count, 'x'])", {"count": 2}, "2 of x", id="formatted"),
        pytest.param("sets.contains(self.names, ['a'])", {"names": ["a", "b"]}, True, id="sets"),
        pytest.param("self.names.join('-').upperAscii()", {"names": ["a", "b"]}, "A-B", id="strings"),
        pytest.param("self.names.sort()[0]", {"names": ["b", "a"]}, "a", id="lists"),
    ],
)  # fmt: skip
def test_an_expression_has_a_value(expression, values, outcome):
    assert run(expression, **values) == outcome


@pytest.mark.parametrize(
    ("expression", "values", "message"),
    [
        pytest.param("self.count > 1", {}, "no such key: count", id="an absent field"),
        pytest.param("self.names[3] == ''", {"names": []}, "index out of bounds: 3", id="beyond a list"),
        pytest.param("self.count / 0 == 1", {"count": 1}, "division by zero", id="nothing divides"),
        pytest.param("self.count % 0 == 1", {"count": 1}, "modulus by zero", id="no rest of nothing"),
        pytest.param("self.any > 1", {"any": "x"}, "no such overload", id="types that only running shows"),
        pytest.param("self.any.x.y > 1", {"any": {"x": 1}}, "no such overload", id="a field of a number"),
        pytest.param("self.count + 1 > 0", {"count": 2**63 - 1}, "integer overflow", id="too large"),
        pytest.param("quantity(self.ab).sign() == 1", {"ab": "x"},
                     "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
                     id="what a function says"),
        pytest.param("self.names.all(a, self.names.all(b, self.names.all(c, true)))", {"names": ["x"] * 100},
                     "operation cancelled: actual cost limit exceeded", id="a million steps"),
    ],
)  # fmt: skip
def test_an_evaluation_that_fails_is_a_value_in_cel_gos_words(expression, values, message):
    assert run(expression, **values) == CelError(message)


def test_only_a_loop_without_end_is_out_of_budget():
    assert run("self.names.all(a, self.names.all(b, true))", names=["x"] * 1000).out_of_budget
    assert not run("self.count > 1").out_of_budget


@pytest.mark.parametrize(
    ("expression", "reported"),
    [
        pytest.param("self.cnt > 1", ["ERROR: <input>:1:5: undefined field 'cnt'\n | self.cnt > 1\n | ....^"], id="no"),
        pytest.param("self.points.p.z == 1", ["ERROR: <input>:1:14: undefined field 'z'"], id="in a map's value"),
        pytest.param("has(self.cnt)", ["undefined field 'cnt'"], id="presence of no field"),
        pytest.param("true &&\n  foo", ["2:3: undeclared reference to 'foo' (in container '')\n |   foo\n | ..^"],
                     id="a name, on its line"),
        pytest.param("a || b", ["<input>:1:1: undeclared reference to 'a'", "<input>:1:6: undeclared reference to 'b'"],
                     id="two at once"),
        pytest.param("self.count == 'x'",
                     ["1:12: found no matching overload for '_==_' applied to '(int, string)'"], id="types"),
        pytest.param("1 +", ["<input>:1:4: Syntax error: mismatched input '<EOF>'"], id="no end"),
        pytest.param("self.ab.matches('a(')", ["1:17: invalid matches argument"], id="a pattern that is none"),
        pytest.param("self.ab.find('a(') == ''", ["1:14: invalid find argument"], id="another"),
        pytest.param("self.since > timestamp('x')", ["1:24: invalid timestamp argument"], id="a time that is none"),
        pytest.param("self.took > duration('x')", ["1:22: invalid duration argument"], id="a duration that is none"),
        pytest.param("kubernetes.Quantity{} == 1", ["found no matching overload"], id="opaque and number"),
        pytest.param("has(objects.object{}.count)", ["1:5: undeclared reference to 'objects.object'"], id="a message"),
        pytest.param("{'a': 1}.transformMap(k, v, v).a == 1", ["transformMap and transformMapEntry are not supported"],
                     id="what cannot be run"),
        pytest.param("quantity('1').text == ''", ["undefined field 'text'"], id="what is inside an opaque value"),
        pytest.param("(" * 60 + "1" + ")" * 60, ["recursion limit exceeded"], id="too deep"),
        pytest.param("1" * 100_001, ["expression code point size exceeds limit: 100000"], id="too long"),
    ],
)  # fmt: skip
def test_a_compile_error_names_its_position(expression, reported):
    with pytest.raises(CompileError) as caught:
        compile_expression(expression, {"self": SELF})
    for item in reported:
        assert item in str(caught.value)


def test_an_optional_variable_may_be_missing():
    program = compile_expression("old.hasValue() ? old.value().x : -1", {"old": optional(POINT)})
    assert program.run({"old": {"x": 4}}) == 4
    assert program.run({}) == -1
    assert program.names == {"old"}
    assert compile_expression("true", {"old": optional(POINT)}).names == set()


def test_places_are_those_of_the_expression_though_it_is_compiled_within_bindings():
    with pytest.raises(CompileError) as caught:
        compile_expression("true &&\n old.?z.hasValue() // why", {"old": optional(POINT)})
    assert [(problem.line, problem.column) for problem in caught.value.problems] == [(2, 5)]
    with pytest.raises(CompileError) as caught:
        compile_expression("old.hasValue() && 'a'.matches(')')", {"old": optional(POINT)})
    assert [(problem.line, problem.column) for problem in caught.value.problems] == [(1, 31)]


def test_values_are_converted_once_for_many_programs():
    values = Values({"self": {"count": 2}, "old": {"x": 1}})
    plain = compile_expression("self.count + old.x", {"self": SELF, "old": POINT})
    maybe = compile_expression("self.count + old.value().x", {"self": SELF, "old": optional(POINT)})
    assert [plain.run(values), maybe.run(values), plain.run(values)] == [3, 3, 3]


def test_a_program_knows_its_variables_and_its_result_type():
    program = compile_expression("self.names.exists(n, n == 'a')", {"self": SELF, "oldSelf": SELF})
    assert "self" in program.names
    assert "oldSelf" not in program.names
    assert program.returns == "bool"
    assert compile_expression("self.any", {"self": SELF}).returns == "dyn"
    assert compile_expression("self.ab", {"self": SELF}).returns == "string"


def test_a_caller_may_bring_functions_and_opaque_values():
    double = Function("doubled", (QUANTITY,), QUANTITY, lambda quantity: quantity + quantity)
    program = compile_expression("q.doubled() == quantity('2Gi')", {"q": QUANTITY}, functions=(double,))
    assert program.run({"q": environment.kept(Quantity.parse("1024Mi"))}) is True


def test_a_result_that_is_not_json_is_an_error():
    assert isinstance(run("optional.of(1)"), CelError)


def test_without_the_library_expressions_are_rejected(monkeypatch):
    environment.library.cache_clear()
    environment.checking.cache_clear()
    monkeypatch.setitem(sys.modules, "cel_expr_python", None)
    try:
        with pytest.raises(Unavailable, match="need the package cel-expr-python, which is not installed"):
            compile_expression("1 + 1 == 2 // compiled by nobody else", {"never": INT})
    finally:
        environment.library.cache_clear()


def test_importing_the_package_does_not_load_the_library():
    code = (
        "import sys, podwire.protocols.cel as c; print(sorted({'cel_expr_python', 'google.protobuf'} & {*sys.modules}))"
    )
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert finished.stdout.strip() == "[]"


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize("value", ["ok\0evil", {"ok\0evil": 1}, [{"a": ["ok\0"]}], ["\\u0000", "\0"]])
def test_a_text_that_the_library_would_cut_short_is_not_evaluated_at_all(value):
    outcome = compile_expression("self == 'ok'", {"self": DYN}).run({"self": value})
    assert outcome == CelError("texts with NUL characters cannot be evaluated")


def test_a_text_that_only_speaks_of_nul_is_evaluated():
    assert compile_expression("self.size()", {"self": STRING}).run({"self": "\\u0000"}) == 6


@given(JSON)
def test_json_goes_through_unchanged(value):
    assert compile_expression("self", {"self": DYN}).run({"self": value}) == value


@given(st.text())
def test_any_text_is_compiled_or_rejected(text):
    with suppress(CompileError):
        compile_expression(text, {"self": DYN})
