"""A Transformers checkpoint at a chosen weight precision, and what there is to know about it."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch
from jinja2 import TemplateError
from torch import nn

from bitcal_tts.engines.base import EngineError
from bitcal_tts.engines.precision import (
    Precision,
    bits_per_weight,
    configured_bits,
    note_precision,
    precision_of,
    quantization_config,
)
from bitcal_tts.engines.thinking import ThinkMarkers, find_markers, style_of

TORCHAO_BITS = (2, 3, 5, 6)
SUPPORTED_BITS = (2, 3, 4, 5, 6, 8, 16, 32)
COMPUTE_DTYPE_VARIABLE = "BITCAL_COMPUTE_DTYPE"
"""Names the compute dtype where none is asked for, in place of what the device multiplies natively."""
_GROUP_SIZES = (64, 32)
_HASHED = (".safetensors", ".bin", ".json", ".jinja", ".model")


@dataclass
class Checkpoint:
    """A loaded model with its tokenizer.

    `system` is the system prompt of every request.
    """

    source: str
    model: Any
    tokenizer: Any
    device: torch.device
    sha256: str
    template_options: dict[str, Any] = field(default_factory=dict)
    system: str | None = None
    markers: ThinkMarkers | Literal["found"] | None = "found"

    @cached_property
    def thinking(self) -> ThinkMarkers | None:
        """How the model marks its thinking: as given, or as tokenizer and chat template tell."""
        return find_markers(self.tokenizer, self.render("?")) if self.markers == "found" else self.markers

    @property
    def precision(self) -> Precision:
        """What precision the weights have, read from the model."""
        return precision_of(self.model)

    @property
    def bits(self) -> float:
        """Nominal weight precision."""
        return self.precision.bits

    @property
    def style(self) -> str:
        """`thinking` or `instruct`, by the template as it is rendered."""
        return style_of(self.thinking)

    @property
    def eos_token_ids(self) -> frozenset[int]:
        """Tokens that end a sequence."""
        return eos_token_ids(self.tokenizer, self.model)

    @property
    def max_positions(self) -> int | None:
        """The longest sequence the model was made for."""
        found: int | None = getattr(self.model.config, "max_position_embeddings", None)
        return found

    @property
    def sliding_window(self) -> int | None:
        """The window of the layers that have one: those so typed, or all where the config types none."""
        config = self.model.config
        types = getattr(config, "layer_types", None)
        window = getattr(config, "sliding_window", None)
        return int(window) if window and (types is None or "sliding_attention" in types) else None

    def render(self, prompt: str) -> str:
        """The prompt as the model reads it: through its chat template where it has one."""
        if not self.tokenizer.chat_template:
            if self.system is not None:
                raise EngineError(f"{self.source} has no chat template, so that it cannot be given a system prompt")
            return prompt
        system = [] if self.system is None else [{"role": "system", "content": self.system}]
        try:
            rendered: str = self.tokenizer.apply_chat_template(
                [*system, {"role": "user", "content": prompt}],
                add_generation_prompt=True,
                tokenize=False,
                **self.template_options,
            )
        except TemplateError as error:
            raise EngineError(f"the chat template of {self.source} refuses: {_first_line(error)}") from error
        return rendered

    def encode(self, prompt: str) -> list[int]:
        """Token ids of a rendered prompt."""
        (ids,) = self.encode_all([prompt])
        return ids

    def encode_all(self, prompts: Sequence[str]) -> list[list[int]]:
        """Token ids of rendered prompts, all at once; a template brings its own special tokens."""
        has_template = bool(self.tokenizer.chat_template)
        rendered = [self.render(prompt) for prompt in prompts]
        encoded: list[list[int]] = self.tokenizer(rendered, add_special_tokens=not has_template)["input_ids"]
        if not all(encoded):
            raise EngineError("the prompt has no tokens")
        return encoded

    def describe(self) -> dict[str, Any]:
        """Identity and provenance, for the manifest."""
        return {
            "model": self.source,
            "model_sha256": self.sha256,
            "bits": self.bits,
            "scheme": self.precision.scheme,
            "body_bits_per_weight": round(self.precision.body_bits, 4),
            "all_bits_per_weight": round(self.precision.all_bits, 4),
            "parameters": self.precision.parameters,
            "compute_dtype": self.precision.compute_dtype,
            "device": self.device.type,
            "eos_token_ids": sorted(self.eos_token_ids),
            "template_options": dict(sorted(self.template_options.items())),
            "style": self.style,
            "system": self.system,
            "thinking": list(self.thinking) if self.thinking else None,
            "template_sha256": template_sha256(self.tokenizer),
        }


def template_sha256(tokenizer: Any) -> str:
    """Of a tokenizer's chat template."""
    return hashlib.sha256((tokenizer.chat_template or "").encode()).hexdigest()


