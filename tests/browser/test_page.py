"""The page and its figures in a real browser."""

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
