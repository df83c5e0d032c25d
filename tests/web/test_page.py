"""The live page in a real Chromium: every view, live growth, failing pods, hostile names, many pods.

`PODWIRE_DOCS=1 pytest tests/web/test_page.py` makes docs/ui-*.png anew.
"""

import asyncio
import os
from pathlib import Path

import msgspec

from tests.trace.conftest import UID
from tests.trace.conftest import recorded as story
from tests.web.conftest import recorded

DOCS = Path(__file__).parents[2] / "docs"
FAILING = {
    "phase": "Pending",
    "containerStatuses": [
        {
            "name": "c", "image": "web", "imageID": "", "ready": False, "restartCount": 3,
            "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s restarting failed container"}},
            "lastState": {"terminated": {"exitCode": 7, "reason": "Error"}},
        }
    ],
}  # fmt: skip
READY = [{"name": "c", "image": "web", "imageID": "", "ready": True, "restartCount": 0, "state": {"running": {}}}]
RUNNING = {"phase": "Running", "podIP": "10.244.1.9", "containerStatuses": READY}


async def shot(page, name: str) -> None:
    """Keeps a picture of the page for the docs, if they are made anew."""
    picture = await page.picture()
    assert len(picture) > 10_000, "the page is not empty"
    if os.environ.get("PODWIRE_DOCS"):
        (DOCS / f"ui-{name}.png").write_bytes(picture)


async def test_the_cluster_shows_what_fails_first_and_follows_changes(site, page):
    await site.pod("well", **RUNNING)
    await site.pod("broken", **FAILING)
    await page.open(site.link)
    await page.until("document.querySelectorAll('.virtual .pod-row').length === 2")
    rows = "[...document.querySelectorAll('.virtual .pod-row')].sort((a, b) => a.getBoundingClientRect().top - b.getBoundingClientRect().top)"
    assert "default/broken" in await page.run(f"{rows}[0].innerText")
    assert "back-off 40s restarting failed container; last exit code 7" in await page.run(f"{rows}[0].innerText")
    assert await page.run("location.search") == "", "the token is removed from the address"
    await site.pod("later")
    await page.until("document.querySelectorAll('.virtual .pod-row').length === 3")
    await site.client.delete(
        site.client.kind_of({"apiVersion": "v1", "kind": "Pod"}), "well", "default", grace_seconds=0
    )
    await page.until("document.querySelectorAll('.virtual .pod-row').length === 2")
    assert page.problems == []


async def test_a_start_grows_while_it_happens_and_shows_what_calls_carried(site, page):
    records = story()
    site.record(*records[:15])
    await page.open(f"{site.link}#/start/{UID}")
    await page.until("document.querySelectorAll('g.row').length > 10")
    before = await page.run("document.querySelectorAll('g.row').length")
    assert "not Running yet" in await page.run("document.querySelector('h1').textContent")
    site.record(*records[15:])
    await page.until("document.querySelector('h1').textContent.includes('Running after')")
    assert await page.run("document.querySelectorAll('g.row').length") > before
    await page.click("g.row.call[data-id^='Runtime-1.1']")
    await page.until("!document.querySelector('#detail').hidden")
    await page.until("document.querySelector('#detail').innerText.includes('10.1.0.2/24')")
    covered = "document.querySelector('g.row.shown').getBoundingClientRect().bottom <= document.querySelector('#detail').getBoundingClientRect().top"
    assert await page.run(covered), "the panel does not cover what was clicked"
    assert "call=Runtime-1.1" in await page.run("location.hash"), "the address is a permalink"
    await page.press("Escape")
    assert await page.run("document.querySelector('#detail').hidden")
    for key, selector in (("w", "svg.waterfall g.critical"), ("c", "table.grid tr[data-id]"), ("s", "svg.head")):
        await page.press(key)
        await page.until(f"!!document.querySelector({selector!r})")
    assert page.problems == []


