"""Sampling with vLLM: one request per completion with a seed of its own; an adapter goes with the request, unmerged."""

import os
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from transformers import AutoTokenizer, GenerationConfig

from workflow_scripts.sampling import Completion, EngineError, Options
from workflow_scripts.sampling.stop_strings import cut, decoded, end_at_stop
from workflow_scripts.sampling.transformers_engine import end_tokens

LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # those vLLM has kernels for; an adapter is padded to the next
COOLEST = 0.01  # vLLM silently raises a lower temperature to this
CPU_CACHE = 2**30  # bytes of keys and values; on a CPU a share of memory would be the machine's, not this job's
CPU_PREFILL = 4096  # tokens of prompts at once


def import_vllm(device: str) -> Any:
    """The vllm module, set up for this process. device: cpu or cuda. To be called before anything else imports vllm.

    Raises EngineError where it is missing or built for another device.
    """
    # In this process: its scheduling is then deterministic, and what fails in it is an exception here.
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    if device == "cpu":  # jobs side by side would be bound to the same cores
        os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
    try:
        import vllm
        from vllm.platforms import current_platform
    except ModuleNotFoundError as error:
        missing = "not installed" if error.name == "vllm" else f"without {error.name}, which it needs"
        raise EngineError(
            f"compute.engine: vllm: it is {missing}; run `make gpu`, or use compute.engine: transformers"
        ) from None
    except (ImportError, OSError) as error:  # a CUDA library that is not there, say
        raise EngineError(f"compute.engine: vllm: it cannot be imported: {one_line(error)}") from None
    if current_platform.device_type != device:
        built = current_platform.device_type or "a device that is not here"
        raise EngineError(
            f"compute.device: {device}: the vLLM installed here works on {built}; use compute.engine: transformers"
        )
    return vllm


def one_line(error: Exception) -> str:
    """What an error of vLLM's says, without its line breaks."""
    text = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
    return " ".join(text.split())


def llm_arguments(device: str, longest: int, lora_rank: int | None, decodes: bool = False) -> dict[str, Any]:
    """Arguments of vLLM's LLM that sampling and training share. longest: tokens of prompt and completion at most;
    decodes: completions end at stop strings, for which vLLM needs the tokenizer.

    Raises EngineError for a rank that vLLM has no kernel for.
    """
    arguments: dict[str, Any] = {
        "max_model_len": longest,
        "enable_prefix_caching": True,  # the samples of a problem share one prefill
        "generation_config": "vllm",  # a repetition penalty in the model's own file would be taken otherwise
        "skip_tokenizer_init": not decodes,
        "use_tqdm_on_load": False,
    }
    if device == "cpu":
        arguments |= {
            "kv_cache_memory_bytes": CPU_CACHE,
            "enforce_eager": True,  # compiling would take longer than it saves
            "enable_chunked_prefill": False,  # after a part of a prompt its generator is set back; a CPU's cannot
            "max_num_batched_tokens": max(longest, CPU_PREFILL),
        }
    if lora_rank is not None:
        if lora_rank > LORA_RANKS[-1]:
            raise EngineError(
                f"model.adapter.rank: {lora_rank}: vLLM takes up to {LORA_RANKS[-1]}; use compute.engine: transformers"
            )
        rank = next(rank for rank in LORA_RANKS if rank >= lora_rank)
        arguments |= {"enable_lora": True, "max_loras": 1, "max_lora_rank": rank}
    return arguments


def sampling_parameters(options: Options, ends: set[int], seed: int, **more: Any) -> Any:
    """vLLM's SamplingParams of one completion. Raises EngineError for a temperature that vLLM would change."""
    import vllm

    if options.temperature < COOLEST:
        raise EngineError(f"temperature: {options.temperature}: with compute.engine: vllm at least {COOLEST}")
    return vllm.SamplingParams(
        temperature=options.temperature,
        top_p=options.top_p,
        top_k=options.top_k or 0,  # 0: all
        max_tokens=options.max_completion,
        seed=seed,
        stop_token_ids=sorted(ends),
        stop=list(options.stop or ()),
        detokenize=bool(options.stop),
        **more,
    )


