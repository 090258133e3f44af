#!/usr/bin/env python3
"""The numbers of loss_test.cpp and advantage_test.cpp, worked out token by token in plain Python.

Nothing is shared with the C++: no tensors, no reductions, and the gradients are written down by hand. Run it, and
compare with the constants in the tests.
"""
import math

LOG_PROBS = [[-0.8, -2.0, -0.5], [-0.7, -1.9]]  # the second completion has two tokens
OLD = [[-1.2, -1.6, -0.5], [-1.1, -1.4]]
BEHAVIOUR = [[-1.2, -2.5, -0.7], [-1.0, -1.4]]
REFERENCE = [[-1.1, -1.9, -0.9], [-0.6, -1.5]]
ADVANTAGES = [1.5, -0.5]
EPSILON_LOW, EPSILON_HIGH, BETA, IMPORTANCE_CAP = 0.2, 0.28, 0.04, 2.0
COMPLETIONS, TOKENS, MICRO_BATCHES, MAX_TOKENS = 4, 11, 2, 3  # of the step that this micro-batch belongs to


def token(i, t):
    """(loss, divergence, clipped, d loss / d log_prob) of one token"""
    new, old, a = LOG_PROBS[i][t], OLD[i][t], ADVANTAGES[i]
    ratio = math.exp(new - old)
    weight = min(math.exp(old - BEHAVIOUR[i][t]), IMPORTANCE_CAP)
    clipped = ratio > 1 + EPSILON_HIGH if a > 0 else ratio < 1 - EPSILON_LOW
    bound = 1 + EPSILON_HIGH if a > 0 else 1 - EPSILON_LOW
    objective = (bound if clipped else ratio) * a
    slope = 0 if clipped else ratio * a
    d = REFERENCE[i][t] - new
    divergence = math.exp(d) - d - 1
    return -weight * objective + BETA * divergence, divergence, clipped, -weight * slope + BETA * (1 - math.exp(d))


def main():
    tokens = [[token(i, t) for t in range(len(LOG_PROBS[i]))] for i in range(2)]
    flat = [values for row in tokens for values in row]
    total = sum(values[0] for values in flat)
    print("grpo   ", sum(sum(values[0] for values in row) / len(row) for row in tokens) / COMPLETIONS)
    print("bnpo   ", total / len(flat) / MICRO_BATCHES)
    print("dr_grpo", total / (COMPLETIONS * MAX_TOKENS))
    print("dapo   ", total / TOKENS)
    print("kl sum ", sum(values[1] for values in flat), " clipped", sum(values[2] for values in flat))
    print("gradient of dapo:", [values[3] / TOKENS for values in flat])
    print("gradient of grpo:", [values[3] / len(row) / COMPLETIONS for row in tokens for values in row])

    rewards = [1, 0, 0, 1, 0, 0.5]
    mean = sum(rewards) / len(rewards)
    deviation = math.sqrt(sum((r - mean) ** 2 for r in rewards) / (len(rewards) - 1))
    print("advantages", [(r - mean) / (deviation + 1e-4) for r in rewards])
    print("unscaled  ", [r - mean for r in rewards])


if __name__ == "__main__":
    main()
