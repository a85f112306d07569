"""Armslength: does changing this part of an RLVR objective really help, or is it the noise of training again?

    snakemake --cores all                                        the default study, config.yaml
    snakemake --cores all --configfile studies/NAME.yaml         another study (it replaces config.yaml)
    snakemake --profile slurm                                    on a Slurm cluster
"""

import os
import shlex

if not workflow.overwrite_configfiles:

    configfile: f"{workflow.basedir}/config.yaml"


PYTHON_PATH = os.pathsep.join(filter(None, [str(workflow.basedir), os.environ.get("PYTHONPATH")]))
# the prefix is itself formatted, hence the doubled braces
shell.prefix(f"export PYTHONPATH={shlex.quote(PYTHON_PATH)}; ".replace("{", "{{").replace("}", "}}"))


include: "rules/common.smk"


rule all:
    """The report of the study, its tables and its figures."""
    default_target: True
    input:
        f"{ROOT}/report.html",


include: "rules/data.smk"
include: "rules/base.smk"
include: "rules/train.smk"
include: "rules/evaluate.smk"
include: "rules/analyse.smk"
include: "rules/report.smk"


onstart:
    begin()