async def test_failures_are_marked_and_keys_go_from_one_to_the_next(site, page):
    records = story()
    failed = [
        msgspec.structs.replace(records[place], id=f"Runtime-1.9{number}", seq=100 + number * 2 + (place - 15),
                                time=records[place].time + 3 * number, outcome="exit 1" if place == 16 else "",
                                detail={"error": "no address left"} if place == 16 else {})
        for number in range(3) for place in (15, 16)
    ]  # fmt: skip
    site.record(*records[:15], *failed)
    await page.open(f"{site.link}#/start/{UID}")
    await page.until("document.querySelectorAll('g.row.failed').length === 3")
    assert "3 times" in await page.run("document.querySelector('.failures').innerText")
    assert "no address left" in await page.run("document.querySelector('.failures').innerText")
    assert await page.run("document.querySelectorAll('g.pause').length") == 2, "gaps of more than a second"
    assert "attempt 3" in await page.run("document.querySelector('.scroll').textContent")
    first = None
    for _ in range(2):
        await page.press("n")
        await page.until(
            f"document.querySelector('g.row.shown.failed')?.dataset.id !== {first!r}"
            if first
            else "!!document.querySelector('g.row.shown.failed')"
        )
        first = await page.run("document.querySelector('g.row.shown.failed').dataset.id")
    await page.until("document.querySelector('#detail').innerText.includes('no address left')")
    await shot(page, "failure")
    assert page.problems == []


async def test_ten_thousand_pods_are_listed_and_scrolled_without_freezing(site, page):
    await page.open(site.link)
    await page.until("document.querySelector('#connection').textContent === 'live'")
    await page.run(
        """(async () => {
          const { VirtualList } = await import("/page/virtual_list.js");
          const list = window.list = new VirtualList(44, (pod) => {
            const row = document.createElement("div"); row.className = "pod-row"; row.textContent = pod.key; return row; });
          list.element.style.height = "600px";
          document.querySelector("#view").replaceChildren(list.element);
          list.show(Array.from({ length: 10000 }, (_, number) => ({ key: `default/pod-${number}` })));
        })()"""
    )
    frames = await page.run(
        """(async () => {
          const frames = [];
          for (let step = 0; step < 30; step++) {
            const begin = performance.now();
            list.element.scrollTop = step * 14000;
            list.paint();
            frames.push(performance.now() - begin);
            await new Promise((resolve) => setTimeout(resolve, 0));
          }
          return [frames.sort((a, b) => a - b)[15], document.querySelectorAll(".pod-row").length, list.filler.lastChild.textContent];
        })()"""
    )
    assert frames[0] < 100, "milliseconds of a step, the median: the machine may be busy"
    assert frames[1] < 60, "only visible rows exist"
    assert int(frames[2].rpartition("-")[2]) > 9000


async def test_a_hundred_and_ten_pods_change_while_the_page_stays_fluent(site, page):
    await page.open(site.link)
    await page.until("document.querySelector('#connection').textContent === 'live'")
    await page.run(
        """(() => { let last = performance.now(); window.frames = [];
          const frame = (now) => { window.frames.push(now - last); last = now; requestAnimationFrame(frame); };
          requestAnimationFrame(frame); })()"""
    )
    pods = await asyncio.gather(*(site.pod(f"web-{number}") for number in range(110)))
    await page.until("document.querySelector('.count.waiting').textContent.startsWith('110 ')")
    changes = [site.client.replace({**pod, "status": RUNNING}, subresource="status") for pod in pods]
    await asyncio.gather(*changes)
    await page.until("document.querySelector('.count.running').textContent.startsWith('110 ')")
    median = await page.run("[...window.frames].sort((a, b) => a - b)[Math.floor(window.frames.length / 2)]")
    assert median < 200, "milliseconds between two frames; the machine may be busy"
    await shot(page, "cluster")
    assert page.problems == []


async def test_participants_can_be_hidden(site, page):
    site.record(*story())
    await page.open(f"{site.link}#/start/{UID}?hide=etcd&hide=User")
    await page.until("document.querySelectorAll('g.row').length > 10")
    names = "[...document.querySelectorAll('svg.head .who title')].map((title) => title.textContent).join()"
    assert "etcd" not in await page.run(names)
    await page.run(
        "[...document.querySelectorAll('.lanes label')].find((label) => label.textContent === 'etcd').click()"
    )
    await page.until(f"{names}.includes('etcd')")
    assert page.problems == []


