"""Measures verl's update with the checkpoint engine "bascule" beside the simplest one for two groups, alternating both.

    python bench/verl_update.py [MIB]      needs bascule and verl, as scripts/test-python --clients installs them

The simplest engine puts the actor's tensors, pickled, into Ray's object store; each rollout gets them from there. The model
has MIB mebibytes (default 512) in 32-bit floats. Each way has its own actor, verl's FSDP2 engine on a CPU, and a rollout,
which copies the tensors into its own. An update lasts until verl's manager returns: all rollouts then have the weights.
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path

ROUNDS, FIRST = 11, 2
sys.path[:0] = [str(Path(__file__).parents[1] / "python/tests/clients"), str(Path(__file__).parent)]


def main():
    mib = int(sys.argv[1]) if len(sys.argv) > 1 else 512
    import ray
    import tiny
    import verl_workers

    verl_workers.start_ray(Path(__file__).parent, object_store_memory=4 * mib << 20)
    with tempfile.TemporaryDirectory() as folder:
        layers = mib // 32  # of 8 million weights
        tiny.save(folder, hidden_size=1024, intermediate_size=1365, num_hidden_layers=layers, num_attention_heads=16,
                  num_key_value_heads=16)
        for ranks in (1, 2):
            runs = {"object store": verl_workers.Run(folder, ranks, 1, backend="store", module="verl_store", keeps=False),
                    "bascule": verl_workers.Run(folder, ranks, 1, keeps=False)}
            if ranks > 1:
                runs["bascule, sharded"] = verl_workers.Run(folder, ranks, 1, keeps=False, sharded=True)
            seconds = {way: [] for way in runs}
            for round_ in range(FIRST + ROUNDS):
                for way, run in runs.items():
                    begun = time.perf_counter()
                    run.manager.update_weights(global_steps=round_)
                    if round_ >= FIRST:
                        seconds[way].append(time.perf_counter() - begun)
            print(f"actor of {ranks} {'ranks' if ranks > 1 else 'rank'}, {mib} MiB, medians of {ROUNDS} alternating rounds")
            first = statistics.median(seconds["object store"])
            for way, found in seconds.items():
                middle = statistics.median(found)
                print(f"{way:18} {1e3 * middle:8.1f} ms, lowest {1e3 * min(found):.1f} ms, {first / middle:.2f} times as fast",
                      flush=True)
            for run in runs.values():
                run.end()
    ray.shutdown()


if __name__ == "__main__":
    main()
