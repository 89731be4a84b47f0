"""The weight precision of a loaded model, read from the model: its quantization config, its layers, its tensors.

Nobody types it. What a loader changed afterwards (values rounded to N bits and kept as ordinary weights) it notes here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn

_NOTED: WeakKeyDictionary[Any, tuple[Precision, torch.dtype]] = WeakKeyDictionary()
_BY_METHOD = {
    "fp8": 8.0,
    "fbgemm_fp8": 8.0,
    "mxfp8": 8.0,
    "mxfp4": 4.0,
    "nvfp4": 4.0,
    "eetq": 8.0,
    "bitnet": 1.58,
}
"""Bits of methods that have one precision only."""


@dataclass(frozen=True)
class Precision:
    """What precision a model's weights have.

    Attributes:
        bits: Nominal weight precision: of the values in the quantized layers.
        scheme: How it was reached.
        compute_dtype: What the arithmetic runs in.
        body_bits: Bits a weight as the linear layers are stored, scales included, the output embedding apart.
        all_bits: The same of the whole model, embeddings included.
        parameters: How many weights it has.
    """

    bits: float
    scheme: str
    compute_dtype: str
    body_bits: float
    all_bits: float
    parameters: int


def note_precision(model: Any, precision: Precision) -> None:
    """Keep what can no longer be read from a model, as long as its weights keep their dtype."""
    _NOTED[model] = (precision, model.dtype)


def precision_of(model: Any) -> Precision:
    """The precision of a model as it is."""
    noted, dtype = _NOTED.get(model, (None, None))
    if noted is not None and dtype == model.dtype:
        return noted
    body, everything, count = bits_per_weight(model)
    bits, scheme = _nominal(model, body)
    return Precision(bits, scheme, compute_dtype_of(model), body, everything, count)


def compute_dtype_of(model: Any) -> str:
    """What the arithmetic of a model runs in."""
    config = quantization_config(model.config)
    named = str(config.get("bnb_4bit_compute_dtype") or "") if config.get("load_in_4bit") else ""
    return (named or str(model.dtype)).removeprefix("torch.")


def quantization_config(config: Any) -> dict[str, Any]:
    """The quantization config of a model's config as a dictionary, empty where there is none."""
    found = getattr(config, "quantization_config", None)
    if found is None:
        return {}
    return dict(found) if isinstance(found, Mapping) else dict(found.to_dict())


def configured_bits(config: Mapping[str, Any]) -> tuple[float | None, str]:
    """Nominal bits and scheme by a quantization config; None where the config does not tell the bits."""
    method = str(getattr(config.get("quant_method"), "value", config.get("quant_method", "")))
    if method.startswith("bitsandbytes") or config.get("load_in_4bit") or config.get("load_in_8bit"):
        if config.get("load_in_8bit"):
            return 8.0, "bitsandbytes int8"
        twice = ", scales quantized" if config.get("bnb_4bit_use_double_quant") else ""
        return 4.0, f"bitsandbytes {config.get('bnb_4bit_quant_type', 'fp4')}{twice}"
    if method in ("gptq", "awq", "auto-round"):
        return float(config["bits"]), f"{method} int{config['bits']}, groups of {config.get('group_size')}"
    if method == "compressed-tensors":
        return _compressed(config)
    if method == "torchao":
        return _torchao(config)
    if method in _BY_METHOD:
        return _BY_METHOD[method], method
    for key in ("bits", "nbits", "w_bit", "weights"):
        digits = re.search(r"\d+", str(config.get(key, "")))
        if digits:
            return float(digits[0]), f"{method} {digits[0]} bits"
    return None, method or "unknown"


def _compressed(config: Mapping[str, Any]) -> tuple[float | None, str]:
    groups = config.get("config_groups") or {}
    quantized = [group for group in groups.values() if isinstance(group, Mapping) and group.get("weights")]
    weights: list[Any] = [group["weights"] for group in quantized]
    kinds = sorted({f"{w['type']}{w['num_bits']}" for w in weights})
    bits = {float(w["num_bits"]) for w in weights}
    return bits.pop() if len(bits) == 1 else None, f"compressed-tensors {'/'.join(kinds)}"


