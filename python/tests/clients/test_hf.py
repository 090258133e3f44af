"""transformers models that follow: in each version they generate the same tokens as the trainer's model."""

import pytest
from tiny import greedy, save, train
from transformers import AutoModelForCausalLM

import bascule
from bascule import hf

PATIENCE = 300  # seconds, longer than anything healthy takes on a busy machine


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("tied", [False, True])
def test_each_version_generates_what_the_trainers_model_does(tmp_path, in_place, tied):
    trainer = save(tmp_path / "model", tie_word_embeddings=tied)
    engine = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    endpoint = f"shm://{tmp_path}/endpoint"
    with bascule.Sender(endpoint) as sender, hf.follow(engine, endpoint, in_place=in_place) as following:
        sender.register_model(trainer)
        sender.wait_for_workers(1, PATIENCE)
        tokens = []
        for version in (1, 2, 3):
            train(trainer, version)
            assert sender.send().complete, following.error
            assert greedy(engine) == greedy(trainer)
            tokens.append(greedy(trainer))
        assert tokens[0] != tokens[1] != tokens[2]
    assert greedy(engine) == tokens[2]
