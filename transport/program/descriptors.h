// How many descriptors a program may have open. A sender needs two per worker, a connection and a lease pipe (over TCP
// only the connection), and some forty others, so the usual soft limit of 1024 suffices for almost 500 workers.
#pragma once

namespace bascule::inline v0 {

// To be called first in main(): raises the soft limit (RLIMIT_NOFILE) as far as the hard one allows, to at most 65,536.
// After this, select() is unsafe, since it only handles descriptors below 1024.
void raise_descriptor_limit();

}  // namespace bascule::inline v0
