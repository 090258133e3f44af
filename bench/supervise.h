// Makes sure that a run leaves no files, however it ends: a child process does the work, and this one cleans up.
#pragma once

#include <functional>

#include <bascule/bench/run_folders.h>

namespace bascule::bench {

// Calls `work` in a forked child and returns its result, once the child and all processes that it started are gone and
// `folders` are removed with their contents. If the child crashed or was killed (for example, for lack of memory), says
// so on stderr and returns 128 + the signal. SIGINT, SIGTERM and SIGHUP kill the child and then end this process by the
// same signal, unless they were ignored when the program started. Call it while the process has one thread. SIGKILL of
// this process also kills the child, and leaves the folders to the next run.
int supervise(const RunFolders& folders, const std::function<int()>& work);

}  // namespace bascule::bench
