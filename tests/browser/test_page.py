"""The page and its figures in a real browser."""

import json
import re
import time
from pathlib import Path

import pytest
from large_study import LONG
from test_figures import DRAW

from browser.chromium import Chromium

# figures without a box, or without a mark that has one
BLANK = """Array.from(document.querySelectorAll('figure, .vega-embed')).filter(figure => {
  const svg = figure.querySelector('svg'), box = svg && svg.getBoundingClientRect();
  const marks = Array.from(svg ? svg.querySelectorAll('.role-mark path, .role-mark text, .role-mark line') : []);
  return !box || box.width < 200 || box.height < 60 || !marks.some(mark => {
    const own = mark.getBoundingClientRect();
    return own.width + own.height > 2;
  });
}).map(figure => figure.id || 'figure')"""
SCALES = """Array.from(document.querySelectorAll('figure svg'), svg =>
  svg.getBoundingClientRect().width / svg.viewBox.baseVal.width)"""
TABLE = "document.querySelector('table[data-title^=\"{}\"]')"


def loaded(browser: Chromium, page: Path) -> None:
    """Nothing was said on the console, and nothing but the page asked for."""
    assert browser.complaints() == []
    assert [url for url in browser.requests() if not url.startswith("data:")] == [page.resolve().as_uri()]


def column(browser: Chromium, title: str, place: int) -> list[str]:
    """Texts of one column, as shown."""
    rows = f"Array.from({TABLE.format(title)}.tBodies[0].rows)"
    return browser.value(f"{rows}.map(row => row.cells[{place}].textContent)")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [360, 768, 1400])
def test_the_page_is_whole_at_any_width(browser: Chromium, small: Path, width: int, dark: bool) -> None:
    page = small / "report.html"
    browser.open(page, width, dark=dark)
    loaded(browser, page)
    browser.value("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    assert browser.value("document.documentElement.scrollWidth") <= width
    assert browser.value("document.querySelectorAll('figure').length") == len(DRAW)
    assert browser.value(BLANK) == []
    assert min(browser.value(SCALES)) > 0.85  # 12 px in a figure are never below 10
    links = browser.value("Array.from(document.querySelectorAll('.contents a:not(.sub)'), a => a.checkVisibility())")
    assert links == [True] * 8
    ink, paper = browser.value(
        "[getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]"
    )
    bright = [sum(map(int, colour.strip("rgb()").split(","))) for colour in (ink, paper)]
    assert (bright[0] > bright[1] + 300) if dark else (bright[1] > bright[0] + 300)


@pytest.mark.parametrize("name", DRAW)
def test_each_figure_draws_by_itself(browser: Chromium, small: Path, name: str) -> None:
    page = small / "drawn" / f"{name}.html"
    browser.open(page)
    deadline = time.monotonic() + 20
    while not browser.value("document.querySelector('svg') !== null") and time.monotonic() < deadline:
        time.sleep(0.02)
    assert browser.value(BLANK) == []
    loaded(browser, page)


def test_tables_sort_by_press_and_by_key(browser: Chromium, big: Path) -> None:
    """Differences are of both signs, with a minus that no parser of numbers knows."""
    browser.open(big / "report.html")
    effects = TABLE.format("Effects at")
    heads = browser.value(f"Array.from({effects}.tHead.rows[0].cells, cell => cell.textContent)")
    place = heads.index("difference")
    head = f"{effects}.tHead.rows[0].cells[{place}]"

    def differences() -> list[float]:
        return [float(text.replace("−", "-")) for text in column(browser, "Effects at", place)]

    assert browser.value(f"{head}.getAttribute('aria-sort')") is None
    assert differences() != sorted(differences(), reverse=True)
    browser.value(f"{head}.querySelector('button').focus()")
    browser.press("Enter", 13)
    assert browser.value(f"{head}.getAttribute('aria-sort')") == "descending"
    largest = differences()
    assert len(largest) == 25
    assert largest == sorted(largest, reverse=True)
    browser.press(" ", 32)
    assert browser.value(f"{head}.getAttribute('aria-sort')") == "ascending"
    smallest = differences()
    assert smallest == sorted(smallest)
    assert smallest[0] < 0 < largest[0]
    browser.value(f"{effects}.tHead.rows[0].cells[0].querySelector('button').click()")
    assert browser.value(f"Array.from({effects}.tHead.querySelectorAll('[aria-sort]')).length") == 1
    arms = column(browser, "Effects at", 0)
    assert arms == sorted(arms)


def test_long_tables_are_paged_and_searched(browser: Chromium, big: Path) -> None:
    page = big / "report.html"
    began = time.monotonic()
    browser.open(page)
    assert time.monotonic() - began < 5
    loaded(browser, page)
    tools = "document.querySelector('#table-runs .tools')"
    browser.value("document.querySelector('#table-runs').open = true")

    def said() -> str:
        return browser.value(f"{tools}.querySelector('[role=status]').textContent")

    assert said() == "1 to 25 of 200"
    first = column(browser, "Runs", 0)
    browser.value(f"{tools}.querySelector('[aria-label=\"Next page\"]').click()")
    assert said() == "26 to 50 of 200"
    assert column(browser, "Runs", 0) != first
    browser.value(f"{tools}.querySelector('input').focus()")
    browser.send("Input.insertText", text="ARM_07  done")
    assert said() == "10 rows, of 200"
    assert set(column(browser, "Runs", 0)) == {"arm_07"}
    browser.send("Input.insertText", text=" nothing of it")
    assert said() == "no row of 200"
    browser.resize(360)
    assert browser.value("document.documentElement.scrollWidth") <= 360


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("-", ["−"]),  # what is shown is U+2212
        ("−", ["−"]),
        ('"arm_0"', []),
        ("arm_0", ["arm_03", "arm_09"]),
        ('"ARM_03" "no difference"', ["arm_03"]),
        ('"größe-Ω-漢字-🙂-عربي', ["Größe"]),
        ('"Größe-Ω"', []),
        ('"(["', []),
    ],
)  # fmt: skip
def test_search_knows_signs_and_whole_words(browser: Chromium, big: Path, typed: str, found: list[str]) -> None:
    browser.open(big / "report.html")
    box = "document.querySelector('#table-effects .tools')"
    browser.value(f"{box}.querySelector('input').focus()")
    browser.send("Input.insertText", text=typed)
    rows = browser.value(f"Array.from({TABLE.format('Effects at')}.tBodies[0].rows, row => row.textContent)")
    assert bool(rows) == bool(found)
    assert all(any(part in row for row in rows) for part in found)
    assert browser.complaints() == []
    if typed.strip("−-") == "":
        said = browser.value(f"{box}.querySelector('[role=status]').textContent")
        assert "of 38" in said  # some rows are left out


