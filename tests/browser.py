"""A real Chromium for tests, driven over WebDriver's HTTP with nothing but the standard library."""

import base64
import json
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
QUIET = ("--disable-background-networking", "--disable-component-update", "--disable-sync")
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run")

# The page for new tabs asks for some two hundred files while the first test's own page loads
BLANK = {"session.restore_on_startup": 4, "session.startup_urls": ["about:blank"]}

# A busy machine tells that a page is loaded before it has a size, and then nothing can be shown
PAINTED = "requestAnimationFrame(() => requestAnimationFrame(() => arguments[0]()))"


def why_none() -> str | None:
    """Why there is no browser here; None where there is one."""
    if not shutil.which("chromedriver") or not any(map(shutil.which, BROWSERS)):
        return "no Chromium here: apt-get install chromium chromium-driver"
    return None


class Browser:
    """One window of a browser: load a page, look at it, and read what it logged."""

    def __init__(self, session: str) -> None:
        self._session = session

    def device(self, width: int, height: int, dark: bool = False) -> None:
        """Become a screen of this size in pixels, a phone where it is narrow."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.cdp("Emulation.setDeviceMetricsOverride", metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.cdp("Emulation.setEmulatedMedia", {"features": [scheme]})

    def open(self, page: Path | str) -> None:
        """Load a page until it is painted, and forget what was logged before."""
        self.logged(), self.requests()
        url = page.as_uri() if isinstance(page, Path) else page
        _ask(f"{self._session}/url", {"url": url})
        _ask(f"{self._session}/execute/async", {"script": PAINTED, "args": []})

    def run(self, script: str) -> Any:
        """What a piece of JavaScript returns."""
        return _ask(f"{self._session}/execute/sync", {"script": script, "args": []})

    def logged(self) -> list[str]:
        """What was written to the console since, errors of the page included."""
        entries = _ask(f"{self._session}/se/log", {"type": "browser"})
        return [f"{entry['level']}: {entry['message']}" for entry in entries]

    def requests(self) -> list[str]:
        """Every address that a page asked for since, its own too; pages of the browser are none."""
        entries = _ask(f"{self._session}/se/log", {"type": "performance"})
        events = [json.loads(entry["message"])["message"] for entry in entries]
        sent = [e["params"] for e in events if e["method"] == "Network.requestWillBeSent"]
        return [s["request"]["url"] for s in sent if not s["documentURL"].startswith("chrome")]

    def screenshot(self, path: Path) -> None:
        """The whole page as a PNG file."""
        shown = {"format": "png", "captureBeyondViewport": True}
        path.write_bytes(base64.b64decode(self.cdp("Page.captureScreenshot", shown)["data"]))

    def printed(self, path: Path) -> None:
        """The page as it comes out of a printer, as a PDF file."""
        path.write_bytes(base64.b64decode(self.cdp("Page.printToPDF", {})["data"]))

    def cdp(self, command: str, parameters: dict[str, Any]) -> Any:
        """A command of Chromium's own protocol."""
        asked = {"cmd": command, "params": parameters}
        return _ask(f"{self._session}/goog/cdp/execute", asked)


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """A browser with a new profile in a folder."""
    with (folder / "chromedriver.txt").open("w+") as told:
        driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=told, stderr=told)
        try:
            port = _port(driver, folder / "chromedriver.txt")
            options = {
                "binary": next(filter(None, map(shutil.which, BROWSERS))),
                "prefs": BLANK,
                "args": [*FLAGS, *QUIET, f"--user-data-dir={folder / 'profile'}"],
            }
            wanted = {
                "goog:chromeOptions": options,
                "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
            }
            root = f"http://127.0.0.1:{port}/session"
            begun = _ask(root, {"capabilities": {"alwaysMatch": wanted}})
            session = f"{root}/{begun['sessionId']}"
            try:
                yield Browser(session)
            finally:
                _ask(session, None, "DELETE")
        finally:
            driver.terminate()
            driver.wait(timeout=10)


def _port(driver: subprocess.Popen[bytes], told: Path) -> int:
    """The port that chromedriver chose, as it says when it is ready."""
    for _ in range(200):
        _, _, rest = told.read_text().partition("successfully on port ")
        if "." in rest:
            return int(rest.split(".")[0])
        if driver.poll() is not None:
            break
        time.sleep(0.1)
    raise RuntimeError(f"chromedriver did not start: {told.read_text()}")


def _ask(url: str, body: Any, method: str = "POST") -> Any:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)["value"]
    except urllib.error.HTTPError as error:
        raise RuntimeError(f"{url}: {error.read().decode()[:500]}") from None
