// A user's own schemes, built against the installed headers: one for each optional interface.
#pragma once

#include <bascule/transport/delivery.h>
#include <bascule/transport/kept_slots.h>
#include <bascule/transport/posix/memfd.h>
#include <bascule/transport/scheme.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "pull_scheme.h"

namespace consumer {

// ---- push: Delivery and Reception ----
// Slots are sealed memfds. A worker maps them, and copies a version when it is told to.

class PushSender final : public bascule::SenderTransport, public bascule::Delivery {
 public:
  absl::StatusOr<bascule::SlotMemory> make_slot(bascule::SlotId, const bascule::Layout& layout, int) override {
    return bascule::make_memfd("push", layout.bytes());
  }
  absl::StatusOr<bascule::Offer> offer(bascule::WorkerId, bascule::ConnectionKind,
                                       std::span<const bascule::OfferedSlot> slots) override {
    bascule::Offer offer;
    for (const bascule::OfferedSlot& slot : slots) offer.descriptors.push_back(slot.memory->descriptor.get());
    return offer;
  }
  bascule::Delivery* delivery() override { return this; }

  void open(bascule::WorkerLine& line) override { line_ = &line; }
  void deliver(bascule::DeliveryOrder order, Done done) override {
    waits_for_ = order.workers;
    done_ = std::move(done);
    for (const bascule::WorkerId worker : order.workers) line_->deliver(worker, order.publication.version, "push");
  }
  void stop(std::uint64_t) override { end(absl::CancelledError("stopped")); }
  void remove(bascule::WorkerId worker) override { heard(worker, "copied", {}); }
  void heard(bascule::WorkerId worker, std::string, std::vector<bascule::UniqueFd>) override {
    if (std::erase(waits_for_, worker) > 0 && waits_for_.empty()) end(absl::OkStatus());
  }
  void close() override { end(absl::CancelledError("closed")); }

 private:
  void end(const absl::Status& status) {
    if (const Done done = std::exchange(done_, nullptr)) done(status);
  }
  bascule::WorkerLine* line_ = nullptr;
  std::vector<bascule::WorkerId> waits_for_;
  Done done_;
};

class PushReceiver final : public bascule::ReceiverTransport, public bascule::Reception {
 public:
  absl::Status accept(bascule::ReceivedOffer offer) override {
    for (std::size_t i = 0; i < offer.slots.size(); ++i) {
      if (absl::Status sealed = bascule::check_sealed(offer.descriptors[i].get(), offer.slot_bytes); !sealed.ok())
        return sealed;
      auto mapping = bascule::Mapping::map(offer.descriptors[i].get(), offer.slot_bytes, bascule::Access::kReadOnly);
      if (!mapping.ok()) return mapping.status();
      senders_.insert_or_assign(offer.slots[i], *std::move(mapping));
    }
    return absl::OkStatus();
  }
  // The contract: receive() has returned, so its buffer needs no lock.
  absl::StatusOr<bascule::SlotView> prepare(const bascule::Publication& publication, bascule::Deadline) override {
    if (received_ != publication.version) return absl::InternalError("push: prepare() came before receive() returned");
    held_[into_] = true;
    return bascule::SlotView{.slot = {publication.slot.epoch, bascule::kOwnMemory + static_cast<std::uint32_t>(into_)},
                             .bytes = std::as_bytes(std::span(own_[into_])).first(publication.bytes)};
  }
  void end_read(bascule::SlotId slot) override { held_.at(slot.index - bascule::kOwnMemory) = false; }
  // Neither buffer ever moves.
  std::optional<bascule::SlotView> find(bascule::SlotId slot) const override {
    if (slot.index < bascule::kOwnMemory) return std::nullopt;
    return bascule::SlotView{.slot = slot,
                             .bytes = std::as_bytes(std::span(own_.at(slot.index - bascule::kOwnMemory)))};
  }
  void unmap(bascule::SlotId slot) override { senders_.erase(slot); }
  bascule::Reception* reception() override { return this; }

