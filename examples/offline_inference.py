"""Generate from a few prompts.

    python examples/offline_inference.py [MODEL]

MODEL is a checkpoint directory, a hub id, "tiny" or "kernel"; by default DEEPINFER_HF_MODEL_DIR, or "tiny", a small
checkpoint with random weights that is made on first use.
"""

import sys

from deepinfer import LLM, SamplingParams

PROMPTS = [
    "Once upon a time, a fox and a hare",
    "The clock in the hall",
    "In the morning the sea was",
    "She counted to ten and",
]


def main() -> None:
    params = SamplingParams(temperature=0.8, top_p=0.95, max_tokens=16, seq_seed=7)
    with LLM(sys.argv[1] if len(sys.argv) > 1 else None) as llm:
        for prompt, text in zip(PROMPTS, llm.generate(PROMPTS, params)):
            print(f"Prompt: {prompt!r}, generated text: {text!r}")


if __name__ == "__main__":
    main()
