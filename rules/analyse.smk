# REQUIRED INPUTS: tables/counts.parquet; the records of the runs; holdouts for their difficulty
# OUTPUTS: tables/
# USUAL STEPS: scores, noise floors, effects, power; what training did and whether the comparison could show anything

ANALYSIS = stage_settings.analysis(STUDY)
RECORDED = stage_settings.records(STUDY, REWARD)
POLICIES = stage_settings.objective_roots(RECORDED["objectives"].values(), ["bounds"])
ASKED = stage_settings.ask_policies(STUDY)
ASKED_POLICIES = stage_settings.objective_roots(ASKED["policies"].values(), ["bounds"])
OBJECTIVES = stage_settings.objectives(STUDY)
TABULATED = stage_settings.objective_roots(OBJECTIVES["objectives"].values())
REWARDS = stage_settings.rewards(STUDY, REWARD)
GRADERS = sorted({f"grading.{name}" for name in REWARDS["rewards"].values() if ":" not in name})


rule list_runs:
    """One row per declared run: done or missing, its digests and what it cost."""
    input:
        records=run_files("checkpoints.parquet"),
        counts="results/{study}/tables/counts.parquet",  # all is sampled by then, and its time known
    output:
        runs=table("runs"),
    log:
        "results/{study}/logs/list_runs.log",
    conda:
        "../envs/analyse.yaml"
    threads: 1
    params:
        settings=constant(RECORDED | {"benchmarks": SAMPLED}),
        code=code("list_runs"),
    shell:
        "python -m workflow_scripts.stages.list_runs"
        " --settings {params.settings:q}"
        " --code {params.code}"
        " --root results/{wildcards.study}"
        " --input counts={input.counts}"
        " --output runs={output.runs}"
        " > {log} 2>&1"


rule estimate_scores:
    """pass@k of every run and arm, with intervals."""
    input:
        counts="results/{study}/tables/counts.parquet",
    output:
        scores=table("scores"),
    log:
        "results/{study}/logs/estimate_scores.log",
    conda:
        "../envs/analyse.yaml"
    threads: 1
    params:
        settings=constant(ANALYSIS),
        code=code("estimate_scores"),
    shell:
        "python -m workflow_scripts.stages.estimate_scores"
        " --settings {params.settings:q}"
        " --code {params.code}"
        " --root results/{wildcards.study}"
        " --input counts={input.counts}"
        " --output scores={output.scores}"
        " > {log} 2>&1"


rule measure_noise_floors:
    """How far results differ without any effect: evaluation, training, placebo; and sensitivity."""
    input:
        counts="results/{study}/tables/counts.parquet",
    output:
        noise_floors=table("noise_floors"),
    log:
        "results/{study}/logs/measure_noise_floors.log",
    conda:
        "../envs/analyse.yaml"
    threads: 1
    params:
        settings=constant(ANALYSIS),
        code=code("measure_noise_floors"),
    shell:
        "python -m workflow_scripts.stages.measure_noise_floors"
        " --settings {params.settings:q}"
        " --code {params.code}"
        " --root results/{wildcards.study}"
        " --input counts={input.counts}"
        " --output noise_floors={output.noise_floors}"
        " > {log} 2>&1"


rule estimate_effects:
    """Each arm against the baseline, with intervals that hold re-training noise, and verdicts."""
    input:
        counts="results/{study}/tables/counts.parquet",
    output:
        effects=table("effects"),
    log:
        "results/{study}/logs/estimate_effects.log",
    conda:
        "../envs/analyse.yaml"
    threads: 1
    params:
        settings=constant(ANALYSIS),
        code=code("estimate_effects"),
    shell:
        "python -m workflow_scripts.stages.estimate_effects"
        " --settings {params.settings:q}"
        " --code {params.code}"
        " --root results/{wildcards.study}"
        " --input counts={input.counts}"
        " --output effects={output.effects}"
        " > {log} 2>&1"


rule estimate_power:
    """What more seeds would resolve, and what they would cost."""
    input:
        counts="results/{study}/tables/counts.parquet",
        runs="results/{study}/tables/runs.parquet",
    output:
        power=table("power"),
    log:
        "results/{study}/logs/estimate_power.log",
    conda:
        "../envs/analyse.yaml"
    threads: 1
    params:
        settings=constant(ANALYSIS),
        code=code("estimate_power"),
    shell:
        "python -m workflow_scripts.stages.estimate_power"
        " --settings {params.settings:q}"
        " --code {params.code}"
        " --root results/{wildcards.study}"
        " --input counts={input.counts} runs={input.runs}"
        " --output power={output.power}"
        " > {log} 2>&1"


rule summarise_difficulty:
    """Effects by base solve rate and by difficulty."""
    input:
        counts="results/{study}/tables/counts.parquet",
        holdout=expand("results/{{study}}/holdouts/{benchmark}.parquet", benchmark=STUDY.reported),
    output:
        difficulty=table("difficulty"),
    log:
        "results/{study}/logs/summarise_difficulty.log",
    conda:
        "../envs/analyse.yaml"
    threads: 1
    params:
        settings=constant(ANALYSIS),
        code=code("summarise_difficulty"),
    shell:
        "python -m workflow_scripts.stages.summarise_difficulty"
        " --settings {params.settings:q}"
        " --code {params.code}"
        " --root results/{wildcards.study}"
        " --input counts={input.counts} holdout={input.holdout}"
        " --output difficulty={output.difficulty}"
        " > {log} 2>&1"


