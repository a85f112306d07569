"""The keys of a study, section by section: types, ranges and defaults. What they mean is said in config.yaml."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, create_model

from workflow_scripts import digest
from workflow_scripts.objectives.presets import PRESETS
from workflow_scripts.study import own_code
from workflow_scripts.study.faults import OneOf
from workflow_scripts.study.trl_fields import as_trl_types
from workflow_scripts.study.values import (
    ArmName,
    AtLeastTwo,
    BatchSize,
    Checkpoint,
    Columns,
    Commit,
    Count,
    Counts,
    Day,
    Distinct,
    Function,
    Grader,
    Json,
    Level,
    Margin,
    Name,
    Names,
    NotNegative,
    Number,
    PolicyValue,
    Positive,
    Reward,
    Samples,
    Seeds,
    Share,
    Stop,
    Targets,
    Text,
    TopP,
    Whole,
)


def _axis(module: str) -> dict[str, tuple[str, ...]]:
    """What can be chosen on an axis (the public functions of its module): names and the keys each may be given."""
    return {name: required + optional for name, (required, optional) in digest.keyword_arguments(module).items()}


RATIOS = tuple(_axis("objectives.ratio"))
POLICIES = _axis("objectives.bounds")
SURROGATES = _axis("objectives.surrogate")
UNCLIPPED = tuple(name for name in SURROGATES if name != "clipped")  # ours that use no bounds
AGGREGATIONS = tuple(name.replace("_", "-") for name in _axis("objectives.aggregation"))
SCALES = tuple(name for name, keys in _axis("objectives.advantage").items() if not keys)
POLICY_KEYS = tuple(dict.fromkeys(key for axis in (POLICIES, SURROGATES) for keys in axis.values() for key in keys))
PROMPTS = json.loads((Path(__file__).parents[1] / "sampling" / "prompts.json").read_text("utf-8"))
PROMPT_FAMILIES = tuple(PROMPTS)
_ARGUMENTS = digest.keyword_arguments("objectives.bounds") | digest.keyword_arguments("objectives.surrogate")
NEEDS_FOCAL = ("f_grpo", "f_grpo_unscaled", "f_gspo")  # presets whose paper is the focal weight; it has no default


def keys_of_function(name: str) -> tuple[str, ...]:
    """Keys that a clip policy or surrogate may be given, ours or the user's own; none of a name that is neither."""
    required, optional = _arguments(name)
    return required + optional


def required_keys(name: str) -> tuple[str, ...]:
    """Those that it has to be given."""
    return _arguments(name)[0]


