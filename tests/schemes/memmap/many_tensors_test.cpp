// A model of 100,000 tensors: no step searches all tensors for each one. Asserts no times; a quadratic step would
// exceed the test's time limit.
#include <gmock/gmock.h>

#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "schemes/memmap/trainer.h"
#include "support/status.h"
#include "support/temp_folder.h"
#include "support/timing.h"
#include <bascule/receiver/receiver.h>
#include <bascule/schemes/memmap/slot_file.h>
#include <bascule/sender/sender.h>
#include <bascule/transport/safetensors.h>
#include <bascule/transport/status.h>

namespace bascule {
namespace {

using test::IsOk;
using test::patience;

constexpr int kTensors = test::kSlowdown == 1 ? 100'000 : 10'000;  // sanitizers look for other faults

std::vector<TensorSpec> many_specs() {
  std::vector<TensorSpec> specs;
  for (int i = 0; i < kTensors; ++i)
    specs.push_back({cat("model.layers.", i / 100, ".experts.", i % 100, ".weight"), DType::kF32, {2, 2}});
  return specs;
}

TEST(ManyTensors, AHeaderIsMadeReadAndSearchedByName) {
  const Layout layout = Layout::arrange(many_specs(), {{"tied", "model.layers.0.experts.0.weight"}}).value();
  const auto header = memmap::make_header(layout, 7);
  ASSERT_THAT(header, IsOk());
  const std::string file = *header + std::string(layout.bytes(), 'x');
  const auto parsed = parse_safetensors(std::as_bytes(std::span(file)), "file");
  ASSERT_THAT(parsed, IsOk());
  for (const Placement& tensor : layout.tensors()) {
    const SafetensorsHeader::Entry* const entry = parsed->find(tensor.spec.name);
    ASSERT_NE(entry, nullptr) << tensor.spec.name;
    ASSERT_EQ(entry->spec, tensor.spec);
  }
  EXPECT_EQ(parsed->find("model.layers.0.experts.100.weight"), nullptr);
  EXPECT_TRUE(memmap::parse_slot_file(std::as_bytes(std::span(file)), "file").ok());
}

// From a sender with fresh=on, which makes a file for each version, to a worker, and to a reader without a sender.
TEST(ManyTensors, AreSentAndServedAlone) {
  const test::TempFolder folder;
  const std::string endpoint = cat("memmap://", folder.path().string(), "/run?fresh=on&timeout=", 60 * test::kSlowdown,
                                   "s&suspect_after=", 20 * test::kSlowdown, "s");
  const std::vector<TensorSpec> specs = many_specs();
  std::vector<float> values(4 * specs.size());
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  std::vector<std::pair<TensorSpec, const void*>> tensors;
  for (std::size_t i = 0; i < specs.size(); ++i) tensors.emplace_back(specs[i], &values[4 * i]);

  const auto serve = [&](Receiver& receiver, Version version) {
    ASSERT_THAT(receiver.wait_ready(patience()), IsOk());
    Flip flip = receiver.commit();
    for (const Deadline deadline(patience()); flip.version != version && !deadline.passed(); flip = receiver.commit())
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ASSERT_EQ(flip.version, version);
    const Weights& weights = receiver.weights(flip.slot);
    for (std::size_t i = 0; i < specs.size(); ++i) {
      const TensorView* const found = weights.find(specs[i].name);
      ASSERT_NE(found, nullptr) << specs[i].name;
      float first = 0;
      std::memcpy(&first, found->data, sizeof(first));
      ASSERT_EQ(first, values[4 * i]) << specs[i].name;
    }
  };
  const auto connect = [&](std::string worker) {
    return Receiver::connect({.endpoint = endpoint, .worker = std::move(worker), .expected = specs});
  };
  {
    auto sender = Sender::listen({.endpoint = endpoint});
    ASSERT_THAT(sender, IsOk());
    ASSERT_THAT(sender->register_model(host_tensors(tensors)), IsOk());
    auto a = connect("a");
    ASSERT_THAT(a, IsOk());
    a->commit();
    ASSERT_THAT(sender->wait_for_workers(1, patience()), IsOk());
    for (Version version = 1; version <= 3; ++version) {
      values[0] = static_cast<float>(version);
      ASSERT_THAT(sender->send_async(), IsOk());
      serve(*a, version);
      const auto report = sender->wait_async(patience());
      ASSERT_THAT(report, IsOk());
      EXPECT_TRUE(report->complete());
    }
  }
  auto b = connect("b");
  ASSERT_THAT(b, IsOk());
  serve(*b, 3);
}

}  // namespace
}  // namespace bascule