def _torchao(config: Mapping[str, Any]) -> tuple[float | None, str]:
    """By the first width in the config's own words, such as Int4WeightOnlyConfig or torch.int3."""
    told = str(config.get("quant_type"))
    named = re.search(r"(?:weight_dtype\W+\S*?torch\.)(u?int|float)(\d+)", told) or re.search(
        r"\b(u?int|float)(\d+)", told, re.IGNORECASE
    )
    if named is None:
        return None, "torchao"
    return float(named[2]), f"torchao {named[1].lower()}{named[2]}"


def _nominal(model: Any, body_bits: float) -> tuple[float, str]:
    config = quantization_config(model.config)
    if config:
        bits, scheme = configured_bits(config)
        return (float(round(body_bits)) if bits is None else bits), scheme
    layers = {type(module).__name__: module for module in model.modules() if hasattr(module, "in_features")}
    if "Linear4bit" in layers:  # swapped in by hand
        weight = layers["Linear4bit"].weight
        twice = ", scales quantized" if weight.quant_state.nested else ""
        return 4.0, f"bitsandbytes {weight.quant_type}{twice}"
    if "Linear8bitLt" in layers:
        return 8.0, "bitsandbytes int8"
    for module in layers.values():
        if hasattr(module.weight, "target_dtype") and hasattr(module.weight, "qdata"):
            name = str(module.weight.target_dtype).removeprefix("torch.")
            return float(re.sub(r"\D", "", name)), f"torchao {name}"
    return 8.0 * model.dtype.itemsize, str(model.dtype).removeprefix("torch.")


def bits_per_weight(model: Any) -> tuple[float, float, int]:
    """Bits per weight of the linear layers (output embedding apart) and of everything, and the parameter count."""
    head = model.get_output_embeddings()
    seen: set[int] = set()
    body_bits = body_count = all_bits = all_count = 0
    for module in model.modules():
        linear = isinstance(module, nn.Linear) or hasattr(module, "in_features")
        bits, count = _stored(module, seen, packed=linear)
        all_bits += bits
        all_count += count
        if linear and module is not head and count:
            body_bits += bits
            body_count += count
    return body_bits / max(body_count, 1), all_bits / max(all_count, 1), all_count


def _stored(module: Any, seen: set[int], *, packed: bool) -> tuple[int, int]:
    """Bits that a module's own tensors take, and how many weights they stand for."""
    tensors = [*module.named_parameters(recurse=False)]
    if packed and "weight" not in dict(tensors):  # GPTQ, AWQ and others keep packed words and scales beside each other
        tensors += module.named_buffers(recurse=False)
        bits = sum(8 * tensor.nbytes for _, tensor in tensors)
        return bits, module.in_features * module.out_features
    bits = count = 0
    for _, tensor in tensors:
        if id(tensor) not in seen:
            seen.add(id(tensor))
            more, weights = _storage(tensor)
            bits += more
            count += weights
    return bits, count


def _storage(tensor: Any) -> tuple[int, int]:
    """Bits a parameter takes with its scales, and how many weights it stands for."""
    state = getattr(tensor, "quant_state", None)
    if state is not None:  # bitsandbytes 4-bit
        scales = [state.absmax] + ([state.state2.absmax] if state.nested else [])
        return sum(8 * t.nbytes for t in (tensor.data, *scales)), state.shape.numel()
    if getattr(tensor, "SCB", None) is not None:  # bitsandbytes int8
        return 8 * (tensor.data.nbytes + tensor.SCB.nbytes), tensor.data.numel()
    if hasattr(tensor, "qdata") and hasattr(tensor, "target_dtype"):  # torchao, N-bit values kept in bytes
        width = int(str(tensor.target_dtype).removeprefix("torch.int"))
        extra = 8 * tensor.scale.nbytes + width * tensor.zero_point.numel()
        return width * tensor.qdata.numel() + extra, tensor.qdata.numel()
    if type(tensor.data) is not torch.Tensor and hasattr(tensor.data, "qdata"):  # other torchao layouts
        parts = [tensor.data.qdata, getattr(tensor.data, "scale", None), getattr(tensor.data, "zero_point", None)]
        return sum(8 * part.nbytes for part in parts if part is not None), tensor.numel()
    return 8 * tensor.nbytes, tensor.numel()
