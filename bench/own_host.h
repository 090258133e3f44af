// Makes NCCL treat each process as a separate host (--own-hosts): ranks on one machine connect by sockets over
// loopback, like ranks on different hosts, and can share one GPU. schemes/nccl/README.md names the variables.
#pragma once

namespace bascule::bench {

// Call it before the process's first NCCL call.
void be_own_host();

// Does the same in a process that the driver started, if the driver is a separate host.
void be_own_host_as_driver();

}  // namespace bascule::bench
