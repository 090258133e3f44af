"""GRPO with Ray: a trainer and two engines, which share one GPU by fractions, or use no GPU.

    python examples/python/ray_grpo.py     learns to add two digits; the share of right answers grows

The engines sample groups of answers, the trainer learns from the groups and sends the new weights, and the engines
sample the next batch with these.
"""

import ray
import torch
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

import bascule.ray

DIGITS, ANSWERS, GROUP = 10, 19, 16


def policy():
    """Maps prompts of two one-hot digits, (prompts, 20), to the answers' logits, (prompts, 19)."""
    return torch.nn.Sequential(torch.nn.Linear(2 * DIGITS, 128), torch.nn.ReLU(), torch.nn.Linear(128, ANSWERS))


def one_hot(prompts):
    return torch.nn.functional.one_hot(prompts, DIGITS).flatten(1).float()


def device():
    return "cuda" if ray.get_runtime_context().get_accelerator_ids().get("GPU") else "cpu"


@ray.remote
class Engine:
    def __init__(self):
        self.device = device()
        self.model = policy().to(self.device)
        self.receiver = bascule.ray.Receiver("grpo", targets=self.model)  # waits for the trainer

    @torch.inference_mode()
    def sample(self, prompts, version):
        """Answers, (prompts, GROUP), sampled with the weights of `version`."""
        self.receiver.wait_ready(version=version)
        self.receiver.commit()  # between two batches, never within one
        chances = self.model(one_hot(prompts).to(self.device)).softmax(-1)
        return chances.multinomial(GROUP, replacement=True).cpu()


@ray.remote
class Trainer:
    def __init__(self):
        torch.manual_seed(0)
        self.device = device()
        self.model = policy().to(self.device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=5e-3)
        self.sender = bascule.ray.Sender("grpo")
        self.sender.register_model(self.model)

    def send(self, workers=0):
        """Waits for the workers, or until they have the last version, and sends the weights; returns the version."""
        if workers:
            self.sender.wait_for_workers(workers)
        else:
            self.sender.wait_async()
        version = self.sender.version + 1
        self.sender.send_async()  # returns once the weights may be changed again
        return version

    def learn(self, prompts, answers):
        """One step of GRPO; returns the share of right answers. The ratio is 1: these weights gave all answers."""
        rewards = (answers == prompts.sum(1, keepdim=True)).float()
        advantages = (rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, keepdim=True) + 1e-4)
        chances = self.model(one_hot(prompts).to(self.device)).log_softmax(-1)
        loss = -(advantages.to(self.device) * chances.gather(1, answers.to(self.device))).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return rewards.mean().item()


def main():
    ray.init(log_to_driver=False)
    gpus = 1 if ray.cluster_resources().get("GPU") else 0
    bundle = placement_group([{"CPU": 1, "GPU": gpus}])  # one bundle: all three share its GPU
    ray.get(bundle.ready(), timeout=60)
    there = PlacementGroupSchedulingStrategy(bundle)
    trainer = Trainer.options(num_cpus=0.4, num_gpus=0.4 * gpus, scheduling_strategy=there).remote()
    engines = [Engine.options(name=f"engine-{i}", num_cpus=0.3, num_gpus=0.3 * gpus, scheduling_strategy=there).remote()
               for i in range(2)]

    version = ray.get(trainer.send.remote(workers=2))
    for step in range(201):
        prompts = [torch.randint(DIGITS, (64, 2)) for _ in engines]
        answers = ray.get([engine.sample.remote(part, version) for engine, part in zip(engines, prompts)])
        right = ray.get(trainer.learn.remote(torch.cat(prompts), torch.cat(answers)))
        version = ray.get(trainer.send.remote())
        if step % 50 == 0:
            print(f"step {step}: right {right:.0%}")
    remove_placement_group(bundle)


if __name__ == "__main__":
    main()
