# REQUIRED INPUTS: data/train.parquet, base/manifest.parquet; for a branch the state of the arm it starts from
# OUTPUTS: runs/{arm}/seed-{seed}/: records, log, checkpoints.parquet (checkpoints/step-{step}/ beside it)
# USUAL STEPS: one job per arm and seed, in any order and side by side

RUN = "results/{study}/runs/{arm}/seed-{seed}"
BRANCH_STATES = of.branch_states(STUDY)
RECORDS = {name: f"{RUN}/{name}.parquet" for name in declared.RECORDS}


rule train:
    """Train one arm with one seed."""
    input:
        base="results/{study}/base/manifest.parquet",
        train="results/{study}/data/train.parquet",
        branch=train_branch,
    output:
        **RECORDS,
    log:
        "results/{study}/logs/train/{arm}-{seed}.log",
    benchmark:
        "results/{study}/benchmarks/train/{arm}-{seed}.tsv"
    wildcard_constraints:
        arm=not_one_of(BRANCH_STATES),
    conda:
        "../envs/train.yaml"
    threads: STUDY.compute.threads * PROCESSES
    resources:
        gpu=GPUS,
    params:
        settings=train_settings,
        code=train_code,
    shell:
        "python -m workflow_scripts.stages.train"
        " --settings {params.settings:q}"
        f" --compute {COMPUTE}"
        " --code {params.code}"
        " --root results/{wildcards.study}"
        " --input base={input.base} train={input.train} branch={input.branch}"
        " --output"
        " rollout_updates={output.rollout_updates}"
        " tail_tokens={output.tail_tokens}"
        " rollouts={output.rollouts}"
        " trainer_log={output.trainer_log}"
        " checkpoints={output.checkpoints}"
        " > {log} 2>&1"


# An arm that others branch off also leaves its state at those steps. That is a file more, not a setting more: the run
# itself stays what it was.
for PARENT, STEPS in BRANCH_STATES.items():

    rule:
        name:
            f"train_{PARENT}"
        input:
            base="results/{study}/base/manifest.parquet",
            train="results/{study}/data/train.parquet",
            branch=train_branch,
        output:
            **RECORDS,
            branch_states=[f"{RUN}/branch_states/step-{step}.tar" for step in STEPS],
        log:
            "results/{study}/logs/train/{arm}-{seed}.log",
        benchmark:
            "results/{study}/benchmarks/train/{arm}-{seed}.tsv"
        wildcard_constraints:
            arm=PARENT,
        conda:
            "../envs/train.yaml"
        threads: STUDY.compute.threads * PROCESSES
        resources:
            gpu=GPUS,
        params:
            settings=train_settings,
            code=train_code,
        shell:
            "python -m workflow_scripts.stages.train"
            " --settings {params.settings:q}"
            f" --compute {COMPUTE}"
            " --code {params.code}"
            " --root results/{wildcards.study}"
            " --input base={input.base} train={input.train} branch={input.branch}"
            " --output"
            " rollout_updates={output.rollout_updates}"
            " tail_tokens={output.tail_tokens}"
            " rollouts={output.rollouts}"
            " trainer_log={output.trainer_log}"
            " checkpoints={output.checkpoints}"
            " branch_states={output.branch_states}"
            " > {log} 2>&1"
