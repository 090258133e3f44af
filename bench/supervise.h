// A run that leaves no files behind, whatever ends it: the work is done in a child process, and this one stays to clean
// up after it.
#pragma once

#include <functional>

#include <bascule/bench/run_folders.h>

namespace bascule::bench {

// Calls `work` in a forked child and returns what it returned, once the child and all processes that it started are
// gone and `folders` are removed with all that lies in them. Where the child crashed or was killed (as for memory) it
// says so on stderr and returns 128 + the signal. SIGINT, SIGTERM and SIGHUP kill the child, and then end this process
// by the same signal; those that the program was started to ignore are ignored. Call it while there is one thread.
// SIGKILL of this process itself takes the child along, and leaves the folders to the next run.
int supervise(const RunFolders& folders, const std::function<int()>& work);

}  // namespace bascule::bench
