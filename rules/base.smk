# REQUIRED INPUTS: none for the embedded model; else a package, a folder, or the Hugging Face cache
# OUTPUTS: base/manifest.parquet (base/model/ beside it), base/repeat-{repeat}/{benchmark}/
# USUAL STEPS: prepare the base, sample it a few times with different sampling seeds, grade

# Of making the base: prompts are only tried there, and only the embedded model is warmed up.
BASE_CUT = ("sampling.prompts",) + (() if STUDY.model.source == "embedded" else ("models.warm_start", "benchmarks"))


rule prepare_base:
    """Warm-start, download or convert the base model, once, as safetensors."""
    output:
        manifest="results/{study}/base/manifest.parquet",
    log:
        "results/{study}/logs/prepare_base.log",
    localrule: STUDY.model.source == "hub"
    conda:
        "../envs/train.yaml"
    threads: 1
    params:
        settings=constant(stage_settings.prepare_base(STUDY)),
        code=code("prepare_base", cut=BASE_CUT),
    shell:
        "python -m workflow_scripts.stages.prepare_base"
        " --settings {params.settings:q}"
        f" --compute {COMPUTE}"
        " --code {params.code}"
        " --root results/{wildcards.study}"
        " --output manifest={output.manifest}"
        " > {log} 2>&1"


rule sample_base:
    """Sample the untrained base once more; the sampling seed is the number of the repeat."""
    input:
        base="results/{study}/base/manifest.parquet",
        holdout="results/{study}/holdouts/{benchmark}.parquet",
    output:
        completions=kept("results/{study}/base/repeat-{repeat}/{benchmark}/completions.parquet"),
    log:
        "results/{study}/logs/sample_base/{repeat}-{benchmark}.log",
    benchmark:
        "results/{study}/benchmarks/sample_base/{repeat}-{benchmark}.tsv"
    conda:
        "../envs/evaluate.yaml"
    threads: STUDY.compute.threads
    resources:
        gpu=min(1, GPUS),
    params:
        settings=sample_base_settings,
        code=code("sample_base", PROMPT),
    shell:
        "python -m workflow_scripts.stages.sample_base"
        " --settings {params.settings:q}"
        f" --compute {COMPUTE}"
        " --code {params.code}"
        " --root results/{wildcards.study}"
        " --input base={input.base} holdout={input.holdout}"
        " --output completions={output.completions}"
        " > {log} 2>&1"


rule grade_base:
    """Grade the completions of the base."""
    input:
        completions="results/{study}/base/repeat-{repeat}/{benchmark}/completions.parquet",
        base="results/{study}/base/manifest.parquet",
        holdout="results/{study}/holdouts/{benchmark}.parquet",
    output:
        samples="results/{study}/base/repeat-{repeat}/{benchmark}/samples.parquet",
    log:
        "results/{study}/logs/grade_base/{repeat}-{benchmark}.log",
    conda:
        "../envs/evaluate.yaml"
    threads: 1
    params:
        settings=grade_base_settings,
        code=grade_code,
    shell:
        "python -m workflow_scripts.stages.grade"
        " --settings {params.settings:q}"
        " --code {params.code}"
        " --root results/{wildcards.study}"
        " --input completions={input.completions} holdout={input.holdout} base={input.base}"
        " --output samples={output.samples}"
        " > {log} 2>&1"
