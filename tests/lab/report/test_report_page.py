"""The page of a study is one file that shows what was measured, all of it and nothing else."""

import json
import math
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from momentous.comparison.history import History
from momentous.comparison.look import COLOURS
from momentous.lab.paper.results import EARLY, Bound, Claim, Growth, RunSet, Study
from momentous.lab.paper.runs import PaperRun, PaperRunInfo
from momentous.lab.report.figures import PURPLE, styles
from momentous.lab.report.page import write_page
from momentous.lab.report.plots import DARK, SIGNS, WINDOW
from momentous.lab.report.thinning import MOST_ROWS, STRETCHES, kept_rows

ABOUT = PaperRunInfo(
    data="ml-tiny", twin=True, problem="completion", method="Ada-RAGD-NC", profile="paper",
    parameters={"eps": 1e-4, "momentum": 0.995, "epoch_length": None, "step_size": 7.5},
    step_size=7.5, step_from="tuned", iterations=100, status="MAX_ITERATIONS", message="done",
    shape=(6040, 3706), entries=1000209, rank=10, fingerprint="f1n9e7", threads=2,
    setup="numpy 2.4 on a test bench", tuning={"trials": 9, "evaluations": 4321, "seconds": 61.5},
)  # fmt: skip


def a_run(size=401, rate=0.02, floor=0.35, events=(), **about):
    """A run whose error and gradient norm fall by the factor exp(-rate) in an iteration."""
    k = np.arange(size)
    error = 0.1 * np.exp(-rate * k)
    history = History(2 * k, k + 1, 0.25 * k, floor + error, 3 * error, list(events))
    return PaperRun(replace(ABOUT, **about), history, np.full(size, 7.5))


EVENTS = [(40, "RESTART", 40.0), (90, "ROLLBACK", 50.0), (120, "RADIUS_REACHED", 0.01)]
SEARCHED = {"step_size": None, "step_from": "the method"}
CURVED = [(30, "NEGATIVE_CURVATURE", -1.0)]


def a_study():
    """Two groups of three methods, and something in every other part."""

    def runs(**about):
        return [
            a_run(events=EVENTS, **about),
            a_run(rate=0.015, method="Jin's AGD", events=CURVED, **about),
            a_run(rate=0.01, method="GD", parameters={}, tuning={}, **SEARCHED, **about),
        ]

    return Study(
        groups=[
            RunSet("fig1", runs(), 350),
            RunSet("fig2", runs(problem="one-bit", twin=False, data="ml-real"), 350),
        ],
        claims=[
            Claim("section 5.1", "All are faster than GD.", "ml-tiny twin", True, "2 of 2."),
            Claim("section 5.1", "CG oscillates.", "ml-tiny twin", False, "in 1 % of rows"),
            Claim("section 5.3", "Line 11 is rare.", "ml-real", None, "too short"),
        ],
        bounds=[
            Bound("Theorem 1", "gradients", "waves", "(8D/7 + 1) K", 81234.0, 1000.0),
            Bound("Theorem 2", "gradient norm", "chain", "242 eps", 0.0242, 0.031),
        ],
        growths=[
            Growth("RAGD", [100.0, 1000.0], [4000.0, 225000.0], 1.75),
            Growth("gradient descent", [100.0, 1000.0], [3000.0, 300000.0], 2.0),
        ],
    )


class Page(HTMLParser):
    """The page taken apart: tags with attributes, rows of cells, headings, the plots' JSON."""

    def __init__(self, text):
        super().__init__()
        self.text, self.tags, self.rows, self.headings, self.open = text, [], [], [], []
        self.feed(text)
        found = re.search(r'<script type="application/json" id="plots">(.*?)</script>', text, re.S)
        self.plots = json.loads(found[1])

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")
        elif tag in ("h1", "h2"):
            self.headings.append("")

    def handle_endtag(self, tag):
        if tag in self.open:
            while self.open.pop() != tag:
                pass

    def handle_data(self, data):
        if "td" in self.open or "th" in self.open:
            self.rows[-1][-1] += data
        elif "h1" in self.open or "h2" in self.open:
            self.headings[-1] += data

    def table(self, heading):
        """The rows, as dicts by heading, of the first table that has the heading."""
        start = next(i for i, row in enumerate(self.rows) if heading in row)
        found = []
        for row in self.rows[start + 1 :]:
            if len(row) != len(self.rows[start]) or row[0] == self.rows[start][0]:
                break
            found.append(dict(zip(self.rows[start], row, strict=True)))
        return found


