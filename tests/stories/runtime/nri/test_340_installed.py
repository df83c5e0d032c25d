"""Plugins that lie on the node: the runtime starts them, hands them their configuration, and ends them."""

import json
import sys
from pathlib import Path

PLUGIN = f"""#!{sys.executable}
import json, os
from podwire.nri import Plugin, main

class Recorder(Plugin):
    async def configure(self, config, runtime):
        self.directory = json.loads(config)["directory"]
        self.write("configured", sorted(os.environ))

    def write(self, *words):
        with open(self.directory + "/installed.log", "a") as file:
            file.write(json.dumps([os.getpid(), *words]) + "\\n")

    async def run_pod_sandbox(self, pod):
        self.write("RunPodSandbox", pod.name)

    async def stop_pod_sandbox(self, pod):
        self.write("StopPodSandbox", pod.name)

main(Recorder())
"""


def install(runtime, name):
    directory = runtime.prefix / "opt/nri/plugins"
    directory.mkdir(parents=True, exist_ok=True)
    (directory / name).write_text(PLUGIN)
    (directory / name).chmod(0o755)
    configs = runtime.prefix / "etc/nri/conf.d"
    configs.mkdir(parents=True, exist_ok=True)
    (configs / "configured.conf").write_text(json.dumps({"directory": str(runtime.prefix)}))


def lives(pid):
    return Path(f"/proc/{pid}").exists()


def recorded(runtime):
    return [json.loads(line) for line in (runtime.prefix / "installed.log").read_text().splitlines()]


async def test_an_installed_plugin_runs_from_the_first_pod_to_the_runtimes_end(own, kubelet_of):
    install(own, "10-configured")
    (own.prefix / "opt/nri/plugins/stray").write_text("no plugin\n")
    own.start()
    async with kubelet_of(own) as cri:
        await cri.remove(await cri.run(cri.pod_config("web")))
    (pid, title, env), *hooks = recorded(own)
    assert title == "configured"
    assert {"NRI_PLUGIN_IDX", "NRI_PLUGIN_NAME", "NRI_PLUGIN_SOCKET"} <= set(env)
    assert "PATH" not in env
    assert [hook[1:] for hook in hooks] == [["RunPodSandbox", "web"], ["StopPodSandbox", "web"]]
    assert lives(pid)
    assert own.stop() == 0
    assert not lives(pid)
    assert "stray" in own.log.read_text()
