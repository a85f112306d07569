# REQUIRED INPUTS: tables/
# OUTPUTS: figures/, report.html, summary.md
# USUAL STEPS: a rule per table that is drawn, then the page

FIGURES = tuple(figure.name for figure in catalogue.FIGURES)
CAPTIONS = {  # the page shows what Snakemake's report shows
    name: " ".join(Path(BASEDIR, "rules", "captions", f"{name}.rst").read_text(encoding="utf-8").split())
    for name in FIGURES
}
DRAWN = {"arms": list(RUNS), "endpoint": STUDY.analysis.endpoint.model_dump()} | of.branches(STUDY)
DRAWN |= {"declared": RUNS} if STUDY.allow_missing else {}  # a figure then names the arms that lack runs


rule plot_effects:
    """Forest plot of the effects over the noise floors."""
    input:
        effects="results/{study}/tables/effects.parquet",
        noise_floors="results/{study}/tables/noise_floors.parquet",
    output:
        **figures("effects"),
    log:
        "results/{study}/logs/plot_effects.log",
    conda:
        "../envs/report.yaml"
    threads: 1
    params:
        settings=constant(DRAWN),
        code=code("plot_effects"),
    shell:
        "python -m workflow_scripts.stages.plot_effects"
        " --settings {params.settings:q}"
        " --code {params.code}"
        " --root results/{wildcards.study}"
        " --input effects={input.effects} noise_floors={input.noise_floors}"
        " --output"
        " effects={output.effects_html} {output.effects_svg}"
        " > {log} 2>&1"


rule plot_learning_curves:
    """Scores over training, a thin line per seed."""
    input:
        scores="results/{study}/tables/scores.parquet",
    output:
        **figures("learning_curves"),
    log:
        "results/{study}/logs/plot_learning_curves.log",
    conda:
        "../envs/report.yaml"
    threads: 1
    params:
        settings=constant(DRAWN | {"baseline": STUDY.baseline}),
        code=code("plot_learning_curves"),
    shell:
        "python -m workflow_scripts.stages.plot_learning_curves"
        " --settings {params.settings:q}"
        " --code {params.code}"
        " --root results/{wildcards.study}"
        " --input scores={input.scores}"
        " --output"
        " learning_curves={output.learning_curves_html} {output.learning_curves_svg}"
        " > {log} 2>&1"


rule plot_noise_floors:
    """How far results differ without any effect."""
    input:
        noise_floors="results/{study}/tables/noise_floors.parquet",
    output:
        **figures("noise_floors"),
    log:
        "results/{study}/logs/plot_noise_floors.log",
    conda:
        "../envs/report.yaml"
    threads: 1
    params:
        settings=constant(DRAWN),
        code=code("plot_noise_floors"),
    shell:
        "python -m workflow_scripts.stages.plot_noise_floors"
        " --settings {params.settings:q}"
        " --code {params.code}"
        " --root results/{wildcards.study}"
        " --input noise_floors={input.noise_floors}"
        " --output"
        " noise_floors={output.noise_floors_html} {output.noise_floors_svg}"
        " > {log} 2>&1"


rule plot_problems:
    """Effects by difficulty, solve rates of problems, and how many are solved how often."""
    input:
        difficulty="results/{study}/tables/difficulty.parquet",
        counts="results/{study}/tables/counts.parquet",
        coverage="results/{study}/tables/coverage.parquet",
    output:
        **figures("difficulty", "solve_rates", "coverage"),
    log:
        "results/{study}/logs/plot_problems.log",
    conda:
        "../envs/report.yaml"
    threads: 1
    params:
        settings=constant(DRAWN),
        code=code("plot_problems"),
    shell:
        "python -m workflow_scripts.stages.plot_problems"
        " --settings {params.settings:q}"
        " --code {params.code}"
        " --root results/{wildcards.study}"
        " --input difficulty={input.difficulty} counts={input.counts} coverage={input.coverage}"
        " --output"
        " difficulty={output.difficulty_html} {output.difficulty_svg}"
        " solve_rates={output.solve_rates_html} {output.solve_rates_svg}"
        " coverage={output.coverage_html} {output.coverage_svg}"
        " > {log} 2>&1"