async def test_flows_link_each_line_to_the_call_that_satisfied_it(site, page):
    site.record(*recorded("pod"))
    await page.open(f"{site.link}#/flows/pod")
    await page.until("document.querySelectorAll('table.grid tr.matched').length > 15")
    assert await page.run("document.querySelectorAll('#view .button').length") == 5
    await shot(page, "flow")
    await page.run("[...document.querySelectorAll('table.grid tr.matched a')].at(-1).click()")
    await page.until("location.hash.startsWith('#/start/')")
    await page.until("!!document.querySelector('g.row.shown')")
    assert page.problems == []


async def test_a_comparison_blames_failures_first(site, page):
    site.record(*recorded("pod"), *recorded("cni"))
    await page.open(f"{site.link}#/compare")
    await page.until("document.querySelectorAll('.compare table').length === 3")
    assert await page.run("document.querySelectorAll('.verdict li').length") >= 1
    await page.run(
        "(() => { const a = document.querySelector('select'); a.value = 'flow:pod'; a.dispatchEvent(new Event('change')); })()"
    )
    await page.until("document.querySelector('.verdict li').textContent.includes('the pod flow')")
    assert page.problems == []


HOSTILE = "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">\x1b[2J\u202e"


async def test_nothing_that_names_carry_is_run(site, page):
    records = [
        msgspec.structs.replace(record, detail=record.detail | {"name": HOSTILE, "stdout": HOSTILE, "error": HOSTILE},
                                callee=HOSTILE if record.begins else record.callee, node=HOSTILE)
        if record.detail.get("name") else record
        for record in story()
    ]  # fmt: skip
    site.record(*records)
    await site.pod("hostile", **{**FAILING, "message": HOSTILE, "reason": HOSTILE})
    await page.open(f"{site.link}#/start/{UID}")
    await page.until("document.querySelectorAll('g.row').length > 10")
    for key in ("w", "c", "s"):
        await page.press(key)
    await page.click("g.row[data-id^='APIServer-1.4']")
    await page.until("!document.querySelector('#detail').hidden")
    await page.run("location.hash = '#/cluster'")
    await page.until("document.querySelectorAll('.virtual .pod-row').length === 1")
    assert await page.run("document.title") != "owned"
    assert await page.run("document.images.length") == 0
    assert page.problems == []


async def test_a_start_is_saved_as_png_svg_html_and_mermaid(site, page):
    site.record(*story())
    await page.open(f"{site.link}#/start/{UID}")
    await page.until("!!document.querySelector('svg.head')")
    sizes = await page.run(
        f"""(async () => {{
          const {{ png }} = await import("/page/start_view.js");
          const get = async (form) => (await fetch("/api/starts/{UID}/download?format=" + form)).blob();
          const made = await png(await get("svg"));
          const head = new Uint8Array(await made.slice(1, 4).arrayBuffer());
          return [String.fromCharCode(...head), made.size, await (await get("mermaid")).text(), await (await get("html")).text()];
        }})()"""
    )
    assert sizes[0] == "PNG"
    assert sizes[1] > 20_000, "the picture is not empty"
    assert sizes[2].startswith("sequenceDiagram")
    assert sizes[3].startswith("<!DOCTYPE html>")
    assert page.problems == []


async def test_dark_and_narrow_windows_are_legible(site, page):
    site.record(*recorded("life"))
    await page.size(1600, 1000, dark=True)
    await page.open(f"{site.link}#/start")
    await page.click("a.start-item")
    await page.until("document.querySelectorAll('g.row').length > 10")
    assert await page.run("document.documentElement.dataset.theme") == "dark"
    right = await page.run("[...document.querySelectorAll('svg.head .who')].at(-1).getBoundingClientRect().right")
    assert right <= 1600, "the lanes at the right are visible"
    await shot(page, "start-dark")
    await page.press("t")
    assert await page.run("document.documentElement.dataset.theme") == "light"
    await shot(page, "start")
    await page.press("w")
    await page.until("!!document.querySelector('svg.waterfall')")
    await shot(page, "waterfall")
    await page.size(420, 800)
    assert await page.run("document.documentElement.scrollWidth") <= 420
    assert page.problems == []
