// One message of every type, with every key filled in.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <bascule/transport/wire/messages.h>

namespace bascule {

inline Layout sample_layout() {
  absl::StatusOr<Layout> layout = Layout::from_placements(
      {{.spec = {.name = "embed", .dtype = DType::kF32, .shape = {4, 8}}, .offset = 0, .bytes = 128},
       {.spec = {.name = "größe", .dtype = DType::kBF16, .shape = {3}}, .offset = 128, .bytes = 6},
       {.spec = {.name = "scalar", .dtype = DType::kU8, .shape = {}}, .offset = 134, .bytes = 1},
       {.spec = {.name = "nothing", .dtype = DType::kI8, .shape = {0, 5}}, .offset = 135, .bytes = 0}},
      {{.name = "lm_head", .tensor = 0}}, 135, "{\"größe\": 16}");
  EXPECT_TRUE(layout.ok()) << layout.status();
  return layout.ok() ? *layout : Layout();
}

inline Hello sample_hello() {
  Hello hello;
  hello.worker = "engine-0";
  hello.instance = std::numeric_limits<std::uint64_t>::max();
  hello.group = "node";
  hello.rank = 1;
  hello.ranks = 2;
  hello.pid = 4711;
  hello.host = "host";
  hello.device = "GPU-1234";
  hello.epoch = 7;
  hello.serving = (std::uint64_t{1} << 53) + 1;  // no double holds it
  hello.held = {{.slot = {.epoch = 7, .index = 1}, .version = 41}, {.slot = {.epoch = 6, .index = 0}, .version = 40}};
  hello.expected = std::make_shared<const std::vector<TensorSpec>>(
      std::vector<TensorSpec>{{.name = "embed", .dtype = DType::kF32, .shape = {4, 8}},
                              {.name = "größe", .dtype = DType::kF8E4M3, .shape = {}}});
  hello.fused = {{"q", "k", "v"}, {"gate", "up"}};
  return hello;
}

inline Welcome sample_welcome() {
  Welcome welcome;
  welcome.id = 3;
  welcome.epoch = 8;
  welcome.layout = sample_layout();
  welcome.digest = DigestMode::kAlways;
  welcome.offer = std::string("\0\xFF\x80 opaque", 10);
  welcome.slots = {0, 1, std::numeric_limits<std::uint32_t>::max()};
  return welcome;
}

inline SenderStatus sample_status() {
  SenderStatus status;
  status.scheme = "shm";
  status.pid = 4711;
  status.epoch = 8;
  status.version = 41;
  status.layout = sample_layout();
  status.workers = {{.worker = "engine-0",
                     .pid = 4712,
                     .host = "host",
                     .group = "node",
                     .rank = 1,
                     .state = "poisoned",
                     .serving = 40,
                     .leases = {0, 1},
                     .why = "the digest differs",
                     .bytes = BytesRead{.read = 100, .verified = 70}}};
  status.slots = {{.index = 0,
                   .state = "published",
                   .version = 41,
                   .digest = Digest{.low = 1, .high = 2},
                   .holders = {"engine-0", "engine-1"}},
                  {.index = 1, .state = "writing", .version = 0, .digest = std::nullopt, .holders = {}}};
  status.ranks = {{.rank = 1, .pid = 4713, .state = "gone", .gone_seconds = 12, .bytes = 100}};
  status.offer = std::string("\0\xFF", 2);
  status.offered = {0, 1};
  return status;
}

inline std::vector<Message> sample_messages() {
  const Digest digest{.low = 0x0123456789ABCDEF, .high = 0xFEDCBA9876543210};
  return {sample_hello(),
          sample_welcome(),
          Refused{.why = "tensor embed [4, 8] is missing", .final = true},
          Prepare{.version = 5,
                  .slot = {.epoch = 8, .index = 1},
                  .lease = 6,
                  .bytes = 135,
                  .offer = std::string("\x00\x01", 2),
                  .slots = {1, 7}},
          Ready{.version = 5},
          Sealed{.version = 5, .digest = digest, .decided = true},
          Prepared{.version = 5, .bytes = BytesRead{.read = 100, .verified = 70}},
          Failed{.version = 5, .why = "the digest differs"},
          Poisoned{.why = "the device failed", .final = true},
          Decided{.version = 5},
          Abort{.version = 5, .torn = true},
          Ack{.version = 5, .stall_seconds = 1.5e-5, .seconds = 0.1},
          Released{.slot = {.epoch = 8, .index = 0}, .lease = 4},
          Heartbeat{},
          Bye{.why = "another model"},
          StatusQuery{},
          sample_status(),
          Deliver{.version = 5, .bytes = std::string("\0\xFF words", 8)},
          Transport{.bytes = std::string("\xFE\0 words", 8)},
          Loading{.version = 5},
          RankHello{.rank = 1, .ranks = 2, .pid = 4711},
          RankWelcome{.epoch = 8}};
}

}  // namespace bascule
