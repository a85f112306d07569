"""What was compared, in words: what all arms share, and an arm's own settings beside the baseline's."""

from typing import Any

from workflow_scripts.figures.words import number

Row = dict[str, Any]


def _said(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return "[" + ", ".join(map(_said, value)) + "]"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _count(count: int, what: str) -> str:
    return f"{number(count, 0)} {what}{'s' if count != 1 else ''}"


def seeds_of(seeds: list[int]) -> str:
    """Runs of consecutive seeds joined: 0–4, 7."""
    parts: list[list[int]] = []
    for seed in sorted(seeds):
        if parts and seed == parts[-1][-1] + 1:
            parts[-1].append(seed)
        else:
            parts.append([seed])
    return ", ".join(f"{part[0]}–{part[-1]}" if len(part) > 2 else ", ".join(map(str, part)) for part in parts)


def difference(key: str, here: Any, there: Any) -> str:
    """One setting beside the baseline's: "bounds gapo instead of ppo"."""
    if here is None:
        return f"no {key} ({_said(there)})"
    return f"{key} {_said(here)}" + (f" instead of {_said(there)}" if there is not None else "")


def _differences(arm: Row) -> str:
    values = {key: (here, there) for key, here, there in arm["differs"]}
    parts = []
    if "branch_from.arm" in values:
        (parent, _), (step, _) = values.pop("branch_from.arm"), values.pop("branch_from.step")
        optimizer = values.pop("optimizer", ("carry", None))[0]
        parts.append(f"starts from {parent} at update {step}, optimizer {'reset' if optimizer == 'reset' else 'kept'}")
    parts += [difference(key, here, there) for key, (here, there) in values.items()]
    return ", ".join(parts)


def arms(settings: Row) -> list[Row]:
    """Of each arm, the baseline first: role, seeds, what it is made from, and all in which it is not the baseline."""
    baseline, found = settings["baseline"], []
    of_arms = settings["compared"]["arms"]
    for name in dict.fromkeys([baseline, *settings["arms"]]):
        arm, seeds = of_arms[name], settings["runs"].get(name, [])
        first = name == baseline
        same = "nothing but its seeds" if seeds != settings["runs"].get(baseline, []) else "nothing"
        found.append({
            "arm": name, "role": "baseline" if first else settings["roles"][name],
            "made": arm["preset"] or (f"as {arm['same_as']}" if arm["same_as"] else ""),
            "seeds": seeds_of(seeds) or "not trained",
            "differs": "–" if first else _differences(arm) or same,
        })  # fmt: skip
    return found


def _model(model: Row) -> str:
    name = model.get("name", "made by the pipeline" if model["source"] == "embedded" else "")
    rank = model.get("adapter.rank")
    parts = [
        " ".join(filter(None, [model["source"], f"({name})" if name else ""])),
        f"revision {model['revision']}" if "revision" in model else "",
        model.get("dtype", ""),
        f"LoRA of rank {rank}, alpha {_said(model['adapter.alpha'])}, on {_said(model['adapter.targets'])}"
        if rank else "full weights",
        f"prompts {model['prompt_family']}" if "prompt_family" in model else "",
        f"dated {model['date']}" if "date" in model else "",
    ]  # fmt: skip
    return ", ".join(filter(None, parts))


def _trained_on(compared: Row, runs: list[Row]) -> str:
    train = compared["train"]
    used = max((row["train_problems"] or 0 for row in runs), default=0)
    text = train["benchmark"]
    text += f": {_count(train['rows'], 'row')} asked for" if "rows" in train else ": all rows"
    text += f", {number(used, 0)} in the train set" if used else ""
    text += f"; decontaminated against {', '.join(compared['against'])}" if compared["against"] else ""
    text += " and without template twins" if compared["twins_removed"] else ""
    return text if compared["against"] else f"{text}; decontaminated against nothing"


def _ended(stop: list[str] | None) -> str:
    return f", ended by {' or '.join(map(repr, stop))}" if stop else ""


def _training(compared: Row) -> str:
    given = compared["settings"]
    batch, each = compared["updates_per_batch"], given["rollout.group_size"]
    parts = [
        f"{_count(given['steps'], 'update')}, {batch} of each rollout batch of "
        f"{_count(given['rollout.prompts'], 'prompt')} x {each} rollouts (the group size)",
        f"learning rate {_said(given['learning_rate'])}, {given['schedule'].replace('_', ' ')}",
        f"KL weight {_said(given['beta'])}",
        f"temperature {_said(given['rollout.temperature'])}",
        f"completions of at most {_count(given['rollout.max_completion'], 'token')}{_ended(given.get('rollout.stop'))}",
        f"reward {given['reward']}",
    ]
    return "; ".join(parts).replace(" x ", " × ")


def _evaluated_on(settings: Row, scores: list[Row]) -> list[str]:
    compared, evaluation = settings["compared"], settings["compared"]["evaluation"]
    found = []
    for benchmark in settings["benchmarks"]:
        measured = max((row["problems"] or 0 for row in scores if row["benchmark"] == benchmark), default=0)
        problems = measured or compared["problems"]
        found.append(
            f"{benchmark}: {_count(problems, 'problem') if problems else 'all problems'} × "
            f"{_count(compared['samples'][benchmark], 'sample')}"
        )
    found.append(f"pass@{', '.join(map(str, settings['pass_at']))}")
    found.append(f"temperature {_said(evaluation['temperature'])}")
    found.append(f"answers of at most {_count(evaluation['max_completion'], 'token')}{_ended(evaluation.get('stop'))}")
    if settings.get("selection"):
        found.append(f"checkpoints chosen on {settings['selection']}")
    return found


def facts(settings: Row, runs: list[Row], scores: list[Row]) -> list[tuple[str, str]]:
    """What all arms have in common, unless one differs: pairs of a heading and its text."""
    compared = settings["compared"]
    objective = ", ".join(f"{key} {_said(value)}" for key, value in compared["objective"])
    return [
        ("Model", _model(compared["model"])),
        ("Trained on", _trained_on(compared, runs)),
        ("Training", _training(compared)),
        (f"Objective of {settings['baseline']}", objective),
        ("Evaluated on", "; ".join(_evaluated_on(settings, scores))),
    ]
