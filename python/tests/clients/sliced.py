"""A worker extension for engines with several ranks, whose linear layers torch computes: what each rank holds."""

import plain_linears  # noqa: F401: vLLM imports this module before it makes the model
import tiny


class Extension:
    def sliced_scatters(self):
        return self.weight_transfer_engine.rank.scatter is not None

    def sliced_bytes(self):
        """What a version's copy reads, if the sender has the model's types, and how large the parameters are."""
        targets = self.weight_transfer_engine.rank.scatter.targets
        return sum(each.tensor.nbytes for each in targets), sum(each.nbytes for each in self._sliced().values())

    def sliced_digests(self):
        """By parameter."""
        return {name: tiny.digest(each) for name, each in self._sliced().items()}

    def _sliced(self):
        return dict(self.model_runner.get_model().named_parameters())
