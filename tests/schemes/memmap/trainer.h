// The core's calls to the sender's end of memmap, step by step, so that a test can stop between any two.
#pragma once

#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "support/status.h"
#include "support/timing.h"
#include <bascule/kernels/digest.h>
#include <bascule/kernels/thread_pool.h>
#include <bascule/schemes/memmap/memmap.h>
#include <bascule/transport/endpoint.h>
#include <bascule/transport/kept_slots.h>
#include <bascule/transport/wire/messages.h>

namespace bascule::test {

inline Layout some_layout(std::int64_t elements = 50'000) {
  return Layout::arrange({{"model.weight", DType::kF32, {elements}},
                          {"model.größe \"x\"", DType::kBF16, {7}},
                          {"none", DType::kI8, {0}}},
                         {{"lm_head.weight", "model.weight"}})
      .value();
}

// Byte i of generation g: never zero, and different in every generation.
inline std::byte byte_of(std::uint64_t generation, std::size_t i) {
  return static_cast<std::byte>((i * 131 + i / 4096 + generation * 7919) % 255 + 1);
}

class MemmapTrainer {
 public:
  MemmapTrainer(const std::filesystem::path& folder, Epoch epoch, bool durable = false,
                memmap::FileObserver observer = {}, Layout layout = some_layout())
      : epoch_(epoch), layout_(std::move(layout)) {
    Endpoint endpoint;
    endpoint.scheme = "memmap";
    endpoint.folder = folder;
    if (durable) endpoint.scheme_options["durable"] = "on";
    auto made = memmap_scheme(std::move(observer)).make_sender(endpoint, epoch);
    status_ = made.status();
    if (made.ok()) transport_ = *std::move(made);
  }

  const absl::Status& status() const { return status_; }
  SenderTransport& transport() { return *transport_; }
  KeptSlots& kept() { return *transport_->kept_slots(); }
  const Layout& layout() const { return layout_; }
  SlotMemory& memory(std::uint32_t index) { return slots_.at(index); }

  absl::Status make_slot(std::uint32_t index) {
    auto memory = transport_->make_slot({epoch_, index}, layout_, kHost);
    if (memory.ok()) slots_.insert_or_assign(index, *std::move(memory));
    return memory.status();
  }
  // Writes generation `version` into the slot, and seals it.
  absl::Status write(std::uint32_t index, Version version, Deadline deadline = Deadline(patience())) {
    bytes_done_ = 0;
    const absl::Status begun = kept().begin({epoch_, index}, bytes_done_, deadline);
    if (!begun.ok()) return begun;
    const std::span<std::byte> bytes = slots_.at(index).writable();
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = byte_of(version, i);
    bytes_done_ = bytes.size();
    return kept().seal(publication(index, version));
  }
  absl::Status publish(std::uint32_t index, Version version) { return kept().publish(publication(index, version)); }
  absl::Status persist(std::uint32_t index, Version version) {
    return kept().persist(publication(index, version), Deadline(patience()));
  }
  // All steps, like a send.
  void send(std::uint32_t index, Version version) {
    ASSERT_THAT(slots_.contains(index) ? absl::OkStatus() : make_slot(index), IsOk());
    ASSERT_THAT(write(index, version), IsOk());
    ASSERT_THAT(publish(index, version), IsOk());
    ASSERT_THAT(kept().persists() ? persist(index, version) : absl::OkStatus(), IsOk());
  }
  void unmake_slot(std::uint32_t index) {
    transport_->unmake_slot({epoch_, index});
    slots_.erase(index);
  }
  Publication publication(std::uint32_t index, Version version) {
    kernels::ThreadPool one(1);
    return {.version = version,
            .slot = {epoch_, index},
            .bytes = layout_.bytes(),
            .digest = kernels::digest(slots_.at(index).writable(), one)};
  }

  // The offer of these slots to a worker that joins now.
  ReceivedOffer offer(const std::vector<std::uint32_t>& indices) {
    std::vector<OfferedSlot> offered;
    ReceivedOffer received;
    for (const std::uint32_t index : indices) {
      offered.push_back({.id = {epoch_, index}, .memory = &slots_.at(index)});
      received.slots.push_back({epoch_, index});
    }
    const auto offer = transport_->offer(1, ConnectionKind::kUnixSocket, offered);
    EXPECT_THAT(offer, IsOk());
    if (offer.ok()) received.bytes = offer->bytes;
    received.slot_bytes = layout_.bytes();
    return received;
  }

 private:
  const Epoch epoch_;
  const Layout layout_;
  absl::Status status_;
  std::atomic<std::uint64_t> bytes_done_{0};
  std::unique_ptr<SenderTransport> transport_;
  std::map<std::uint32_t, SlotMemory> slots_;
};

inline std::unique_ptr<ReceiverTransport> memmap_reader(const std::filesystem::path& folder) {
  Endpoint endpoint;
  endpoint.folder = folder;
  return memmap_scheme().make_receiver(endpoint);
}

// The generation of all bytes of a view; 0 for a mixture, or none.
inline std::uint64_t generation_of(std::span<const std::byte> bytes, std::uint64_t newest = 254) {
  for (std::uint64_t generation = 1; generation <= newest; ++generation) {
    std::size_t i = 0;
    while (i < bytes.size() && bytes[i] == byte_of(generation, i)) ++i;
    if (i == bytes.size()) return generation;
  }
  return 0;
}

// The version that a reader without a sender serves: the newest whose digest is right, as the core chooses it; 0 if
// none.
struct Served {
  Version version = 0;
  std::uint64_t generation = 0;
  std::size_t whole = 0;  // versions whose digest was right
  Layout layout;
  std::string description;
};
inline Served serve_alone(ReceiverTransport& reader, Version newer_than = 0) {
  Served served;
  auto found = reader.kept_versions()->find_versions(newer_than);
  EXPECT_THAT(found, IsOk());
  if (!found.ok()) return served;
  kernels::ThreadPool one(1);
  for (FoundVersion& version : *found) {
    const auto digest = reader.kept_versions()->digest_of(version, one, {});
    if (!digest.ok() || *digest != version.publication.digest) {
      reader.end_read(version.publication.slot);
      continue;
    }
    if (++served.whole > 1) {
      reader.end_read(version.publication.slot);
      continue;
    }
    const auto view = reader.prepare(version.publication, Deadline(patience()));
    EXPECT_THAT(view, IsOk());
    if (!view.ok()) continue;
    served.version = version.publication.version;
    served.generation = generation_of(view->bytes);
    served.layout = version.layout;
    served.description = version.description;
  }
  return served;
}

}  // namespace bascule::test
