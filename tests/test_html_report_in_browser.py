"""The page in a real browser: what it shows is what Python computes, whatever is moved, and nothing leaves it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import otprune as ot
from otprune import models
from tests.browser import asked_for, browser, console_of, open_page, prefer, print_out, require_chromium, resize
from tests.html_reports import EPOCHS, HOSTILE, VGG, answer, described, page_of, record, run_folder, write
from tests.small_runs import read

require_chromium()

from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.select import Select  # noqa: E402

DELTAS = ("3e-7", "0.0004", "0.001", "0.03", "0.25")


class Report:
    """A report that is open, and how it is used."""

    def __init__(self, driver: Any, path: Path) -> None:
        self.driver = driver
        open_page(driver, path)

    def find(self, selector: str) -> Any:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def texts(self, selector: str) -> list[str]:
        found = self.driver.find_elements(By.CSS_SELECTOR, selector)
        return [one.get_property("textContent") for one in found]

    def type_delta(self, delta: str) -> None:
        self.find("#delta-number").send_keys(Keys.CONTROL, "a", Keys.NULL, delta, Keys.ENTER)

    def choose(self, run: str) -> None:
        Select(self.find("#run")).select_by_visible_text(run)

    @property
    def delta(self) -> float:
        return float(self.find("#delta-number").get_property("value"))

    @property
    def costs(self) -> tuple[int, int, list[int]]:
        """FLOPs, parameters, and channels kept layer by layer."""
        flops, parameters = (_number(self.texts(f"#now-{kind} .precise")[0]) for kind in ("flops", "parameters"))
        return flops, parameters, [_number(text.partition(" of ")[0]) for text in self.texts(".card .kept")]


def _number(text: str) -> int:
    return int(text.strip(" ·").replace(",", ""))


@pytest.fixture(scope="module")
def driver() -> Iterator[Any]:
    with browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Path]]:
    """A run and its page, by the network."""
    folder = tmp_path_factory.mktemp("pages")
    places = {
        "vgg14": VGG,
        "resnet20": record(folder, "resnet20", "resnet20"),
        "digits_net": run_folder(folder / "run"),
        "depthwise": record(folder, "depthwise", "tests.html_reports:depthwise"),
    }
    return {name: (place, page_of(folder / f"{name}.html", place)) for name, place in places.items()}


@pytest.fixture
def report(driver: Any, pages: dict[str, tuple[Path, Path]]) -> Report:
    resize(driver, 1200, 900)
    prefer(driver, "light")
    return Report(driver, pages["digits_net"][1])


@pytest.mark.parametrize("name", ["vgg14", "resnet20", "digits_net"])
def test_costs_and_channels_are_those_of_the_planner_at_every_delta(
    driver: Any, pages: dict[str, tuple[Path, Path]], name: str
) -> None:
    place, path = pages[name]
    report = Report(driver, path)
    assert report.delta == 1e-3 and report.find("#now-shown").text.endswith("as the run pruned it, at δ = 0.001.") == (
        name != "resnet20"  # whose record does not say what was kept
    )
    for delta in DELTAS:
        report.type_delta(delta)
        assert report.delta == float(delta)
        assert report.costs == answer(place, float(delta))


def test_the_slider_is_moved_by_keys_and_everything_follows(
    driver: Any, pages: dict[str, tuple[Path, Path]], report: Report
) -> None:
    slider, seen = report.find("#delta"), []
    for key in (Keys.ARROW_RIGHT, Keys.PAGE_UP, Keys.END, Keys.ARROW_LEFT):
        slider.send_keys(key)
        seen.append(report.delta)
        assert report.costs == answer(pages["digits_net"][0], report.delta)
        assert slider.get_attribute("aria-valuetext") == f"δ = {report.find('#delta-number').get_property('value')}"
    assert 1e-3 < seen[0] < seen[1] < seen[3] < seen[2]
    report.find("#delta-reset").send_keys(Keys.ENTER)
    assert report.delta == 1e-3


def test_thresholds_alpha_and_beta_are_those_of_python(report: Report, pages: dict[str, tuple[Path, Path]]) -> None:
    from otprune.report.html.networks import network
    from otprune.report.html.subjects import subjects

    report.type_delta("0.02")
    model, _ = network(subjects([pages["digits_net"][0]])[0])
    report.driver.execute_script("document.getElementById('table-details').open = true")
    rows = report.driver.find_elements(By.CSS_SELECTOR, "#layer-table tbody tr")
    assert len(rows) == 10
    for row in rows:
        name, *cells = (cell.text for cell in row.find_elements(By.CSS_SELECTOR, "th, td"))
        parted = ot.separation(model.get_submodule(name).weight, 0.02)
        assert int(cells[0]) == parted.important + parted.negligible
        shown = [_read(cell) for cell in cells[3:6]]
        assert shown == [pytest.approx(value, rel=0.06) for value in (parted.threshold, parted.alpha, parted.beta)]
        assert cells[6] == ("safe" if parted.safe else "not sure")


def _read(text: str) -> float:
    plain = text.replace("×10", "e").translate(str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-"))
    return float("inf") if plain == "∞" else float(plain)


def test_what_is_no_delta_is_put_back(report: Report) -> None:
    before = report.costs
    report.type_delta("7")
    assert (report.delta, report.costs) == (1e-3, before)


def test_a_table_of_plans_is_said_to_be_one_and_answers_at_its_own_deltas(
    driver: Any, pages: dict[str, tuple[Path, Path]]
) -> None:
    place, path = pages["depthwise"]
    report = Report(driver, path)
    assert "plans made at" in report.find("#how").text
    assert report.costs == answer(place, 1e-3)
    report.type_delta("0.0123")
    assert report.delta != 0.0123 and report.costs == answer(place, report.delta)
    report.find("#delta").send_keys(Keys.ARROW_RIGHT)
    assert report.costs == answer(place, report.delta)


def test_the_top_tells_what_was_gained(report: Report, pages: dict[str, tuple[Path, Path]]) -> None:
    flops, parameters, _ = answer(pages["digits_net"][0], 1e-3)
    before = ot.cost(models.build("digits_net", num_classes=10), torch.zeros(1, 1, 8, 8))
    shares = f"{flops / before.flops:.1%} of its FLOPs and {parameters / before.parameters:.1%} of its parameters"
    assert f"keeps {shares.replace('%', ' %')}" in report.find("#lead").text
    rows = [row.split("\n") for row in report.find("#gained").text.splitlines()]
    assert ["latency, torch, cpu 4.00 ms 1.00 ms 4.00× as fast"] in rows
    assert ["accuracy 90.00 % 91.00 % +1.00 points"] in rows


def test_the_curve_of_shifted_thresholds_marks_the_present_delta(report: Report) -> None:
    places = []
    for delta in ("1e-6", "0.1"):
        report.type_delta(delta)
        places.append(float(report.find("#shifts .now-line").get_attribute("x1")))
        assert report.find("#shifts .dot.now").get_attribute("d")
    assert places[1] < places[0]


@pytest.fixture
def budget(driver: Any, tmp_path: Path) -> tuple[Path, Report]:
    """A run whose thresholds were shifted to meet a budget, and its page."""
    resize(driver, 1200, 900)
    prefer(driver, "light")
    place = run_folder(tmp_path / "run", shift=0.5)
    return place, Report(driver, page_of(tmp_path / "page.html", place))


def test_a_run_pruned_to_a_budget_is_shown_as_it_is_until_delta_is_moved(budget: tuple[Path, Report]) -> None:
    place, report = budget
    found = read(place / "results.json")
    kept = [layer["kept"] for layer in found["layers"]]
    own = (found["cost_after"]["flops"], found["cost_after"]["parameters"], kept)
    plain = answer(place, 1e-3)
    assert own != plain

    def is_own() -> bool:
        drawn = [_number(text.partition(" / ")[0]) for text in report.texts("#tower text") if " / " in text]
        assert drawn == report.costs[2]
        said = {*report.texts("#now-shown"), *report.texts("#tower-shown")}
        assert len(said) == 1
        return said == {"Shown: the network as the run pruned it."} and report.costs == own

    assert is_own() and report.find("#delta-number").get_property("value") == ""
    report.type_delta("0.001")
    assert not is_own() and report.costs == plain
    assert report.find("#now-shown").text == "Shown: what OT would make of the trained network at δ = 0.001."
    report.find("#delta-reset").click()
    assert is_own()
    report.type_delta("7")  # which is no δ
    assert is_own()
    report.find("#delta").send_keys(Keys.ARROW_RIGHT)
    assert not is_own() and report.costs == answer(place, report.delta)


def test_that_a_run_was_pruned_to_a_budget_is_said_on_a_phone(budget: tuple[Path, Report]) -> None:
    _, report = budget
    resize(report.driver, 375, 800)
    assert "not pruned by OT at δ = 0.001, but to meet 50 % of the FLOPs: it kept" in report.find("#how").text
    for place in ("#how", "#now-shown", "#tower-shown"):
        assert report.find(place).is_displayed()
    assert report.driver.execute_script("return document.documentElement.scrollWidth") == 375


def test_cards_have_the_thresholds_of_the_run(budget: tuple[Path, Report]) -> None:
    place, report = budget
    for layer, text in zip(read(place / "results.json")["layers"], report.texts(".card p:nth-of-type(1)"), strict=True):
        assert _read(text.split()[1]) == pytest.approx(layer["threshold"], rel=0.06)


def test_a_later_round_is_not_called_unpruned(driver: Any, tmp_path: Path) -> None:
    costs = {
        when: {"flops": 10 * left, "parameters": left} for when, left in (("before", 8), ("sparse", 4), ("after", 3))
    }
    made = described("digits_net", **{f"cost_{when}": cost for when, cost in costs.items()})
    report = Report(driver, page_of(tmp_path / "page.html", write(tmp_path / "round-2.json", made)))
    assert "as earlier rounds left it, keeps 75.0 % of its FLOPs" in report.find("#lead").text
    assert "Before: as earlier rounds left it" in report.find("#gained").text
    assert "unpruned" not in report.find("#stages").text + report.find("#scatter").text


def test_a_training_of_one_epoch_is_seen(driver: Any, tmp_path: Path) -> None:
    def drawn(epochs: int) -> tuple[int, int]:
        made = described("digits_net", training=EPOCHS[:epochs])
        report = Report(driver, page_of(tmp_path / f"{epochs}.html", write(tmp_path / f"{epochs}.json", made)))
        return tuple(len(report.texts(f"#training figure > div path.{kind}")) for kind in ("dot", "series"))

    assert drawn(1) == (2, 2)  # of accuracy and loss
    assert drawn(3) == (0, 2)


def test_blocks_are_as_wide_as_channels_are_left(report: Report) -> None:
    report.type_delta("0.1")
    kept = report.costs[2]
    blocks = report.driver.find_elements(By.CSS_SELECTOR, "#tower .block-left")
    widths = [float(block.get_attribute("width")) for block in blocks]
    assert [width / widths[0] for width in widths] == pytest.approx([count / kept[0] for count in kept])


def test_nothing_is_asked_for_and_nothing_complains(driver: Any, pages: dict[str, tuple[Path, Path]]) -> None:
    for _, path in pages.values():
        report = Report(driver, path)
        report.find("#delta").send_keys(Keys.END, Keys.HOME)
        resize(driver, 700, 900)
        assert asked_for(driver) == [path.resolve().as_uri()]
        assert console_of(driver) == []


@pytest.mark.parametrize("width", [375, 320, 768])
def test_a_narrow_screen_needs_no_sideways_scrolling(
    driver: Any, pages: dict[str, tuple[Path, Path]], width: int
) -> None:
    resize(driver, width, 800)
    for name in ("vgg14", "digits_net"):
        report = Report(driver, pages[name][1])
        report.driver.execute_script("document.getElementById('table-details').open = true")
        assert driver.execute_script("return document.documentElement.scrollWidth") == width


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_in_light_and_dark(report: Report, scheme: str) -> None:
    prefer(report.driver, scheme)
    ground = _luminance(report, "body", "backgroundColor")
    assert (ground < 0.1) == (scheme == "dark")
    for selector in ("body", ".intro", ".card p", ".unsafe", "#how"):
        own = _luminance(report, selector, "color")
        assert (max(own, ground) + 0.05) / (min(own, ground) + 0.05) >= 4.5, selector


def _luminance(report: Report, selector: str, kind: str) -> float:
    script = "return getComputedStyle(document.querySelector(arguments[0]))[arguments[1]].match(/[\\d.]+/g)"
    channels = [float(value) / 255 for value in report.driver.execute_script(script, selector, kind)[:3]]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(weight * value for weight, value in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_it_prints_light_and_without_what_cannot_be_moved_on_paper(report: Report) -> None:
    prefer(report.driver, "dark")
    print_out(report.driver)
    assert _luminance(report, "body", "backgroundColor") == pytest.approx(1)
    assert not report.find("#delta").is_displayed()
    assert report.find("#now-flops").is_displayed() and report.find("#tower").is_displayed()


def test_everything_that_is_drawn_or_moved_has_a_name(report: Report) -> None:
    for selector in ("svg[role=img]", "input", "select", "button"):
        for one in report.driver.find_elements(By.CSS_SELECTOR, selector):
            assert one.accessible_name or not one.is_displayed(), one.get_attribute("outerHTML")[:200]
    assert report.find("#delta").aria_role == "slider"


def test_names_from_outside_stay_names(driver: Any, tmp_path: Path) -> None:
    places = [
        run_folder(tmp_path / "<b>run<b>", classes=[HOSTILE, *"123456789"]),
        write(
            tmp_path / "old.json", described("digits_net", data=HOSTILE, layers=[_layer(HOSTILE)], remarks=[HOSTILE])
        ),
    ]
    report = Report(driver, page_of(tmp_path / "page.html", *places))
    assert any(HOSTILE in text for text in report.texts("#facts dd"))
    report.choose(next(text for text in report.texts("#run option") if HOSTILE in text))
    assert report.texts("#notes li") == [HOSTILE]
    assert "digits_net on" in driver.title or "broken" not in driver.title
    assert driver.execute_script("return document.querySelectorAll('main img, main b, main script').length") == 0
    assert console_of(driver) == []


def _layer(name: str) -> dict[str, object]:
    return {"name": name, "channels": 4, "kept": 2, "threshold": 0.1, "note": ""}


def test_another_run_can_be_chosen_and_what_it_lacks_is_said(driver: Any, tmp_path: Path) -> None:
    old = write(tmp_path / "old.json", described("digits_net", layers=[_layer("bn")]))
    report = Report(driver, page_of(tmp_path / "page.html", run_folder(tmp_path / "run"), old))
    assert report.find("#delta-panel").is_displayed()
    report.choose("old")
    assert "its scaling factors were not recorded" in report.find("#left-out").text
    assert not report.find("#delta-panel").is_displayed() and not report.find("#layers-section").is_displayed()
    assert report.texts("#tower text")[-1] == "2 / 4"
    report.choose("run")
    assert report.find("#delta-panel").is_displayed() and not report.find("#left-out").is_displayed()