def eos_token_ids(tokenizer: Any, model: Any = None) -> frozenset[int]:
    """Tokens that end a sequence, from the tokenizer and, where there is one, the model's generation config."""
    configured = model.generation_config.eos_token_id if model is not None else None
    ids = set(configured) if isinstance(configured, list) else {configured}
    return frozenset(i for i in ids | {tokenizer.eos_token_id} if i is not None)


def load_checkpoint(
    source: str,
    *,
    bits: float | None = None,
    usual_bits: float = 16,
    device: str | None = None,
    compute_dtype: str | None = None,
    template_options: dict[str, Any] | None = None,
    system: str | None = None,
    name: str | None = None,
    markers: ThinkMarkers | Literal["found"] | None = "found",
) -> Checkpoint:
    """Load a hub id or a local folder at a weight precision.

    Args:
        source: A folder with config.json and safetensors, or a hub id.
        bits: 4 is bitsandbytes NF4, 8 bitsandbytes int8, 16 bfloat16, 32 float32; 2, 3, 5 and 6 are torchao
            round-to-nearest in groups of 64. A checkpoint that comes quantized is loaded as it is, and other bits than
            its own are refused.
        usual_bits: Of any other checkpoint, where none are asked for.
        device: `cuda` where there is one, else `cpu`.
        compute_dtype: By default what BITCAL_COMPUTE_DTYPE names, else `bfloat16` where the device multiplies it
            natively, else `float32`.
        template_options: Extra arguments of the chat template, such as `enable_thinking`.
        system: The system prompt of every request.
        name: What to call the model in records; the source by default.
        markers: How the model marks its thinking, where it cannot be found.
    """
    if bits is not None and bits not in SUPPORTED_BITS:
        raise EngineError(f"bits must be one of {', '.join(map(str, SUPPORTED_BITS))}, got {bits:g}")
    try:
        place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    except RuntimeError as error:
        raise EngineError(f"device must be cpu or cuda, got {device!r}") from error
    if place.type == "cuda" and not torch.cuda.is_available():
        raise EngineError("there is no CUDA device here; leave --device out, or say cpu")
    _require_folder(source)
    logging.getLogger("bitsandbytes.autograd._functions").setLevel(logging.ERROR)
    comes_with = quantization_config(_config(source))
    if comes_with:
        model, tokenizer = _as_it_comes(source, bits, comes_with, place, compute_dtype)
    else:
        model, tokenizer = _rounded(source, usual_bits if bits is None else bits, place, compute_dtype)
    return Checkpoint(
        source=name or source,
        model=model,
        tokenizer=tokenizer,
        device=place,
        sha256=hash_model(source),
        template_options=template_options or {},
        system=system,
        markers=markers,
    )


def _config(source: str) -> Any:
    from transformers import AutoConfig

    try:
        return AutoConfig.from_pretrained(source)
    except (OSError, ValueError, KeyError) as error:
        raise EngineError(f"cannot load {source}: {_first_line(error)}") from error


def _as_it_comes(
    source: str, bits: float | None, config: dict[str, Any], place: torch.device, compute_dtype: str | None
) -> tuple[Any, Any]:
    """A checkpoint that was saved quantized, with the bits that it has."""
    own, scheme = configured_bits(config)
    if bits is not None and own is not None and bits != own:
        raise EngineError(
            f"{source} comes quantized to {own:g} bits ({scheme}): {bits:g} bits cannot be had of it; leave --bits out"
        )
    # Its scales have a dtype of their own, and so has its arithmetic: neither is this machine's to choose.
    model, tokenizer = _from_pretrained(source, scheme, {"dtype": "auto", "device_map": {"": str(place)}})
    precision = precision_of(model)
    if compute_dtype is not None:
        asked = _compute_dtype(compute_dtype, own or 16, place)
        if config.get("load_in_4bit"):  # bitsandbytes multiplies in whatever it is told
            for module in model.modules():
                if hasattr(module, "compute_dtype"):
                    module.compute_dtype = asked
            precision = replace(precision, compute_dtype=compute_dtype)
        elif asked != model.dtype:
            comes_in = str(model.dtype).removeprefix("torch.")
            raise EngineError(f"{source} comes quantized ({scheme}) for {comes_in}: leave --compute-dtype out")
    note_precision(model, precision)  # now: some schemes unpack their weights at the first step
    return model, tokenizer


def _rounded(source: str, bits: float, place: torch.device, compute_dtype: str | None) -> tuple[Any, Any]:
    """A checkpoint in full precision, rounded to the bits asked for."""
    from transformers import BitsAndBytesConfig

    dtype = _compute_dtype(compute_dtype, bits, place)
    # At 16 bits the weights are bfloat16 even where the arithmetic is not.
    weights = torch.bfloat16 if bits == 16 and dtype == torch.float32 else dtype
    options: dict[str, Any] = {"dtype": weights, "device_map": {"": str(place)}}
    if bits == 4:
        options["quantization_config"] = BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=dtype
        )
    elif bits == 8:
        options["quantization_config"] = BitsAndBytesConfig(load_in_8bit=True)
    model, tokenizer = _from_pretrained(source, f"{bits:g} bits", options)
    if bits in TORCHAO_BITS:
        scheme = _quantize_with_torchao(model, int(bits))
    else:
        scheme = _BITSANDBYTES.get(int(bits)) or str(model.dtype).removeprefix("torch.")
    body, everything, count = bits_per_weight(model)
    if bits in TORCHAO_BITS:
        _dequantize_once(model)
    elif bits == 16 and dtype == torch.float32:
        model.float()  # the same weights, multiplied in float32
    note_precision(model, Precision(bits, scheme, str(dtype).removeprefix("torch."), body, everything, count))
    return model, tokenizer


