"""Kinds of engines that vLLM has: replicas, adapters enabled, quantised models, mixtures of experts."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import tiny
import torch
from safetensors.torch import save_file

import bascule

PATIENCE = 600  # seconds, longer than anything healthy takes
BACKEND = {"backend": "bascule"}


def test_each_replica_of_a_dense_model_follows_under_its_own_name(serve, model, endpoint):
    server = serve({"BASCULE_ENDPOINT": endpoint, "BASCULE_WORKER": "engine"}, "--data-parallel-size", "2",
                   "--api-server-count", "1")
    with bascule.Sender(endpoint) as sender:
        sender.register_model(model)
        assert sorted(sender.wait_for_workers(2, PATIENCE)) == ["engine-dp0", "engine-dp1"]
        server.wait_until_up(PATIENCE)
        for version in (1, 2):
            tiny.train(model, version)
            report = sender.send()
            assert report.complete and len(report.workers) == 2
            expected = tiny.greedy(model)
            with ThreadPoolExecutor(8) as clients:  # enough that each replica answers some
                answers = list(clients.map(lambda _: server.generate(), range(16)))
            assert answers == [(200, expected)] * len(answers)


def test_an_engine_with_adapters_enabled_follows(start_engine, checkpoint, model, endpoint):
    engine = start_engine({"BASCULE_ENDPOINT": endpoint}, model=checkpoint, weight_transfer_config=BACKEND,
                          enable_lora=True, max_lora_rank=8).started()
    with bascule.Sender(endpoint) as sender:
        sender.register_model(model)
        sender.wait_for_workers(1, PATIENCE)
        for version in (1, 2, 3):
            tiny.train(model, version)
            assert sender.send().complete
            assert engine.generate() == tiny.greedy(model)
        wrong = dict(model.named_parameters())
        del wrong["model.layers.0.mlp.down_proj.weight"]
    with bascule.Sender(endpoint) as sender:
        sender.register_model(wrong)
        sender.wait_for_workers(1, PATIENCE)
        assert "model.layers.0.mlp.down_proj.weight" in str(sender.send().workers[0].error)
    engine.kill()


def quantised(model, folder):
    """Writes the model into `folder` with its linear layers in int8, as compressed-tensors does."""
    tiny.save(folder, tie_word_embeddings=False)
    tensors = {}
    for name, tensor in model.state_dict().items():
        tensors[name] = tensor.clone()
        if name.endswith("_proj.weight"):
            scale = tensor.abs().amax(dim=1, keepdim=True) / 127
            tensors[name] = (tensor / scale).round().to(torch.int8)
            tensors[name + "_scale"] = scale
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    integers = {"num_bits": 8, "type": "int", "symmetric": True}
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {
        "quant_method": "compressed-tensors", "format": "int-quantized", "ignore": ["lm_head"], "config_groups": {
            "group_0": {"targets": ["Linear"], "weights": {**integers, "strategy": "channel", "dynamic": False},
                        "input_activations": {**integers, "strategy": "token", "dynamic": True}}}}
    (folder / "config.json").write_text(json.dumps(config))


def test_a_version_for_a_quantised_model_needs_all_tensors_of_its_checkpoint(start_engine, tmp_path, endpoint):
    quantised(tiny.save(tmp_path / "plain", tie_word_embeddings=False), tmp_path / "int8")
    engine = start_engine({"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}, model=str(tmp_path / "int8"),
                          weight_transfer_config=BACKEND).started()
    assert "quantised (compressed-tensors)" in engine.ask("join", endpoint=endpoint)["error"]  # since this is a CPU
    left_out = "model.layers.1.mlp.down_proj.weight"
    assert left_out in engine.ask("load_all_but", folder=str(tmp_path / "int8"), name=left_out)["error"]
    assert engine.ask("load_all_but", folder=str(tmp_path / "int8"), name="") is None
    engine.kill()


def test_a_mixture_of_experts_on_a_cpu_is_refused_by_name(start_engine, tmp_path, endpoint):
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

    folder = Path(tmp_path)
    tiny.save(folder)  # for its tokenizer
    Qwen3MoeForCausalLM(Qwen3MoeConfig(
        vocab_size=tiny.WORDS, hidden_size=64, intermediate_size=128, moe_intermediate_size=64, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=2, head_dim=32, num_experts=4, num_experts_per_tok=2,
        max_position_embeddings=256)).save_pretrained(folder)
    engine = start_engine({"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}, model=str(folder),
                          weight_transfer_config=BACKEND).started()
    assert "mixture of experts" in engine.ask("join", endpoint=endpoint)["error"]
    engine.kill()