def written(study, tmp_path, **options):
    path = tmp_path / "report" / "index.html"
    write_page(study, path, **{"title": "Run again", "lead": "What came out.", **options})
    return Page(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    return written(a_study(), tmp_path_factory.mktemp("page"))


# --- one file ---


def test_nothing_is_fetched_from_elsewhere(page):
    assert not re.search(r"(https?:)?//[a-z0-9-]+\.[a-z]", page.text, re.I)
    assert not re.search(r"@import|url\(|\bfetch\(|XMLHttpRequest|\bimport\s*\(", page.text)
    for tag, attributes in page.tags:
        assert "src" not in attributes
        assert attributes.get("href", "#").startswith(("#", "data:", "./"))
        assert tag not in ("img", "iframe", "object", "embed")


def test_every_link_within_the_page_has_its_target(page):
    ids = {attributes.get("id") for _, attributes in page.tags}
    targets = [a["href"][1:] for tag, a in page.tags if tag == "a" and a["href"].startswith("#")]
    assert len(targets) == len(page.headings) - 1
    assert set(targets) <= ids


def test_pictures_are_linked_relative_to_the_page(tmp_path):
    pictures = {"Figure 1": tmp_path / "pictures" / "fig 1.png", "print": tmp_path / "all.pdf"}
    page = written(a_study(), tmp_path, pictures=pictures)
    hrefs = [a["href"] for tag, a in page.tags if tag == "a"]
    assert "./../pictures/fig%201.png" in hrefs
    assert "./../all.pdf" in hrefs


def test_a_page_that_fails_leaves_the_old_one(tmp_path):
    written(a_study(), tmp_path)
    path = tmp_path / "report" / "index.html"
    before = path.read_bytes()
    with pytest.raises(UnicodeEncodeError):
        write_page(a_study(), path, title="half a character: \ud800", lead="")
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == ["index.html"]


def test_whatever_is_in_a_name_stays_text(tmp_path):
    evil = '</script><img src=x onerror="alert(1)"> & $title'
    run = a_run(method=evil, data=evil, status=evil, setup=evil, parameters={evil: evil},
                tuning={evil: evil}, step_from=evil, fingerprint=evil, profile=evil)  # fmt: skip
    study = Study(
        [RunSet(evil, [run], 100)],
        [Claim(evil, evil, evil, True, evil)],
        [Bound(evil, evil, evil, evil, 1.0, 1.0)],
        [Growth(evil, [1.0], [1.0], 1.0)],
    )
    page = written(study, tmp_path, title=evil, lead=evil, pictures={evil: tmp_path / "a.png"})
    assert not [tag for tag, _ in page.tags if tag == "img"]
    assert page.headings[0] == evil
    assert page.plots["plot-0"]["series"][0]["name"] == evil
    assert page.plots["growth"]["series"][0]["name"] == evil


# --- curves ---


def test_short_curves_keep_every_row():
    columns = (np.ones(MOST_ROWS), np.ones(MOST_ROWS))
    assert np.array_equal(kept_rows(columns, []), np.arange(MOST_ROWS))


def noisy(size, seed=0):
    rng = np.random.default_rng(seed)
    return tuple(np.exp(rng.normal(size=size) - 5 * np.arange(size) / size) for _ in range(2))


@pytest.mark.parametrize("size", [MOST_ROWS + 1, 7_000, 100_000])
def test_thinned_curves_keep_the_extremes_of_every_piece(size):
    """Wherever one looks at a hundredth of a long curve, it is as high and as low as it was."""
    columns = noisy(size)
    kept = kept_rows(columns, [])
    assert 500 < len(kept) <= min(size, MOST_ROWS)
    assert np.all(np.diff(kept) > 0)
    for column in columns:
        for piece in np.array_split(np.arange(size), 100):
            inside = kept[(kept >= piece[0] - size / 100) & (kept <= piece[-1] + size / 100)]
            assert column[inside].max() >= column[piece].max()
            assert column[inside].min() <= column[piece].min()
        assert {column.argmin(), column.argmax()} <= set(kept)


def test_the_beginning_of_a_long_curve_stays_fine():
    """On a logarithmic axis the first ten of 100,000 rows are a fifth of the width."""
    assert set(range(11)) <= set(kept_rows(noisy(100_000), []))


def test_thinning_passes_over_what_is_not_finite():
    columns = noisy(10_000)
    columns[0][2_000:4_000] = math.nan
    columns[1][:] = math.inf
    columns[0][4321] = math.inf
    kept = kept_rows(columns, [])
    assert {np.nanargmin(columns[0]), 0, 9_999} <= set(kept)


def test_thinning_keeps_every_special_event_and_some_restarts():
    size = 100_000
    restarts = [(row, "RESTART") for row in range(50_000, size, 16)]
    special = [(33_333, "ROLLBACK"), (50_001, "RADIUS_REACHED"), (7, "NEGATIVE_CURVATURE")]
    flat = (np.ones(size), np.ones(size))
    kept = set(kept_rows(flat, restarts + special).tolist())
    assert {row for row, _ in special} <= kept
    assert 50 <= len(kept & {row for row, _ in restarts}) <= STRETCHES
    assert len(kept) <= MOST_ROWS


def test_events_point_to_the_rows_in_which_they_happened(tmp_path):
    events = [(row, "RESTART", 1.0) for row in range(0, 9_000, 3)]
    events += [(4_567, "ROLLBACK", 1.0), (8_001, "RADIUS_REACHED", 0.1), (9_500, "ROLLBACK", 1.0)]
    run = a_run(size=10_000, rate=1e-3, events=sorted(events))
    page = written(Study([RunSet("fig3", [run], 9_000)]), tmp_path)
    series = page.plots["plot-0"]["series"][0]
    at = [(series["columns"]["iteration"][row], kind) for row, kind in series["events"]]
    assert [pair for pair in at if pair[1] != "RESTART"] == [
        (4_567, "ROLLBACK"),
        (8_001, "RADIUS_REACHED"),
    ]
    assert set(at) <= {(row, kind) for row, kind, _ in events}
    assert 100 < len(at) <= STRETCHES + 2 + WINDOW / 3


def long_group(*reached, size=10_001, period=3):
    """Runs that restart every few iterations, and where each has B0 <= B for the first time."""
    restarts = [(row, "RESTART", 1.0) for row in range(0, size, period)]
    runs = [
        a_run(size=size, rate=1e-3, method=name, events=sorted([*restarts, *events]))
        for name, events in zip(
            ("Ada-RAGD-NC", "Ada-RHB-NC"),
            ([(row, "RADIUS_REACHED", 0.01)] if row else [] for row in reached),
            strict=True,
        )
    ]
    return RunSet("fig3", runs, size - 1)


@pytest.mark.parametrize(
    ("reached", "first"), [((6_001, 4_002), 6_001), ((None, 4_002), 4_002), ((None, None), 9_801),
                           ((9_990, 100), 9_801)],
)  # fmt: skip
def test_a_long_plot_has_one_place_with_every_row_and_restart_and_says_where(
    reached, first, tmp_path
):
    page = written(Study([long_group(*reached)]), tmp_path)
    last = first + WINDOW - 1
    assert f"Iterations {first:,} to {last:,} are complete, with every restart" in page.text
    for series in page.plots["plot-0"]["series"]:
        rows = series["columns"]["iteration"]
        assert set(range(first, last + 1)) <= set(rows)
        restarts = {rows[row] for row, kind in series["events"] if kind == "RESTART"}
        assert {row for row in range(first, last + 1) if row % 3 == 0} <= restarts


def test_the_page_says_how_much_of_the_runs_is_in_it(page, tmp_path):
    # 351 rows of each of three runs, and two restarts of the first.
    assert "All 1,053 rows of these runs and all 2 restarts are in the page." in page.text
    thin = written(Study([long_group(6_001, 4_002)]), tmp_path)
    series = thin.plots["plot-0"]["series"]
    rows = sum(len(one["columns"]["iteration"]) for one in series)
    restarts = sum(kind == "RESTART" for one in series for _, kind in one["events"])
    assert (
        f"{rows:,} of 20,002 iterations and {restarts:,} of 6,668 restarts are drawn; all are in "
        "the Parquet files." in thin.text
    )


def test_rows_beyond_those_shown_are_left_out(page):
    for series in page.plots["plot-0"]["series"]:
        assert series["columns"]["iteration"] == list(range(351))


def test_curves_hold_what_was_recorded_to_six_digits(page):
    study = a_study()
    group = study.groups[0]
    for run, series in zip(group.runs, page.plots["plot-0"]["series"], strict=True):
        columns, shown = series["columns"], group.shown(run)
        for key, exact in {
            "evaluations": run.evaluations[shown],
            "time": run.time[shown],
            "error": group.error(run),
            "gradient": run.grad_norm[shown],
            "step": run.step_size[shown],
        }.items():
            np.testing.assert_allclose(columns[key], exact, rtol=5.1e-6)
            assert all(len(f"{float(value):.12g}".lstrip("0.")) <= 12 for value in columns[key])


def test_what_is_not_finite_is_null(tmp_path):
    run = a_run(size=50)
    run.fun[3] = math.nan
    run.grad_norm[4] = math.inf
    run = replace(run, step_sizes=np.full(50, math.nan))
    page = written(Study([RunSet("demo", [run], 100)]), tmp_path)
    columns = page.plots["plot-0"]["series"][0]["columns"]
    assert columns["error"][3] is None
    assert columns["error"][49] is None  # f* itself: no place on a logarithmic axis
    assert columns["gradient"][4] is None
    assert set(columns["step"]) == {None}


def test_fourteen_long_runs_fit_into_three_megabytes(tmp_path):
    events = [(row, "RESTART", 1.0) for row in range(0, 100_000, 16)]
    error, gradient = noisy(100_000)
    k = np.arange(100_000)
    history = History(k, k + 1, k * 0.0212345, 0.3512345 + error, gradient, events)
    run = PaperRun(ABOUT, history, 0.01 + error)
    written(Study([RunSet("fig3", [run] * 7, 10**5) for _ in range(2)]), tmp_path)
    assert (tmp_path / "report" / "index.html").stat().st_size < 3e6


def test_a_method_has_one_colour_in_all_plots_and_one_on_a_dark_screen(page):
    for shade in ("light", "dark"):
        first, second = (
            {series["name"]: series[shade] for series in page.plots[key]["series"]}
            for key in ("plot-0", "plot-1")
        )
        assert first == second
        assert len(set(first.values())) == 3


def test_a_method_has_the_colour_and_the_dashes_that_it_has_in_the_pictures(tmp_path):
    names = ["CG", "L-BFGS-B", "GD", "Jin's AGD", "accelerated sweeps"]
    page = written(Study([RunSet("demo", [a_run(method=name) for name in names], 400)]), tmp_path)
    looks = styles(names)
    for series in page.plots["plot-0"]["series"]:
        look = looks[series["name"]]
        assert (series["light"], series["dark"]) == (look["color"], DARK[look["color"]])
        assert series["dash"] == ([] if look["ls"] == "-" else [2 * n for n in look["ls"][1]])


def test_every_colour_has_another_one_on_a_dark_screen():
    assert set(DARK) == {*COLOURS, "black", PURPLE}
    assert len(set(DARK.values())) == len(DARK)
    for light, dark in DARK.items():
        assert light == "black" or brightness(dark) > brightness(light)


def brightness(colour):
    return sum(int(colour[i : i + 2], 16) for i in (1, 3, 5))


# --- words and tables ---


def test_twins_are_marked_and_real_data_are_not(page):
    twin, real = page.headings[1:3]
    assert twin == "Figure 1: ml-tiny twin, matrix completion synthetic twin"
    assert real == "Figure 2: ml-real, one-bit matrix completion"


def test_the_page_says_who_attained_the_lowest_value(page):
    lowest = a_study().groups[0].lowest[0]
    assert (
        f"f* = {lowest:.10g}, the least value in all of these runs: Ada-RAGD-NC attained it in "
        "iteration 400." in page.text
    )
    assert "up to 400 iterations long; the first 350 are shown" in page.text
    assert "parameters: paper" in page.text


def test_the_table_of_results_has_the_numbers_of_the_rows_shown(page, tmp_path):
    first, second, third = page.table("step size")
    run = a_run()
    lowest = a_study().groups[0].lowest[0]
    assert first["method"] == "Ada-RAGD-NC"
    assert first["step size"] == "7.5 (tuned)"
    assert (first["iterations"], first["values"], first["gradients"]) == ("350", "700", "351")
    assert first["time"] == "87.5 s"
    assert (first["restarts"], first["line 11"]) == ("2", "1")
    assert first["f - f* at the end"] == f"{run.fun[350] - lowest:.2e}"
    assert first["‖∇f‖ at the end"] == f"{run.grad_norm[350]:.2e}"
    # Row k has 3 k + 1 evaluations: 1000 are reached in row 333.
    assert run.evaluations[333] == EARLY
    assert first[f"f - f* at {EARLY:,}"] == f"{run.fun[333] - lowest:.2e}"
    assert first[f"‖∇f‖ at {EARLY:,}"] == f"{run.grad_norm[333]:.2e}"
    assert first["status"] == "max iterations"
    assert (second["restarts"], third["line 11"]) == ("-", "-")
    # What comes after the rows that are shown is not told of.
    shorter = written(Study([RunSet("fig1", a_study().groups[0].runs, 300)]), tmp_path)
    assert f"f - f* at {EARLY:,}" not in shorter.table("step size")[0]
    assert third["step size"] == "the method"


def test_the_page_says_who_went_on_for_the_sake_of_the_lowest_value(page, tmp_path):
    assert "For its sake all of them went on to iteration 400." in page.text
    runs = [a_run(), a_run(size=351, rate=0.01, method="CG"), a_run(rate=0.015, method="GD")]
    some = written(Study([RunSet("fig1", runs, 350)]), tmp_path)
    assert (
        "For its sake Ada-RAGD-NC and GD, the lowest in what is shown, went on to iteration 400; "
        "in the paper all do." in some.text
    )
    runs = [a_run(size=301), a_run(rate=0.01, method="GD"), a_run(size=0, method="CG")]
    slow = written(Study([RunSet("fig1", runs, 300)]), tmp_path)
    assert "For its sake GD went on to iteration 400; in the paper all do." in slow.text
    none = written(Study([RunSet("fig1", runs, 400)]), tmp_path)
    assert "Nobody went on beyond the iterations that are shown; in the paper all do." in none.text


def test_the_page_says_how_time_is_taken(page, tmp_path):
    assert page.text.count("the pass that computes a gradient computes the value, too") == 2
    assert "times favour the methods that ask for such values, Jin&#x27;s AGD" in page.text
    apart = "every value costs a pass"
    assert apart not in page.text
    theirs = written(Study([RunSet("fig1", [a_run(profile="authors-code")], 400)]), tmp_path)
    assert apart in theirs.text


def test_the_demonstration_says_what_its_companions_rows_are(page, tmp_path):
    runs = [a_run(), *(a_run(method=m, profile="ours") for m in ("L-BFGS-B", "accelerated sweeps"))]
    group = RunSet("demo", runs, 400)
    demo = written(Study([group]), tmp_path)
    assert (
        "A sweep counts as one value and one gradient, but costs a few times as much" in demo.text
    )
    assert "A row of L-BFGS-B is an evaluation" in demo.text
    assert "A sweep counts" not in page.text
    assert group.title == "ml-tiny twin, matrix completion"  # whose parameters: those of the first
    names = [series["name"] for series in demo.plots["plot-0"]["series"]]
    assert names == ["Ada-RAGD-NC", "L-BFGS-B", "accelerated sweeps"]


def test_every_table_has_a_name_of_its_own_and_every_plot_says_which_keys_it_has(page):
    names = [a["aria-label"] for _, a in page.tags if a.get("role") == "region"]
    assert len(names) == len(set(names)) == sum(tag == "table" for tag, _ in page.tags) == 6
    assert "results, Figure 2: ml-real, one-bit matrix completion" in names
    ids = [attributes.get("id") for _, attributes in page.tags]
    for key in page.plots:
        assert f"{key}-hint" in ids
    for key in ("Escape", "arrows", "Alt+Enter"):
        assert page.text.count(f"{key} show") + page.text.count(f"{key} pan") >= len(page.plots)


def test_columns_that_would_be_empty_are_left_out(tmp_path):
    page = written(Study([RunSet("demo", [a_run(size=100, events=[])], 100)]), tmp_path)
    (row,) = page.table("step size")
    assert not {"restarts", "line 11", f"f - f* at {EARLY:,}"} & set(row)
    assert row["f - f* at the end"] == "0"


def test_runs_of_one_method_with_other_parameters_have_names_of_their_own(tmp_path):
    runs = [a_run(), a_run(profile="ours"), a_run(profile="ours")]
    page = written(Study([RunSet("fig1", runs, 400)]), tmp_path)
    names = [series["name"] for series in page.plots["plot-0"]["series"]]
    assert names == ["Ada-RAGD-NC (paper)", "Ada-RAGD-NC (ours)", "Ada-RAGD-NC (ours), run 2"]
    series = page.plots["plot-0"]["series"]
    assert len({one["light"] for one in series}) == 1
    assert len({str(one["dash"]) for one in series}) == 3


def test_a_run_without_rows_does_not_spoil_the_page(tmp_path):
    page = written(
        Study([RunSet("fig1", [a_run(), a_run(size=0, method="CG", status="NON_FINITE")], 400)]),
        tmp_path,
    )
    assert page.table("step size")[1]["status"] == "non finite"
    assert page.plots["plot-0"]["series"][1]["columns"]["error"] == []


def test_parameters_claims_theorems_tuning_and_machine_are_told(page):
    parameters = page.table("parameters")
    assert parameters[0]["parameters"] == "eps = 0.0001, momentum = 0.995"
    assert [row["on"] for row in parameters] == ["all"] * 3
    for told in ("seen", "not seen", "cannot be told"):
        assert f">{told}</span>" in page.text
    assert (
        "3 statements, each on every set of runs that it is about: 1 seen, 1 not seen and 1 cannot "
        "be told." in page.text
    )
    first, second = page.table("slack")
    assert (first["bound"], first["measured"], first["slack"]) == ("81,234", "1,000", "81.2 times")
    assert (first["verdict"], second["verdict"]) == ("holds", "does not hold")
    labels = [series["label"] for series in page.plots["growth"]["series"]]
    assert labels == ["RAGD: exponent 1.75", "gradient descent: exponent 2.00"]
    tuning = page.table("trials")
    assert len(tuning) == 4  # GD was not tuned
    assert (tuning[0]["evaluations"], tuning[0]["seconds"]) == ("4,321", "61.5")
    assert "numpy 2.4 on a test bench; 2 threads" in page.text
    assert page.table("fingerprint")[0]["shape"] == "6,040 by 3,706"


@pytest.mark.parametrize(
    ("part", "heading"),
    [
        ("claims", "What the paper says"),
        ("bounds", "Theorems"),
        ("growths", "Growth with 1/μ"),
        ("groups", "Parameters"),
        ("groups", "Data and machine"),
        ("groups", "Cost of tuning"),
    ],
)
def test_empty_parts_are_left_out(page, tmp_path, part, heading):
    assert heading in page.headings
    without = written(replace(a_study(), **{part: []}), tmp_path)
    assert heading not in without.headings
    assert len(without.headings) < len(page.headings)


def test_nothing_was_run_is_a_page_too(tmp_path):
    page = written(Study([RunSet("fig1", [], 10)]), tmp_path)
    assert page.headings == ["Run again"]
    assert page.plots == {}


def test_every_kind_of_event_has_words_or_is_none_of_the_readers_business():
    from momentous.core.status import EventKind

    assert {kind.name for kind in EventKind} - set(SIGNS) == {"TURN"}
