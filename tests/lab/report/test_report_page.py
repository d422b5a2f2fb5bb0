"""The page of a study is one file that shows what was measured, all of it and nothing else."""

import base64
import hashlib
import json
import math
import re
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser

import numpy as np
import pytest

from momentous.core.status import EventKind
from momentous.lab.paper.results import EARLY, Bound, Claim, Growth, RunSet, Study, Verdict
from momentous.lab.paper.runs import PaperRunInfo
from momentous.lab.record import Ended, Outcome, RunRecord
from momentous.lab.report.documents import DRAW_SCRIPT, write_page
from momentous.lab.report.figures import STRETCHES, styles
from momentous.lab.report.plots import MARKS, WINDOW, X_AXES, Y_AXES

pytest.importorskip("plotly")
pytest.importorskip("jinja2")

UNSTABLE = {"step_size": 10.6, "reason": "climbs above its start at iteration 77"}
INFO = PaperRunInfo(
    problem="completion", method="Ada-RAGD-NC", setup="numpy 2.4 on a test bench",
    parameters={"eps": 1e-4, "momentum": 0.995, "epoch_length": None, "step_size": 7.5},
    data="ml-tiny", twin=True, profile="paper", step_size=7.5, step_from="tuned", iterations=100,
    shape=(6040, 3706), entries=1000209, rank=10, fingerprint="f1n9e7", device="CPU",
    threads=2,
    tuning={"trials": 9, "evaluations": 4321, "seconds": 61.5, "unstable": [UNSTABLE]},
)  # fmt: skip
EVENTS = [
    (40, EventKind.RESTART, 40.0),
    (90, EventKind.ROLLBACK, 50.0),
    (120, EventKind.RADIUS_REACHED, 0.01),
]
CURVED = [(30, EventKind.NEGATIVE_CURVATURE, -1.0)]


def a_run(size=401, rate=0.02, floor=0.35, events=(), status="max iterations", **info):
    """A run whose error and gradient norm fall by the factor exp(-rate) in an iteration."""
    k = np.arange(size)
    error = 0.1 * np.exp(-rate * k)
    columns = {
        "nfev": 2 * k, "njev": k + 1, "time": 0.25 * k, "fun": floor + error,
        "grad_norm": 3 * error, "step_size": np.full(size, 7.5),
    }  # fmt: skip
    return RunRecord.from_columns(replace(INFO, **info), Outcome(status, "done"), columns, events)