  void open(std::shared_ptr<bascule::SenderLine> line) override { line_ = std::move(line); }
  void heard(std::string, std::vector<bascule::UniqueFd>) override {}
  absl::Status receive(const bascule::Publication& publication, std::string bytes, bascule::Deadline) override {
    if (bytes != "push") return absl::InvalidArgumentError("push: expected its own delivery");
    into_ = held_[0] ? 1 : 0;
    own_[into_].resize(publication.bytes / sizeof(Line) + 1);
    std::memcpy(own_[into_].data(), senders_.at(publication.slot).bytes().data(), publication.bytes);
    line_->say("copied");
    usleep(2000);  // the sender seals meanwhile
    received_ = publication.version;
    return absl::OkStatus();
  }
  void close() override {}

 private:
  struct alignas(64) Line {
    std::array<std::byte, 64> bytes;
  };
  std::map<bascule::SlotId, bascule::Mapping> senders_;
  std::shared_ptr<bascule::SenderLine> line_;
  std::array<std::vector<Line>, 2> own_;
  std::array<std::atomic<bool>, 2> held_{};
  std::size_t into_ = 0;
  std::atomic<bascule::Version> received_ = 0;
};

// ---- behind: CopiesBehind ----

class BehindReceiver final : public PullReceiver, public bascule::CopiesBehind {
 public:
  bascule::CopiesBehind* copies_behind() override { return this; }
  void copy_behind(const bascule::Publication&, std::uint64_t) override {}  // prepare() copies it all
  absl::Status settle(bascule::Deadline) override { return absl::OkStatus(); }
};

// ---- kept: KeptSlots and KeptVersions ----

class KeptSender final : public PullSender, public bascule::KeptSlots {
 public:
  bascule::KeptSlots* kept_slots() override { return this; }
  bascule::Version last_version() const override { return 0; }
  absl::Status begin(bascule::SlotId, const std::atomic<std::uint64_t>&, bascule::Deadline) override {
    return absl::OkStatus();
  }
  absl::Status seal(const bascule::Publication&) override { return absl::OkStatus(); }
  absl::Status publish(const bascule::Publication&) override { return absl::OkStatus(); }
  std::vector<std::string> take_warnings() override { return {}; }
  bool persists() const override { return false; }
  absl::Status persist(const bascule::Publication&, bascule::Deadline) override { return absl::OkStatus(); }
};

class KeptReceiver final : public PullReceiver, public bascule::KeptVersions {
 public:
  bascule::KeptVersions* kept_versions() override { return this; }
  absl::StatusOr<std::vector<bascule::FoundVersion>> find_versions(bascule::Version) override {
    return std::vector<bascule::FoundVersion>();
  }
  absl::StatusOr<bascule::Digest> digest_of(bascule::FoundVersion&, bascule::kernels::ThreadPool&,
                                            const std::stop_token&) override {
    return absl::UnimplementedError("kept: nothing is found");
  }
  absl::Status bring_in(const bascule::FoundVersion&, const std::stop_token&) override { return absl::OkStatus(); }
};

// ----

template <typename Sender, typename Receiver>
bascule::Scheme scheme_of(std::string name) {
  bascule::Scheme made;
  made.name = std::move(name);
  made.make_sender = [](const bascule::Endpoint&, bascule::Epoch) { return std::make_unique<Sender>(); };
  made.make_receiver = [](const bascule::Endpoint&) { return std::make_unique<Receiver>(); };
  return made;
}

// The user's scheme that `endpoint` names; null for one of Bascule's.
inline const bascule::Scheme* own_scheme(const std::string& endpoint) {
  static const std::array<bascule::Scheme, 4> schemes = {
      scheme_of<PullSender, PullReceiver>("pull"), scheme_of<PushSender, PushReceiver>("push"),
      scheme_of<PullSender, BehindReceiver>("behind"), scheme_of<KeptSender, KeptReceiver>("kept")};
  for (const bascule::Scheme& scheme : schemes)
    if (endpoint.starts_with(scheme.name + ":")) return &scheme;
  return nullptr;
}

}  // namespace consumer
