"""Armslength: does changing this part of an RLVR objective really help, or is it the noise of training again?

snakemake --cores all                                        the default study, config.yaml
snakemake --cores all --configfile studies/NAME.yaml         another study (it replaces config.yaml)
snakemake --profile slurm                                    on a Slurm cluster
"""

import os
import shlex
import sys

from snakemake.settings.types import DeploymentMethod

if not workflow.overwrite_configfiles:

    configfile: f"{workflow.basedir}/config.yaml"


def shell_prefix():
    """Jobs import the package from here, and run in the Python that runs Snakemake unless conda brings one of its own."""
    exports = {"PYTHONPATH": str(workflow.basedir)}
    if DeploymentMethod.CONDA not in workflow.deployment_settings.deployment_method:
        exports["PATH"] = os.path.dirname(sys.executable)
    text = "".join(f"export {name}={shlex.quote(value)}${{{name}:+:${name}}}; " for name, value in exports.items())
    return text.replace("{", "{{").replace("}", "}}")  # the prefix is itself formatted


shell.prefix(shell_prefix())


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
