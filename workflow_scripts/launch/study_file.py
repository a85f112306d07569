"""The study that a command line names: a file, and keys set over it."""

import argparse
import sys
from pathlib import Path
from typing import Any

import yaml

from workflow_scripts.study import Study, StudyFaults, load
from workflow_scripts.study.faults import repeated_keys

DEFAULT_STUDY = Path(__file__).parents[2] / "config.yaml"


def study_parser(name: str, description: str | None) -> argparse.ArgumentParser:
    """A parser with the options that choose the study, as Snakemake names them."""
    parser = argparse.ArgumentParser(prog=f"armslength {name}", description=description)
    parser.add_argument(
        "--configfile", metavar="FILE", default=str(DEFAULT_STUDY), help="the study; default config.yaml"
    )
    parser.add_argument(
        "--config", metavar="KEY=VALUE", nargs="+", default=[], help="keys of the study set over the file's"
    )
    return parser


def configuration(configfile: str, settings: list[str]) -> dict[str, Any]:
    """What Snakemake would hand to the study for these two options."""
    try:
        text = Path(configfile).read_text(encoding="utf-8")
        config = yaml.safe_load(text)
        if twice := repeated_keys(text):
            raise StudyFaults([f"{configfile}: {line}" for line in twice])
    except OSError as error:
        raise StudyFaults([f"{configfile}: {error.strerror}"]) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise StudyFaults([f"{configfile}: no YAML: {' '.join(str(error).split())}"]) from None
    if settings:
        from snakemake.cli import parse_config
        from snakemake.utils import update_config

        if not isinstance(config, dict):
            config = {}
        try:
            update_config(config, parse_config(settings))
        except ValueError as error:
            raise StudyFaults([f"--config: {' '.join(str(error).split())}"]) from None
    return config


def read_study(options: argparse.Namespace) -> Study:
    """The study that the options name; its faults end the program, one line each."""
    try:
        return load(configuration(options.configfile, options.config))
    except StudyFaults as faults:
        sys.exit("\n".join(faults.lines))


def root_of(study: Study) -> Path:
    """Where the study's results lie, in the working directory."""
    return Path("results") / study.study
