// A place whose communicators get stuck in device calls, on the fake of NCCL.
#pragma once

#include <atomic>
#include <memory>
#include <string_view>
#include <thread>
#include <utility>

#include "support/schemes/host_place.h"
#include "support/timing.h"
#include <bascule/schemes/nccl/place.h>
#include <bascule/transport/deadline.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0::nccl {

// A place whose marks cannot be queried before an abort has returned, like a GPU whose driver waits, under a lock, for
// a kernel that only an abort ends.
class StuckPlace final : public Place {
 public:
  int device() const override { return host_.device(); }
  absl::StatusOr<SlotMemory> make_slot(std::uint64_t bytes) override { return host_.make_slot(bytes); }
  absl::StatusOr<std::shared_ptr<std::byte>> allocate(std::uint64_t bytes, std::string_view what) override {
    return host_.allocate(bytes, what);
  }
  absl::StatusOr<std::unique_ptr<Digester>> open_digester() override { return host_.open_digester(); }
  absl::StatusOr<std::unique_ptr<Lane>> open_lane(bool sends) override {
    BASCULE_ASSIGN(std::unique_ptr<Lane> lane, host_.open_lane(sends));
    return std::make_unique<StuckLane>(std::move(lane), stuck_);
  }
  bool is_stuck() const { return *stuck_; }

 private:
  class StuckMark final : public DeviceMark {
   public:
    StuckMark(std::unique_ptr<DeviceMark> mark, std::shared_ptr<std::atomic<bool>> stuck)
        : mark_(std::move(mark)), stuck_(std::move(stuck)) {}
    int device() const override { return mark_->device(); }
    absl::Status record(Stream stream) override { return mark_->record(stream); }
    absl::Status wait(Deadline deadline) const override {
      *stuck_ = true;
      for (const Deadline end(test::patience()); test::FakeNccl::instance().aborts() == 0 && !end.passed();)
        std::this_thread::yield();
      return mark_->wait(deadline);
    }

   private:
    const std::unique_ptr<DeviceMark> mark_;
    const std::shared_ptr<std::atomic<bool>> stuck_;
  };
  class StuckLane final : public Lane {
   public:
    StuckLane(std::unique_ptr<Lane> lane, std::shared_ptr<std::atomic<bool>> stuck)
        : lane_(std::move(lane)), stuck_(std::move(stuck)) {}
    Stream stream() const override { return lane_->stream(); }
    absl::StatusOr<std::unique_ptr<DeviceMark>> mark() override {
      BASCULE_ASSIGN(std::unique_ptr<DeviceMark> mark, lane_->mark());
      return std::make_unique<StuckMark>(std::move(mark), stuck_);
    }

   private:
    const std::unique_ptr<Lane> lane_;
    const std::shared_ptr<std::atomic<bool>> stuck_;
  };

  test::HostPlace host_;
  const std::shared_ptr<std::atomic<bool>> stuck_ = std::make_shared<std::atomic<bool>>(false);
};

}  // namespace bascule::inline v0::nccl
