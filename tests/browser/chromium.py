"""A headless Chromium that tests drive by the DevTools protocol over a pipe: no driver, no port, no library.

What the tests need is in the protocol alone: each request, each console message, real key presses, a width of 360 px,
dark mode.
"""

import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
HOW_TO_GET = "no Chromium: apt-get install -y --no-install-recommends chromium"
SECONDS = 60.0
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe",
    "--no-first-run", "--disable-extensions", "--disable-background-networking", "--disable-component-update",
    "--hide-scrollbars", "--force-device-scale-factor=1",
)  # fmt: skip


def executable() -> str | None:
    """Path of an installed Chromium or Chrome; None where there is none."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Chromium:
    """A browser with one page, as a context manager; messages are JSON ended by a NUL (file descriptors 3 and 4)."""

    def __init__(self, profile: Path) -> None:
        self.events: list[dict[str, Any]] = []
        self._numbers, self._buffer, self._session = itertools.count(1), b"", ""
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()

        def hand_over() -> None:
            a, b = os.dup(to_read), os.dup(to_write)  # one of them may be 3 or 4 itself
            os.dup2(a, 3)
            os.dup2(b, 4)

        command = [executable() or "", *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        self._process = subprocess.Popen(
            command, pass_fds=(3, 4), preexec_fn=hand_over, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(to_read)
        os.close(to_write)
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(f"{domain}.enable")

    def __enter__(self) -> "Chromium":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.wait(timeout=SECONDS)
        os.close(self._write)
        os.close(self._read)

    def _message(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            if not select.select([self._read], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise TimeoutError(f"Chromium said nothing for {SECONDS:.0f} s")
            part = os.read(self._read, 1 << 20)
            if not part:
                raise RuntimeError("Chromium ended")
            self._buffer += part
        text, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(text)

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of the protocol; its result. Events that come meanwhile are kept in `events`."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": params}
        message |= {"sessionId": self._session} if self._session else {}
        os.write(self._write, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + SECONDS
        while True:
            answer = self._message(deadline)
            if answer.get("id") != number:
                self.events.append(answer)
            elif "error" in answer:
                raise RuntimeError(f"{method}: {answer['error']['message']}")
            else:
                return answer["result"]

    def open(
        self, path: Path, width: int = 1400, height: int = 1000, *, dark: bool = False, script: bool = True
    ) -> None:
        """Load a file and wait until it is there."""
        self.events.clear()
        self.resize(width, height)
        self.send("Emulation.setScriptExecutionDisabled", value=not script)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.send("Emulation.setEmulatedMedia", features=scheme)
        self.send("Page.navigate", url=path.resolve().as_uri())
        deadline = time.monotonic() + SECONDS
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._message(deadline))

    def resize(self, width: int, height: int = 1000) -> None:
        """The window's inner size in CSS pixels."""
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def value(self, expression: str) -> Any:
        """What a JavaScript expression gives, as JSON; a thrown error is raised."""
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"]["exception"].get("description", answer["exceptionDetails"]))
        return answer["result"].get("value")

    def press(self, key: str, code: int) -> None:
        """A key press, on what has the focus. code: its Windows virtual key code."""
        text = {"Enter": "\r", " ": " "}.get(key, "")
        for kind in ("keyDown", "keyUp"):
            more = {"text": text} if kind == "keyDown" and text else {}
            self.send("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **more)

    def complaints(self) -> list[str]:
        """Console messages, uncaught errors and log entries (what the CSP blocked is one) since the page was opened."""
        self.value("0")  # what came before it is in `events` now
        found = []
        for event in self.events:
            method, params = event.get("method", ""), event.get("params", {})
            if method == "Runtime.consoleAPICalled":
                found.append(f"{params['type']}: {[part.get('value') for part in params['args']]}")
            elif method == "Runtime.exceptionThrown":
                found.append(str(params["exceptionDetails"].get("exception", params["exceptionDetails"])))
            elif method == "Log.entryAdded":
                found.append(params["entry"]["text"])
        return found

    def requests(self) -> list[str]:
        """Everything that was asked for since the page was opened, the page itself first."""
        self.value("0")
        return [e["params"]["request"]["url"] for e in self.events if e.get("method") == "Network.requestWillBeSent"]

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        """What is seen as PNG; whole: the page down to its end."""
        data = self.send("Page.captureScreenshot", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(data))
