"""What a study compares, in its own keys: what all arms share, and in what each differs from the baseline."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from workflow_scripts.study import Study

_MISSING = object()


def _flat(values: dict[str, Any], before: str = "") -> dict[str, Any]:
    """Nested keys joined by dots; those that are not set are left out."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            found |= _flat(value, f"{before}{key}.")
        elif value is not None:
            found[before + key] = value
    return found


def _keys(study: "Study", name: str) -> dict[str, Any]:
    """All that makes an arm's runs: objective, training, rollout and branch; names are those of the study's file."""
    identity = study.resolved(name).identity
    objective = {key: value for key, value in identity.pop("objective").items() if key != "beta"}  # training has it too
    training, rollout = (identity.pop(part) for part in ("training", "rollout"))
    return _flat(objective) | _flat(training) | _flat(rollout) | _flat(identity)


def differences(study: "Study", arm: str) -> list[list[Any]]:
    """[key, value of the arm, value of the baseline] of every key that is another; null: not set there."""
    here, there = _keys(study, arm), _keys(study, study.baseline)
    return [
        [key, here.get(key), there.get(key)]
        for key in dict.fromkeys([*there, *here])
        if here.get(key, _MISSING) != there.get(key, _MISSING)
    ]


def compared(study: "Study") -> dict[str, Any]:
    """What the page says was compared: model, train set, the baseline's settings, evaluation, and each arm."""
    evaluation, data = study.evaluation, study.data
    arms = {}
    for name in dict.fromkeys([study.baseline, *study.runs()]):
        own = study.arms[name]
        arms[name] = {"preset": own.preset, "same_as": own.same_as, "differs": differences(study, name)}
    baseline = study.resolved(study.baseline)
    return {
        "model": _flat(study.model.model_dump()),
        "train": _flat(data.train.model_dump() | {"benchmark": study.train_set, "split": None}),
        "against": data.decontaminate_against,
        "twins_removed": data.remove_template_twins,
        "objective": [[key, value] for key, value in _flat(baseline.objective).items()],
        "settings": _flat(baseline.training.model_dump()) | _flat(baseline.rollout.model_dump(), "rollout."),
        "updates_per_batch": baseline.updates_per_batch,
        "samples": {benchmark: study.samples_of(benchmark) for benchmark in study.sampled},
        "evaluation": _flat(evaluation.options),
        "problems": evaluation.problems,
        "arms": arms,
    }
