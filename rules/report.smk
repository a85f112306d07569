# REQUIRED INPUTS: tables/
# OUTPUTS: figures/, report.html, summary.md
# USUAL STEPS: a rule per figure, then the page

FIGURES = tuple(figure.name for figure in catalogue.FIGURES)
CAPTIONS = {  # the page shows what Snakemake's report shows
    name: " ".join(Path(BASEDIR, "rules", "captions", f"{name}.rst").read_text(encoding="utf-8").split())
    for name in FIGURES
}
OPTIONS = {  # what charts may ask for
    "arms": list(RUNS),
    "baseline": STUDY.baseline,
    "branched": stage_settings.branches(STUDY).get("branches"),
    "margin": STUDY.analysis.margin,
    "pass_at": STUDY.analysis.endpoint.pass_at,
}


# Snakemake evaluates the text of `shell` when a job runs, and then the variable of this loop has its last value.
for FIGURE in catalogue.FIGURES:

    rule:
        name:
            f"plot_{FIGURE.name}"
        input:
            [f"results/{{study}}/tables/{table}.parquet" for table in FIGURE.read],
        output:
            html=report(
                f"results/{{study}}/figures/{FIGURE.name}.html",
                caption=f"captions/{FIGURE.name}.rst",
                category="Figures",
                subcategory=FIGURE.section,
                labels={"figure": FIGURE.title},
            ),
            svg=f"results/{{study}}/figures/{FIGURE.name}.svg",
        log:
            f"results/{{study}}/logs/plot_{FIGURE.name}.log",
        conda:
            "../envs/report.yaml"
        threads: 1
        params:
            settings=constant(FIGURE.settings(OPTIONS, RUNS if STUDY.allow_missing else None)),
            code=code("plot", f"figures.{FIGURE.chart}", *(f"tables.schemas:{table.upper()}" for table in FIGURE.read)),
        shell:
            "python -m workflow_scripts.stages.plot"
            " --settings {params.settings:q}"
            " --code {params.code}"
            " --root results/{wildcards.study}"
            " --input tables={input}"
            " --output figure={output.html} {output.svg}"
            " > {log} 2>&1"


rule report:
    """One self-contained page: the question, the verdicts, and why they can be believed."""
    input:
        **{table: f"results/{{study}}/tables/{table}.parquet" for table in declared.REPORTED},
        figures=expand("results/{{study}}/figures/{figure}.svg", figure=FIGURES),
        contamination=expand("results/{{study}}/contamination/{benchmark}.parquet", benchmark=HOLDOUTS),
        gold_audit=expand("results/{{study}}/gold_audit/{benchmark}.parquet", benchmark=HOLDOUTS),
        train_audit="results/{study}/data/gold_audit.parquet",
    output:
        report=report(
            "results/{study}/report.html",
            caption="captions/report.rst",
            category="Report",
            labels={"page": "Answer, what was compared, checks, figures, tables"},
        ),
        summary="results/{study}/summary.md",
    log:
        "results/{study}/logs/report.log",
    conda:
        "../envs/report.yaml"
    threads: 1
    params:
        settings=report_settings,
        code=code("report"),
    shell:
        "python -m workflow_scripts.stages.report"
        " --settings {params.settings:q}"
        " --code {params.code}"
        " --root results/{wildcards.study}"
        " --input"
        f" {named_files('input', declared.REPORTED)}"
        " figures={input.figures}"
        " contamination={input.contamination}"
        " gold_audit={input.gold_audit}"
        " gold_audit={input.train_audit}"
        " --output report={output.report} summary={output.summary}"
        " > {log} 2>&1"


IN_DOCS = ("effects", "seeds_needed", "gradient_weight", "clip_fraction", "decisive_tokens")

if not IS_MODULE:

    rule docs_figures:
        """Figures of the default study that README and docs show; runs only if it is named."""
        input:
            expand("results/embedded/figures/{figure}.svg", figure=IN_DOCS),
        output:
            expand("docs/{figure}.svg", figure=IN_DOCS),
        log:
            "results/embedded/logs/docs_figures.log",
        conda:
            "../envs/report.yaml"
        threads: 1
        shell:
            "cp {input} docs/ > {log} 2>&1"
