"""In a browser the page draws its plots without an error, and fetches nothing."""

import json
import shutil

import pytest
from test_report_page import a_study

from momentous.lab.report.documents import write_page

webdriver = pytest.importorskip("selenium.webdriver")
support = pytest.importorskip("selenium.webdriver.support.ui")
pytest.importorskip("plotly")
pytest.importorskip("jinja2")

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
DRIVER = shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None, reason="Chromium and its driver are not installed"
)


@pytest.fixture(scope="module")
def browser():
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


def test_the_page_draws_its_plots_without_errors_and_fetches_nothing(browser, tmp_path):
    path = tmp_path / "index.html"
    write_page(a_study(), path, title="Run again", lead="What came out.")
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": 400, "height": 900, "deviceScaleFactor": 1, "mobile": True},
    )
    browser.get(path.as_uri())
    drawn = (
        "return [...document.querySelectorAll('.plot')]"
        ".map(plot => plot.querySelectorAll('.scatterlayer .trace').length)"
    )
    wait = support.WebDriverWait(browser, 60)  # Plotly draws after the page is there
    wait.until(lambda page: all(page.execute_script(drawn)))
    assert browser.execute_script(drawn) == [5, 5, 2]  # three runs, two of them with marks
    # The second button of the menu of horizontal axes: time.
    browser.execute_script(
        "const plot = document.getElementById('plot-0'), menu = plot.layout.updatemenus[2];"
        "return Plotly.update(plot, ...menu.buttons[1].args);"
    )
    title = browser.execute_script(
        "return document.getElementById('plot-0').layout.xaxis.title.text"
    )
    assert title == "time in seconds"
    widths = "return [document.documentElement.scrollWidth, window.innerWidth]"
    assert len(set(browser.execute_script(widths))) == 1  # nothing sticks out on a narrow screen
    assert browser.get_log("browser") == []
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    fetched = [
        message["params"]["request"]["url"]
        for message in messages
        if message["method"] == "Network.requestWillBeSent"
    ]
    assert {url for url in fetched if not url.startswith("data:")} == {path.as_uri()}
