"""The page of a study in a real browser: buttons, legend, zoom, tooltip, small and dark screens."""

import json
import shutil
import time

import pytest
from test_report_page import a_study

from momentous.lab.report.page import write_page

selenium = pytest.importorskip("selenium", reason="selenium is not installed")
if not (shutil.which("chromium") and shutil.which("chromedriver")):
    pytest.skip("chromium or chromedriver is not installed", allow_module_level=True)

from selenium import webdriver  # noqa: E402
from selenium.webdriver import ActionChains, Keys  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402

EVIDENCE = ("xAxis", "yAxis", "scale", "hidden", "events", "zoom")


@pytest.fixture(scope="module")
def browser():
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(executable_path=shutil.which("chromedriver"))
    driver = webdriver.Chrome(options=options, service=service)
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    path = tmp_path_factory.mktemp("site") / "index.html"
    write_page(a_study(), path, title="Run again", lead="What came out.")
    return path.as_uri()


class Reader:
    """Somebody with a mouse before the first plot of the page."""

    def __init__(self, browser, width, address):
        self.browser = browser
        self.command(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=900, deviceScaleFactor=1, mobile=width < 500,
        )  # fmt: skip
        self.scheme("light")
        browser.get(address)
        self.figure = browser.find_element(By.CSS_SELECTOR, "figure.plot")
        self.canvas = self.find("canvas")

    def command(self, name, **arguments):
        return self.browser.execute_cdp_cmd(name, arguments)

    def scheme(self, value):
        feature = {"name": "prefers-color-scheme", "value": value}
        self.command("Emulation.setEmulatedMedia", features=[feature])

    def find(self, selector):
        return self.figure.find_element(By.CSS_SELECTOR, selector)

    def press(self, selector):
        self.find(selector).click()

    @property
    def state(self):
        return {name: self.run("return arguments[0].dataset[arguments[1]]", name)
                for name in EVIDENCE}  # fmt: skip

    def run(self, script, *arguments):
        return self.browser.execute_script(script, self.figure, *arguments)

    @property
    def drawing(self):
        """The bitmap; the mouse leaves the legend first, which would light up a curve."""
        ActionChains(self.browser).move_to_element(self.find(".x-label")).perform()
        return self.run("return arguments[0].querySelector('.stage canvas').toDataURL()")

    def point_on(self, number):
        """A pixel of the plot, from its middle, in the colour of a curve of the legend."""
        return self.run(
            "const [figure, number] = arguments, c = figure.querySelector('.stage canvas');"
            "const style = getComputedStyle(figure.querySelectorAll('.swatch')[number]);"
            "const wanted = style.color.match(/[0-9]+/g).map(Number);"
            "const x = Math.round(c.width * 0.4), ratio = c.width / c.clientWidth;"
            "const column = c.getContext('2d').getImageData(x, 0, 1, c.height).data;"
            "const rows = [...Array(c.height).keys()].filter(y => wanted.every("
            "  (v, i) => Math.abs(v - column[4 * y + i]) < 3) && column[4 * y + 3] > 250);"
            "return [x / ratio - c.clientWidth / 2, rows[0] / ratio - c.clientHeight / 2]"
            ".map(Math.round);",
            number,
        )

    def drag(self, start, end, *, shift=False):
        """Drag from and to pixels that are counted from the middle of the plot."""
        chain = ActionChains(self.browser, duration=20)
        if shift:
            chain.key_down(Keys.SHIFT)
        chain.move_to_element_with_offset(self.canvas, *start).click_and_hold()
        chain.move_to_element_with_offset(self.canvas, *end).release()
        if shift:
            chain.key_up(Keys.SHIFT)
        chain.perform()

    @property
    def zoom(self):
        return json.loads(self.state["zoom"])

    def errors(self):
        """The console, but for advice about speed that the reading of pixels here provokes."""
        told = self.browser.get_log("browser")
        return [entry["message"] for entry in told if entry["source"] != "rendering"]


@pytest.fixture
def reader(browser, address):
    made = Reader(browser, 1200, address)
    yield made
    assert made.errors() == []  # whatever was done, the console stays silent


def test_the_page_opens_without_a_word_and_draws_every_plot(reader, browser):
    figures = browser.find_elements(By.CSS_SELECTOR, "figure.plot")
    assert len(figures) == 3
    for figure in figures:
        colours = browser.execute_script(
            "const c = arguments[0].querySelector('.stage canvas');"
            "const d = new Uint32Array(c.getContext('2d').getImageData(0, 0, c.width, c.height)"
            ".data.buffer); return new Set(d).size", figure,
        )  # fmt: skip
        assert colours > 20
    assert reader.errors() == []