def test_wide_tables_have_the_width_of_the_window(browser: Chromium, big: Path) -> None:
    browser.open(big / "report.html", 1400)
    table = TABLE.format("Effects at")
    columns = browser.value(f"{table}.tHead.rows[0].cells.length")
    assert columns >= 11
    assert browser.value(f"{table}.scrollWidth <= {table}.parentElement.clientWidth")
    browser.open(big / "report.html", 390)
    edges = "getComputedStyle(document.querySelector('#table-effects .scroll')).backgroundAttachment"
    assert browser.value(edges) == "local, local, scroll, scroll"  # the shadows that say there is more


def test_equal_gains_are_shown_as_equal(browser: Chromium, small: Path, tmp_path: Path) -> None:
    """23/40 - 18/40 is 0.125 less a last digit in floats, 5/8 - 4/8 is it: both are 12.5, rounded away from zero."""
    pairs = [((23, 40), (18, 40)), ((5, 8), (4, 8)), ((29, 40), (24, 40)), ((1, 8), (0, 8)), ((1, 1000), (0, 8))]
    lost = [((18, 40), (23, 40))]
    problems = [
        {"benchmark": "b", "id": f"p{n}", "random": False, "question": f"q{n}", "answer": "1",
         "arms": {arm: {"runs": 1, "samples": of, "correct": right, "reason": None, "texts": []}
                  for arm, (right, of) in zip(("new", "old"), pair, strict=True)}}
        for n, pair in enumerate(pairs + lost)
    ]  # fmt: skip
    data = {"baseline": "old", "arms": ["old", "new"], "problems": problems, "of_each": 2, "without_texts": False}
    html = (small / "report.html").read_text(encoding="utf-8")
    start = re.search(r'<script type="application/json" id="examples-data">', html).end()  # type: ignore[union-attr]
    page = tmp_path / "page.html"
    page.write_text(html[:start] + json.dumps(data) + html[html.index("</script>", start) :], encoding="utf-8")
    browser.open(page)
    assert shown(browser, ".pick option") == [f"+13 points: q{n}" for n in range(4)] + ["0 points: q4"]
    choose(browser, "problems", "lost")
    assert shown(browser, ".pick option") == ["−13 points: q5"]


CHOOSER = "document.getElementById('chooser')"


def choose(browser: Chromium, label: str, value: str) -> None:
    """Take an option of one of the selects."""
    found = f"Array.from({CHOOSER}.querySelectorAll('label')).find(l => l.textContent.startsWith({label!r}))"
    browser.value(
        f"(s => {{ s.value = {value!r}; s.dispatchEvent(new Event('change')); }})({found}.querySelector('select'))"
    )


