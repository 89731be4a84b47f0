"""GGUF files of the models in the box: a ladder of packed precisions, read from the tensors."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from bitcal_tts.cli import main
from bitcal_tts.engines.base import EngineError
from bitcal_tts.engines.gguf import TYPES, _permuted, export_gguf, gguf_bits
from bitcal_tts.tiny import models

gguf = pytest.importorskip("gguf")


@pytest.mark.parametrize(
    ("kind", "bits", "body", "error"),
    [
        ("F16", 16, 16.0, 1e-3), ("Q8_0", 8, 8.5, 0.01), ("Q6_K", 6, 6.5625, 0.03), ("Q5_0", 5, 5.5, 0.06),
        ("Q4_K", 4, 4.5, 0.11), ("Q4_0", 4, 4.5, 0.12), ("Q3_K", 3, 3.4375, 0.2), ("Q2_K", 2, 2.625, 0.4),
    ],
)  # fmt: skip
def test_the_ladder(kind: str, bits: float, body: float, error: float, tmp_path: Path) -> None:
    if kind.endswith("_K"):
        pytest.importorskip("xllamacpp")
    path = tmp_path / "model.gguf"
    written = export_gguf(models.resolve("tiny-4m"), kind, path)
    assert (written.bits, written.scheme) == (bits, f"GGUF {kind}")
    assert written.body == pytest.approx(body)
    assert written.everything > written.body or kind == "F16"
    assert written == gguf_bits(path)
    exact = tmp_path / "exact.gguf"
    export_gguf(models.resolve("tiny-4m"), "F16", exact)
    worst = 0.0
    for one, other in zip(gguf.GGUFReader(path).tensors, gguf.GGUFReader(exact).tensors, strict=True):
        assert one.name == other.name
        x = np.array(other.data, dtype=np.float32).ravel()
        y = gguf.quants.dequantize(one.data, one.tensor_type).ravel()
        worst = max(worst, float(np.sqrt(((x - y) ** 2).mean() / (x**2).mean())))
    assert worst < error
    assert worst > error / 20 or kind == "F16"


def test_queries_and_keys_are_in_the_order_of_llama_cpp() -> None:
    """Transformers rotates halves of a head, llama.cpp neighbours."""
    rows = np.arange(8, dtype=np.float32)[:, None]
    assert _permuted(rows, 2)[:, 0].tolist() == [0, 2, 1, 3, 4, 6, 5, 7]


def test_what_cannot_be_written_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "x.gguf"
    with pytest.raises(EngineError, match="packs weights in blocks of 256, and .* has rows of 128"):
        export_gguf(models.resolve("tiny-1m"), "Q4_K", out)
    with pytest.raises(EngineError, match="can be written as F16"):
        export_gguf(models.resolve("tiny-1m"), "Q1", out)
    (tmp_path / "other").mkdir()
    (tmp_path / "other/config.json").write_text(json.dumps({"model_type": "qwen2"}))
    with pytest.raises(EngineError, match=r"is a qwen2 model: .* use llama.cpp's convert_hf_to_gguf.py"):
        export_gguf(str(tmp_path / "other"), "F16", out)
    assert main(["export", "tiny-1m", "--gguf", "F16", "--out", "no/where.gguf"]) == 2
    assert "there is no folder no" in capsys.readouterr().err
    assert not list(tmp_path.glob("*.gguf*"))
    (tmp_path / "not.gguf").write_bytes(b"GGUF" + b"\0" * 4)
    with pytest.raises(EngineError, match="is not a GGUF file"):
        gguf_bits(tmp_path / "not.gguf")


def test_bits_are_of_the_tensors_not_of_the_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "model-Q2_K.gguf"
    assert main(["export", "tiny-1m", "--gguf", "Q8_0", "--out", str(out), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["bits"] == 8
    assert told["bytes"] == out.stat().st_size
    again = tmp_path / "again.gguf"
    assert main(["export", "tiny-1m", "--gguf", "Q8_0", "--out", str(again)]) == 0
    assert again.read_bytes() == out.read_bytes()  # a hash of it names the model
    assert set(TYPES) >= {"F16", "Q8_0", "Q5_0", "Q4_0", "Q6_K", "Q4_K", "Q3_K", "Q2_K"}
