// Writes seeds that only our own code can make: fuzz-seeds FOLDER makes FOLDER/TARGET/NAME for some targets.
// tests/tools/fuzz_seeds.py makes the others.
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include <bascule/schemes/memmap/manifest.h>
#include <bascule/schemes/memmap/slot_file.h>
#include <bascule/schemes/nccl/messages.h>
#include <bascule/schemes/relay/messages.h>
#include <bascule/sender/ranks/messages.h>
#include <bascule/transport/status.h>
#include <bascule/transport/wire/messages.h>

#include "transport/wire/sample_messages.h"

namespace bascule::fuzz {
namespace {

class Folder {
 public:
  explicit Folder(std::filesystem::path path) : path_(std::move(path)) {}

  void add(std::string_view target, std::string_view bytes) {
    std::filesystem::create_directories(path_ / target);
    std::ofstream(path_ / target / cat("seed-", ++seeds_), std::ios::binary) << bytes;
  }

 private:
  std::filesystem::path path_;
  int seeds_ = 0;
};

std::string bytes_of(const Message& message) {
  const auto encoded = encode(message);
  return {encoded.begin(), encoded.end()};
}

std::string piece(const std::string& bytes) {
  return {std::string({static_cast<char>(bytes.size() & 0xFF), static_cast<char>(bytes.size() >> 8)}) + bytes};
}

// A step of the receiver's target that sends a message.
std::string frame(const Message& message, int descriptors) {
  return std::string(1, static_cast<char>(8 * descriptors)) + piece(bytes_of(message));
}
std::string call(int what, int version) { return std::string(1, static_cast<char>(5 + 8 * what + 32 * version)); }
constexpr std::string_view kWait = "\x0c";

// A receiver of each kind, to which a sender brings version 5.
void add_receivers(Folder& folder) {
  Welcome welcome;
  welcome.id = 1;
  welcome.epoch = 3;
  welcome.layout = *Layout::arrange({{"w", DType::kF32, {4}}}, {});
  for (const int setup : {0, 1, 4, 12, 16, 17, 20, 28, 5}) {
    const bool two = setup >= 16;
    const SlotId slot{.epoch = 3, .index = 0};
    welcome.slots = {0};
    if (two) welcome.slots = {0, 1};
    const std::string begin =
        std::string(1, static_cast<char>(setup)) + frame(welcome, two ? 4 : 3) + std::string(kWait);
    const std::string prepare =
        begin +
        frame(Prepare{.version = 5, .slot = slot, .lease = 1, .bytes = 16, .offer = {}, .slots = welcome.slots}, 0) +
        std::string(kWait);
    const std::string sealed = prepare + frame(Sealed{.version = 5, .digest = {}}, 0) + std::string(kWait);
    const std::string decided = sealed + frame(Decided{.version = 5}, 0) + std::string(kWait);
    folder.add("receiver", prepare + frame(Sealed{.version = 5, .digest = {}, .decided = true}, 0) + call(0, 5) +
                               std::string(kWait));
    folder.add("receiver", begin + frame(Heartbeat{}, 0) + frame(Bye{.why = "a test"}, 0));
    folder.add("receiver", prepare + frame(Abort{.version = 5, .torn = true}, 0) + std::string(kWait) + call(0, 5));
    folder.add("receiver", decided + call(0, 5) + std::string(kWait) + frame(Deliver{.version = 6, .bytes = "x"}, 0));
    folder.add("receiver", decided + call(1, 5) + call(2, 4) + "\x07" + frame(welcome, two ? 4 : 3) + call(0, 5));
  }
  for (const Message& message : sample_messages()) folder.add("receiver", std::string(1, '\0') + frame(message, 2));
}

}  // namespace
}  // namespace bascule::fuzz

int main(int argc, char** argv) {
  using namespace bascule;
  if (argc != 2) return 2;
  fuzz::Folder folder(argv[1]);
  for (const Message& message : sample_messages()) {
    folder.add("messages", fuzz::bytes_of(message));
    folder.add("sender", std::string("\0\0\xff", 3) + fuzz::piece(fuzz::bytes_of(message)));
  }
  for (int kind = 0; kind <= static_cast<int>(relay::RelayMessage::Kind::kHide); ++kind)
    folder.add("messages", relay::to_bytes({.kind = static_cast<relay::RelayMessage::Kind>(kind),
                                            .number = 1,
                                            .source = 2,
                                            .spared = {3, 4},
                                            .place = "GPU",
                                            .allocated = 5,
                                            .why = "why"}));
  for (int kind = 0; kind <= static_cast<int>(nccl::GroupMessage::Kind::kFailed); ++kind)
    folder.add("messages", nccl::to_bytes({.kind = static_cast<nccl::GroupMessage::Kind>(kind),
                                           .group = 1,
                                           .rank = 1,
                                           .ranks = 2,
                                           .number = 3,
                                           .from = 4,
                                           .why = "why"}));
  for (int kind = 0; kind <= static_cast<int>(RankMessage::Kind::kReport); ++kind) {
    RankMessage message(static_cast<RankMessage::Kind>(kind), 1);
    message.specs = {{"w", DType::kF32, {9, 8}}};
    message.numbers = {0, 3, 0, 3, 8};
    message.layout = sample_layout();
    message.report = SentReport{.seconds = {1, 2, 3, 4, 5, 6},
                                .workers = {{.worker = "engine-0", .bytes = BytesRead{.read = 9, .verified = 8}}},
                                .warnings = {"a warning"}};
    folder.add("messages", to_bytes(message));
  }
  fuzz::add_receivers(folder);
  const std::string header = memmap::make_header(sample_layout(), 7).value();
  folder.add("safetensors", header + std::string(135, 'w'));
  folder.add("manifest", "\2" + header + std::string(135, 'w'));
  const Digest digest{.low = 1, .high = 2};
  folder.add("manifest",
             std::string(1, '\0') +
                 memmap::manifest_text(
                     {{.slot = {7, 0}, .inode = 9, .bytes = 135, .stamp = {.epoch = 7, .version = 3, .digest = digest}},
                      {.slot = {7, 1}, .inode = 8, .bytes = 135, .stamp = {.epoch = 7, .version = 2, .digest = {}}}}));
  return 0;
}
