# REQUIRED INPUTS: tables/
# OUTPUTS: figures/, report.html, summary.md
# USUAL STEPS: a rule per figure, then the page

FIGURES = ("effects", "learning_curves", "clip_fraction", "ratio_advantage", "noise_floors")
DRAWN = {"arms": list(RUNS), "endpoint": STUDY.analysis.endpoint.model_dump()} | of.branches(STUDY)
DRAWN |= {"declared": RUNS} if STUDY.allow_missing else {}  # a figure then names the arms that lack runs
TABLES = (
    "counts",
    "scores",
    "effects",
    "noise_floors",
    "power",
    "difficulty",
    "coverage",
    "dynamics",
    "policies",
    "reachability",
    "rewards",
    "runs",
)


rule plot_effects:
    """Forest plot of the effects over the noise floors."""
    input:
        effects="results/{study}/tables/effects.parquet",
        noise_floors="results/{study}/tables/noise_floors.parquet",
    output:
        html=report(
            "results/{study}/figures/effects.html",
            caption="captions/effects.rst",
            category="Figures",
            labels={"figure": "Effects"},
        ),
        svg="results/{study}/figures/effects.svg",
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
        " --output html={output.html} svg={output.svg}"
        " > {log} 2>&1"


rule plot_learning_curves:
    """Scores over training, a thin line per seed."""
    input:
        scores="results/{study}/tables/scores.parquet",
    output:
        html=report(
            "results/{study}/figures/learning_curves.html",
            caption="captions/learning_curves.rst",
            category="Figures",
            labels={"figure": "Learning curves"},
        ),
        svg="results/{study}/figures/learning_curves.svg",
    log:
        "results/{study}/logs/plot_learning_curves.log",
    conda:
        "../envs/report.yaml"
    threads: 1
    params:
        settings=constant(DRAWN),
        code=code("plot_learning_curves"),
    shell:
        "python -m workflow_scripts.stages.plot_learning_curves"
        " --settings {params.settings:q}"
        " --code {params.code}"
        " --root results/{wildcards.study}"
        " --input scores={input.scores}"
        " --output html={output.html} svg={output.svg}"
        " > {log} 2>&1"


rule plot_clip_fraction:
    """How often the upper clip fires, by correct rollouts of the group."""
    input:
        dynamics="results/{study}/tables/dynamics.parquet",
    output:
        html=report(
            "results/{study}/figures/clip_fraction.html",
            caption="captions/clip_fraction.rst",
            category="Figures",
            labels={"figure": "Clip fraction"},
        ),
        svg="results/{study}/figures/clip_fraction.svg",
    log:
        "results/{study}/logs/plot_clip_fraction.log",
    conda:
        "../envs/report.yaml"
    threads: 1
    params:
        settings=constant(DRAWN),
        code=code("plot_clip_fraction"),
    shell:
        "python -m workflow_scripts.stages.plot_clip_fraction"
        " --settings {params.settings:q}"
        " --code {params.code}"
        " --root results/{wildcards.study}"
        " --input dynamics={input.dynamics}"
        " --output html={output.html} svg={output.svg}"
        " > {log} 2>&1"


rule plot_ratio_advantage:
    """Whether the ratio follows the advantage, over training and by correct rollouts of the group."""
    input:
        dynamics="results/{study}/tables/dynamics.parquet",
    output:
        html=report(
            "results/{study}/figures/ratio_advantage.html",
            caption="captions/ratio_advantage.rst",
            category="Figures",
            labels={"figure": "Ratio and advantage"},
        ),
        svg="results/{study}/figures/ratio_advantage.svg",
    log:
        "results/{study}/logs/plot_ratio_advantage.log",
    conda:
        "../envs/report.yaml"
    threads: 1
    params:
        settings=constant(DRAWN),
        code=code("plot_ratio_advantage"),
    shell:
        "python -m workflow_scripts.stages.plot_ratio_advantage"
        " --settings {params.settings:q}"
        " --code {params.code}"
        " --root results/{wildcards.study}"
        " --input dynamics={input.dynamics}"
        " --output html={output.html} svg={output.svg}"
        " > {log} 2>&1"


rule plot_noise_floors:
    """How far results differ without any effect."""
    input:
        noise_floors="results/{study}/tables/noise_floors.parquet",
    output:
        html=report(
            "results/{study}/figures/noise_floors.html",
            caption="captions/noise_floors.rst",
            category="Figures",
            labels={"figure": "Noise floors"},
        ),
        svg="results/{study}/figures/noise_floors.svg",
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
        " --output html={output.html} svg={output.svg}"
        " > {log} 2>&1"


rule report:
    """One self-contained page: the question, the verdicts, and why they can be believed."""
    input:
        **{table: f"results/{{study}}/tables/{table}.parquet" for table in TABLES},
        **{f"figure_{figure}": f"results/{{study}}/figures/{figure}.svg" for figure in FIGURES},
        contamination=expand("results/{{study}}/contamination/{benchmark}.parquet", benchmark=HOLDOUTS),
        gold_audit=expand("results/{{study}}/gold_audit/{benchmark}.parquet", benchmark=HOLDOUTS),
        train_audit="results/{study}/data/gold_audit.parquet",
    output:
        report=report("results/{study}/report.html", caption="captions/report.rst", category="Report"),
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
        " figure_effects={input.figure_effects}"
        " figure_learning_curves={input.figure_learning_curves}"
        " figure_clip_fraction={input.figure_clip_fraction}"
        " figure_ratio_advantage={input.figure_ratio_advantage}"
        " figure_noise_floors={input.figure_noise_floors}"
        " contamination={input.contamination}"
        " gold_audit={input.gold_audit}"
        " gold_audit={input.train_audit}"
        " --output report={output.report} summary={output.summary}"
        " > {log} 2>&1"