def a_study():
    """Two sets of three methods, and something in every other part."""

    def runs(**info):
        searched = {"step_size": None, "step_from": "the method", "tuning": {}, "parameters": {}}
        return [
            a_run(events=EVENTS, **info),
            a_run(rate=0.015, method="Jin's AGD", events=CURVED, **info),
            a_run(rate=0.01, method="GD", **searched, **info),
        ]

    return Study(
        run_sets=[
            RunSet("fig1", runs(), 350),
            RunSet("fig2", runs(problem="one-bit", twin=False, data="ml-real"), 350),
        ],
        claims=[
            Claim(
                "section 5.1", "All are faster than GD.", "ml-tiny twin", Verdict.SEEN, "2 of 2."
            ),
            Claim("section 5.1", "CG oscillates.", "ml-tiny twin", Verdict.NOT_SEEN, "1 % of rows"),
            Claim(
                "section 5.3",
                "Line 11 is rare.",
                "ml-real",
                Verdict.CANNOT_TELL,
                "never",
                "1,000 of 100,000 iterations",
            ),
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
    """The page taken apart: tags with attributes, rows of cells, headings, scripts, figures."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.rows, self.headings, self.open, self.words = [], [], [], [], ""
        self.scripts = []
        self.feed(text)
        self.figures = json.loads(next(text for kind, text in self.scripts if kind))
        self.words = " ".join(self.words.split())

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")
        elif tag in ("h1", "h2"):
            self.headings.append("")
        elif tag == "script":
            self.scripts.append((dict(attributes).get("type"), ""))

    def handle_endtag(self, tag):
        if tag in self.open:
            while self.open.pop() != tag:
                pass

    def handle_data(self, data):
        if "script" in self.open:
            kind, before = self.scripts.pop()
            self.scripts.append((kind, before + data))
            return
        if "style" not in self.open:
            self.words += data
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

    def curves(self, plot="plot-0"):
        return [trace for trace in self.figures[plot]["data"] if trace["mode"] != "markers"]

    def columns(self, plot="plot-0"):
        """What the menus of a plot switch to: columns by axis, a list per trace."""
        update = {}
        for menu in self.figures[plot]["layout"]["updatemenus"]:
            for button in menu["buttons"]:
                if button["method"] == "update":
                    ((_, columns),) = button["args"][0].items()
                    update[button["label"]] = columns
        return {key: update[label] for key, label in {**X_AXES, **Y_AXES}.items()}


def written(study, tmp_path, **options):
    path = tmp_path / "report" / "index.html"
    write_page(study, path, **{"title": "Run again", "lead": "What came out.", **options})
    return Page(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    return written(a_study(), tmp_path_factory.mktemp("page"))


@pytest.fixture(autouse=True)
def _short_script(page, monkeypatch):
    """All pages but that of the fixture have another script in place of Plotly's five megabytes."""
    script = "momentous.lab.report.documents._plotly_script"
    monkeypatch.setattr(script, lambda: "const Plotly = null;")


# --- one file, and nothing from outside ---


def test_nothing_is_fetched_from_elsewhere(page):
    for tag, attributes in page.tags:
        assert "src" not in attributes
        assert attributes.get("href", "#").startswith(("#", "data:", "./"))
        assert tag not in ("img", "iframe", "object", "embed")


def test_only_the_two_scripts_of_the_page_may_run(page):
    policy = next(
        a["content"] for _, a in page.tags if a.get("http-equiv") == "Content-Security-Policy"
    )
    rules = dict(rule.split(maxsplit=1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'"
    assert "connect-src" not in rules
    scripts = [text for kind, text in page.scripts if kind is None]
    digests = [base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in scripts]
    assert rules["script-src"].split() == [f"'sha256-{digest}'" for digest in digests]
    assert scripts[0].lstrip().startswith("/**\n* plotly.js v")
    assert scripts[1] == DRAW_SCRIPT
    assert not [name for _, attributes in page.tags for name in attributes if name[:2] == "on"]


def test_every_link_within_the_page_has_its_target(page):
    ids = {attributes.get("id") for _, attributes in page.tags}
    targets = [a["href"][1:] for tag, a in page.tags if tag == "a" and a["href"].startswith("#")]
    assert len(targets) == len(page.headings) - 1
    assert set(targets) <= ids
    assert set(page.figures) <= ids


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


def test_whatever_is_in_a_field_stays_text(tmp_path):
    evil = '</script><img src=x onerror="alert(1)"> & {{ 7 * 7 }} <b>'
    run = a_run(
        method=evil, data=evil, status=evil, setup=evil, parameters={evil: evil}, rank=evil,
        problem=evil, tuning={evil: evil, "unstable": [{"step_size": evil, "reason": evil}]},
        step_from=evil, fingerprint=evil, profile=evil,
    )  # fmt: skip
    study = Study(
        [RunSet(evil, [run], 100)],
        [Claim(evil, evil, evil, True, evil)],
        [Bound(evil, evil, evil, evil, 1.0, 1.0)],
        [Growth(evil, [1.0], [1.0], 1.0)],
    )
    page = written(study, tmp_path, title=evil, lead=evil, pictures={evil: tmp_path / "a.png"})
    tags = {tag for tag, _ in page.tags}
    assert not tags & {"img", "b"}
    assert len(page.scripts) == 3
    assert page.headings[0] == evil
    assert f"rank {evil}; " in page.words
    assert page.table("rank")[0]["rank"] == evil
    for plot in ("plot-0", "growth"):  # Plotly reads some tags, too
        name = page.curves(plot)[0]["name"]
        assert "<" not in name
        assert unescape(name).startswith(evil)


# --- plots ---


def test_every_run_is_a_curve_whose_name_hides_it_and_its_marks(page):
    figure = page.figures["plot-0"]
    curves = page.curves()
    assert [unescape(curve["name"]) for curve in curves] == ["Ada-RAGD-NC", "Jin's AGD", "GD"]
    marks = [trace for trace in figure["data"] if trace["mode"] == "markers"]
    assert [trace["legendgroup"] for trace in marks] == [
        curve["legendgroup"] for curve in curves[:2]
    ]
    assert not any(trace["showlegend"] for trace in marks)
    assert marks[0]["x"] == [3 * row + 1 for row in (40, 90, 120)]
    assert marks[0]["text"] == [MARKS[kind]["words"] for _, kind, _ in EVENTS]
    assert "diamond: epoch discarded (line 11 of Algorithms 2 and 4)" in page.words


def test_menus_switch_axes_and_scales(page):
    layout = page.figures["plot-0"]["layout"]
    assert (layout["xaxis"]["type"], layout["yaxis"]["type"]) == ("linear", "log")
    relayouts = [
        button["args"][0]
        for menu in layout["updatemenus"]
        for button in menu["buttons"]
        if button["method"] == "relayout"
    ]
    scales = {(each["xaxis.type"], each["yaxis.type"]) for each in relayouts}
    assert scales == {("linear", "log"), ("log", "log"), ("linear", "linear")}
    assert all(len(column) == 5 for column in page.columns().values())  # a column per trace


def test_a_long_plot_is_first_shown_against_a_logarithm(tmp_path):
    page = written(Study([long_set(6_001, 4_002)]), tmp_path)
    layout = page.figures["plot-0"]["layout"]
    assert layout["xaxis"]["type"] == "log"
    active = [menu.get("active") for menu in layout["updatemenus"]]
    assert layout["updatemenus"][1]["buttons"][active[1]]["label"] == "log x, log y"


def test_curves_hold_what_was_recorded_to_six_digits(page):
    run_set = a_study().run_sets[0]
    traces = [i for i, t in enumerate(page.figures["plot-0"]["data"]) if t["mode"] == "lines"]
    for run, i in zip(run_set.runs, traces, strict=True):
        columns = {key: column[i] for key, column in page.columns().items()}
        assert columns["iteration"] == list(range(351))  # what comes after is not shown
        for key, exact in {
            "evaluations": run_set.evaluations(run),
            "time": run_set.time(run),
            "error": run_set.error(run),
            "norm": run_set.norm(run),
        }.items():
            np.testing.assert_allclose(columns[key], exact, rtol=5.1e-6)
        first = page.figures["plot-0"]["data"][i]
        assert (first["x"], first["y"]) == (columns["evaluations"], columns["error"])


def test_what_is_not_finite_is_null(tmp_path):
    run = a_run(size=50)
    run.fun[3] = math.nan
    run.grad_norm[4] = math.inf
    columns = written(Study([RunSet("demo", [run], 100)]), tmp_path).columns()
    assert columns["error"][0][3] is None
    assert columns["error"][0][49] is None  # f* itself: no place on a logarithmic axis
    assert columns["norm"][0][4] is None


def test_events_point_to_the_rows_in_which_they_happened(tmp_path):
    events = [(row, EventKind.RESTART, 1.0) for row in range(0, 9_000, 3)]
    events += [
        (4_567, EventKind.ROLLBACK, 1.0),
        (8_001, EventKind.RADIUS_REACHED, 0.1),
        (9_500, EventKind.ROLLBACK, 1.0),
    ]
    run = a_run(size=10_000, rate=1e-3, events=sorted(events))
    page = written(Study([RunSet("fig3", [run], 9_000)]), tmp_path)
    words = page.figures["plot-0"]["data"][1]["text"]
    at = list(zip(page.columns()["iteration"][1], words, strict=True))
    restart = MARKS[EventKind.RESTART]["words"]
    assert [pair for pair in at if pair[1] != restart] == [
        (4_567, MARKS[EventKind.ROLLBACK]["words"]),
        (8_001, MARKS[EventKind.RADIUS_REACHED]["words"]),
    ]
    assert set(at) <= {(row, MARKS[kind]["words"]) for row, kind, _ in events}
    assert 100 < len(at) <= STRETCHES + 2 + WINDOW / 3


def long_set(*reached, size=10_001, period=3):
    """Runs that restart every few iterations, and where each has B0 <= B for the first time."""
    restarts = [(row, EventKind.RESTART, 1.0) for row in range(0, size, period)]
    runs = [
        a_run(size=size, rate=1e-3, method=name, events=sorted([*restarts, *events]))
        for name, events in zip(
            ("Ada-RAGD-NC", "Ada-RHB-NC"),
            ([(row, EventKind.RADIUS_REACHED, 0.01)] if row else [] for row in reached),
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
    page = written(Study([long_set(*reached)]), tmp_path)
    last = first + WINDOW - 1
    assert f"Iterations {first:,} to {last:,} are complete, with every restart" in page.words
    curve, marks = page.columns()["iteration"][:2]
    assert set(range(first, last + 1)) <= set(curve)
    assert {row for row in range(first, last + 1) if row % 3 == 0} <= set(marks)


def test_the_page_says_how_much_of_the_runs_is_in_it(page, tmp_path):
    # 351 rows of each of three runs, and two restarts of the first.
    assert "All 1,053 rows of these runs and all 2 restarts are in the page." in page.words
    thin = written(Study([long_set(6_001, 4_002)]), tmp_path)
    rows = sum(len(column) for column in thin.columns()["iteration"][::2])
    words = [word for trace in thin.figures["plot-0"]["data"][1::2] for word in trace["text"]]
    restarts = words.count(MARKS[EventKind.RESTART]["words"])
    assert (
        f"{rows:,} of 20,002 iterations and {restarts:,} of 6,668 restarts are drawn; all are in "
        "the Parquet files." in thin.words
    )


def test_fourteen_long_runs_take_less_room_than_plotly_itself(page, tmp_path):
    events = [(row, EventKind.RESTART, 1.0) for row in range(0, 100_000, 16)]
    k, rng = np.arange(100_000), np.random.default_rng(0)
    error, norm = (np.exp(rng.normal(size=k.size) - 5 * k / k.size) for _ in range(2))
    columns = {"nfev": k, "njev": k + 1, "time": k * 0.0212345, "fun": 0.3512345 + error}
    run = RunRecord.from_columns(
        INFO, Outcome(Ended.STOPPED, ""), columns | {"grad_norm": norm}, events
    )
    written(Study([RunSet("fig3", [run] * 7, 10**5) for _ in range(2)]), tmp_path)
    size = (tmp_path / "report" / "index.html").stat().st_size
    assert size < len(page.scripts[1][1])


def test_a_method_has_the_colour_and_the_dashes_that_it_has_in_the_pictures(page, tmp_path):
    names = ["CG", "L-BFGS-B", "GD", "Jin's AGD", "accelerated sweeps"]
    demo = written(Study([RunSet("demo", [a_run(method=name) for name in names], 400)]), tmp_path)
    looks = styles(names)
    for curve in demo.curves():
        look = looks[unescape(curve["name"])]
        assert curve["line"]["color"] == look["color"]
        dashes = [] if look["ls"] == "-" else [f"{2 * n:g}px" for n in look["ls"][1]]
        assert curve["line"]["dash"] == (",".join(dashes) or "solid")
    first, second = ([c["line"] for c in page.curves(key)] for key in ("plot-0", "plot-1"))
    assert first == second


def test_every_kind_of_event_has_a_mark_or_is_none_of_the_readers_business():
    assert {*EventKind} - {*MARKS} == {EventKind.SECANT, EventKind.TURN, EventKind.FACE}


# --- words and tables ---


def test_twins_are_marked_and_real_data_are_not(page):
    twin, real = page.headings[1:3]
    assert twin == "Figure 1: ml-tiny twin, matrix completion synthetic twin"
    assert real == "Figure 2: ml-real, one-bit matrix completion"


def test_the_headline_names_the_lowest_runs(page):
    run_set = a_study().run_sets[0]
    ends = [f"{run.info.method} ({run_set.error(run)[-1]:.2e})" for run in run_set.runs]
    assert (
        "Lowest f - f* at the end of the 350 iterations shown: "
        f"{ends[0]}, {ends[1]} and {ends[2]}." in page.words
    )


def test_the_page_says_who_attained_the_lowest_value(page):
    lowest = a_study().run_sets[0].lowest[0]
    assert (
        f"f* = {lowest:.10g}, the least value in all of these runs: Ada-RAGD-NC attained it in "
        "iteration 400." in page.words
    )
    assert "up to 400 iterations long; the first 350 are shown" in page.words
    assert "parameters: paper" in page.words


def test_the_table_of_results_has_the_numbers_of_the_rows_shown(page, tmp_path):
    first, second, third = page.table("step size")
    run = a_run()
    lowest = a_study().run_sets[0].lowest[0]
    assert first["method"] == "Ada-RAGD-NC"
    assert (first["step size"], first["chosen"]) == ("7.5", "tuned")
    assert (first["iterations"], first["values"], first["gradients"]) == ("350", "700", "351")
    assert first["time"] == "87.5 s"
    assert (first["restarts"], first["line 11"]) == ("2", "1")
    assert first["f - f* at the end"] == f"{run.fun[350] - lowest:.2e}"
    assert first["norm at the end"] == f"{run.grad_norm[350]:.2e}"
    # Row k has 3 k + 1 evaluations: 1000 are reached in row 333.
    assert run.evaluations[333] == EARLY
    assert first[f"f - f* at {EARLY:,}"] == f"{run.fun[333] - lowest:.2e}"
    assert first[f"norm at {EARLY:,}"] == f"{run.grad_norm[333]:.2e}"
    assert first["ended"] == "max iterations"
    assert (second["restarts"], third["line 11"]) == ("-", "-")
    # What comes after the rows that are shown is left out.
    shorter = written(Study([RunSet("fig1", a_study().run_sets[0].runs, 300)]), tmp_path)
    assert f"f - f* at {EARLY:,}" not in shorter.table("step size")[0]
    assert third["step size"] == "its own"


def test_the_page_says_which_runs_went_on_for_the_sake_of_the_lowest_value(page, tmp_path):
    assert "To find it, all of them went on to iteration 400." in page.words
    runs = [a_run(), a_run(size=351, rate=0.01, method="CG"), a_run(rate=0.015, method="GD")]
    some = written(Study([RunSet("fig1", runs, 350)]), tmp_path)
    assert (
        "To find it, Ada-RAGD-NC and GD, the lowest in what is shown, went on to iteration 400; "
        "in the paper all do." in some.words
    )
    runs = [a_run(size=301), a_run(rate=0.01, method="GD"), a_run(size=0, method="CG")]
    slow = written(Study([RunSet("fig1", runs, 300)]), tmp_path)
    assert "To find it, GD went on to iteration 400; in the paper all do." in slow.words
    none = written(Study([RunSet("fig1", runs, 400)]), tmp_path)
    assert "No run goes on beyond the iterations that are shown; in the paper all" in none.words


def test_the_page_says_how_time_is_taken(page, tmp_path):
    assert page.words.count("the pass that computes a gradient computes the value, too") == 2
    assert "times favour the methods that ask for such values, Jin's AGD" in page.words
    apart = "every value costs a pass"
    assert apart not in page.words
    theirs = written(Study([RunSet("fig1", [a_run(profile="authors-code")], 400)]), tmp_path)
    assert apart in theirs.words


def test_the_demonstration_says_what_the_rows_of_its_baselines_are(page, tmp_path):
    runs = [a_run(), *(a_run(method=m, profile="ours") for m in ("L-BFGS-B", "accelerated sweeps"))]
    run_set = RunSet("demo", runs, 400)
    demo = written(Study([run_set]), tmp_path)
    assert "A sweep counts as one value and one gradient, but costs a few times" in demo.words
    assert "A row of L-BFGS-B is an evaluation" in demo.words
    assert "A sweep counts" not in page.words
    assert run_set.title == "ml-tiny twin, matrix completion"  # parameters: those of the first


def test_every_table_has_a_name_of_its_own(page):
    names = [a["aria-label"] for _, a in page.tags if a.get("role") == "region"]
    assert len(names) == len(set(names)) == sum(tag == "table" for tag, _ in page.tags) == 8
    assert "results, ml-real, one-bit matrix completion" in names


def test_columns_that_would_be_empty_are_left_out(tmp_path):
    page = written(Study([RunSet("demo", [a_run(size=100, events=[])], 100)]), tmp_path)
    (row,) = page.table("step size")
    assert not {"restarts", "line 11", f"f - f* at {EARLY:,}"} & set(row)
    assert row["f - f* at the end"] == "0"


def test_a_run_without_rows_does_not_spoil_the_page(tmp_path):
    empty = a_run(size=0, method="CG", status="non finite")
    page = written(Study([RunSet("fig1", [a_run(), empty], 400)]), tmp_path)
    assert page.table("step size")[1]["ended"] == "non finite"
    assert page.curves()[1]["y"] == []


def test_parameters_claims_theorems_tuning_and_machine_are_there(page):
    parameters = page.table("parameters")
    assert parameters[0]["parameters"] == "eps = 0.0001, momentum = 0.995"
    assert [row["on"] for row in parameters] == ["all"] * 3
    for verdict in ("seen:", "not seen:", "cannot be told:"):
        assert verdict in page.words
    assert "Why it cannot be told: 1,000 of 100,000 iterations." in page.words
    looks = [dict(a)["class"] for tag, a in page.tags if "verdict" in dict(a).get("class", "")]
    assert looks == ["verdict good", "verdict bad", "verdict faint"]
    assert (
        "3 statements, each on every set of runs that it is about: 1 seen, 1 not seen and 1 cannot "
        "be told." in page.words
    )
    first, second = page.table("slack")
    assert (first["bound"], first["measured"], first["slack"]) == ("81,234", "1,000", "81.2")
    assert (first["verdict"], second["verdict"]) == ("holds", "does not hold")
    labels = [curve["name"] for curve in page.curves("growth")]
    assert labels == ["RAGD: exponent 1.75", "gradient descent: exponent 2.00"]
    tuning = page.table("trials")
    assert len(tuning) == 4  # GD was not tuned
    assert (tuning[0]["evaluations"], tuning[0]["seconds"]) == ("4,321", "61.5")
    assert tuning[0]["unstable steps"] == "10.6: climbs above its start at iteration 77"
    assert "numpy 2.4 on a test bench; 2 threads" in page.words
    assert page.table("fingerprint")[0]["users"] == "6,040"


@pytest.mark.parametrize(
    ("part", "heading"),
    [
        ("claims", "What the paper says"),
        ("bounds", "Theorems"),
        ("growths", "Growth with 1/μ"),
        ("run_sets", "Parameters, tuning, data"),
    ],
)
def test_empty_parts_are_left_out(page, tmp_path, part, heading):
    assert heading in page.headings
    without = written(replace(a_study(), **{part: []}), tmp_path)
    assert heading not in without.headings
    assert len(without.headings) < len(page.headings)


def test_a_study_without_runs_is_a_page_too(tmp_path):
    page = written(Study([RunSet("fig1", [], 10)]), tmp_path)
    assert page.headings == ["Run again"]
    assert page.figures == {}
    assert len(page.scripts) == 1  # without plots there is no Plotly
    assert not re.search("sha256", str(page.tags))
