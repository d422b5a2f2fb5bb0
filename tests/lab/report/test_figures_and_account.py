"""The figures show what was recorded, and the page about them holds every number of the study."""

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest

from momentous.core.status import EventKind
from momentous.lab.paper.baselines import run_quasi_newton, run_sweeps
from momentous.lab.paper.claims import judge
from momentous.lab.paper.methods import ADAPTIVE, FIXED, SEVEN
from momentous.lab.paper.problems import DataSet, PaperProblem
from momentous.lab.paper.results import Bound, Growth, RunSet, Study, Verdict
from momentous.lab.report import figures
from momentous.lab.report.documents import write_account
from momentous.lab.report.figures import (
    BLUE_GREEN,
    PURPLE,
    YELLOW,
    draw_comparison,
    draw_long_run,
    styles,
)
from momentous.lab.report.tables import results_table
from paper_runs import (
    long_run,
    long_set,
    short_set,
    with_info,
    with_outcome,
    without,
    write_ratings,
)

pytest.importorskip("matplotlib")


@pytest.fixture
def drawn(monkeypatch):
    """The figures that were saved, to be looked into."""
    kept, save = [], figures.save

    def keep(figure, path):
        save(figure, path)
        kept.append(figure)

    monkeypatch.setattr(figures, "save", keep)
    return kept


def colours(path: Path) -> set[str]:
    from matplotlib.image import imread

    pixels = (255 * imread(path)[..., :3]).round().astype(int) @ [0x10000, 0x100, 1]
    return {f"#{pixel:06X}" for pixel in np.unique(pixels)}


def real(run_set: RunSet) -> RunSet:
    """The same runs on the data set itself."""
    return dataclasses.replace(run_set, runs=[with_info(run, twin=False) for run in run_set.runs])


def points(axes, **like) -> np.ndarray:
    """All marked points of lines that look like this."""
    found = [
        line.get_xydata()
        for line in axes.lines
        if all(getattr(line, f"get_{name}")() == value for name, value in like.items())
    ]
    return np.concatenate(found) if found else np.zeros((0, 2))


# --- pictures -------------------------------------------------------------------------------------


def test_all_seven_methods_are_in_the_picture_in_their_colours(tmp_path):
    draw_comparison([short_set()], tmp_path / "fig1.png")
    wanted = {look["color"].upper() for look in styles(SEVEN).values()}
    assert len(wanted) == 7
    assert wanted <= colours(tmp_path / "fig1.png")


@pytest.mark.parametrize("count", [1, 3])
def test_one_data_set_makes_a_square_and_several_make_columns(count, tmp_path, drawn):
    draw_comparison([short_set()] * count, tmp_path / "fig1.pdf")
    assert (tmp_path / "fig1.pdf").read_bytes().startswith(b"%PDF")
    assert len(drawn[0].axes) == 4 * count
    columns = {round(axes.get_position().x0, 2) for axes in drawn[0].axes}
    assert len(columns) == (2 if count == 1 else count)
    assert len(drawn[0].legends) == 1
    assert all(axes.get_yscale() == "log" and axes.get_legend() is None for axes in drawn[0].axes)


def test_methods_that_lie_on_the_curve_of_gd_are_in_the_table_and_not_drawn(tmp_path, drawn):
    draw_comparison([short_set()], tmp_path / "fig1.png")
    shown = {text.get_text() for text in drawn[0].legends[0].get_texts()}
    assert shown.issuperset(SEVEN)
    assert shown.isdisjoint(FIXED)
    assert {line[0] for line in results_table(short_set()).lines} == {*SEVEN, *FIXED}


