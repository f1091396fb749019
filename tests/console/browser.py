"""A headless Chromium with a profile of its own, and the questions of tests and pictures to a page in it."""

from __future__ import annotations

import contextlib
import pathlib
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.remote.webelement import WebElement

AXE = pathlib.Path(__file__).parent / "axe" / "axe.min.js"
PHONE, DESK = (360, 740), (1440, 900)
WITHIN_S = 20.0
_SWITCHES = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--no-first-run",
    "--lang=en-US",
)


def _binary(name: str) -> str:
    path = shutil.which(name)
    assert path is not None, f"{name} is not installed: apt-get install chromium chromium-driver"
    return path


class Browser:
    """One tab."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def look(self, width: int, height: int, theme: str = "light") -> None:
        """Set the size of the screen, in CSS pixels, and the theme of the system."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        features = [{"name": "prefers-color-scheme", "value": theme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def open(self, url: str) -> None:
        self.driver.get(url)

    def run(self, script: str, *arguments: object) -> Any:
        """The value that a script returns."""
        return self.driver.execute_script(script, *arguments)

    def text(self) -> str:
        """The visible text of the page."""
        return str(self.run("return document.body.innerText"))

    def find(self, selector: str) -> WebElement:
        return self.driver.find_element("css selector", selector)

    def heading(self) -> str:
        """The page's first heading. A live page takes its elements away at any moment, so the page itself reads it."""
        return str(self.run("return (document.querySelector('h1') || document.body).innerText"))

    def press(self, keys: str) -> None:
        """Type on the keyboard, into the element with the focus."""
        self.driver.switch_to.active_element.send_keys(keys)

    def wait(self, condition: Callable[[], object], what: str, within_s: float = WITHIN_S) -> None:
        deadline_s = time.monotonic() + within_s
        while not condition():
            assert time.monotonic() < deadline_s, f"{what}: not within {within_s} s; the page says: {self.text()[:600]}"
            time.sleep(0.05)

    def said_to_console(self) -> list[str]:
        """The complaints of the page, and the refusals of the browser, since the last call."""
        return [str(entry["message"]) for entry in self.driver.get_log("browser")]  # type: ignore[no-untyped-call]

    def is_wider_than_screen(self) -> bool:
        """Does the page as a whole move sideways?"""
        return bool(self.run("return document.documentElement.scrollWidth > window.innerWidth"))

    def violations(self) -> list[str]:
        """The violations that axe-core finds, by WCAG 2.2, A and AA, and its own best practices."""
        self.run(AXE.read_text())
        violations = self.driver.execute_async_script(
            "const done = arguments[arguments.length - 1];"
            "axe.run(document, {resultTypes: ['violations']}).then(r => done(r.violations), e => done(String(e)));"
        )
        assert isinstance(violations, list), violations
        return [
            f"{violation['id']}: {[node['html'][:160] for node in violation['nodes'][:3]]}" for violation in violations
        ]

    def picture(self, file: pathlib.Path, height: int | None = None) -> None:
        """The page as a PNG; with `height` no more of it than that."""
        if height is not None:
            width = self.run("return window.innerWidth")
            self.driver.execute_cdp_cmd(
                "Emulation.setDeviceMetricsOverride",
                {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500},
            )
        self.driver.save_screenshot(str(file))


@contextlib.contextmanager
def running_browser() -> Iterator[Browser]:
    """A browser with a fresh profile, for the length of the block."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = webdriver.ChromeOptions()
        options.binary_location = _binary("chromium")
        for switch in (*_SWITCHES, f"--user-data-dir={profile}"):
            options.add_argument(switch)
        options.accept_insecure_certs = True  # those of tests are signed by an authority of their own
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        driver = webdriver.Chrome(options=options, service=Service(_binary("chromedriver")))
        try:
            driver.set_page_load_timeout(WITHIN_S)
            driver.set_script_timeout(WITHIN_S)
            yield Browser(driver)
        finally:
            driver.quit()
