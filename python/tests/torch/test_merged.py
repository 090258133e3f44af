"""register_model(…, adapters="merge"): what engines without adapters get."""

import copy

import peft
import pytest
import torch
from adapted import IDS, QKV, adapted, gpt2, logits, qwen, send_once, sent_by, train

import bascule
from bascule import hf

CONFIGS = {
    "qkv": {},
    "all-linear": {"target_modules": "all-linear"},
    "rslora": {"use_rslora": True, "lora_alpha": 7},
    "patterns": {"rank_pattern": {"q_proj": 2}, "alpha_pattern": {"layers.0.*k_proj": 5}},
    "embeddings": {"target_modules": [*QKV, "embed_tokens", "lm_head"], "lora_alpha": 5},
    "modules to save": {"modules_to_save": ["lm_head"]},
    "biases": {"bias": "all"},
    "pissa": {"init_lora_weights": "pissa"},
}


def merge(sender, model):
    sender.register_model(model, adapters="merge")


def merged_by_peft(model):
    """PEFT's own merge of a copy."""
    return copy.deepcopy(model).merge_and_unload().state_dict()


def assert_same(name, sent, expected):
    """But for the order in which a matrix product adds up in f32."""
    torch.testing.assert_close(sent, expected, rtol=2e-6, atol=2e-6, msg=lambda text: f"{name}: {text}")


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_engines_get_what_peft_merges_under_the_base_model_s_names(endpoint, config):
    model = adapted(**config)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    sent = sent_by(endpoint, lambda sender: merge(sender, model))
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    expected = merged_by_peft(model)
    assert sent.keys() == expected.keys() == qwen().state_dict().keys()
    for name, tensor in expected.items():
        assert_same(name, sent[name], tensor)
    base = qwen()
    base.load_state_dict(sent)
    torch.testing.assert_close(logits(base), logits(model), rtol=1e-4, atol=1e-4)


def test_the_sum_is_f32_and_is_rounded_once(endpoint):
    """Factors of powers of two make the sum exact in f32, whatever its order."""
    model = adapted(qwen(dtype=torch.bfloat16))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                parameter.copy_(2.0 ** torch.randint(-8, -2, parameter.shape))
    sent = sent_by(endpoint, lambda sender: merge(sender, model))
    for name, module in model.named_modules():
        if name.endswith("_proj") and hasattr(module, "lora_A"):
            weight = module.base_layer.weight.double()
            weight += 3 * module.lora_B["default"].weight.double() @ module.lora_A["default"].weight.double()
            assert torch.equal(sent[name.removeprefix("base_model.model.") + ".weight"], weight.float().bfloat16()), name


def test_a_thousand_sends_do_not_drift(endpoint):
    model = adapted(qwen(dtype=torch.bfloat16))
    with bascule.Sender(endpoint) as sender, bascule.Receiver(endpoint, worker="engine") as receiver:
        merge(sender, model)
        first = send_once(sender, receiver)
        for version in range(2, 1001):
            sender.send_async()
            receiver.wait_ready(version=version)
            receiver.commit()
            assert sender.wait_async().complete
        last = receiver.weights()
        assert all(torch.equal(last[name], tensor) for name, tensor in first.items())


def test_layers_that_store_their_weight_transposed_are_merged(endpoint):
    """GPT-2's Conv1D is [in, out]."""
    model = adapted(gpt2(), target_modules=["c_attn", "c_proj", "c_fc"], fan_in_fan_out=True)
    sent, expected = sent_by(endpoint, lambda sender: merge(sender, model)), merged_by_peft(model)
    assert sent.keys() == expected.keys()
    for name, tensor in expected.items():
        assert_same(name, sent[name], tensor)


def test_later_sends_have_what_was_trained_moved_or_replaced(endpoint):
    model = adapted()
    with bascule.Sender(endpoint) as sender, bascule.Receiver(endpoint, worker="engine") as receiver:
        merge(sender, model)
        for seed in range(3):
            train(model, seed)
            if seed == 1:
                for parameter in model.parameters():
                    parameter.data = parameter.data.clone()
            elif seed == 2:
                layer = model.base_model.model.model.layers[0].self_attn.q_proj.lora_B["default"]
                layer.weight = torch.nn.Parameter(layer.weight.detach() + 1)
            sent, expected = send_once(sender, receiver), merged_by_peft(model)
            for name, tensor in expected.items():
                assert_same(name, sent[name], tensor)


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_a_model_without_adapters_computes_what_the_trainer_computes_after_each_of_three_versions(endpoint, config):
    model, served = adapted(**config), qwen()
    with bascule.Sender(endpoint) as sender, hf.follow(served, endpoint) as following:
        merge(sender, model)
        sender.wait_for_workers(1)
        for version in range(1, 4):
            train(model, version)
            assert sender.send().complete, following.error
            with following.held() as held:
                assert held == version
                torch.testing.assert_close(logits(served), logits(model), rtol=1e-4, atol=1e-4)
            assert not torch.allclose(logits(served), logits(qwen()), atol=1e-2)


