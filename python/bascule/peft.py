"""LoRA adapters of PEFT: what a sender would send of a model, for tools and tests. Needs torch and peft."""

from __future__ import annotations

from .lora import adapter_of, merged_of

__all__ = ["adapter_of", "merged_of"]