def lora_request(folder: Path, number: int) -> Any:
    """The adapter in the folder, for LLM.generate. number: another one for each; under a name that it knows, vLLM would
    take the adapter and the prefixes that it has cached."""
    from vllm.lora.request import LoRARequest

    return LoRARequest(f"adapter-{number}", number, str(folder.resolve()))


def reload_weights(llm: Any, **source: Any) -> None:
    """Put other full weights into the engine. source: weights_path, a folder, or weights_iterator, (name, tensor)s."""
    llm.collective_rpc("reload_weights", kwargs=source)
    llm.apply_model(_pack_tied_head)
    llm.reset_prefix_cache()  # its keys and values are of the weights before


def _pack_tied_head(model: Any) -> None:
    """On a CPU vLLM multiplies by a packed copy; of an output layer tied to the embedding, reloading leaves the old."""
    head = getattr(model, "lm_head", None)
    if head is not None and hasattr(head, "cpu_linear"):
        head.quant_method.process_weights_after_loading(head)


class VLLMEngine:
    """An `Engine`. base: folder of the base model; device: cpu or cuda; memory_share: of the GPU, weights and cache
    together; longest: tokens of prompt and completion at most; lora_rank: of the adapters to come, None for full
    weights; decodes: `sample` will be asked for stop strings.

    Raises EngineError where vLLM is missing, is built for another device, or cannot hold the model.
    """

    def __init__(
        self,
        base: Path,
        dtype: str,
        device: str,
        memory_share: float,
        longest: int,
        lora_rank: int | None,
        decodes: bool = False,
    ) -> None:
        vllm = import_vllm(device)
        arguments = llm_arguments(device, longest, lora_rank, decodes)
        try:
            self.llm = vllm.LLM(model=str(base), dtype=dtype, gpu_memory_utilization=memory_share, **arguments)
        except (ValueError, RuntimeError) as error:
            raise EngineError(
                f"compute.engine: vllm, with compute.vllm.sampling_memory {memory_share}: {one_line(error)}"
            ) from None
        self.name = f"vllm {vllm.__version__}"
        named = GenerationConfig.from_pretrained(base, local_files_only=True)
        self.tokenizer = AutoTokenizer.from_pretrained(base, local_files_only=True)
        self.ends = end_tokens(named, self.tokenizer)
        self.adapter: Any = None
        self._adapters = 0
        self._base = self._weights = base

    def load(self, checkpoint: Path | None) -> None:
        """See `Engine.load`."""
        self.adapter = None
        if checkpoint is not None and (checkpoint / "adapter_config.json").exists():
            self._adapters += 1
            self.adapter = lora_request(checkpoint, self._adapters)
            checkpoint = None
        self._set_weights(checkpoint or self._base)

    def _set_weights(self, folder: Path) -> None:
        if folder != self._weights:
            reload_weights(self.llm, weights_path=str(folder))
            self._weights = folder

    def sample(self, prompts: list[list[int]], seeds: list[int], options: Options) -> list[Completion]:
        """See `Engine.sample`."""
        outputs = self.llm.generate(
            [{"prompt_token_ids": prompt} for prompt in prompts],
            [sampling_parameters(options, self.ends, seed) for seed in seeds],
            use_tqdm=False,
            lora_request=self.adapter,
        )
        drawn = [output.outputs[0] for output in outputs]
        drawn = [Completion(list(one.token_ids), one.finish_reason == "length") for one in drawn]
        return [self._stopped(one, options.stop) for one in drawn] if options.stop else drawn

    def _stopped(self, drawn: Completion, stop: tuple[str, ...]) -> Completion:
        """vLLM waits for whole characters, so it may draw one token more after a stop string."""
        found = cut(decoded(self.tokenizer, [drawn.token_ids])[0], stop)[1]
        return Completion(end_at_stop(self.tokenizer, drawn.token_ids, stop), False) if found else drawn
