// Runs a fuzz target on each input of a folder, where there is no libFuzzer: in builds of GCC with AddressSanitizer. If
// an input breaks the code, takes two minutes, or needs more than a gigabyte at once, the report ends with the input's
// path.
#include <sanitizer/common_interface_defs.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "fuzz.h"

namespace {

constexpr unsigned kSecondsPerInput = 120;  // a busy machine may stand still for half a minute

std::string running;  // the input's path

void name_input() { std::fprintf(stderr, "fuzz: the input is %s\n", running.c_str()); }

void run(const std::filesystem::path& path) {
  // Exactly as large as the input, so that AddressSanitizer finds a read past its end.
  const std::size_t size = std::filesystem::file_size(path);
  const auto bytes = std::make_unique<char[]>(size);
  std::ifstream(path, std::ios::binary).read(bytes.get(), static_cast<std::streamsize>(size));
  running = path.string();
  ::alarm(kSecondsPerInput);
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.get()), size);
  ::alarm(0);
}

}  // namespace

extern "C" const char* __asan_default_options() {  // NOLINT: AddressSanitizer's name
  return "handle_abort=1:max_allocation_size_mb=1024:hard_rss_limit_mb=2048:detect_stack_use_after_return=1";
}

// Its end is then also one that AddressSanitizer reports.
extern "C" const char* __ubsan_default_options() { return "abort_on_error=1"; }  // NOLINT: the sanitizer's name

int main(int argc, char** argv) {
  std::vector<std::filesystem::path> inputs;
  std::error_code error;
  if (argc == 2)
    for (const auto& entry : std::filesystem::directory_iterator(argv[1], error)) inputs.push_back(entry.path());
  if (inputs.empty()) {
    std::fprintf(stderr, "fuzz: expected a folder with inputs, as fuzz-NAME FOLDER, found none\n");
    return 2;
  }
  __sanitizer_set_death_callback(name_input);
  std::signal(SIGALRM, [](int) { std::abort(); });
  std::sort(inputs.begin(), inputs.end());
  for (const std::filesystem::path& input : inputs) run(input);
  std::printf("fuzz: %zu inputs\n", inputs.size());
  return 0;
}
