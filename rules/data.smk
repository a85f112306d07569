# REQUIRED INPUTS: none; local files lie in the study's data_dir, hub sets come through the Hugging Face cache
# OUTPUTS: data/train.parquet, holdouts/, gold_audit/, contamination/
# USUAL STEPS: fetch, audit the reference answers, look for contamination, select the train rows


rule fetch_train_set:
    """Fetch or generate the candidate problems for training."""
    output:
        problems="results/{study}/data/candidates.parquet",
    log:
        "results/{study}/logs/fetch_train_set.log",
    localrule: True
    conda:
        "../envs/data.yaml"
    threads: 1
    params:
        settings=train_set_settings,
        code=train_set_code,
    shell:
        "python -m workflow_scripts.stages.fetch_train_set"
        " --settings {params.settings:q}"
        f" --compute {COMPUTE}"
        " --code {params.code}"
        " --root results/{wildcards.study}"
        " --output problems={output.problems}"
        " > {log} 2>&1"


rule fetch_benchmark:
    """Fetch or generate one benchmark, whole."""
    output:
        problems="results/{study}/holdouts/{benchmark}.parquet",
    log:
        "results/{study}/logs/fetch_benchmark/{benchmark}.log",
    localrule: True
    conda:
        "../envs/data.yaml"
    threads: 1
    params:
        settings=benchmark_settings,
        code=benchmark_code,
    shell:
        "python -m workflow_scripts.stages.fetch_benchmark"
        " --settings {params.settings:q}"
        f" --compute {COMPUTE}"
        " --code {params.code}"
        " --root results/{wildcards.study}"
        " --output problems={output.problems}"
        " > {log} 2>&1"


rule audit_gold:
    """Does every reference answer of a benchmark grade itself as correct?"""
    input:
        problems="results/{study}/holdouts/{benchmark}.parquet",
    output:
        audit="results/{study}/gold_audit/{benchmark}.parquet",
    log:
        "results/{study}/logs/audit_gold/{benchmark}.log",
    conda:
        "../envs/data.yaml"
    threads: 1
    params:
        settings=grader_settings,
        code=audit_code,
    shell:
        "python -m workflow_scripts.stages.audit_gold"
        " --settings {params.settings:q}"
        " --code {params.code}"
        " --root results/{wildcards.study}"
        " --input problems={input.problems}"
        " --output audit={output.audit}"
        " > {log} 2>&1"


rule audit_train_set:
    """The same for the train rows, under the pinned version of the reward (hence without the grader's code)."""
    input:
        problems="results/{study}/data/candidates.parquet",
    output:
        audit="results/{study}/data/gold_audit.parquet",
    log:
        "results/{study}/logs/audit_train_set.log",
    conda:
        "../envs/data.yaml"
    threads: 1
    params:
        settings=constant(stage_settings.audit_train_set(STUDY, REWARD)),
        code=code("audit_gold", cut=("grading",)),
    shell:
        "python -m workflow_scripts.stages.audit_gold"
        " --settings {params.settings:q}"
        " --code {params.code}"
        " --root results/{wildcards.study}"
        " --input problems={input.problems}"
        " --output audit={output.audit}"
        " > {log} 2>&1"


rule check_contamination:
    """Compare one benchmark with the candidate train rows; a positive control is planted in every run."""
    input:
        train="results/{study}/data/candidates.parquet",
        holdout="results/{study}/holdouts/{benchmark}.parquet",
    output:
        contamination="results/{study}/contamination/{benchmark}.parquet",
    log:
        "results/{study}/logs/check_contamination/{benchmark}.log",
    conda:
        "../envs/data.yaml"
    threads: 1
    params:
        settings=contamination_settings,
        code=code("check_contamination"),
    shell:
        "python -m workflow_scripts.stages.check_contamination"
        " --settings {params.settings:q}"
        " --code {params.code}"
        " --root results/{wildcards.study}"
        " --input train={input.train} holdout={input.holdout}"
        " --output contamination={output.contamination}"
        " > {log} 2>&1"


rule select_train:
    """The train rows: candidates without bad reference answers and without what a named holdout holds."""
    input:
        candidates="results/{study}/data/candidates.parquet",
        audit="results/{study}/data/gold_audit.parquet",
        contamination=expand(
            "results/{{study}}/contamination/{benchmark}.parquet", benchmark=STUDY.data.decontaminate_against
        ),
    output:
        train="results/{study}/data/train.parquet",
    log:
        "results/{study}/logs/select_train.log",
    conda:
        "../envs/data.yaml"
    threads: 1
    params:
        settings=constant({"remove_template_twins": STUDY.data.remove_template_twins}),
        code=code("select_train"),
    shell:
        "python -m workflow_scripts.stages.select_train"
        " --settings {params.settings:q}"
        " --code {params.code}"
        " --root results/{wildcards.study}"
        " --input candidates={input.candidates} audit={input.audit} contamination={input.contamination}"
        " --output train={output.train}"
        " > {log} 2>&1"
