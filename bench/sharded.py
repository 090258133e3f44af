"""Measures a send of a model that FSDP2 shards over two processes, beside the gather that it replaces, alternating both.

    python bench/sharded.py [MIB]     needs bascule and torch, as scripts/test-python --torch installs them

The model has MIB mebibytes (default 256) of random float32 weights in 64 equal tensors. Its processes talk over gloo and have
one thread each. The gather: full_tensor() of each parameter on both ranks, which rank 0 streams into its own sender. A round
lasts from a barrier until both ranks have returned. Both senders publish over shm, and no engine is connected: what an engine
does with a version is the same in both ways.

Memory is rank 0's: by how much the highest VmHWM of its calls exceeds its resident memory before them. The first calls touch
the slots, so they show their memory as well; the calls of the measured rounds only show what they allocate.
"""

import multiprocessing
import re
import statistics
import sys
import tempfile
import time

ROUNDS, FIRST, TENSORS, RANKS = 21, 4, 64, 2


def mebibytes(field):
    with open("/proc/self/status") as status:
        return int(re.search(rf"{field}:\s+(\d+)", status.read()).group(1)) / 1024


def rise_of_peak(call):
    """By how many MiB the peak of this process's resident memory rises above what is resident before the call."""
    with open("/proc/self/clear_refs", "w") as resets:
        resets.write("5")  # VmHWM starts again at VmRSS
    before = mebibytes("VmRSS")
    call()
    return mebibytes("VmHWM") - before


def in_turns(calls, barrier):
    """By call: the seconds of ROUNDS alternating rounds, the rise of the peak in the first calls, and in each round."""
    measured = {}
    for what, call in calls.items():
        barrier()
        measured[what] = ([], rise_of_peak(lambda call=call: [call() for _ in range(FIRST)]), [])
    for _ in range(ROUNDS):
        for what, call in calls.items():
            def timed(call=call, seconds=measured[what][0]):
                barrier()
                begun = time.perf_counter()
                call()
                barrier()
                seconds.append(time.perf_counter() - begun)

            measured[what][2].append(rise_of_peak(timed))
    return measured


def run_rank(rank, mib, folder, report):
    import torch
    from torch import distributed
    from torch.distributed.fsdp import fully_shard

    import bascule

    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=RANKS)
    torch.manual_seed(1)
    model = torch.nn.ParameterDict({f"w{i}": torch.randn(mib * 4, 1024) for i in range(TENSORS)})
    fully_shard(model, mesh=distributed.init_device_mesh("cpu", (RANKS,)))

    with bascule.Sender(f"shm://{folder}/sharded", sharded=True, threads=1, expect_workers=0) as sharded, \
            bascule.Sender(f"shm://{folder}/gathered-{rank}", threads=1, expect_workers=0) as gathered:  # rank 0 uses its own
        sharded.register_model(model)
        gathered.register_model([bascule.TensorSpec(name, p.dtype, p.shape) for name, p in model.named_parameters()])
        steps = iter(range(FIRST + ROUNDS))

        def send():
            sharded.send(step=next(steps))

        def gather():
            tensors = ((name, parameter.full_tensor()) for name, parameter in model.named_parameters())
            if rank == 0:
                gathered.stream(tensors)
            else:
                for _ in tensors:
                    pass

        measured = in_turns({"send() of shards": send, "full_tensor() and stream()": gather}, distributed.barrier)
        if rank == 0:
            report.send(measured)
        distributed.barrier()
    distributed.destroy_process_group()


def main():
    mib = int(sys.argv[1]) if len(sys.argv) > 1 else 256
    spawn = multiprocessing.get_context("spawn")
    receive, report = spawn.Pipe(duplex=False)
    with tempfile.TemporaryDirectory() as folder:
        ranks = [spawn.Process(target=run_rank, args=(rank, mib, folder, report), daemon=True) for rank in range(RANKS)]
        for process in ranks:
            process.start()
        report.close()
        measured = receive.recv()  # EOFError: a rank has failed, and said why
        for process in ranks:
            process.join()
    print(f"{mib} MiB in {TENSORS} tensors, {RANKS} ranks, {ROUNDS} rounds")
    medians = []
    for what, (seconds, first, later) in measured.items():
        medians.append(statistics.median(seconds))
        print(f"{what}: {1e3 * medians[-1]:.1f} ms, lowest {1e3 * min(seconds):.1f} ms, highest {1e3 * max(seconds):.1f} ms; "
              f"peak of rank 0: +{first:.0f} MiB in the first calls, +{max(later):.1f} MiB at most in a later one")
    print(f"send() over the gather: {medians[0] / medians[1]:.2f}, so {medians[1] / medians[0]:.1f} times as fast")


if __name__ == "__main__":
    main()