def shown(browser: Chromium, selector: str) -> list[str]:
    """Texts of the elements in the chooser."""
    return browser.value(f"Array.from({CHOOSER}.querySelectorAll({selector!r}), node => node.textContent)")


def test_completions_stand_side_by_side_and_are_inert(browser: Chromium, small: Path) -> None:
    browser.open(small / "report.html")
    elements = "document.querySelectorAll('script, img, iframe').length"
    before = browser.value(elements)
    choose(browser, "problems", "gained")
    assert shown(browser, ".column h4")[:2] == ["base (before training)", "gspo_asym (baseline)"]
    seen = set()
    for way in ("gained", "lost", "random"):
        choose(browser, "problems", way)
        while True:
            seen |= set(shown(browser, ".problem .note"))
            hostile = [text for text in shown(browser, ".completion .text") if "script" in text]
            for text in hostile:
                assert text.startswith("<script>window.harmed = 1</script></script><img src=x")
                assert "⟨U+2028⟩ ⟨U+202E⟩right to left ⟨U+0000⟩ ⟨U+001B⟩[31m &amp;" in text
            for width in (360, 1400):
                browser.resize(width)
                assert browser.value("document.documentElement.scrollWidth") <= width
            assert browser.value(f"{CHOOSER}.getBoundingClientRect().height") < 4000  # 100 kB have a box of their own
            onward = f"{CHOOSER}.querySelector('[aria-label=\"Next problem\"]')"
            if browser.value(f"{onward}.disabled"):
                break
            browser.value(f"{onward}.click()")
    assert {f"word_problems_test · p{n}" for n in (0, 1)} <= {note.removesuffix(" · at random") for note in seen}
    assert browser.value("window.harmed === undefined")
    assert browser.value(elements) == before
    assert browser.complaints() == []


def test_arms_are_chosen_by_hand(browser: Chromium, big: Path) -> None:
    browser.open(big / "report.html")
    assert len(shown(browser, ".column")) == 3  # base, baseline, and the arm asked about
    choose(browser, "arm", "arm_05")
    assert "arm_05" in shown(browser, ".column.asked h4")
    browser.value(f"{CHOOSER}.querySelector('details').open = true")
    boxes = f"{CHOOSER}.querySelectorAll('.arms input')"
    browser.value(f"Array.from({boxes}).filter(box => !box.checked).forEach(box => box.click())")
    assert len(shown(browser, ".column")) == 21
    assert shown(browser, "summary") == ["21 of 21 arms side by side"]
    assert any(LONG[:80] in text for text in shown(browser, ".column h4"))
    browser.resize(360)
    assert browser.value("document.documentElement.scrollWidth") <= 360


def test_the_page_can_be_read_without_scripts(browser: Chromium, big: Path) -> None:
    browser.open(big / "report.html", script=False)
    assert browser.value(f"{TABLE.format('Runs')}.tBodies[0].rows.length") == 200
    assert browser.value("document.querySelectorAll('.tools, th button').length") == 0
    browser.value("document.querySelector('#table-runs').open = true")
    assert browser.value(f"{TABLE.format('Runs')}.tBodies[0].rows[199].getBoundingClientRect().height") > 10
    assert "needs JavaScript" in browser.value("document.querySelector('noscript').textContent")
    assert browser.value("document.querySelector('#answer').getBoundingClientRect().height") > 300


def test_paper_shows_what_is_folded(browser: Chromium, small: Path) -> None:
    browser.open(small / "report.html")
    seen = "document.querySelector('#table-runs table').checkVisibility()"
    assert browser.value(seen) is False
    browser.send("Emulation.setEmulatedMedia", media="print")
    assert browser.value(seen) is True
    assert browser.value("getComputedStyle(document.querySelector('.contents')).display") == "none"
    browser.send("Emulation.setEmulatedMedia", media="")


def test_paper_cuts_nothing_off(browser: Chromium, big: Path) -> None:
    """On a sheet 18.5 cm wide: no table beyond its edge, no row of a paged table left out, no name shortened."""
    browser.open(big / "report.html", 700)
    browser.send("Emulation.setEmulatedMedia", media="print")
    browser.value("window.dispatchEvent(new Event('beforeprint'))")
    beyond = """Array.from(document.querySelectorAll('main *'))
      .filter(e => !e.closest('svg') && (e.getBoundingClientRect().right > innerWidth + 1
        || (e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).overflowX !== 'visible')))
      .map(e => e.outerHTML.slice(0, 90))"""
    assert browser.value(beyond) == []
    assert browser.value(f"{TABLE.format('Runs')}.tBodies[0].rows.length") == 200
    browser.value("window.dispatchEvent(new Event('afterprint'))")
    assert browser.value(f"{TABLE.format('Runs')}.tBodies[0].rows.length") == 25
    browser.send("Emulation.setEmulatedMedia", media="")
