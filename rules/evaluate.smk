# REQUIRED INPUTS: a run's checkpoints.parquet, the base, a holdout
# OUTPUTS: evals/{arm}/seed-{seed}/{benchmark}/: completions.parquet, samples.parquet
# USUAL STEPS: sample all checkpoints of a run on one benchmark (GPU work ends here), grade


rule sample_checkpoints:
    """Sample every checkpoint of one run on one benchmark."""
    input:
        checkpoints="results/{study}/runs/{arm}/seed-{seed}/checkpoints.parquet",
        base="results/{study}/base/manifest.parquet",
        holdout="results/{study}/holdouts/{benchmark}.parquet",
    output:
        completions=kept("results/{study}/evals/{arm}/seed-{seed}/{benchmark}/completions.parquet"),
    log:
        "results/{study}/logs/sample_checkpoints/{arm}-{seed}-{benchmark}.log",
    benchmark:
        "results/{study}/benchmarks/sample_checkpoints/{arm}-{seed}-{benchmark}.tsv"
    priority: 1  # before more training: with compute.keep.checkpoints: false the weights go sooner
    conda:
        "../envs/evaluate.yaml"
    threads: STUDY.compute.threads
    resources:
        gpu=min(1, GPUS),
    params:
        settings=sample_checkpoints_settings,
        code=code("sample_checkpoints", PROMPT),
    shell:
        "python -m workflow_scripts.stages.sample_checkpoints"
        " --settings {params.settings:q}"
        f" --compute {COMPUTE}"
        " --code {params.code}"
        " --root results/{wildcards.study}"
        " --input checkpoints={input.checkpoints} base={input.base} holdout={input.holdout}"
        " --output completions={output.completions}"
        " > {log} 2>&1"


rule grade:
    """Grade the completions of one run on one benchmark."""
    input:
        completions="results/{study}/evals/{arm}/seed-{seed}/{benchmark}/completions.parquet",
        checkpoints="results/{study}/runs/{arm}/seed-{seed}/checkpoints.parquet",
        holdout="results/{study}/holdouts/{benchmark}.parquet",
    output:
        samples="results/{study}/evals/{arm}/seed-{seed}/{benchmark}/samples.parquet",
    log:
        "results/{study}/logs/grade/{arm}-{seed}-{benchmark}.log",
    conda:
        "../envs/evaluate.yaml"
    threads: 1
    params:
        settings=grade_settings,
        code=grade_code,
    shell:
        "python -m workflow_scripts.stages.grade"
        " --settings {params.settings:q}"
        f" --compute {COMPUTE}"
        " --code {params.code}"
        " --root results/{wildcards.study}"
        " --input completions={input.completions} holdout={input.holdout} checkpoints={input.checkpoints}"
        " --output samples={output.samples}"
        " > {log} 2>&1"


rule count:
    """Right answers by run, step, benchmark and problem: all that the statistics read."""
    input:
        samples=sample_files,
        runs=run_files("checkpoints.parquet"),
        audit=expand("results/{{study}}/gold_audit/{benchmark}.parquet", benchmark=SAMPLED),
        contamination=expand("results/{{study}}/contamination/{benchmark}.parquet", benchmark=SAMPLED),
    output:
        counts="results/{study}/tables/counts.parquet",
    log:
        "results/{study}/logs/count.log",
    conda:
        "../envs/analyse.yaml"
    threads: 1
    params:
        settings=constant(stage_settings.count(STUDY)),
        code=code("count"),
    shell:
        "python -m workflow_scripts.stages.count"
        " --settings {params.settings:q}"
        " --code {params.code}"
        " --root results/{wildcards.study}"
        " --input audit={input.audit} contamination={input.contamination}"
        " --output counts={output.counts}"
        " > {log} 2>&1"