rule summarise_coverage:
    """Problems solved at all, gained and lost."""
    input:
        counts="results/{study}/tables/counts.parquet",
    output:
        coverage=table("coverage"),
    log:
        "results/{study}/logs/summarise_coverage.log",
    conda:
        "../envs/analyse.yaml"
    threads: 1
    params:
        settings=constant(ANALYSIS),
        code=code("summarise_coverage"),
    shell:
        "python -m workflow_scripts.stages.summarise_coverage"
        " --settings {params.settings:q}"
        " --code {params.code}"
        " --root results/{wildcards.study}"
        " --input counts={input.counts}"
        " --output coverage={output.coverage}"
        " > {log} 2>&1"


rule pick_examples:
    """Problems on which arms differ most, and what the arms wrote there."""
    input:
        counts="results/{study}/tables/counts.parquet",  # the completions are not: they may be gone once graded
        holdout=expand("results/{{study}}/holdouts/{benchmark}.parquet", benchmark=STUDY.reported),
    output:
        examples=table("examples"),
    log:
        "results/{study}/logs/pick_examples.log",
    conda:
        "../envs/analyse.yaml"
    threads: 1
    params:
        settings=constant(ANALYSIS),
        code=code("pick_examples"),
    shell:
        "python -m workflow_scripts.stages.pick_examples"
        " --settings {params.settings:q}"
        " --code {params.code}"
        " --root results/{wildcards.study}"
        " --input counts={input.counts} holdout={input.holdout}"
        " --output examples={output.examples}"
        " > {log} 2>&1"


rule summarise_dynamics:
    """Clip shares, ratios, entropy and length over training, by correct rollouts of the group."""
    input:
        records=run_files("rollout_updates.parquet") + run_files("rollouts.parquet"),
    output:
        dynamics=table("dynamics"),
    log:
        "results/{study}/logs/summarise_dynamics.log",
    conda:
        "../envs/analyse.yaml"
    threads: 1
    params:
        settings=constant(RECORDED),
        code=code("summarise_dynamics"),
    shell:
        "python -m workflow_scripts.stages.summarise_dynamics"
        " --settings {params.settings:q}"
        " --code {params.code}"
        " --root results/{wildcards.study}"
        " --output dynamics={output.dynamics}"
        " > {log} 2>&1"


rule ask_policies:
    """What every clip policy of the study would have done with the recorded ratios of each run."""
    input:
        records=run_files("rollout_updates.parquet") + run_files("tail_tokens.parquet") + run_files("rollouts.parquet"),
    output:
        policies=table("policies"),
    log:
        "results/{study}/logs/ask_policies.log",
    conda:
        "../envs/analyse.yaml"
    threads: 1
    params:
        settings=constant(ASKED),
        code=code("ask_policies", *ASKED_POLICIES),
    shell:
        "python -m workflow_scripts.stages.ask_policies"
        " --settings {params.settings:q}"
        " --code {params.code}"
        " --root results/{wildcards.study}"
        " --output policies={output.policies}"
        " > {log} 2>&1"


rule tabulate_objectives:
    """Bounds and gradient weight of every arm over the ratio, from the code that trains."""
    output:
        objectives=table("objectives"),
    log:
        "results/{study}/logs/tabulate_objectives.log",
    conda:
        "../envs/analyse.yaml"
    threads: 1
    params:
        settings=constant(OBJECTIVES),
        code=code("tabulate_objectives", *TABULATED),
    shell:
        "python -m workflow_scripts.stages.tabulate_objectives"
        " --settings {params.settings:q}"
        " --code {params.code}"
        " --root results/{wildcards.study}"
        " --output objectives={output.objectives}"
        " > {log} 2>&1"


rule check_reachability:
    """Could the clip bind, did it, and could the arms differ by it at all?"""
    input:
        records=run_files("rollout_updates.parquet")
        + run_files("tail_tokens.parquet")
        + run_files("rollouts.parquet")
        + run_files("checkpoints.parquet"),
    output:
        reachability=table("reachability"),
    log:
        "results/{study}/logs/check_reachability.log",
    conda:
        "../envs/analyse.yaml"
    threads: 1
    params:
        settings=constant(RECORDED),
        code=code("check_reachability", *POLICIES),
    shell:
        "python -m workflow_scripts.stages.check_reachability"
        " --settings {params.settings:q}"
        " --code {params.code}"
        " --root results/{wildcards.study}"
        " --output reachability={output.reachability}"
        " > {log} 2>&1"


rule reward_again:
    """Would the stored rollouts of each run get other rewards from the grader of this code?"""
    input:
        records=run_files("rollouts.parquet"),
        train="results/{study}/data/train.parquet",
    output:
        rewards=table("rewards"),
    log:
        "results/{study}/logs/reward_again.log",
    conda:
        "../envs/evaluate.yaml"
    threads: 1
    params:
        settings=constant(REWARDS),
        code=code("reward_again", *GRADERS),
    shell:
        "python -m workflow_scripts.stages.reward_again"
        " --settings {params.settings:q}"
        " --code {params.code}"
        " --root results/{wildcards.study}"
        " --input train={input.train}"
        " --output rewards={output.rewards}"
        " > {log} 2>&1"