def _arguments(name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    own = own_code.keyword_arguments(name) if own_code.is_own(name) else _ARGUMENTS.get(name)
    return own or ((), ())


class Part(BaseModel):
    """A section: no unknown keys, no infinite numbers, never changed."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, protected_namespaces=())


class Adapter(Part):
    rank: Count
    alpha: Positive
    targets: Targets = "all-linear"


class Model(Part):
    source: Annotated[str, OneOf(("embedded", "hub", "pypi", "local"))]
    name: Text | None = None
    revision: Commit | None = None
    dtype: Annotated[str, OneOf(("float32", "bfloat16"))] = "float32"
    adapter: Adapter | None = None
    prompt_family: Annotated[str, OneOf(PROMPT_FAMILIES)] = "plain"
    date: Day | None = None


class TrainSet(Part):
    benchmark: Name
    split: Name | None = None
    rows: Count | None = None
    seed: Whole | None = None


class Data(Part):
    train: TrainSet
    decontaminate_against: Names = []
    remove_template_twins: bool = False


class Fields(Part):
    question: Columns = "question"
    answer: Columns = "answer"
    id: Columns | None = None


class UserSet(Part):
    source: Annotated[str, OneOf(("local", "hub"))] = "local"
    path: Text | None = None
    revision: Commit | None = None
    config: Text | None = None
    split: Text | None = None
    fields: Fields | None = None
    gaps: Annotated[str, OneOf(("error", "drop"))] | None = None
    unused: Annotated[list[Text], Distinct] | None = None
    grader: Grader | None = None


class Sampling(Part):
    """How completions are drawn, of rollouts and of evaluations: the keys of `sampling.Options`."""

    temperature: Positive = 1.0
    top_p: TopP = 1.0
    top_k: Count | None = None
    stop: Stop | None = None
    max_completion: Count

    @property
    def options(self) -> dict[str, Any]:
        """Those that are set."""
        return self.model_dump(include=set(Sampling.model_fields), exclude_none=True)


class Rollout(Sampling):
    prompts: Count = 32
    group_size: AtLeastTwo = 8
    minibatches: Count = 2
    epochs: Count = 2
    max_prompt: Count | None = None

    @property
    def updates_per_batch(self) -> int:
        """Optimizer updates from one rollout batch."""
        return self.minibatches * self.epochs

    @property
    def rollouts(self) -> int:
        """Rollouts of one batch."""
        return self.prompts * self.group_size


class Training(Part):
    steps: Count
    checkpoints: Counts | None = None
    learning_rate: Positive
    schedule: Annotated[str, OneOf(("constant", "constant_with_warmup", "linear", "cosine"))] = "constant"
    warmup_steps: Whole = 0
    max_grad_norm: Positive = 1.0
    beta: NotNegative = 0.0
    mask_truncated: bool = False
    reward: Reward = "exact_answer"
    success_threshold: Number | None = None
    trl: Annotated[Json, AfterValidator(as_trl_types)] = {}


class Grading(Part):
    copied: Annotated[str, OneOf(("pay", "refuse"))] = "refuse"


class Advantage(Part):
    scale: Annotated[str, Function(SCALES)] | None = None
    focal_gamma: NotNegative | None = None


class BranchFrom(Part):
    arm: ArmName
    step: Count


def _optional(section: type[Part]) -> type[Part]:
    """The same keys with none required: what an arm may override."""
    keys: dict[str, Any] = {
        name: (field.rebuild_annotation() | None, None) for name, field in section.model_fields.items()
    }
    return create_model(f"{section.__name__}Override", __base__=Part, **keys)


if TYPE_CHECKING:

    class TrainingOverride(Training): ...

    class RolloutOverride(Rollout): ...
else:
    TrainingOverride, RolloutOverride = _optional(Training), _optional(Rollout)


class _ArmKeys(Part):
    role: Annotated[str, OneOf(("comparison", "placebo", "sensitivity"))] = "comparison"
    preset: Annotated[str, OneOf(tuple(PRESETS))] | None = None
    same_as: ArmName | None = None
    ratio: Annotated[str, OneOf(RATIOS)] | None = None
    bounds: Annotated[str, Function(tuple(POLICIES))] | None = None
    surrogate: Annotated[str, Function(tuple(SURROGATES))] | None = None
    own: dict[Name, PolicyValue] | None = None
    advantage: Advantage | None = None
    aggregation: Annotated[str, OneOf(AGGREGATIONS)] | None = None
    kl: Annotated[str, OneOf(("k3", "k3_importance"))] | None = None
    seeds: Seeds | None = None
    branch_from: BranchFrom | None = None
    optimizer: Annotated[str, OneOf(("carry", "reset"))] | None = None
    training: TrainingOverride | None = None
    rollout: RolloutOverride | None = None


class _PolicyKeys(Part):
    bounds: Annotated[str, Function(tuple(POLICIES))]
    own: dict[Name, PolicyValue] | None = None


if TYPE_CHECKING:

    class ArmKeys(_ArmKeys): ...

    class Policy(_PolicyKeys): ...
else:  # the keys of the clip policies are those of their functions: a new policy needs no change here
    ArmKeys = create_model("ArmKeys", __base__=_ArmKeys, **dict.fromkeys(POLICY_KEYS, (PolicyValue | None, None)))
    _widths = {key: (NotNegative | None, None) for keys in POLICIES.values() for key in keys}
    Policy = create_model("Policy", __base__=_PolicyKeys, **_widths)


class Evaluation(Sampling):
    benchmarks: Annotated[Names, Field(min_length=1)]
    selection: Name | None = None
    problems: Count | None = None
    samples: Samples = 8
    pass_at: Counts = [1]
    prompt_family: Annotated[str, OneOf(PROMPT_FAMILIES)] | None = None
    base_repeats: Count = 3


class Endpoint(Part):
    pass_at: Count = 1
    checkpoint: Checkpoint = "last"


class Analysis(Part):
    endpoint: Endpoint = Endpoint()
    margin: Margin = 0.05
    alpha: Level = 0.05
    looks: Annotated[list[AtLeastTwo], Distinct] | None = None
    policies: dict[Name, Policy] = {}
    allow_unreachable: bool = False


class Keep(Part):
    rollouts: bool = True
    completions: bool = True
    checkpoints: bool = True
    state: Annotated[str, OneOf(("none", "last"))] = "none"


class Vllm(Part):
    mode: Annotated[str, OneOf(("colocate", "server"))] = "colocate"
    server: Text | None = None
    training_memory: Share = 0.3
    sampling_memory: Share = 0.9


class Compute(Part):
    device: Annotated[str, OneOf(("auto", "cpu", "cuda"))] = "auto"
    gpus: Whole = 0
    processes: Count | None = None
    micro_batch: BatchSize = "auto"
    gradient_checkpointing: bool = False
    engine: Annotated[str, OneOf(("transformers", "vllm"))] = "transformers"
    vllm: Vllm = Vllm()
    eval_batch: BatchSize = "auto"
    threads: Count = 1
    trackers: Annotated[list[Annotated[str, OneOf(("tensorboard", "trackio", "wandb"))]], Distinct] = []
    keep: Keep = Keep()

    @property
    def place(self) -> str:
        """cpu or cuda: auto is a GPU where the study asks for one."""
        return {"auto": "cuda" if self.gpus else "cpu"}.get(self.device, self.device)


class StudyKeys(Part):
    """All keys of a study, in the order of config.yaml."""

    study: Name
    data_dir: Text | None = None
    allow_missing: bool = False
    retrain_on_reward_change: bool = False
    question: Text | None = None
    model: Model
    data: Data
    sets: dict[Name, UserSet] = {}
    rollout: Rollout
    training: Training
    grading: Grading = Grading()
    arms: Annotated[dict[ArmName, ArmKeys], Field(min_length=1)]
    baseline: ArmName
    seeds: Seeds = list(range(5))
    only_arms: Annotated[list[ArmName], Field(min_length=1), Distinct] | None = None
    evaluation: Evaluation
    analysis: Analysis = Analysis()
    compute: Compute = Compute()
