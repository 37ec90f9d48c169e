"""A headless Chromium, driven over WebDriver (https://www.w3.org/TR/webdriver2/) by its chromedriver.

with Browser() as browser:
    browser.open("http://127.0.0.1:9399/")
    browser.wait("document.title == 'Headrace'")
    browser.press("2")
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any

# Debian's names, and those of other distributions.
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
PATIENCE_S = 180
_KEYS = {"ArrowLeft": "\ue012", "ArrowRight": "\ue014", "Tab": "\ue004", "Enter": "\ue007"}


def missing() -> str:
    """Why there is no browser here; empty when there is one."""
    if not any(shutil.which(name) for name in BROWSERS):
        return "needs Chromium (Debian: chromium)"
    return "" if shutil.which("chromedriver") else "needs chromedriver (Debian: chromium-driver)"


def free_port() -> int:
    """A port that nobody listens at now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Browser:
    """One window. Closes with all of its processes and its profile at the end of the block."""

    def __init__(self) -> None:
        self._profile = tempfile.TemporaryDirectory(prefix="browser-", ignore_cleanup_errors=True)
        self._port = free_port()
        self._session = ""
        # Its own processes, so that none of a user's is touched.
        environment = os.environ | {"HOME": self._profile.name}
        self._driver = subprocess.Popen(
            ["chromedriver", f"--port={self._port}", "--silent"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment,
        )
        try:
            self._wait_for_driver()
            self._start()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the browser and its driver."""
        if self._session:
            try:
                self._ask("DELETE", "")
            except OSError:
                pass
            self._session = ""
        self._driver.terminate()
        self._driver.wait(timeout=PATIENCE_S)
        self._profile.cleanup()

    def _wait_for_driver(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            try:
                if self._call("GET", "/status")["ready"]:
                    return
            except OSError:
                assert self._driver.poll() is None, "chromedriver ended at once"
            time.sleep(0.05)
        raise AssertionError("chromedriver does not answer")

    def _start(self) -> None:
        arguments = [
            "--headless=new",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            "--force-color-profile=srgb",
            "--no-first-run",
            f"--user-data-dir={self._profile.name}/profile",
        ]
        # Containers seldom let a user make the namespaces that its sandbox is made of.
        arguments.append("--no-sandbox")
        binary = next(found for name in BROWSERS if (found := shutil.which(name)))
        wanted = {
            "browserName": "chrome",
            "goog:chromeOptions": {"args": arguments, "binary": binary},
            "goog:loggingPrefs": {"browser": "ALL"},
        }
        made = self._call("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self._session = made["sessionId"]

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._port}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            text = json.loads(error.read())["value"]
            raise AssertionError(f"{path}: {text['error']}: {text['message']}") from None

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        return self._call(method, f"/session/{self._session}{path}", body)

    def _devtools(self, command: str, **parameters: Any) -> Any:
        return self._ask("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def open(self, url: str) -> None:
        """Load a page, and wait until it is loaded."""
        self._ask("POST", "/url", {"url": url})

    def resize(self, width: int, height: int, phone: bool = False) -> None:
        """Set the size of the page in CSS pixels."""
        self._devtools(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=phone,
        )

    def prefer(self, scheme: str) -> None:
        """Be a system that is set to ``light`` or ``dark``."""
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self._devtools("Emulation.setEmulatedMedia", features=[feature])

    def run(self, script: str, *arguments: Any) -> Any:
        """Run JavaScript in the page, as the body of a function, and return what it returns."""
        return self._ask("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def wait(self, condition: str) -> None:
        """Wait until a JavaScript expression is true in the page."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            if self.run(f"return Boolean({condition})"):
                return
            time.sleep(0.05)
        raise AssertionError(f"never true: {condition}; the page says: {self.text()[:2000]}")

    def text(self) -> str:
        """All text that the page shows."""
        shown: str = self.run("return document.body.innerText")
        return shown

    def press(self, key: str) -> None:
        """Press a key, as a person does, where the focus is."""
        value = _KEYS.get(key, key)
        actions = [{"type": "keyDown", "value": value}, {"type": "keyUp", "value": value}]
        self._ask("POST", "/actions", {"actions": [{"type": "key", "id": "k", "actions": actions}]})

    def type(self, selector: str, text: str) -> None:
        """Type into the element that a CSS selector finds."""
        self._ask("POST", f"/element/{self._find(selector)}/value", {"text": text})

    def click(self, selector: str) -> None:
        """Click on the element that a CSS selector finds, as a person does."""
        self._ask("POST", f"/element/{self._find(selector)}/click", {})

    def _find(self, selector: str) -> str:
        found = self._ask("POST", "/element", {"using": "css selector", "value": selector})
        element: str = next(iter(found.values()))
        return element

    def complaints(self) -> list[str]:
        """What the browser's console got since the last call: warnings and errors."""
        lines = self._ask("POST", "/se/log", {"type": "browser"})
        return [line["message"] for line in lines if line["level"] in ("WARNING", "SEVERE")]

    def screenshot(self, path: Path) -> None:
        """Write what the window shows as a PNG file."""
        path.write_bytes(base64.b64decode(self._ask("GET", "/screenshot")))
