// base-user ENDPOINT NAME GENERATION KEY: opens a base, and makes it of the tensors of GENERATION if no process has it
// (0: it only joins). It then answers each of these commands by one line of JSON; the first answer comes unasked.
//
//   look    what it has: the generation of its bytes, whether it made it, whether newcomers join here, an error or ""
//   write   writes a byte of the first tensor
//   map     maps the memory to write it, through the descriptor that it keeps
//   quit    ends without a crash
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include <nlohmann/json.hpp>

#include "support/devices/device_bytes.h"
#include "support/processes/line_end.h"
#include "support/test_model.h"
#include <bascule/base/base.h>
#include <bascule/transport/status.h>

namespace bascule {
namespace {

nlohmann::json look(const Base& base) {
  const absl::StatusOr<std::uint64_t> generation = test::generation_of(base.tensors(), test::ModelSize::kSmall);
  struct stat file {};
  ::fstat(base.held().handle->descriptor.get(), &file);
  return {{"generation", generation.value_or(0)},
          {"made", base.made_here()},
          {"answers", base.answers()},
          {"digest", to_hex(*base.held().digest)},
          {"memory", file.st_ino},
          {"error", generation.ok() ? "" : std::string(message_of(generation.status()))}};
}

nlohmann::json map_to_write(const Base& base) {
  const int fd = base.held().handle->descriptor.get();
  const bool mapped = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) != MAP_FAILED;
  const bool written = ::pwrite(fd, "x", 1, 0) == 1;
  return {{"error", mapped ? "mapped" : written ? "written" : ""}};
}

int run(const std::string& endpoint, const std::string& name, std::uint64_t generation, const std::string& key) {
  test::LineEnd commands(UniqueFd(STDIN_FILENO));
  const auto answer = [&](const nlohmann::json& json) { commands.write(json.dump()); };
  BaseOptions options{.endpoint = endpoint, .name = name, .compatibility_key = key};
  options.tensors = test::TestModel().specs();
  options.device = test::device_for(endpoint);
  options.timeout = absl::Seconds(60);
  options.log = [&](std::string_view line) {
    std::fprintf(stderr, "%s: %s\n", name.c_str(), std::string(line).c_str());
  };
  if (generation != 0)
    options.fill = [&](std::span<const MutableTensorView> tensors) {
      test::write_generation(tensors, generation);
      return absl::OkStatus();
    };
  absl::StatusOr<Base> base = Base::open(std::move(options));
  if (!base.ok()) return answer({{"error", std::string(message_of(base.status()))}}), 1;
  answer(look(*base));
  while (true) {
    const absl::StatusOr<std::string> command = commands.read(Deadline(absl::InfiniteDuration()));
    if (!command.ok() || *command == "quit") return 0;
    if (*command == "look") answer(look(*base));
    if (*command == "map") answer(map_to_write(*base));
    if (*command == "write") *const_cast<std::byte*>(base->tensors()[0].data) = std::byte{1};
  }
}

}  // namespace
}  // namespace bascule

int main(int argc, char** argv) {
  if (argc != 5) return std::fprintf(stderr, "usage: base-user ENDPOINT NAME GENERATION KEY\n"), 2;
  return bascule::run(argv[1], argv[2], std::strtoull(argv[3], nullptr, 10), argv[4]);
}
