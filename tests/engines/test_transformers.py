"""The engine on the smallest model in the box: the same tokens as `generate`, whatever the batch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from bitcal_tts.engines.base import Decoding, EngineError, Request
from bitcal_tts.engines.checkpoint import load_checkpoint
from bitcal_tts.engines.sampling import choose, token_signals
from bitcal_tts.engines.transformers import TransformersEngine
from bitcal_tts.halting.methods import to_the_end
from bitcal_tts.halting.signals import entropy
from bitcal_tts.tasks import load_task


def requests(n: int, budget: int) -> list[Request]:
    task = load_task()
    items = enumerate(task.items(n, seed=3))
    return [Request(str(i), task.prompt(item), to_the_end(budget), seed=i) for i, item in items]


def ids(engine: Any, reqs: list[Request], decoding: Decoding | None = None, **options: Any) -> dict[str, list[int]]:
    return {c.id: c.token_ids for c in engine.decode(reqs, decoding, **options)}


@pytest.fixture(scope="module")
def by_generate(engine: Any) -> dict[str, list[int]]:
    """The reference: `model.generate`, one prompt at a time."""
    found = {}
    for request in requests(12, 96):
        prompt = torch.tensor([engine.checkpoint.encode(request.prompt)])
        out = engine.checkpoint.model.generate(
            input_ids=prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=96, do_sample=False
        )
        new = out[0, prompt.shape[1] :].tolist()
        found[request.id] = [token for token in new if token not in engine.checkpoint.eos_token_ids]
    return found


@pytest.mark.parametrize("batch_size", [1, 5, 12])
def test_same_tokens_as_generate_at_any_batch_size(
    engine: Any, by_generate: dict[str, list[int]], batch_size: int
) -> None:
    assert ids(engine, requests(12, 96), batch_size=batch_size) == by_generate


def test_the_cache_window_moves_back_to_the_front(engine: Any, by_generate: dict[str, list[int]]) -> None:
    """Rows that keep coming push the window to the end of the buffer, several times."""
    many = [Request(f"{i}/{r.id}", r.prompt, to_the_end(96)) for i in range(6) for r in requests(12, 96)]
    for name, tokens in ids(engine, many, batch_size=4).items():
        assert tokens == by_generate[name.partition("/")[2]]


def test_signals_are_those_of_a_teacher_forced_pass(engine: Any) -> None:
    (request,) = requests(1, 40)
    (done,) = engine.decode([request], keep_hidden=True)
    prompt = engine.checkpoint.encode(request.prompt)
    with torch.inference_mode():
        out = engine.checkpoint.model(input_ids=torch.tensor([prompt + done.token_ids]), output_hidden_states=True)
    start = len(prompt) - 1
    for i, token in enumerate(done.token_ids):
        logits = out.logits[0, start + i].double()
        logp = torch.log_softmax(logits, -1)
        first, second = logp.topk(2).values.tolist()
        assert done.entropies[i] == pytest.approx(entropy(logits.numpy()), abs=1e-4)
        assert done.logprobs[i] == pytest.approx(float(logp[token]), abs=1e-4)
        assert done.margins[i] == pytest.approx(first - second, abs=1e-3)
    hidden = out.hidden_states[-1][0]
    at = [hidden[start + 16 * k - 1] for k in (1, 2)]
    cosine = torch.nn.functional.cosine_similarity(at[0], at[1], dim=0)
    assert done.hidden_similarities == [pytest.approx(float(cosine), abs=1e-4)]
    assert done.hidden[0] == pytest.approx(at[0].numpy(), abs=1e-3)


def test_token_texts_join_to_the_decoded_text(engine: Any) -> None:
    for done in engine.decode(requests(4, 60)):
        assert done.text == engine.checkpoint.tokenizer.decode(done.token_ids)
        assert len(done.token_texts) == len(done.token_ids)


@pytest.mark.parametrize("batch_size", [1, 9])
def test_sampling_is_seeded_per_item_not_per_batch(engine: Any, batch_size: int) -> None:
    decoding = Decoding(temperature=0.8, seed=5)
    reference = ids(engine, requests(9, 48), decoding, batch_size=4)
    assert ids(engine, requests(9, 48), decoding, batch_size=batch_size) == reference
    assert ids(engine, requests(9, 48), Decoding(temperature=0.8, seed=6), batch_size=4) != reference


def test_sampling_follows_the_distribution() -> None:
    logits = torch.log(torch.tensor([0.5, 0.3, 0.15, 0.05]))
    uniform = (torch.arange(10_000, dtype=torch.float64) + 0.5) / 10_000
    drawn = choose(logits.expand(10_000, 4), Decoding(1.0), uniform)
    assert torch.bincount(drawn, minlength=4).tolist() == [5000, 3000, 1500, 500]
    cold = choose(logits.expand(10_000, 4), Decoding(0.5), uniform)
    share = torch.tensor([0.5, 0.3, 0.15, 0.05]) ** 2
    expected = (share / share.sum() * 10_000).tolist()
    assert torch.bincount(cold, minlength=4).tolist() == pytest.approx(expected, abs=2)


def test_signals_with_impossible_tokens_are_finite() -> None:
    logits = torch.tensor([[0.0, float("-inf"), 1.0]])
    assert torch.isfinite(token_signals(logits, torch.tensor([2]))).all()


def test_budgets_may_differ_within_a_batch(engine: Any) -> None:
    full = ids(engine, requests(6, 96), batch_size=6)
    mixed = [Request(r.id, r.prompt, to_the_end(10 + 13 * i)) for i, r in enumerate(requests(6, 96))]
    for done in engine.decode(mixed, batch_size=6):
        budget = 10 + 13 * int(done.id)
        assert done.token_ids == full[done.id][:budget]
        assert done.finish == ("budget" if len(done.token_ids) == budget else "eos")


@pytest.mark.parametrize("bits", [4, 8])
def test_bitsandbytes_really_loads(tiny: str, bits: int) -> None:
    checkpoint = load_checkpoint(tiny, bits=bits)
    layer = checkpoint.model.model.layers[0].mlp.up_proj
    assert type(layer).__name__ == {4: "Linear4bit", 8: "Linear8bitLt"}[bits]
    assert checkpoint.precision.body_bits == pytest.approx({4: 4.5, 8: 8.2}[bits], abs=0.2)
    assert checkpoint.precision.body_bits < checkpoint.precision.all_bits
    (done,) = TransformersEngine(checkpoint).decode(requests(1, 24))
    assert len(done.token_ids) > 0


@pytest.mark.parametrize("bits", [2, 3, 5, 6])
def test_torchao_really_rounds(tiny: str, bits: int) -> None:
    exact = load_checkpoint(tiny, bits=32).model.model.layers[0].mlp.up_proj.weight
    checkpoint = load_checkpoint(tiny, bits=bits)
    rounded = checkpoint.model.model.layers[0].mlp.up_proj.weight
    assert checkpoint.precision.scheme.startswith(f"torchao int{bits}")
    groups = rounded.reshape(rounded.shape[0], -1, 64)
    assert max(len(group.unique()) for group in groups[0]) <= 2**bits
    assert not torch.equal(exact, rounded)
    # N bits and, for 64 weights, a scale in the compute dtype and a zero point
    scale = 8 * getattr(torch, checkpoint.precision.compute_dtype).itemsize
    assert checkpoint.precision.body_bits == pytest.approx(bits + (scale + bits) / 64, abs=0.02)
    head = load_checkpoint(tiny, bits=32).model.lm_head.weight
    assert torch.equal(checkpoint.model.lm_head.weight, head.to(checkpoint.model.dtype))


def test_the_default_compute_dtype_can_be_set_from_outside(tiny: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("float32", "bfloat16"):
        monkeypatch.setenv("BITCAL_COMPUTE_DTYPE", name)
        assert load_checkpoint(tiny, bits=16).precision.compute_dtype == name
        assert load_checkpoint(tiny, bits=16, compute_dtype="float32").precision.compute_dtype == "float32"
        assert load_checkpoint(tiny, bits=32).precision.compute_dtype == "float32"
    monkeypatch.setenv("BITCAL_COMPUTE_DTYPE", "float8")
    with pytest.raises(EngineError, match="compute dtype must be float32, bfloat16 or float16, got 'float8'"):
        load_checkpoint(tiny, bits=16)


def test_sixteen_bits_are_bfloat16_values(tiny: str) -> None:
    weight = load_checkpoint(tiny, bits=16, compute_dtype="float32").model.model.layers[0].mlp.up_proj.weight
    assert weight.dtype == torch.float32
    assert torch.equal(weight, weight.bfloat16().float())
    checkpoint = load_checkpoint(tiny, bits=16, compute_dtype="float32")
    assert (checkpoint.precision.scheme, checkpoint.precision.body_bits) == ("bfloat16", 16.0)


def test_nothing_is_taken_from_the_checkpoints_generation_config(tiny: str, engine: Any, tmp_path: Path) -> None:
    folder = copy_model(tiny, tmp_path / "penalised")
    config = json.loads((folder / "generation_config.json").read_text())
    config.update(repetition_penalty=5.0, do_sample=True, temperature=2.0)
    (folder / "generation_config.json").write_text(json.dumps(config))
    penalised = TransformersEngine(load_checkpoint(str(folder), bits=32))
    assert ids(penalised, requests(3, 48)) == ids(engine, requests(3, 48))


def test_nan_logits_name_the_item(tiny: str, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = copy_model(tiny, tmp_path / "broken")
    (path,) = folder.glob("*.safetensors")
    weights = load_file(path)
    weights["model.norm.weight"][:] = float("nan")
    save_file(weights, path, metadata={"format": "pt"})
    with pytest.raises(EngineError, match=r"NaN logits for item '0' at token 1"):
        list(TransformersEngine(load_checkpoint(str(folder), bits=32)).decode(requests(1, 8)))


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("/nowhere/at/all", "there is no model folder /nowhere/at/all"),
        ("./missing", "there is no model folder ./missing"),
        (".", "no config.json"),
    ],
)
def test_a_missing_model_is_named(source: str, message: str) -> None:
    with pytest.raises(EngineError, match=message):
        load_checkpoint(source)


def test_unsupported_bits_are_named(tiny: str) -> None:
    with pytest.raises(EngineError, match="bits must be one of 2, 3, 4, 5, 6, 8, 16, 32, got 7"):
        load_checkpoint(tiny, bits=7)


def test_truncated_weights_are_an_error_in_one_line(tiny: str, tmp_path: Path) -> None:
    folder = copy_model(tiny, tmp_path / "cut")
    (path,) = folder.glob("*.safetensors")
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(EngineError, match="cannot load .*cut at 16 bits"):
        load_checkpoint(str(folder))


def copy_model(source: str, target: Path) -> Path:
    target.mkdir()
    for path in Path(source).iterdir():
        (target / path.name).write_bytes(path.read_bytes())
    return target


@pytest.mark.parametrize("family", ["qwen2", "mistral"])
def test_layers_with_a_sliding_window_read_the_same_cache(tiny: str, tmp_path: Path, family: str) -> None:
    """A mix of full and sliding layers gives the tokens of `generate`, past the window and with padded rows."""
    from transformers import AutoTokenizer, MistralConfig, MistralForCausalLM, Qwen2Config, Qwen2ForCausalLM

    folder = tmp_path / "sliding"
    AutoTokenizer.from_pretrained(tiny).save_pretrained(folder)
    torch.manual_seed(1)
    shape: dict[str, Any] = {
        "vocab_size": 2048, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "sliding_window": 24, "eos_token_id": None,
        "bos_token_id": None, "pad_token_id": 0,
    }  # fmt: skip
    if family == "qwen2":  # some layers slide
        types = ["full_attention", "sliding_attention"]
        config = Qwen2Config(**shape, use_sliding_window=True, max_window_layers=0, layer_types=types)
        Qwen2ForCausalLM(config).save_pretrained(folder)
    else:  # all layers do, and the config types none
        MistralForCausalLM(MistralConfig(**shape, head_dim=16)).save_pretrained(folder)
    engine = TransformersEngine(load_checkpoint(str(folder), bits=32))
    assert engine.checkpoint.sliding_window == 24
    found = ids(engine, requests(5, 40), batch_size=3)
    plain = load_checkpoint(str(folder), bits=32)
    for request in requests(5, 40):
        prompt = torch.tensor([plain.encode(request.prompt)])
        out = plain.model.generate(
            input_ids=prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=40, do_sample=False
        )
        wanted = out[0, prompt.shape[1] :].tolist()  # `generate` was told of no end
        ends = [i for i, token in enumerate(wanted) if token in plain.eos_token_ids]
        assert found[request.id] == wanted[: ends[0] if ends else None]


def test_layers_whose_state_cannot_leave_a_batch_are_refused(tiny: str, tmp_path: Path) -> None:
    folder = copy_model(tiny, tmp_path / "linear")
    config = json.loads((folder / "config.json").read_text())
    config["layer_types"] = ["linear_attention"] * config["num_hidden_layers"]
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(EngineError, match=r"layers of type linear_attention.*use BitCal"):
        load_checkpoint(str(folder), bits=32)
