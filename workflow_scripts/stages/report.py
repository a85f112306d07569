"""One self-contained page: what must be known first, the verdicts, what would change them, checks, figures, tables,
completions, provenance; and its answer and tables as markdown."""

from pathlib import Path

from workflow_scripts.job import Job, run
from workflow_scripts.report import contents, markdown, page

LIBRARIES = ("jinja2",)


def main(job: Job) -> None:
    shown = contents.context(job)
    Path(job.output("report")).write_text(page.render(shown), encoding="utf-8")
    Path(job.output("summary")).write_text(markdown.summary(shown), encoding="utf-8")


if __name__ == "__main__":
    run(main, LIBRARIES)
