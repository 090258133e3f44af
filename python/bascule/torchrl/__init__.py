"""TorchRL: in place of its double buffer, and a backend for its collectors.

`SyncScheme`, here, has the names of the double buffer, and needs no TorchRL. `bascule.torchrl.collectors` registers the
backend "bascule", and imports TorchRL.
"""

from .double_buffer import SyncScheme, WeightReceiver, WeightSender

__all__ = ["SyncScheme", "WeightReceiver", "WeightSender"]