def test_axes_can_be_chosen_and_are_named(reader):
    state = reader.state
    assert (state["xAxis"], state["yAxis"], state["scale"]) == (
        "evaluations",
        "error",
        "linear log",
    )
    seen = {reader.drawing}
    for button, label, words in (
        ("[data-y=gradient]", ".y-label", "gradient norm"),
        ("[data-x=time]", ".x-label", "time in seconds"),
        ("[data-x=iteration]", ".x-label", "iterations"),
    ):
        assert words not in reader.find(label).text
        reader.press(button)
        assert words in reader.find(label).text
        assert reader.find(button).get_attribute("aria-pressed") == "true"
        seen.add(reader.drawing)
    assert (reader.state["xAxis"], reader.state["yAxis"]) == ("iteration", "gradient")
    assert reader.find("[data-x=time]").get_attribute("aria-pressed") == "false"
    reader.press("[data-log=x]")
    reader.press("[data-log=y]")
    assert reader.state["scale"] == "log linear"
    seen.add(reader.drawing)
    assert len(seen) == 5


def test_the_keyboard_reaches_and_presses_buttons(reader, browser):
    browser.execute_script("arguments[0].focus()", reader.find("[data-y=error]"))
    ActionChains(browser).send_keys(Keys.TAB).send_keys(Keys.SPACE).perform()
    assert reader.state["yAxis"] == "gradient"


def test_the_legend_hides_and_isolates_methods(reader, browser):
    everyone = reader.drawing
    ours, jin, descent = reader.figure.find_elements(By.CSS_SELECTOR, ".legend button")
    jin.click()
    assert json.loads(reader.state["hidden"]) == ["Jin's AGD"]
    assert jin.get_attribute("aria-pressed") == "false"
    assert reader.drawing != everyone
    jin.click()
    assert json.loads(reader.state["hidden"]) == []
    assert reader.drawing == everyone
    ActionChains(browser).double_click(ours).perform()
    assert json.loads(reader.state["hidden"]) == ["Jin's AGD", "GD"]
    ActionChains(browser).double_click(ours).perform()
    assert json.loads(reader.state["hidden"]) == []
    for button in (ours, jin, descent):
        button.click()
    assert len(json.loads(reader.state["hidden"])) == 3  # an empty plot is a plot, too


def test_the_keyboard_isolates_a_method(reader, browser):
    ours = reader.find(".legend button")
    assert ours.get_attribute("aria-keyshortcuts") == "Alt+Enter"
    browser.execute_script("arguments[0].focus()", ours)

    def alone():
        keys = ActionChains(browser).key_down(Keys.ALT).send_keys(Keys.ENTER).key_up(Keys.ALT)
        keys.perform()
        return json.loads(reader.state["hidden"])

    assert alone() == ["Jin's AGD", "GD"]
    assert alone() == []
    ActionChains(browser).send_keys(Keys.ENTER).perform()
    assert json.loads(reader.state["hidden"]) == ["Ada-RAGD-NC"]


def test_a_plot_names_its_keys_to_those_who_hear_the_page(reader, browser):
    for canvas in browser.find_elements(By.CSS_SELECTOR, "figure.plot .stage canvas"):
        assert canvas.get_attribute("aria-keyshortcuts").split()[0] == "Plus"
        hint = browser.find_element(By.ID, canvas.get_attribute("aria-describedby"))
        assert "the arrows pan" in hint.text


def test_events_are_marked_explained_and_can_be_hidden(reader):
    assert [sign.text for sign in reader.figure.find_elements(By.CSS_SELECTOR, ".signs span")] == [
        "restart",
        "line 11 of Algorithms 2 and 4: rolled back",
        "B₀ ≤ B for the first time",
        "negative curvature exploited",
    ]
    marked = reader.drawing
    reader.press("[data-events]")
    assert reader.state["events"] == "hidden"
    assert not reader.find(".signs").is_displayed()
    assert reader.drawing != marked


def test_a_dragged_rectangle_zooms_and_reset_undoes_it(reader):
    whole = reader.drawing
    assert reader.zoom is None
    assert not reader.find("[data-reset]").is_enabled()
    reader.drag((-200, -100), (0, 50))
    zoom = reader.zoom
    low, high = zoom["x"]
    assert 0 < low < high < 1051
    assert 0.1 < (high - low) / (200 / 1100 * 1051) < 10
    assert 0 < zoom["y"][0] < zoom["y"][1] < 0.1
    assert reader.drawing != whole
    reader.drag((0, 0), (30, 0), shift=True)
    moved = reader.zoom["x"]
    assert moved[0] < low  # the curves follow the mouse to the right
    assert moved[1] - moved[0] == pytest.approx(high - low)
    reader.press("[data-reset]")
    assert reader.zoom is None
    assert reader.drawing == whole


