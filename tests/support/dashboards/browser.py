"""Streamlit pages in a real headless Chromium, shared by the browser tests; no page may ask another host."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from tests.support.waiting import answers, free_port, wait_until

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "dashboards" / "leaderboard.py"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@contextlib.contextmanager
def chromium(profile: Path) -> Iterator[webdriver.Chrome]:
    """A browser of its own. The test is skipped where there is none, and fails there if REQUIRE_BROWSER=1."""
    browser, driver = next(filter(None, map(shutil.which, BROWSERS)), None), shutil.which("chromedriver")
    if not (browser and driver):
        reason = f"no {' or '.join(BROWSERS)} with chromedriver found: apt-get install chromium chromium-driver"
        pytest.fail(reason) if os.environ.get("REQUIRE_BROWSER") == "1" else pytest.skip(reason)
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    quiet = ["background-networking", "component-update", "sync", "gpu", "dev-shm-usage", "default-apps"]
    for flag in ["headless=new", "no-sandbox", "no-first-run", *(f"disable-{name}" for name in quiet)]:
        options.add_argument(f"--{flag}")
    options.add_argument(f"--user-data-dir={profile}")
    options.add_argument("--window-size=1280,1000")
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    running = webdriver.Chrome(options=options, service=Service(executable_path=driver))
    try:
        yield running
    finally:
        running.quit()


@contextlib.contextmanager
def appearance(browser: webdriver.Chrome, theme: str, width: int, height: int = 0) -> Iterator[None]:
    """The browser wants pages light or dark, and shows them as wide as a desk's screen or a phone's (390).

    Args:
        height: pixels; 0: a screen's.
    """
    phone = width < 500
    tall = height or (844 if phone else 1000)
    size = {"width": width, "height": tall, "deviceScaleFactor": 1, "mobile": phone}
    wish = {"features": [{"name": "prefers-color-scheme", "value": theme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", wish)
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        yield
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@contextlib.contextmanager
def served(page: Path, arguments: list[str], log: Path) -> Iterator[str]:
    """The address of a page that Streamlit serves from the project's root, with the project's own settings."""
    port = free_port()
    command = [sys.executable, "-m", "streamlit", "run", str(page), "--server.port", str(port), "--", *arguments]
    env = {key: value for key, value in os.environ.items() if key != "MLFLOW_TRACKING_URI"}
    with open(log, "wb") as output:
        process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output, env=env)
    try:
        wait_until(partial(answers, f"http://127.0.0.1:{port}/_stcore/health"), process, log)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:  # Streamlit may wait for ever for a page that was being drawn
            process.kill()
            process.wait()


def hosts_asked(browser: webdriver.Chrome) -> set[str]:
    """Host names of every request, web sockets included, since this was last asked."""
    hosts = set()
    for entry in browser.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] in ("Network.requestWillBeSent", "Network.webSocketCreated"):
            params = message["params"]
            parts = urlsplit(params.get("url") or params["request"]["url"])
            if parts.scheme in ("http", "https", "ws", "wss"):
                hosts.add(parts.hostname or "")
    return hosts
