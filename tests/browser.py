"""A real Chromium without a window, for pages; tests of them are skipped where it is not installed."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")


def require_chromium() -> None:
    """Skip, and say what to install, where there is no browser to look with."""
    pytest.importorskip("selenium", reason="selenium is not installed: pip install 'otprune[dev]'")
    if CHROMIUM is None or DRIVER is None:
        why = "chromium and chromedriver are not installed: apt install chromium chromium-driver"
        pytest.skip(why, allow_module_level=True)


@contextmanager
def browser(width: int = 1200, height: int = 900) -> Iterator[Any]:
    """A browser with a log of what it asks the network for."""
    require_chromium()
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(str(DRIVER)))
    try:
        resize(driver, width, height)
        yield driver
    finally:
        driver.quit()


def resize(driver: Any, width: int, height: int) -> None:
    """The size of the page itself, which may be narrower than any window can be."""
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def prefer(driver: Any, scheme: str) -> None:
    """Ask for a dark or a light page, as a system does."""
    media = [{"name": "prefers-color-scheme", "value": scheme}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": media})


def print_out(driver: Any) -> None:
    """Show the page as it prints."""
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})


def open_page(driver: Any, path: Path) -> None:
    """Open a file; logs begin with it."""
    driver.get_log("performance"), driver.get_log("browser")
    driver.get(path.resolve().as_uri())


def console_of(driver: Any) -> list[str]:
    """What the page said in the console since this was last asked: errors, warnings, and all else."""
    return [entry["message"] for entry in driver.get_log("browser")]


def asked_for(driver: Any) -> list[str]:
    """The addresses that the page asked for since this was last asked."""
    events = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    return [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]
