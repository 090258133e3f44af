"""How long vLLM loads a version by Bascule, over how long it loads the same tensors from its own process's memory.

    python python/tests/clients/measure_load.py [rounds]    # a model of 0.5 GB on the CPU; medians, and their ratio
"""

import os
import statistics
import sys
import tempfile
import time

os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"


def own_load(worker, tensors):
    """As vLLM's own backends do it once the tensors have come."""
    from vllm.config import set_current_vllm_config
    from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload

    model = worker.model_runner.get_model()
    with set_current_vllm_config(worker.vllm_config):
        initialize_layerwise_reload(model)
        model.load_weights(iter(tensors))
        finalize_layerwise_reload(model, worker.model_runner.model_config)


def main():
    import tiny
    from vllm import LLM

    import bascule

    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 11
    with tempfile.TemporaryDirectory() as folder:
        model = tiny.save(folder, hidden_size=1024, intermediate_size=4096, num_hidden_layers=8,
                          num_attention_heads=16, num_key_value_heads=4)
        llm = LLM(folder, weight_transfer_config={"backend": "bascule"}, enforce_eager=True, max_model_len=64,
                  dtype="float32", max_num_seqs=4, kv_cache_memory_bytes=1 << 26)
        tensors = [(name, each.detach().clone()) for name, each in model.named_parameters()]
        endpoint = f"shm://{folder}/endpoint"
        llm.init_weight_transfer_engine({"init_info": {"endpoint": endpoint}})
        own, ours = [], []
        with bascule.Sender(endpoint) as sender:
            sender.register_model(dict(tensors))
            sender.wait_for_workers(1)
            for _ in range(rounds):
                time.sleep(1)  # as below
                begin = time.perf_counter()
                llm.collective_rpc(own_load, args=(tensors,))
                own.append(time.perf_counter() - begin)
                sender.send_async()
                time.sleep(1)  # the version is ready
                begin = time.perf_counter()
                llm.start_weight_update()
                llm.update_weights({"update_info": {}})
                llm.finish_weight_update()
                ours.append(time.perf_counter() - begin)
                report = sender.wait_async()
                assert report.complete
        print(f"{report.bytes / 1e9:.3f} GB, {len(tensors)} tensors, medians of {rounds}: vLLM's own load "
              f"{1e3 * statistics.median(own):.0f} ms, by Bascule {1e3 * statistics.median(ours):.0f} ms, ratio "
              f"{statistics.median(ours) / statistics.median(own):.3f}")


if __name__ == "__main__":
    main()
