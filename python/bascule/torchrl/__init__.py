"""Integrations with TorchRL: a replacement for its double buffer, and a backend for its collectors.

`SyncScheme` has the double buffer's API and does not import TorchRL. `bascule.torchrl.collectors` imports TorchRL and
registers the backend "bascule".
"""

from .double_buffer import SyncScheme, WeightReceiver, WeightSender

__all__ = ["SyncScheme", "WeightReceiver", "WeightSender"]
