"""Whole plays: a real process, the real wire, no containers."""

import json
import re
from xml.etree import ElementTree as ET

import pytest

from podwire.nri.play import Failed, report

BLUE = """
name: blue
index: "20"
reconnect: 10ms
on:
  CreateContainer:
    answer: {adjust: {env: {COLOR: blue}, annotations: {painted: by-blue}}}
"""


def test_without_a_script_a_plugin_sees_the_life_of_a_pod(played, fake):
    result = played(None, fake(BLUE))
    assert result.plugin == "20-blue"
    assert [(item.step.title, item.calls) for item in result.steps[1:]] == [
        ("run web", ("RunPodSandbox",)),
        ("create web/app", ("CreateContainer", "ValidateContainerAdjustment", "PostCreateContainer")),
        ("start web/app", ("StartContainer", "PostStartContainer")),
        ("stop web/app", ("StopContainer",)),
        ("remove web/app", ("RemoveContainer",)),
        ("stop web", ("StopPodSandbox",)),
        ("remove web", ("RemovePodSandbox",)),
    ]


def test_expectations_that_hold(played, fake):
    result = played(
        """
register:
  plugin: 20-blue
  synchronized: {pods: 3, containers: 3, batches: 1}
node: 3
pods:
  shop/db:
  web:
    namespace: shop
    annotations: {a.b/c: d}
    containers:
      app: {labels: {tier: front}, spec: {process: {args: [serve]}}}
steps:
  - run: web
    expect: {calls: [RunPodSandbox], asks: [], within: 1m}
  - create: web/app
    expect:
      adjust: {env: {COLOR: blue}}
      spec:
        process.args: [serve]
        process.env: {contains: COLOR=blue}
        annotations.painted: {matches: ^by-}
        annotations["io.kubernetes.cri.container-name"]: app
        linux.seccomp: {absent: true}
  - life: web
""".replace("  shop/db:\n", ""),
        fake(BLUE),
    )
    [seen] = [exchange for exchange in result.step("create web/app").exchanges if exchange.method == "CreateContainer"]
    assert (seen.request.pod.namespace, seen.request.pod.annotations["a.b/c"]) == ("shop", "d")
    assert seen.request.container.labels["tier"] == "front"
    assert seen.request.container.args == ["serve"]
    assert '+      "COLOR=blue"' in "\n".join(report.lines(result.step("create web/app")))


@pytest.mark.parametrize(
    ("expect", "says"),
    [
        ("calls: []", "calls: none are expected, got CreateContainer"),
        ("error: .", "error: /./ is expected, but nothing failed"),
        ("adjust: {}", "adjust: nothing is expected, got"),
        ("adjust: {env: {COLOR: red}}", 'adjust.env.COLOR: "red" is expected, got "blue"'),
        ("adjust: {args: [x]}", 'adjust.args: \\["x"\\] is expected, but is missing'),
        ("updates: [{container_id: app}]", "updates: 1 are expected, got \\[\\]"),
        ("spec: {process.env: {contains: COLOR=red}}", 'spec process.env: "COLOR=red" is expected in it'),
        ("spec: {process.cwd: /x}", 'spec process.cwd: "/x" is expected, got "/"'),
        ("spec: {process.cwd: {absent: true}}", "nothing is expected, got"),
        ("connected: false", "the plugin is still connected"),
        ("plugin: 20-blue", "plugin: 20-blue is expected, got no registration"),
        ("synchronized: {pods: 1}", "synchronized.pods: 1 are expected, got 0"),
        ("asks: [UpdateContainers]", "asks: UpdateContainers are expected"),
    ],
)
def test_failed_expectations_are_named_with_their_line(played, fake, expect, says):
    script = f"steps:\n  - run: web\n  - create: web/app\n    expect: {{{expect}}}\n"
    with pytest.raises(Failed, match=f"^script:3: create web/app: .*{says}"):
        played(script, fake(BLUE))


def test_an_error_rolls_back_as_a_runtime_does(played, fake):
    plugin = fake("on: {RunPodSandbox: {fail: {code: UNAVAILABLE, message: no space}}, StartContainer: {fail: never}}")
    result = played(
        """
steps:
  - run: web
    expect: {error: "^UNAVAILABLE: .*no space", calls: [RunPodSandbox, StopPodSandbox, RemovePodSandbox]}
  - create: web/app
  - start: web/app
    expect: {error: never, calls: [StartContainer, StopContainer]}
""",
        plugin,
    )
    assert result.ok


