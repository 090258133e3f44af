// The signals that end a program: SIGTERM, SIGINT, and SIGHUP, which a closing terminal sends.
#pragma once

#include <vector>

namespace bascule::inline v0 {

// Call it first in main(). After it, a write to a pipe without a reader, or beyond the file size limit (`ulimit -f`),
// returns an error instead of ending the process.
void let_writes_fail();

// Returns the signals that end this program, without those that it ignores, such as SIGHUP under `nohup` and SIGINT
// after a shell's `&`.
std::vector<int> stop_signals();

}  // namespace bascule::inline v0