def test_the_curves_are_the_recorded_ones(tmp_path, drawn):
    run_set = without(short_set(), *SEVEN[1:3], *SEVEN[4:])  # the other one has f*
    draw_comparison([run_set], tmp_path / "fig1.png")
    run = run_set.runs[0]
    assert run.info.method in ADAPTIVE
    columns = {
        "error": np.where(run_set.error(run) > 0, run_set.error(run), np.nan),
        "norm": run.grad_norm,
        "time": run.time,
        "evaluations": run.evaluations,
    }
    panels = [(a, b) for b in ("error", "norm") for a in ("time", "evaluations")]
    for axes, (x, y) in zip(drawn[0].axes, panels, strict=True):
        np.testing.assert_array_equal(axes.lines[1].get_xdata(), columns[x])
        np.testing.assert_array_equal(axes.lines[1].get_ydata(), columns[y])
        circles = points(axes, marker="o")
        np.testing.assert_array_equal(circles[:, 0], columns[x][100::100])


def test_titles_name_the_twin_and_f_star(tmp_path, drawn):
    twin, both = short_set(), [short_set(), real(short_set())]
    draw_comparison([twin], tmp_path / "one.png")
    draw_comparison(both, tmp_path / "two.png")
    lowest, run = twin.lowest
    told = f"f* = {lowest:.6g} ({run.info.method})"
    assert "ml-10m twin, matrix completion" in drawn[0].get_suptitle()
    assert told in drawn[0].get_suptitle()
    titles = [axes.get_title() for axes in drawn[1].axes[:2]]
    assert titles[0].startswith("ml-10m twin,")
    assert titles[1].startswith("ml-10m, ")
    assert all(told in title for title in titles)


def test_a_method_has_the_same_look_whoever_else_is_there():
    everybody = styles([*SEVEN, "L-BFGS-B", "accelerated sweeps", "accelerated MM sweeps"])
    assert styles(["CG"])["CG"] == everybody["CG"]
    assert styles(["L-BFGS-B", "GD"])["L-BFGS-B"] == everybody["L-BFGS-B"]
    looks = [(look["color"], str(look["ls"]), look.get("marker")) for look in everybody.values()]
    assert len(set(looks)) == len(looks)


def test_the_baselines_have_colours_of_their_own():
    looks = styles([*SEVEN, "L-BFGS-B", "accelerated sweeps"])
    beside = {looks.pop(name)["color"] for name in ("L-BFGS-B", "accelerated sweeps")}
    assert beside == {"black", PURPLE}
    assert beside.isdisjoint(look["color"] for look in looks.values())
    assert {"marker", "markevery"} <= set(styles(["L-BFGS-B"])["L-BFGS-B"])


def test_the_baselines_run_with_parameters_of_ours(tmp_path):
    data = DataSet("small", write_ratings(tmp_path / "small.csv"))
    problem = PaperProblem(data, "completion", threads=1)
    for run in (run_quasi_newton(problem, 10), run_sweeps(problem, 2)):
        assert run.info.profile == "ours"


def test_others_than_the_seven_look_in_every_panel_as_in_the_legend(tmp_path, drawn):
    """Whatever their order, and whoever of them is missing in a panel."""

    def among(*names):
        run_set, run = short_set(), short_set().runs[0]
        more = [with_info(run, method=name) for name in names]
        return dataclasses.replace(run_set, runs=[*run_set.runs[1:], *more])

    draw_comparison([among("sweeps", "L-BFGS-B"), among("sweeps")], tmp_path / "demo.png")
    legend = {line.get_label(): line for line in drawn[0].legends[0].get_lines()}
    assert styles(["sweeps", "L-BFGS-B"]) == styles(["L-BFGS-B", "sweeps"])
    wanted = legend["sweeps"].get_color(), legend["sweeps"].get_marker()
    for axes in drawn[0].axes:
        looks = [(line.get_color(), line.get_marker()) for line in axes.lines]
        assert looks.count(wanted) == 1


def test_the_long_run_marks_line_11_and_the_radius(tmp_path, drawn):
    run_sets = [long_set(), long_set("one-bit", (4, 3))]
    draw_long_run(run_sets, tmp_path / "fig3.png")
    assert len(drawn[0].axes) == 4
    assert {BLUE_GREEN, YELLOW} <= colours(tmp_path / "fig3.png")
    for axes in drawn[0].axes:
        assert set(points(axes, markerfacecolor=BLUE_GREEN)[:, 0]) == {812}
        assert set(points(axes, markerfacecolor=YELLOW)[:, 0]) == {5000}
        curves = [line for line in axes.lines if line.get_linestyle() != "None"]
        assert sum(len(line.get_xdata()) for line in curves) < 20_000
    assert "one-bit" in drawn[0].axes[2].get_title()
    # Of tens of thousands of circles those are drawn that do not overlap: four panels, two methods.
    draw_long_run(run_sets, tmp_path / "fig3.svg")
    assert 400 < (tmp_path / "fig3.svg").read_text().count("<use ") < 8_000