rule plot_objectives:
    """Gradient weight and upper bound of every arm, from the code that trains."""
    input:
        objectives="results/{study}/tables/objectives.parquet",
    output:
        **figures("gradient_weight", "upper_bounds"),
    log:
        "results/{study}/logs/plot_objectives.log",
    conda:
        "../envs/report.yaml"
    threads: 1
    params:
        settings=constant(DRAWN),
        code=code("plot_objectives"),
    shell:
        "python -m workflow_scripts.stages.plot_objectives"
        " --settings {params.settings:q}"
        " --code {params.code}"
        " --root results/{wildcards.study}"
        " --input objectives={input.objectives}"
        " --output"
        " gradient_weight={output.gradient_weight_html} {output.gradient_weight_svg}"
        " upper_bounds={output.upper_bounds_html} {output.upper_bounds_svg}"
        " > {log} 2>&1"


rule plot_dynamics:
    """What training did: clipping, ratio and advantage, entropy, length and truncation."""
    input:
        dynamics="results/{study}/tables/dynamics.parquet",
    output:
        **figures("clip_fraction", "ratio_advantage", "training_course"),
    log:
        "results/{study}/logs/plot_dynamics.log",
    conda:
        "../envs/report.yaml"
    threads: 1
    params:
        settings=constant(DRAWN),
        code=code("plot_dynamics"),
    shell:
        "python -m workflow_scripts.stages.plot_dynamics"
        " --settings {params.settings:q}"
        " --code {params.code}"
        " --root results/{wildcards.study}"
        " --input dynamics={input.dynamics}"
        " --output"
        " clip_fraction={output.clip_fraction_html} {output.clip_fraction_svg}"
        " ratio_advantage={output.ratio_advantage_html} {output.ratio_advantage_svg}"
        " training_course={output.training_course_html} {output.training_course_svg}"
        " > {log} 2>&1"


rule plot_policies:
    """What clip policies did and would have done: quadrants and decisive tokens."""
    input:
        policies="results/{study}/tables/policies.parquet",
    output:
        **figures("quadrants", "decisive_tokens"),
    log:
        "results/{study}/logs/plot_policies.log",
    conda:
        "../envs/report.yaml"
    threads: 1
    params:
        settings=constant(DRAWN),
        code=code("plot_policies"),
    shell:
        "python -m workflow_scripts.stages.plot_policies"
        " --settings {params.settings:q}"
        " --code {params.code}"
        " --root results/{wildcards.study}"
        " --input policies={input.policies}"
        " --output"
        " quadrants={output.quadrants_html} {output.quadrants_svg}"
        " decisive_tokens={output.decisive_tokens_html} {output.decisive_tokens_svg}"
        " > {log} 2>&1"


rule plot_costs:
    """Seeds that would resolve the margin, and the time of every job."""
    input:
        power="results/{study}/tables/power.parquet",
        runs="results/{study}/tables/runs.parquet",
    output:
        **figures("seeds_needed", "costs"),
    log:
        "results/{study}/logs/plot_costs.log",
    conda:
        "../envs/report.yaml"
    threads: 1
    params:
        settings=constant(DRAWN | {"margin": STUDY.analysis.margin}),
        code=code("plot_costs"),
    shell:
        "python -m workflow_scripts.stages.plot_costs"
        " --settings {params.settings:q}"
        " --code {params.code}"
        " --root results/{wildcards.study}"
        " --input power={input.power} runs={input.runs}"
        " --output"
        " seeds_needed={output.seeds_needed_html} {output.seeds_needed_svg}"
        " costs={output.costs_html} {output.costs_svg}"
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
        " counts={input.counts}"
        " scores={input.scores}"
        " effects={input.effects}"
        " noise_floors={input.noise_floors}"
        " power={input.power}"
        " difficulty={input.difficulty}"
        " coverage={input.coverage}"
        " dynamics={input.dynamics}"
        " policies={input.policies}"
        " reachability={input.reachability}"
        " rewards={input.rewards}"
        " runs={input.runs}"
        " examples={input.examples}"
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
