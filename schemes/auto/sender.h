// The sender's end of auto: the sender of the slots' scheme, mirrors of those slots for workers that read on the host,
// and another scheme's sender for workers on other hosts. Workers on other hosts come over TCP; the first message of a
// worker on this host tells where it reads. Runs on the I/O thread, except for the calls that transport/scheme.h puts
// on another thread.
//
//   deliver(order) ──┬── on GPUs ────────▶ the delivery of the slots' scheme ──┐
//                    ├── on the host ────▶ the slot's mirror is filled ────────┼──▶ done, once all parts are
//                    ├── on other hosts ─▶ the delivery of their scheme ───────┤
//                    └── not known yet ──▶ a separate part, after their first message ────────┘
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <bascule/schemes/auto/mirrors.h>
#include <bascule/transport/delivery.h>
#include <bascule/transport/scheme.h>

namespace bascule::inline v0 {

// The names of workers' paths, for people to read; the slots' scheme adds others.
inline constexpr std::string_view kByMirror = "mirror", kByNccl = "nccl";

inline constexpr char kWantsMirrors[] = "mirror";     // a worker's first message, if it reads on the host
inline constexpr char kShowsMirror[] = "mirror of ";  // the answer: this, the slot's number, and a descriptor

class AutoSender final : public SenderTransport, public Delivery {
 public:
  // Both senders must have a delivery(). `others` sends the slots of `slots` to workers on other hosts; it is null if
  // workers on other hosts are not served.
  AutoSender(std::unique_ptr<SenderTransport> slots, std::unique_ptr<SenderTransport> others,
             Mirrors::OpenQueue open_queue)
      : slots_(std::move(slots)), others_(std::move(others)), mirrors_(std::move(open_queue)) {}

  absl::StatusOr<SlotMemory> make_slot(SlotId slot, const Layout& layout, int device) override {
    return slots_->make_slot(slot, layout, device);
  }
  absl::Status seal_slot(SlotMemory& memory) override { return slots_->seal_slot(memory); }
  void unmake_slot(SlotId slot) override;
  absl::StatusOr<Offer> offer(WorkerId worker, ConnectionKind kind, std::span<const OfferedSlot> slots) override;
  void remove(WorkerId worker) override;
  Delivery* delivery() override { return this; }
  std::string path(WorkerId worker) const override;

  void open(WorkerLine& line) override;
  bool starts_while_written() const override { return true; }
  void deliver(DeliveryOrder order, Done done) override;
  void stop(std::uint64_t number) override;
  void heard(WorkerId worker, std::string bytes, std::vector<UniqueFd> descriptors) override;
  void close() override;

 private:
  enum class Reads { kUnknown, kOnDevice, kOnHost, kElsewhere };
  // A delivery, in parts that end separately: one for workers on devices, one for each of them whose first message was
  // late, one for other hosts, and the filling of the mirror, which has the number kMirror.
  struct Under {
    DeliveryOrder order;
    Done done;
    std::set<WorkerId> unknown;                // workers without a message yet
    std::map<std::uint64_t, Delivery*> parts;  // parts under way, except the mirror
    std::shared_ptr<std::atomic<bool>> over = std::make_shared<std::atomic<bool>>(false);
    bool filled = false;  // the mirror is filled, or being filled
    absl::Status status;
  };
  static constexpr std::uint64_t kMirror = 0;

  void show_all_to(WorkerId worker);
  void show(WorkerId worker, SlotId slot, const Mirrored& what);
  std::vector<std::uint64_t> waiting_for(WorkerId worker);
  void begin_part(std::uint64_t number, Delivery& by, std::vector<WorkerId> workers);
  void fill(std::uint64_t number);
  void end_part(std::uint64_t number, std::uint64_t part, const absl::Status& status);
  void end_where_done(std::uint64_t number);
  void lose_others(const absl::Status& why);

  SenderTransport& transport_of(Reads reads) { return reads == Reads::kElsewhere ? *others_ : *slots_; }

  const std::unique_ptr<SenderTransport> slots_, others_;
  std::atomic<WorkerLine*> line_ = nullptr;  // null once closed. For any thread; the rest is the I/O thread's
  absl::Status others_end_;                  // why the others' scheme stopped delivering
  std::map<WorkerId, Reads> workers_;
  std::map<SlotId, Mirrored> offered_;
  std::map<std::uint64_t, Under> under_way_;
  std::uint64_t last_part_ = 0;

  Mirrors mirrors_;  // declared last, so that its thread ends first
};

}  // namespace bascule::inline v0