def test_the_active_one_of_several_adapters_is_merged(endpoint):
    model = adapted()
    model.add_adapter("math", peft.LoraConfig(r=2, target_modules=["o_proj"]))
    model.set_adapter("math")
    train(model, 2)
    sent, expected = sent_by(endpoint, lambda sender: merge(sender, model)), merged_by_peft(model)
    assert all(torch.allclose(sent[name], tensor, atol=1e-6) for name, tensor in expected.items())
    model.base_model.set_adapter(["default", "math"])
    with bascule.Sender(endpoint) as sender:
        with pytest.raises(bascule.BasculeError, match="one active adapter to merge, found default, math"):
            merge(sender, model)
        with model.disable_adapter(), pytest.raises(bascule.BasculeError, match="disabled"):
            merge(sender, model)
        with pytest.raises(bascule.BasculeError, match="expected a model with PEFT's adapters, found Qwen2ForCausalLM"):
            merge(sender, qwen())


def test_the_adapter_that_was_active_stays_the_one_that_is_merged(endpoint):
    model = adapted()
    model.add_adapter("math", peft.LoraConfig(r=4, lora_alpha=12, target_modules=QKV))
    expected = merged_by_peft(model)
    with bascule.Sender(endpoint) as sender, bascule.Receiver(endpoint, worker="engine") as receiver:
        merge(sender, model)
        model.set_adapter("math")
        model.delete_adapter("math")  # the model's modules change
        sent = send_once(sender, receiver)
    for name, tensor in expected.items():
        assert_same(name, sent[name], tensor)


def test_weights_with_the_adapter_in_them_are_refused(endpoint):
    model = adapted()
    with bascule.Sender(endpoint, expect_workers=0) as sender:
        model.merge_adapter()
        with pytest.raises(bascule.BasculeError, match=r"has merged its adapter 'default'.*unmerge_adapter\(\)"):
            merge(sender, model)
        model.unmerge_adapter()
        merge(sender, model)
        sender.send()
        model.merge_adapter()
        with pytest.raises(bascule.BasculeError, match="has merged its adapter 'default'"):
            sender.send()


@pytest.mark.parametrize("config", [{"target_modules": ["embed_tokens"]}, {"modules_to_save": ["lm_head"]}])
def test_a_tied_weight_of_which_one_name_is_trained_is_refused(endpoint, config):
    with bascule.Sender(endpoint) as sender:
        with pytest.raises(bascule.BasculeError, match="model.embed_tokens.weight and lm_head.weight are one tensor"):
            merge(sender, adapted(qwen(tied=True), **config))


def test_a_tied_weight_with_tied_adapters_is_merged(endpoint):
    model = adapted(qwen(tied=True), target_modules=["embed_tokens"], ensure_weight_tying=True)
    expected = logits(model)
    served = qwen(tied=True)
    with bascule.Sender(endpoint) as sender, hf.follow(served, endpoint) as following:
        merge(sender, model)
        sender.wait_for_workers(1)
        assert sender.send().complete, following.error
        torch.testing.assert_close(served(IDS).logits, expected, rtol=1e-4, atol=1e-4)


def test_the_names_may_be_changed_further(endpoint):
    model = torch.compile(adapted())
    names = qwen().state_dict().keys()
    sent = sent_by(endpoint, lambda sender: merge(sender, model))
    assert sent.keys() == names
    for rename, expected in ((lambda name: f"policy.{name}", {f"policy.{name}" for name in names}), (None, names)):
        sent = sent_by(endpoint, lambda sender: sender.register_model(adapted(), adapters="merge", rename=rename))
        assert sent.keys() == expected


def test_a_quantised_weight_is_refused_by_name(endpoint):
    model = adapted()
    layer = model.base_model.model.model.layers[0].self_attn.q_proj.base_layer
    layer.weight = torch.nn.Parameter(torch.zeros(32, 32, dtype=torch.uint8), requires_grad=False)
    with bascule.Sender(endpoint) as sender:
        with pytest.raises(bascule.BasculeError, match="layers.0.self_attn.q_proj.weight is uint8.*register_adapter"):
            merge(sender, model)
        sender.register_adapter(model)  # the adapter alone does not need it
