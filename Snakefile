"""Armslength: does changing this part of an RLVR objective really help, or is it the noise of training again?

snakemake --cores all                                        the default study, config.yaml
snakemake --cores all --configfile studies/NAME.yaml         another study (it replaces config.yaml)
snakemake --profile slurm                                    on a Slurm cluster
"""

if not workflow.overwrite_configfiles:

    configfile: f"{workflow.basedir}/config.yaml"


include: "rules/common.smk"


shell.prefix(shell_prefix())


rule all:
    """The report of the study, its tables and its figures."""
    default_target: True
    input:
        f"{ROOT}/report.html",
        f"{ROOT}/summary.md",


include: "rules/data.smk"
include: "rules/base.smk"
include: "rules/train.smk"
include: "rules/evaluate.smk"
include: "rules/analyse.smk"
include: "rules/report.smk"


onstart:
    begin()


onsuccess:
    end()


onerror:
    print(*progress.failures(ROOT), sep="\n", file=sys.stderr)