def test_a_click_is_not_a_zoom_and_a_level_drag_zooms_one_axis(reader):
    reader.drag((0, 0), (2, 1))
    assert reader.zoom is None
    reader.drag((-100, 0), (100, 2))
    assert reader.zoom["x"] is not None
    assert reader.zoom["y"] is None


def test_wheel_and_keys_zoom_and_come_back(reader, browser):
    def turn(by):
        time.sleep(0.35)  # a wheel that comes right after scrolling scrolls on
        box = reader.canvas.rect
        y = box["y"] - browser.execute_script("return scrollY") + 150
        reader.command("Input.dispatchMouseEvent", type="mouseWheel", x=box["x"] + 300, y=y,
                       deltaX=0, deltaY=by)  # fmt: skip

    turn(-120)
    assert reader.zoom is not None
    for _ in range(2):
        turn(200)
    assert reader.zoom is None
    reader.canvas.send_keys("+")
    first = reader.zoom["x"]
    reader.canvas.send_keys(Keys.ARROW_RIGHT)
    assert reader.zoom["x"][0] > first[0]
    reader.canvas.send_keys(Keys.ESCAPE)
    assert reader.zoom is None


def test_the_tooltip_tells_of_the_nearest_point(reader, browser):
    tooltip = reader.find(".tooltip")
    assert not tooltip.is_displayed()
    for number, name in enumerate(("Ada-RAGD-NC", "Jin's AGD", "GD")):
        here = reader.point_on(number)
        ActionChains(browser).move_to_element_with_offset(reader.canvas, *here).perform()
        assert tooltip.text.splitlines()[0] == name
    words = tooltip.text
    for fact in ("iteration", "values + gradients", "seconds", "f - f*", "gradient norm", "7.5"):
        assert fact in words
    facts = dict(zip(words.splitlines()[1::2], words.splitlines()[2::2], strict=False))
    assert int(facts["values + gradients"]) == 3 * int(facts["iteration"]) + 1
    ActionChains(browser).move_to_element(reader.find(".x-label")).perform()
    assert not tooltip.is_displayed()


def test_two_fingers_zoom_and_one_leaves_the_plot_as_it_is(browser, address):
    reader = Reader(browser, 390, address)
    reader.run("arguments[0].querySelector('.stage').scrollIntoView({block: 'center'})")
    reader.command("Emulation.setTouchEmulationEnabled", enabled=True, maxTouchPoints=2)
    try:
        box = reader.run(
            "const r = arguments[0].querySelector('.stage').getBoundingClientRect();"
            "return [r.left + r.width / 2, r.top + r.height / 2]"
        )

        def touch(kind, *offsets):
            points = [{"x": box[0] + dx, "y": box[1], "id": i} for i, dx in enumerate(offsets)]
            reader.command("Input.dispatchTouchEvent", type=kind, touchPoints=points)

        touch("touchStart", -20)
        touch("touchMove", 20)
        touch("touchEnd")
        assert reader.zoom is None
        touch("touchStart", -20, 20)
        for spread in (30, 40, 60, 80):
            touch("touchMove", -spread, spread)
        touch("touchEnd")
        low, high = reader.zoom["x"]
        assert 0 < high - low < 600  # about a quarter of 1051
    finally:
        reader.command("Emulation.setTouchEmulationEnabled", enabled=False)
    assert reader.errors() == []


@pytest.mark.parametrize("width", [360, 390, 1200])
def test_nothing_sticks_out_of_the_screen(browser, address, width):
    reader = Reader(browser, width, address)
    assert reader.run("return innerWidth") == width
    assert reader.run("return document.documentElement.scrollWidth") <= width + 1
    # Only what stands in a box that scrolls by itself may be wider.
    wide = reader.run(
        "return [...document.body.querySelectorAll('*')]"
        ".filter(e => !e.closest('.scroll, [hidden]'))"
        ".filter(e => e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML)"
    )
    assert wide == []
    assert reader.canvas.size["width"] > 0.85 * width - 40


def test_a_dark_screen_gets_a_dark_page_and_paper_a_light_one(reader, browser):
    def ground():
        return reader.run("return getComputedStyle(document.body).backgroundColor")

    light = (ground(), reader.drawing)
    reader.scheme("dark")
    dark = (ground(), reader.drawing)
    brightness = [sum(json.loads(f"[{colour[4:-1]}]")) for colour, _ in (light, dark)]
    assert brightness[0] > 700
    assert brightness[1] < 150
    assert dark[1] != light[1]
    reader.run("window.dispatchEvent(new Event('beforeprint'))")
    assert ground() == light[0]
    reader.run("window.dispatchEvent(new Event('afterprint'))")
    assert ground() == dark[0]