_BITSANDBYTES = {4: "bitsandbytes nf4", 8: "bitsandbytes int8"}


def _from_pretrained(source: str, what: str, options: dict[str, Any]) -> tuple[Any, Any]:
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM, AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(source)
        model = AutoModelForCausalLM.from_pretrained(source, **options)
    except (OSError, ValueError, RuntimeError, ImportError, SafetensorError) as error:
        raise EngineError(f"cannot load {source} at {what}: {_first_line(error)}") from error
    model.eval()
    _require_plain_attention(source, model)
    return model, tokenizer


def _compute_dtype(asked: str | None, bits: float, place: torch.device) -> torch.dtype:
    if asked is None and bits == 32:
        return torch.float32
    asked = asked or os.environ.get(COMPUTE_DTYPE_VARIABLE)
    if asked:
        dtype = getattr(torch, asked, None)
        if dtype not in (torch.float32, torch.bfloat16, torch.float16):
            raise EngineError(f"compute dtype must be float32, bfloat16 or float16, got {asked!r}")
        return dtype  # type: ignore[no-any-return]
    native = place.type != "cpu" or bool(torch.cpu._is_avx512_bf16_supported())
    return torch.bfloat16 if native else torch.float32


def _require_folder(source: str) -> None:
    """A path that is not there must not be looked up on the hub."""
    path = Path(source)
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise EngineError(f"{source} holds no config.json: not a Transformers checkpoint")
    elif path.is_absolute() or source.startswith(".") or source.count("/") > 1:
        raise EngineError(f"there is no model folder {source}")


def _require_plain_attention(source: str, model: Any) -> None:
    types = set(getattr(model.config, "layer_types", None) or ("full_attention",))
    other = types - {"full_attention", "sliding_attention"}
    if other:
        raise EngineError(
            f"{source} has layers of type {', '.join(sorted(other))}, whose state cannot leave a batch row by row; "
            "use BitCal(...) inside model.generate instead"
        )


def _quantize_with_torchao(model: Any, bits: int) -> str:
    """Round the linear layers, output embedding apart, to `bits` with torchao's weight-only quantization."""
    from torchao.quantization import IntxWeightOnlyConfig, PerAxis, PerGroup, quantize_
    from torchao.quantization.quant_primitives import MappingType

    head = model.get_output_embeddings()
    groups: set[int] = set()
    for group in (*_GROUP_SIZES, 0):

        def fits(module: nn.Module, _: str, group: int = group) -> bool:
            if module is head or not isinstance(module, nn.Linear) or type(module.weight.data) is not torch.Tensor:
                return False
            wanted = next((g for g in _GROUP_SIZES if module.in_features % g == 0), 0)
            if wanted == group:
                groups.add(group)
            return wanted == group

        config = IntxWeightOnlyConfig(
            weight_dtype=getattr(torch, f"int{bits}"),
            granularity=PerGroup(group) if group else PerAxis(0),
            mapping_type=MappingType.ASYMMETRIC,
        )
        quantize_(model, config, filter_fn=fits)
    sizes = "/".join(str(g) if g else "row" for g in sorted(groups, reverse=True))
    return f"torchao int{bits} asymmetric, groups of {sizes}"


def _dequantize_once(model: Any) -> None:
    """Put the rounded values back as ordinary weights.

    torchao keeps N-bit values in bytes and expands them at every call: the numbers are the same this way,
    and decoding is several times faster. What is measured is quality at N bits, not N-bit speed.
    """
    for module in model.modules():
        if isinstance(module, nn.Linear) and hasattr(module.weight, "qdata"):
            module.weight = nn.Parameter(module.weight.dequantize(), requires_grad=False)


def hash_model(source: str) -> str:
    """SHA-256 over the names and contents of a checkpoint's files.

    Files of the hub's cache are links to blobs named by their own hash, which then stands for the content.
    """
    folder = Path(source)
    if not folder.is_dir():
        from transformers.utils import cached_file

        folder = Path(cached_file(source, "config.json")).parent
    digest = hashlib.sha256()
    for path in sorted(p for p in folder.iterdir() if p.suffix in _HASHED):
        digest.update(path.name.encode() + b"\0")
        if path.is_symlink() and path.resolve().parent.name == "blobs":
            digest.update(path.resolve().name.encode())
        else:
            with path.open("rb") as file:
                while piece := file.read(1 << 20):
                    digest.update(piece)
    return digest.hexdigest()


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