def test_only_the_first_time_at_the_radius_is_yellow(tmp_path, drawn):
    run = long_run("Ada-RAGD-NC", "completion", 16, n=6000)
    run.events.append((5500, EventKind.RADIUS_REACHED, 0.01))
    draw_long_run([RunSet("fig3", [run], 6000)], tmp_path / "fig3.png")
    assert len(points(drawn[0].axes[0], markerfacecolor=YELLOW)) == 1


def test_what_diverges_does_not_flatten_the_others(tmp_path, drawn):
    run_set = short_set()
    run_set.runs[3].fun[500:] = 1e300
    run_set.runs[3].grad_norm[500:] = np.nan
    draw_comparison([run_set], tmp_path / "fig1.png")
    assert all(axes.get_ylim()[1] <= 1e4 for axes in drawn[0].axes)


# --- the page -------------------------------------------------------------------------------------


@pytest.fixture
def page(tmp_path) -> str:
    unstable = [{"step_size": 150.0, "reason": "climbs above its start at iteration 812"}]
    tuning = {"trials": 7, "values": 8765, "unstable": unstable}
    tuned = [with_info(run, step_size=123.4, tuning=tuning) for run in short_set().runs]
    run_sets = [RunSet("fig1", tuned, 1000), long_set(n=30_000)]
    study = Study(
        run_sets,
        judge(run_sets),
        [
            Bound("Theorem 1", "gradients", "chain |x|", "(8D/7 + 1) K", 4000.0, 321.0),
            Bound("Theorem 2", "gradients", "chain", "K", 10.0, 20.0),
        ],
        [Growth("RAGD", [10.0, 100.0], [55.0, 3210.0], 1.766)],
    )
    write_account(
        study,
        tmp_path / "docs" / "reproduction.md",
        pictures={"fig1": tmp_path / "pictures" / "fig1.png", "fig3": tmp_path / "fig3.png"},
        command="momentous reproduce",
    )
    return (tmp_path / "docs" / "reproduction.md").read_text()


def test_the_account_has_the_numbers_of_every_run(page):
    line = next(line for line in page.splitlines() if line.startswith("| GD | 123.4"))
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    lowest = short_set().lowest[0]
    at_1000 = 1 + np.exp(-0.003 * 1000) - lowest
    assert cells[2:8] == ["tuned", "1,000", "1", "1,001", "1 s", "-"]
    assert cells[8] == f"{at_1000:.2e}"
    assert cells[10] == f"{1 + np.exp(-0.003 * 1002) - lowest:.2e}"
    assert cells[-1] == "max iterations"
    assert "8,765" in page


def test_the_account_names_the_steps_that_were_unstable(page):
    assert "150: climbs above its start at iteration 812" in page
    assert "by more than 5 % of the decrease" in " ".join(page.split())


def test_the_account_says_that_a_twin_is_synthetic(page, tmp_path):
    assert "ml-10m twin, matrix completion" in page
    assert "synthetic" in page
    write_account(Study([real(short_set())]), tmp_path / "real.md", pictures={}, command="it")
    told = (tmp_path / "real.md").read_text()
    assert "synthetic" not in told
    assert "twin" not in told


