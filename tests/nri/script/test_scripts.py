"""Scripts are read strictly, and say what is wrong and where."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.nri.script import BadScript, load, message_at, to_plain
from podwire.protocols.nri import nri_pb2 as pb


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param("adjust: [", "s.yaml:1: is not YAML", id="no YAML"),
        pytest.param("a: 1\na: 2", "s.yaml:2: a: is there twice", id="a key twice"),
        pytest.param("a: &a [*a]", "more than 40 values", id="a value that holds itself"),
        pytest.param(
            "adjust: 1", "s.yaml:1: adjust: keys and values are wanted here, and this is '1'", id="no mapping"
        ),
        pytest.param("adjust: {mounts: 1}", "adjust.mounts: a list is wanted", id="no list"),
        pytest.param("adjust: {args: [[]]}", r"adjust.args\[0\]: a text is wanted here", id="no text"),
        pytest.param(
            "adjust:\n  linux:\n    resources: {memory: {limt: 3}}",
            "s.yaml:3: adjust.linux.resources.memory.limt: LinuxMemory has no such field; it has limit, reservation",
            id="no such field",
        ),
        pytest.param(
            "adjust: {linux: {resources: {memory: {limit: much}}}}", "limit: a whole number is wanted", id="no number"
        ),
        pytest.param("adjust: {rlimits: [{hard: -1}]}", r"rlimits\[0\].hard: -1 is not between 0", id="out of range"),
        pytest.param(
            "adjust: {linux: {io_priority: {class: FAST}}}",
            "'FAST' must be one of IOPRIO_CLASS_NONE",
            id="no such name",
        ),
        pytest.param("update: [{ignore_failure: 3}]", "true or false is wanted here", id="no truth"),
    ],
)
def test_errors_name_line_and_key(text, says):
    with pytest.raises(BadScript, match=says):
        message_at(load(text, "s.yaml"), pb.CreateContainerResponse)


@pytest.mark.parametrize(
    ("text", "seconds"), [("2", 2.0), ("0.5", 0.5), ("300ms", 0.3), ("2s", 2.0), ("1m", 60.0), ("1.5 s", 1.5)]
)
def test_a_time_is_a_number_and_a_unit(text, seconds):
    assert load(text, "s").seconds() == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["soon", "-1", "[]", "2h"])
def test_other_text_is_not_a_duration(text):
    with pytest.raises(BadScript):
        load(text, "s").seconds()


def test_boxes_may_be_left_out_or_written():
    short = "linux: {resources: {memory: {limit: 5}}}\nenv: {A: b}\nCDI_devices: [v/c=d]"
    long = "linux: {resources: {memory: {limit: {value: 5}}}}\nenv: [{key: A, value: b}]\nCDI_devices: [{name: v/c=d}]"
    assert message_at(load(short, "s"), pb.ContainerAdjustment) == message_at(load(long, "s"), pb.ContainerAdjustment)


texts = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=6)
numbers = st.integers(-(2**63), 2**63 - 1)


@st.composite
def adjustments(draw):
    made = pb.ContainerAdjustment(
        annotations=draw(st.dictionaries(texts, texts, max_size=2)),
        env=[pb.KeyValue(key=key, value=value) for key, value in draw(st.lists(st.tuples(texts, texts), max_size=3))],
        args=draw(st.lists(texts, max_size=3)),
        CDI_devices=[pb.CDIDevice(name=item) for item in draw(st.lists(texts, max_size=2))],
    )
    if draw(st.booleans()):
        made.linux.resources.memory.limit.value = draw(numbers)
        made.linux.oom_score_adj.value = draw(numbers)
        made.linux.rdt.schemata.value.extend(draw(st.lists(texts, max_size=2)))
        made.linux.io_priority.CopyFrom(pb.LinuxIOPriority(priority=draw(st.integers(-9, 9))))
        setattr(made.linux.io_priority, "class", draw(st.sampled_from([0, 1, 3])))
        made.linux.memory_policy.flags.extend(draw(st.lists(st.sampled_from([0, 1, 2]), max_size=2)))
    return made


@given(adjustments())
def test_shown_messages_can_be_used_in_scripts(made):
    import yaml

    text = yaml.safe_dump(to_plain(made), allow_unicode=True, sort_keys=False)
    assert message_at(load(text, "shown"), pb.ContainerAdjustment) == made
