"""GGUF files: a Llama checkpoint written as one, at any of llama.cpp's precisions, and the bits that one really has."""

from __future__ import annotations

import ctypes
import hashlib
import json
from collections.abc import Iterator
from functools import cache, lru_cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bitcal_tts.engines.base import EngineError
from bitcal_tts.files import write_atomically
from bitcal_tts.installing import install_command

TYPES = ("F16", "Q8_0", "Q6_K", "Q5_K", "Q5_0", "Q4_K", "Q4_0", "Q3_K", "Q2_K")
"""What can be written, finest first."""
_BY_GGUF = ("F16", "Q8_0", "Q5_0", "Q4_0")  # the gguf package writes these itself
_K_BLOCK = 256
_TOP = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}
_TOP["lm_head.weight"] = "output.weight"
_LAYER = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_PRE_TOKENIZER = "smollm"  # digits one by one, then bytes: what llama.cpp calls it


class GgufBits(NamedTuple):
    """What precision the weights of a GGUF file have.

    Attributes:
        bits: Nominal, of the commonest type of the layers' matrices.
        scheme: That type's name.
        body: Bits a weight of those matrices, scales included.
        everything: Bits a weight of all tensors.
        parameters: How many weights there are.
    """

    bits: float
    scheme: str
    body: float
    everything: float
    parameters: int


def export_gguf(source: str, kind: str, out: Path) -> GgufBits:
    """Write a Llama checkpoint as a GGUF file that llama.cpp runs; the precision that it came to have.

    Args:
        source: A folder with config.json, safetensors and tokenizer.json.
        kind: One of `TYPES`; the embeddings, which are the output layer as well, stay F16.
        out: The file.
    """
    if kind not in TYPES:
        raise EngineError(f"a GGUF can be written as {', '.join(TYPES)}, not {kind!r}")
    folder = Path(source)
    config = _read_json(folder / "config.json")
    if config.get("model_type") != "llama" or config.get("attention_bias") or config.get("mlp_bias"):
        raise EngineError(
            f"{source} is a {config.get('model_type')} model: only Llama checkpoints without biases are written here; "
            "use llama.cpp's convert_hf_to_gguf.py"
        )
    tensors = sorted(_tensors(folder, config), key=lambda tensor: tensor[0])  # the same bytes every time
    _check_rows(source, tensors, kind)

    def write(temporary: Path) -> None:
        import gguf

        writer = gguf.GGUFWriter(temporary, "llama")
        _add_shape(writer, config, folder.name)
        _add_tokenizer(writer, config, folder)
        for name, values in tensors:
            if values.ndim == 1:
                writer.add_tensor(name, values.astype(np.float32))
                continue
            own = kind if name.startswith("blk.") else "F16"
            type_ = getattr(gguf.GGMLQuantizationType, own)
            packed = gguf.quants.quantize(values, type_) if own in _BY_GGUF else _quantize(values, type_)
            writer.add_tensor(name, packed, raw_dtype=type_)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()

    write_atomically(out, write)
    return gguf_bits(out)


def gguf_bits(path: Path) -> GgufBits:
    """The precision of a GGUF file, read from the types of its tensors; what it is called does not count."""
    import gguf

    try:
        tensors = gguf.GGUFReader(path).tensors
    except (OSError, ValueError, KeyError) as error:
        raise EngineError(f"{path} is not a GGUF file: {error}") from None
    body = [t for t in tensors if t.name.startswith("blk.") and len(t.shape) == 2]
    if not body:
        raise EngineError(f"{path} has no layers")
    elements: dict[str, int] = {}
    for tensor in body:
        elements[tensor.tensor_type.name] = elements.get(tensor.tensor_type.name, 0) + int(tensor.n_elements)
    scheme = max(elements, key=lambda name: elements[name])
    return GgufBits(
        bits=_nominal(scheme),
        scheme=f"GGUF {scheme}",
        body=_bits_of(body),
        everything=_bits_of(tensors),
        parameters=sum(int(tensor.n_elements) for tensor in tensors),
    )


def gguf_facts(path: Path) -> dict[str, Any]:
    """What an engine that runs a GGUF file says of it; read anew where the file has changed."""
    told = path.stat()
    return _gguf_facts(path, told.st_mtime_ns, told.st_size)


@lru_cache(maxsize=8)
def _gguf_facts(path: Path, _changed: int, _size: int) -> dict[str, Any]:
    read = gguf_bits(path)
    return {
        "model_sha256": file_sha256(path),
        "bits": read.bits,
        "scheme": read.scheme,
        "body_bits_per_weight": round(read.body, 4),
        "all_bits_per_weight": round(read.everything, 4),
        "parameters": read.parameters,
    }


