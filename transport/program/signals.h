// The signals that end a program: SIGTERM, SIGINT, and SIGHUP, which a closing terminal sends.
#pragma once

#include <vector>

namespace bascule::inline v0 {

// To be called first in main(): a write to a pipe without a reader, or beyond the file size limit (`ulimit -f`), then
// returns an error instead of ending the process.
void let_writes_fail();

// The signals that end this program, without those ignored at its start, such as SIGHUP under `nohup` and SIGINT after
// a shell's `&`.
std::vector<int> stop_signals();

}  // namespace bascule::inline v0
