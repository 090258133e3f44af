// How many descriptors a program may have open. A sender has two for each worker, a connection and a lease pipe (one
// over TCP), and some forty besides; the usual soft limit, 1024, ends that at 500 workers.
#pragma once

namespace bascule::inline v0 {

// First thing in main(): raises the soft limit (RLIMIT_NOFILE) as far as the hard one allows, to 65,536 at most. From
// then on select() is not safe, which knows descriptors below 1024 only.
void raise_descriptor_limit();

}  // namespace bascule::inline v0
