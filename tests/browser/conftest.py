"""The browser, and the pages that it opens."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import report_study
from conftest import Once
from figure_study import Made
from large_study import arms_of, large, settings
from test_figures import DRAW

from browser.chromium import HOW_TO_GET, Chromium, executable
from workflow_scripts.figures import style
from workflow_scripts.stages import report

HOSTILE = (
    "<script>window.harmed = 1</script></script><img src=x onerror='window.harmed = 2'><!-- \u2028 \u202eright to left "
    "\0 \x1b[31m &amp; ]]> </pre></div>"
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    """One for all tests of a module."""
    if executable() is None:
        pytest.skip(HOW_TO_GET)
    with Chromium(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


def _completions(rows: list[dict]) -> list[dict]:
    """Of gapo on the first problem a hostile text, on the second 100 kB without a break; hostile questions."""
    found = []
    for row in rows:
        text = {"p0": HOSTILE, "p1": "w" * 100_000}.get(row["problem_id"], row["completion"])
        text = text.replace("\0", "\0") if row["sample"] is not None else None
        found.append(
            row | {"completion": text, "characters": len(text or ""), "question": f"{row['question']} {HOSTILE}"}
        )
    return found


def _small(root: Path) -> None:
    """A study of three arms with all its figures."""
    arms, seeds = arms_of(3), 3
    drawn = Made(arms, seeds).tables()
    figures = {}
    for name, draw in DRAW.items():
        html, svg = root / "drawn" / f"{name}.html", root / "drawn" / f"{name}.svg"
        style.save(draw(drawn, arms), str(html), str(svg))
        figures[name] = svg.read_text(encoding="utf-8")
    rows = large(arms, seeds, problems=8)
    rows["examples"] = _completions(rows["examples"])
    rows["runs"][0] |= {"reason": HOSTILE}
    report.main(report_study.write(root, rows, settings(arms, seeds) | {"question": f"Better? {HOSTILE}"}, figures))


def _large(root: Path) -> None:
    """Twenty arms of ten seeds, without figures."""
    arms, seeds = arms_of(20), 10
    report.main(report_study.write(root, large(arms, seeds), settings(arms, seeds), {}))


@pytest.fixture
def small(once: Once) -> Path:
    """Folder of the small study's page."""
    return once("page-small", _small)


@pytest.fixture
def big(once: Once) -> Path:
    """Folder of the large study's page."""
    return once("page-large", _large)
