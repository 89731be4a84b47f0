"""Checkpoints that come quantized, as most 4-bit models on a hub do: loaded as they are, with the bits they have."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from bitcal_tts.cli import main
from bitcal_tts.engines.base import EngineError, Request
from bitcal_tts.engines.checkpoint import load_checkpoint
from bitcal_tts.engines.precision import configured_bits, precision_of
from bitcal_tts.engines.transformers import TransformersEngine
from bitcal_tts.halting.methods import to_the_end
from bitcal_tts.tasks import load_task
from bitcal_tts.traces.store import TraceStore


def saved(tiny: str, folder: Path, config: Any) -> Path:
    """The smallest model, quantized by Transformers and saved."""
    from transformers import AutoModelForCausalLM

    shutil.copytree(tiny, folder, ignore=shutil.ignore_patterns("*.safetensors", "config.json"))
    AutoModelForCausalLM.from_pretrained(tiny, quantization_config=config).save_pretrained(folder)
    return folder


def compressed(tiny: str, folder: Path, *, bits: int, kind: str) -> Path:
    """The smallest model in the format of compressed-tensors: packed integers in groups, or 8-bit floats."""
    from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32
    from safetensors.torch import load_file, save_file

    shutil.copytree(tiny, folder)
    weights: dict[str, torch.Tensor] = {}
    for name, tensor in load_file(folder / "model.safetensors").items():
        if not name.endswith("proj.weight"):
            weights[name] = tensor
            continue
        full, most = tensor.float(), 2 ** (bits - 1) - 1
        if kind == "int":
            groups = full.reshape(full.shape[0], -1, 32)
            scale = (groups.abs().amax(-1) / most).clamp_min(1e-8)
            values = (groups / scale[..., None]).round().clamp(-most - 1, most).reshape(full.shape).to(torch.int8)
            weights[f"{name}_packed"] = pack_to_int32(values, bits)
            weights[f"{name}_shape"] = torch.tensor(full.shape)
        else:
            scale = (full.abs().amax(-1, keepdim=True) / 448).clamp_min(1e-12)
            weights[name] = (full / scale).to(torch.float8_e4m3fn)
        weights[f"{name}_scale"] = scale.to(torch.bfloat16)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    strategy = {"strategy": "group", "group_size": 32} if kind == "int" else {"strategy": "channel"}
    group = {"targets": ["Linear"], "weights": {"num_bits": bits, "type": kind, "symmetric": True, **strategy}}
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {
        "quant_method": "compressed-tensors", "quantization_status": "compressed", "ignore": ["lm_head"],
        "format": "pack-quantized" if kind == "int" else "float-quantized", "config_groups": {"group_0": group},
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def made(name: str, tiny: str, folder: Path) -> Path:
    from torchao.quantization import Int8WeightOnlyConfig, IntxWeightOnlyConfig, PerGroup
    from transformers import BitsAndBytesConfig, TorchAoConfig

    if name.startswith("compressed"):
        return compressed(tiny, folder, bits=4 if "int4" in name else 8, kind="int" if "int4" in name else "float")
    configs = {
        "nf4": lambda: BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4"),
        "fp4": lambda: BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_use_double_quant=True),
        "int8": lambda: BitsAndBytesConfig(load_in_8bit=True),
        "torchao int8": lambda: TorchAoConfig(Int8WeightOnlyConfig()),
        "torchao int3": lambda: TorchAoConfig(
            IntxWeightOnlyConfig(weight_dtype=torch.int3, granularity=PerGroup(64))  # type: ignore[attr-defined]
        ),
    }
    return saved(tiny, folder, configs[name]())


@pytest.mark.parametrize(
    ("name", "bits", "scheme", "body"),
    [
        ("nf4", 4, "bitsandbytes nf4", 4.5), ("fp4", 4, "bitsandbytes fp4, scales quantized", 4.1),
        ("int8", 8, "bitsandbytes int8", 8.2),
        ("torchao int8", 8, "torchao int8", 8.2), ("torchao int3", 3, "torchao int3", 3.3),
        ("compressed int4", 4, "compressed-tensors int4", 4.5), ("compressed fp8", 8, "compressed-tensors float8", 8.1),
    ],
)  # fmt: skip
def test_the_bits_are_those_of_the_tensors(
    tiny: str, tmp_path: Path, name: str, bits: float, scheme: str, body: float
) -> None:
    folder = made(name, tiny, tmp_path / "quantized")
    checkpoint = load_checkpoint(str(folder))
    precision = checkpoint.precision
    assert (precision.bits, precision.scheme) == (bits, scheme)
    assert precision.body_bits == pytest.approx(body, abs=0.2)
    (done,) = TransformersEngine(checkpoint).decode(
        [Request("a", load_task().prompt(load_task().items(1, 0)[0]), to_the_end(24))]
    )
    assert len(done.token_ids) > 0
    assert checkpoint.precision == precision  # though some schemes have unpacked their weights by now
    assert load_checkpoint(str(folder), bits=bits).precision.bits == bits
    for wrong in {16, 8, 4} - {bits}:
        with pytest.raises(EngineError, match=rf"comes quantized to {bits:g} bits \({scheme}\): {wrong} bits cannot"):
            load_checkpoint(str(folder), bits=wrong)


def test_a_recording_is_labelled_with_the_bits_there_are(
    tiny: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = made("nf4", tiny, tmp_path / "quantized")
    usual = ["record", "--model", str(folder), "--n", "2", "--batch", "2", "--budget", "16", "--json"]
    for wrong in ("16", "8"):
        assert main([*usual, "--bits", wrong, "--out", "w"]) == 2
        assert "comes quantized to 4 bits" in capsys.readouterr().err
    assert main([*usual, "--out", "t"]) == 0
    about = TraceStore.open(Path("t")).description
    assert (about["bits"], about["scheme"]) == (4, "bitsandbytes nf4")
    assert about["body_bits_per_weight"] == pytest.approx(4.5, abs=0.1)


def test_a_model_in_memory_tells_its_precision(tiny: str) -> None:
    """As `generate` meets it: whoever loaded it."""
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    for dtype, bits in ((torch.float32, 32), (torch.bfloat16, 16)):
        plain = precision_of(AutoModelForCausalLM.from_pretrained(tiny, dtype=dtype))
        assert (plain.bits, plain.scheme, plain.compute_dtype) == (bits, *[str(dtype).removeprefix("torch.")] * 2)
    for kind in ("nf4", "fp4"):
        config = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type=kind, bnb_4bit_compute_dtype=torch.bfloat16)
        model = AutoModelForCausalLM.from_pretrained(tiny, quantization_config=config, dtype=torch.float32)
        found = precision_of(model)
        assert (found.bits, found.scheme, found.compute_dtype) == (4, f"bitsandbytes {kind}", "bfloat16")
        model.config.quantization_config = None  # swapped in by hand
        assert precision_of(model).scheme == f"bitsandbytes {kind}"


@pytest.mark.parametrize(
    ("config", "bits", "scheme"),
    [
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, 4, "gptq int4, groups of 128"),
        ({"quant_method": "awq", "bits": 3, "group_size": 64}, 3, "awq int3, groups of 64"),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, 8, "fp8"),
        ({"quant_method": "fbgemm_fp8"}, 8, "fbgemm_fp8"),
        ({"quant_method": "mxfp4"}, 4, "mxfp4"),
        ({"quant_method": "hqq", "nbits": 2}, 2, "hqq 2 bits"),
        ({"quant_method": "quanto", "weights": "int4"}, 4, "quanto 4 bits"),
        ({"quant_method": "something new"}, None, "something new"),
    ],
)
def test_methods_that_cannot_be_run_here_are_read_from_their_configs(
    config: dict[str, Any], bits: float | None, scheme: str
) -> None:
    assert configured_bits(config) == (bits, scheme)


def test_packed_words_and_scales_are_counted_as_weights() -> None:
    """As GPTQ and AWQ lay them out: eight 4-bit values a word, a scale and a zero point a group of 128."""

    class Packed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.in_features, self.out_features = 256, 64
            self.register_buffer("qweight", torch.zeros(256 // 8, 64, dtype=torch.int32))
            self.register_buffer("qzeros", torch.zeros(2, 64 // 8, dtype=torch.int32))
            self.register_buffer("scales", torch.zeros(2, 64, dtype=torch.float16))

    class Model(nn.Module):
        dtype = torch.float16

        def __init__(self) -> None:
            super().__init__()
            self.layer = Packed()
            self.head = nn.Linear(64, 10, bias=False).half()
            self.config = type("Config", (), {"quantization_config": {"quant_method": "gptq", "bits": 4}})()

        def get_output_embeddings(self) -> nn.Module:
            return self.head

    found = precision_of(Model())
    assert found.bits == 4
    assert found.body_bits == pytest.approx(4 + (16 + 4) / 128)
    assert found.parameters == 256 * 64 + 640


def test_a_model_that_was_changed_after_loading_is_read_again(tiny: str) -> None:
    checkpoint = load_checkpoint(tiny, bits=32)
    assert (checkpoint.bits, checkpoint.precision.compute_dtype) == (32, "float32")
    checkpoint.model.bfloat16()
    assert (checkpoint.bits, checkpoint.precision.compute_dtype) == (16, "bfloat16")
    assert load_checkpoint(tiny, bits=16, compute_dtype="float32").bits == 16  # bfloat16 values in float32


def test_the_dtype_of_a_quantized_checkpoint_is_its_own(tiny: str, tmp_path: Path) -> None:
    """Whatever this machine multiplies natively; another is refused where the scheme does not take it."""
    packed = made("compressed int4", tiny, tmp_path / "packed")
    own = load_checkpoint(str(packed)).precision.compute_dtype
    other = {"float32": "bfloat16", "bfloat16": "float32"}[own]
    assert load_checkpoint(str(packed), compute_dtype=own).precision.compute_dtype == own
    with pytest.raises(EngineError, match=f"comes quantized .* for {own}: leave --compute-dtype out"):
        load_checkpoint(str(packed), compute_dtype=other)
    four = made("nf4", tiny, tmp_path / "four")
    for name in ("float32", "bfloat16"):
        assert load_checkpoint(str(four), compute_dtype=name).precision.compute_dtype == name
