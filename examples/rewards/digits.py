#!/usr/bin/env python3
"""A reward for bascule-train: the share of the answer's digits that are in their place, minus a penalty for length.

    bascule-train … --reward exec:examples/rewards/digits.py
    bascule-train … --reward exact_match,exec:examples/rewards/digits.py=0.5

The trainer starts the program once, writes a line of JSON per batch to its stdin, and reads a line per batch from its
stdout. Print messages for people to stderr. To make your own reward, change score().
"""

import json
import sys

PER_CHARACTER = 0.1  # what each character beyond the answer's length costs


def score(prompt, completion, answer, **others):
    """A number, or None if this reward does not apply. `others`: finish_reason, completion_tokens, columns, …"""
    completion, answer = completion.strip(), answer.strip()
    if not answer.isdigit():
        return None
    right = sum(a == b for a, b in zip(completion, answer)) / len(answer)
    return right - PER_CHARACTER * max(0, len(completion) - len(answer))


def main():
    for line in sys.stdin:  # ends when the trainer does
        batch = json.loads(line)
        rewards = [score(**completion) for completion in batch["completions"]]
        print(json.dumps({"id": batch["id"], "rewards": rewards}), flush=True)


if __name__ == "__main__":
    main()
