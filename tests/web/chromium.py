"""A real Chromium without a window, driven by its DevTools protocol over a pipe: it may be in another network namespace."""

import asyncio
import base64
import contextlib
import itertools
import json
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
PROGRAM = next(filter(None, map(shutil.which, PROGRAMS)), None)
SECONDS = 60.0


class Page:
    """One page. Uncaught exceptions and violated policies are in `problems`."""

    def __init__(self, reader: asyncio.StreamReader, writes: int) -> None:
        self._reader, self._writes, self._session = reader, writes, ""
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self.problems: list[str] = []
        self._reading = asyncio.create_task(self._read())

    async def call(self, method: str, **parameters: Any) -> Any:
        number = next(self._numbers)
        self._waiting[number] = asyncio.get_running_loop().create_future()
        message = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._writes, json.dumps(message).encode() + b"\0")
        async with asyncio.timeout(SECONDS):
            return await self._waiting[number]

    async def attach(self) -> None:
        """Talks to the page that the browser opened."""
        while True:
            targets = (await self.call("Target.getTargets"))["targetInfos"]
            pages = [target["targetId"] for target in targets if target["type"] == "page"]
            if pages:
                break
            await asyncio.sleep(0.02)
        self._session = (await self.call("Target.attachToTarget", targetId=pages[0], flatten=True))["sessionId"]
        for domain in ("Runtime", "Page", "Log", "Network"):
            await self.call(f"{domain}.enable")

    async def run(self, script: str) -> Any:
        """The value of an expression in the page; promises are awaited."""
        done = await self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    async def until(self, script: str, seconds: float = SECONDS) -> Any:
        """Waits until an expression is true."""
        expression = f"(() => {{ try {{ return {script}; }} catch {{ return null; }} }})()"
        deadline = asyncio.get_running_loop().time() + seconds
        while True:
            if value := await self.run(expression):
                return value
            if asyncio.get_running_loop().time() > deadline:
                text = await self.run("document.body.innerText")
                raise AssertionError(f"{script} did not become true; the page shows:\n{text[:3000]}")
            await asyncio.sleep(0.02)

    async def open(self, url: str) -> None:
        await self.call("Page.navigate", url=url)

    async def click(self, selector: str) -> None:
        await self.until(f"!!document.querySelector({json.dumps(selector)})")
        await self.run(
            f"document.querySelector({json.dumps(selector)}).dispatchEvent(new MouseEvent('click', {{bubbles: true}}))"
        )

    async def press(self, key: str) -> None:
        await self.run(
            f"document.body.dispatchEvent(new KeyboardEvent('keydown', {{key: {json.dumps(key)}, bubbles: true}}))"
        )

    async def size(self, width: int, height: int, *, dark: bool = False) -> None:
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme])

    async def picture(self) -> bytes:
        return base64.b64decode((await self.call("Page.captureScreenshot", format="png"))["data"])

    async def close(self) -> None:
        self._reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._reading

    async def _read(self) -> None:
        while True:
            try:
                message = await self._reader.readuntil(b"\0")
            except asyncio.IncompleteReadError:
                return
            event = json.loads(message[:-1])
            if "id" in event:
                waiting = self._waiting.pop(event["id"])
                if "error" in event:
                    waiting.set_exception(AssertionError(event["error"]))
                else:
                    waiting.set_result(event["result"])
            elif event["method"] == "Runtime.exceptionThrown":
                self.problems.append(str(event["params"]["exceptionDetails"]))
            elif event["method"] == "Log.entryAdded" and event["params"]["entry"]["level"] == "error":
                self.problems.append(str(event["params"]["entry"]["text"]))


@contextlib.asynccontextmanager
async def browser(home: Path, *enter: object) -> AsyncIterator[Page]:
    """Starts a browser of its own, and gives its page; `enter` is a command that runs another one elsewhere."""
    assert PROGRAM is not None
    words = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe"]
    words += ["--no-first-run", "--hide-scrollbars", "--disable-background-networking", f"--user-data-dir={home}"]
    (their_reads, writes), (reads, their_writes) = os.pipe(), os.pipe()
    process = await asyncio.create_subprocess_exec(
        "setpriv", "--pdeathsig", "KILL", *map(str, enter),
        "bash", "-c", f'exec "$@" 3<&{their_reads} 4>&{their_writes}', "bash", PROGRAM, *words, "about:blank",
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL, pass_fds=(their_reads, their_writes),
        env={"HOME": str(home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8"},
    )  # fmt: skip
    os.close(their_reads)
    os.close(their_writes)
    reader = asyncio.StreamReader(limit=64 << 20)
    pipe = os.fdopen(reads, "rb")
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), pipe
    )
    try:
        page = Page(reader, writes)
        await page.attach()
        yield page
        await page.close()
    finally:
        process.kill()
        await process.wait()
        transport.close()
        os.close(writes)