def file_sha256(path: Path) -> str:
    """Of a file's content."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def _nominal(scheme: str) -> float:
    """Bits in the name of a type: Q4_K has 4, IQ2_XS 2, F16 16."""
    return float("".join(char for char in scheme.partition("_")[0] if char.isdigit()))


def _bits_of(tensors: Any) -> float:
    return 8 * sum(int(t.n_bytes) for t in tensors) / sum(int(t.n_elements) for t in tensors)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        loaded: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise EngineError(f"cannot read {path}: {error}") from None
    return loaded


def _add_shape(writer: Any, config: dict[str, Any], name: str) -> None:
    heads = config["num_attention_heads"]
    writer.add_name(name)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(config.get("num_key_value_heads", heads))
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_dimension_count(config.get("head_dim") or config["hidden_size"] // heads)
    rope = config.get("rope_parameters") or {"rope_theta": config.get("rope_theta", 10000.0)}
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_vocab_size(config["vocab_size"])


def _add_tokenizer(writer: Any, config: dict[str, Any], folder: Path) -> None:
    import gguf

    tokenizer = _read_json(folder / "tokenizer.json")
    steps = tokenizer.get("pre_tokenizer") or {}
    kinds = [step["type"] for step in steps.get("pretokenizers", [steps])]
    if tokenizer["model"]["type"] != "BPE" or kinds != ["Digits", "ByteLevel"]:
        raise EngineError(f"{folder} splits text by {', '.join(map(str, kinds))}: only digits and bytes are known here")
    size = config["vocab_size"]
    texts = [f"[PAD{i}]" for i in range(size)]
    types = [gguf.TokenType.UNUSED] * size
    for text, i in tokenizer["model"]["vocab"].items():
        texts[i], types[i] = text, gguf.TokenType.NORMAL
    for added in tokenizer["added_tokens"]:
        texts[added["id"]] = added["content"]
        types[added["id"]] = gguf.TokenType.CONTROL if added["special"] else gguf.TokenType.USER_DEFINED
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(_PRE_TOKENIZER)
    writer.add_token_list(texts)
    writer.add_token_types(types)
    merges = tokenizer["model"]["merges"]
    writer.add_token_merges([" ".join(merge) if isinstance(merge, list) else merge for merge in merges])
    writer.add_eos_token_id(config["eos_token_id"])
    writer.add_pad_token_id(config.get("pad_token_id") or 0)
    writer.add_add_bos_token(False)
    template = folder / "chat_template.jinja"
    if template.is_file():
        writer.add_chat_template(template.read_text(encoding="utf-8"))


def _tensors(folder: Path, config: dict[str, Any]) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """The weights under llama.cpp's names; queries and keys in its order of the rotary halves."""
    safetensors: Any = import_module("safetensors")
    heads = config["num_attention_heads"]
    halves = {"q_proj": heads, "k_proj": config.get("num_key_value_heads", heads)}
    for path in sorted(folder.glob("*.safetensors")):
        for name, tensor in safetensors.deserialize(path.read_bytes()):
            values = _floats(tensor, name)
            if name in _TOP:
                yield _TOP[name], values
                continue
            layer, _, rest = name.removeprefix("model.layers.").partition(".")
            module = rest.removesuffix(".weight")
            for part, count in halves.items():
                if module.endswith(part):
                    values = _permuted(values, count)
            yield f"blk.{layer}.{_LAYER[module]}.weight", values


def _floats(tensor: dict[str, Any], name: str) -> NDArray[np.float32]:
    """Numpy has no bfloat16: it is the upper half of a float32."""
    data, kind = tensor["data"], tensor["dtype"]
    values: NDArray[np.float32]
    if kind == "BF16":
        values = (np.frombuffer(data, dtype=np.uint16).astype(np.uint32) << 16).view(np.float32)
    elif kind in ("F32", "F16"):
        values = np.frombuffer(data, dtype={"F32": np.float32, "F16": np.float16}[kind]).astype(np.float32)
    else:
        raise EngineError(f"{name} is stored as {kind}: only floating-point checkpoints can be written as GGUF")
    shaped: NDArray[np.float32] = values.reshape(tensor["shape"])
    return shaped


def _permuted(values: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    split = values.reshape(heads, 2, values.shape[0] // heads // 2, *values.shape[1:])
    permuted: NDArray[np.float32] = split.swapaxes(1, 2).reshape(values.shape)
    return permuted


def _check_rows(source: str, tensors: list[tuple[str, NDArray[np.float32]]], kind: str) -> None:
    if not kind.endswith("_K"):
        return
    odd = next((v.shape[1] for name, v in tensors if name.startswith("blk.") and v.ndim == 2 and v.shape[1] % 256), 0)
    if odd:
        raise EngineError(
            f"{kind} packs weights in blocks of {_K_BLOCK}, and {source} has rows of {odd}: choose "
            f"{', '.join(_BY_GGUF)}, or a larger model"
        )


def _quantize(values: NDArray[np.float32], type_: Any) -> NDArray[np.uint8]:
    """By llama.cpp's own quantizer, out of the xllamacpp wheel."""
    library = _llama_library()
    rows, width = values.shape
    values = np.ascontiguousarray(values, dtype=np.float32)
    packed = np.zeros((rows, library.ggml_row_size(int(type_), width)), dtype=np.uint8)
    written = library.ggml_quantize_chunk(int(type_), values.ctypes.data, packed.ctypes.data, 0, rows, width, None)
    if written != packed.nbytes:
        raise EngineError(f"llama.cpp wrote {written} bytes where {packed.nbytes} were expected")
    return packed


@cache
def _llama_library() -> Any:
    found = find_spec("xllamacpp")
    if found is None or not found.submodule_search_locations:
        raise EngineError(f"K-quants are made by llama.cpp's own quantizer: {install_command('llamacpp')}")
    import_module("xllamacpp")  # loads what its library needs
    library = ctypes.CDLL(str(next(Path(found.submodule_search_locations[0]).glob("xllamacpp*.so"))))
    library.ggml_quantize_chunk.restype = ctypes.c_size_t
    library.ggml_quantize_chunk.argtypes = [
        ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p,
    ]  # fmt: skip
    library.ggml_row_size.restype = ctypes.c_size_t
    library.ggml_row_size.argtypes = [ctypes.c_int, ctypes.c_int64]
    return library