def test_updates_change_the_named_containers(played, fake):
    plugin = fake("""
on:
  UpdateContainer:
    answer: {update: [{container_id: app, linux: {resources: {cpu: {shares: 77}}}}]}
""")
    played(
        """
steps:
  - run: web
  - create: web/app
  - update: web/app
    resources: {cpu: {shares: 50}}
    expect:
      spec: {linux.resources.cpu.shares: 77}
      calls: [UpdateContainer, PostUpdateContainer]
  - update-pod: web
    resources: {cpu: {shares: 9}}
    expect: {calls: [UpdatePodSandbox, PostUpdatePodSandbox]}
""",
        plugin,
    )


def test_a_plugin_that_reconnects_is_synchronized(played, fake):
    played(
        """
steps:
  - run: web
  - create: web/app
  - start: web/app
  - disconnect:
    expect: {calls: [Configure, Synchronize], synchronized: {pods: 1, containers: 1}}
  - restart-runtime:
    expect: {synchronized: {pods: 1, containers: 1}}
  - restart-plugin:
    expect: {plugin: 20-blue, synchronized: {pods: 1, containers: 1}}
""",
        fake(BLUE),
    )


def test_a_plugin_that_ends_with_its_connection_is_started_again(played, fake):
    played("steps: [{run: web}, disconnect, {stop: web, expect: {calls: [StopPodSandbox]}}]", fake("name: mayfly"))


def test_a_big_node_is_sent_in_batches_and_missing_support_is_reported(played, fake):
    script = "steps: [{big-node: 4000, expect: {synchronized: {pods: 4000, containers: 4000, batches: 2}}}]"
    assert played(script, fake(BLUE)).ok
    refusing = fake("on: {Synchronize: {refuse-split: true}}")
    with pytest.raises(Failed, match="does not handle split"):
        played(script, refusing)


def test_a_plugin_of_either_generation_with_a_runtime_of_either(played, fake):
    for generation in ("old", "new"):
        for speaks in ("both", "StateChange" if generation == "old" else "calls"):
            result = played(
                f"runtime: {{generation: {generation}, registration_timeout: 60s, request_timeout: 60s}}",
                fake(f"speaks: {speaks}"),
            )
            [seen] = result.step("run web").exchanges
            assert seen.via == ("StateChange" if generation == "old" else "")


def test_an_old_plugin_is_detected_by_a_new_runtime(played, fake):
    result = played(None, fake("speaks: StateChange"))
    refused, reported = result.step("run web").exchanges
    assert (refused.outcome, reported.via) == ("UNIMPLEMENTED", "StateChange")


def test_a_pre_installed_plugin_gets_a_socket_three_variables_and_its_configuration(played, fake):
    result = played("config: |\n  color: blue\n", fake(), launch="07-hidden")
    assert result.plugin == "07-hidden"
    [reported] = [exchange.request for exchange in result.steps[0].exchanges if exchange.method == "Configure"]
    assert reported.config == "color: blue\n"
    assert played("steps: [{run: web}, disconnect, restart-runtime]", fake(), launch="07-hidden").ok


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["/no/such/program"], "cannot be started"),
        (["true"], "its process ended with code 0 before it was ready"),
    ],
)
def test_a_program_that_is_not_a_plugin(played, argv, says):
    result = played(None, argv, check=False)
    assert re.search(says, result.failures[0])
    assert len(result.steps) == 1


def test_a_slow_plugin_is_disconnected_and_reported_once(played, fake):
    script = (
        "runtime: {request_timeout: 100ms, registration_timeout: 60s}\nsteps: [{run: web}, {stop: web}, {remove: web}]"
    )
    result = played(script, fake("on: {RunPodSandbox: {silent: true}}"), check=False)
    [why] = result.failures
    [seen] = result.step("run web").exchanges
    assert (seen.method, seen.outcome) == ("RunPodSandbox", "no answer")
    assert "the plugin is disconnected" in why
    assert "RunPodSandbox" in why


def test_a_plugin_that_shall_go_may(played, fake):
    plugin = fake("on: {StopPodSandbox: {exit: 3}}")
    played(
        "steps: [{run: web}, {stop: web, expect: {connected: false}}, {remove: web, expect: {connected: false}}]",
        plugin,
    )


def test_reports_for_machines(played, fake):
    result = played("steps: [{run: web, expect: {calls: []}}]", fake(BLUE), check=False)
    answer = json.loads(report.as_json(result))
    assert (answer["ok"], answer["plugin"], len(answer["steps"])) == (False, "20-blue", 2)
    assert answer["steps"][1]["calls"][0]["method"] == "RunPodSandbox"
    suite = ET.fromstring(report.as_junit(result))
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    assert "calls: none are expected" in suite.findall("testcase/failure")[0].text