def test_the_account_says_how_time_is_taken_and_who_went_on(page, tmp_path):
    flat = " ".join(page.split())
    assert "the pass that computes a gradient computes the value, too" in flat
    assert "neither counted nor timed" not in flat
    assert "No run goes on beyond the iterations that are shown; in the paper all do." in flat
    run_set = dataclasses.replace(short_set(), plotted=900)
    pairs = zip(run_set.runs, ("CG", "L-BFGS-B"), strict=False)
    runs = [with_info(run, method=name) for run, name in pairs]
    study = Study([dataclasses.replace(run_set, figure="demo", runs=runs)])
    write_account(study, tmp_path / "page.md", pictures={}, command="it")
    told = " ".join((tmp_path / "page.md").read_text().split())
    assert "To find it, all of them went on to iteration 1,000." in told
    assert "A row of L-BFGS-B is an evaluation" in told


def test_the_account_has_every_claim_under_its_statement(page):
    flat = " ".join(page.split())
    claims = judge([short_set(), long_set(n=30_000)])
    for claim in claims:
        assert claim.statement[1:] in flat
        assert f"*{claim.verdict}* on {claim.on}: {claim.behind_it}." in flat
    for each in Verdict:
        assert flat.count(f"*{each}*") == sum(claim.verdict is each for claim in claims)


def test_pictures_are_linked_from_where_the_page_is(page):
    assert "![Figure 1: matrix completion](../pictures/fig1.png)" in page
    assert re.search(r"^!\[Figure 3: [^\]]*\]\(\.\./fig3\.png\)", page, re.MULTILINE)


def test_pictures_of_one_problem_and_of_the_growth_stand_where_they_belong(tmp_path):
    names = ("demo-completion", "exponents")
    study = Study([short_set(figure="demo")], growths=[Growth("RAGD", [10.0], [55.0], 1.0)])
    pictures = {name: tmp_path / f"{name}.png" for name in names}
    write_account(study, tmp_path / "page.md", pictures=pictures, command="it")
    page = (tmp_path / "page.md").read_text()
    titles = re.findall("^## (.*)$", page, re.MULTILINE)
    assert titles == [
        "Demonstration",
        "How gradients grow with the accuracy",
        "What was run, and where",
    ]
    assert "### ml-10m twin, matrix completion\n\n![" in page
    assert page.index("demo-completion.png") < page.index(titles[1]) < page.index("exponents.png")


def test_theorems_and_exponents_are_there_and_bars_do_not_break_tables(page):
    assert r"chain \|x\|" in page
    assert "1 of 2 bounds hold." in page
    assert r"| all 1 | chain \|x\| | 4,000 | 321 | 12.5 |" in page
    assert "| 1 of 1 do not |" in page
    assert "| RAGD | 10, 100 | 55, 3,210 | 1.766 |" in page
    tables = re.findall(r"(?:^\|.*\n)+", page, re.MULTILINE)
    for table in tables:
        bars = {len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}
        assert len(bars) == 1


def test_a_run_that_ended_early_says_why(tmp_path):
    run_set = without(short_set(), *ADAPTIVE)
    run = run_set.runs[0]
    gone = with_outcome(with_info(run, iterations=5000), "non finite", "the gradient is not finite")
    other = run_set.runs[1]  # without a row of the start, like sweeps, but not before its time
    whole = with_outcome(with_info(other, iterations=1001), "max iterations", "to the end")
    study = Study([dataclasses.replace(run_set, runs=[gone, whole, *run_set.runs[2:]])])
    write_account(study, tmp_path / "page.md", pictures={}, command="it")
    told = (tmp_path / "page.md").read_text()
    assert f"- {run.info.method}: the gradient is not finite" in told
    assert "to the end" not in told


def test_what_a_short_run_has_not_reached_is_a_dash(tmp_path):
    write_account(Study([short_set(n=200)]), tmp_path / "page.md", pictures={}, command="it")
    page = (tmp_path / "page.md").read_text()
    assert re.search(r"^\| GD \|.* \| - \| - \| \d", page, re.MULTILINE)
    assert re.search(r"^\| convex until guilty \|.* \| \d\S+ \| \d\S+ \| \d", page, re.MULTILINE)


def test_an_empty_study_makes_an_account(tmp_path):
    write_account(Study(), tmp_path / "page.md", pictures={}, command="it")
    assert "`it` made this page" in (tmp_path / "page.md").read_text()
