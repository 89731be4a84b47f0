"""How families of models mark their thinking."""

HARMONY = ("<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>")  # gpt-oss
FAMILIES = (
    ("<think>", "</think>"),  # Qwen3, DeepSeek-R1, SmolLM3 and most others
    HARMONY,
    ("[THINK]", "[/THINK]"),  # Magistral
    ("<|channel>thought\n", "<channel|>"),  # Gemma 4
    ("<|START_THINKING|>", "<|END_THINKING|>"),  # Command A
    ("<seed:think>", "</seed:think>"),
    ("◁think▷", "◁/think▷"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("<thinking>", "</thinking>"),
    ("<reasoning>", "</reasoning>"),
)
"""What begins the thinking, and what ends it."""
