// The signals that end a program: SIGTERM, SIGINT, and SIGHUP, which a terminal sends when it is closed.
#pragma once

#include <vector>

namespace bascule::inline v0 {

// First thing in main(): a write to a pipe without a reader, or beyond the limit of file sizes (`ulimit -f`), fails
// with an error that can be said, and does not end the process.
void let_writes_fail();

// Those that are to end this program: without the ones that it was started to ignore, as `nohup` does with SIGHUP and a
// shell's `&` with SIGINT.
std::vector<int> stop_signals();

}  // namespace bascule::inline v0
