"""Armslength: does changing this part of an RLVR objective really help, or is it the noise of training again?

snakemake --cores all                                        the default study, config.yaml
snakemake --cores all --configfile studies/NAME.yaml         another study (it replaces config.yaml)
snakemake --profile slurm                                    on a Slurm cluster
"""

# `workflow.basedir` is the folder of the user's own Snakefile where this one is a module of it.
if not workflow.overwrite_configfiles or not workflow.modifier.is_main_snakefile():

    configfile: workflow.current_basedir.join("config.yaml").get_path_or_uri(secret_free=False)


include: "rules/common.smk"


shell.prefix(shell_prefix())


rule all:
    """The report of the study, its tables and its figures."""
    default_target: True
    input:
        f"{ROOT}/report.html",
        f"{ROOT}/summary.md",
        START.missing_results,


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
    say_failures()


START.make_missing_results_again()
if START.is_module:
    START.join_handlers()
